"""Controllers that set what senders send by: windows and rates of all of them at one tick."""

import numpy as np
import pytest

import loomnet as ln
from loomnet.base.errors import PluginError

FABRIC = {"left": 2, "right": 2, "rate": "1 Gb/s", "bottleneck": "100 Mb/s", "delay": "5 ms"}
HELD = {"cc": "held"}


def rule(rows):
    """A window for each row: up by a packet, down by a tenth above 5 ms of queue."""
    queue_ps = rows["srtt_ps"] - rows["min_rtt_ps"]
    return np.where(queue_ps > 5e9, 0.9 * rows["cwnd"], rows["cwnd"] + 1460)


@ln.plugin.controller("by_rows")
class ByRows:
    def __init__(self, log=None):
        self.log = [] if log is None else log

    def advance(self, now, view):
        rows = view.senders()
        self.log.append((now, rows))
        return [ln.change.senders(slice(None), cwnd=rule(rows))]


def test_a_controller_moves_flows_as_a_world_that_is_stepped_does(tmp_path):
    job = ln.Flows(
        ["2 MB", "1 MB"], pairs=[(0, 2), (1, 3)], transport="tcp", starts=["0 s", "150 ms"]
    )
    log = []
    r = ln.run(
        ln.dumbbell(**FABRIC),
        job,
        seed=3,
        directory=tmp_path,
        tcp=HELD,
        controllers=[ln.controller("by_rows", every="20 ms", log=log)],
    )
    world = ln.World(ln.dumbbell(**FABRIC), job, seed=3, tcp=HELD)
    rows, seen = world.reset(), []
    while not world.done:
        seen.append((world.now.count, rows))
        world.act(slice(None), cwnd=rule(rows))
        rows = world.step(world.now + ln.Time("20 ms"))
    assert np.array_equal(world.flows[0].columns, r.data.flows.columns)
    assert len(seen) == len(log) > 10
    for (at, rows), (now, looked) in zip(seen, log, strict=True):
        assert at == now and rows.dtype == looked.dtype
        assert all(
            np.array_equal(rows[name], looked[name], equal_nan=True) for name in rows.dtype.names
        )
    # The placebo: a controller that looks and sets nothing leaves the windows where they began.
    ln.plugin.controller("only_looks_at_rows")(
        type(
            "OnlyLooks", (), {"advance": lambda self, now, view: log.append((now, view.senders()))}
        )
    )
    idle = ln.run(
        ln.dumbbell(**FABRIC),
        job,
        seed=3,
        directory=tmp_path,
        tcp=HELD,
        controllers=[ln.controller("only_looks_at_rows", every="20 ms")],
    )
    plain = ln.run(ln.dumbbell(**FABRIC), job, seed=3, directory=tmp_path, tcp=HELD)
    assert np.array_equal(idle.data.flows.columns, plain.data.flows.columns)
    assert not np.array_equal(idle.data.flows.columns, r.data.flows.columns)


@pytest.mark.parametrize("transport", ["mrc", "roce"])
def test_it_sets_the_senders_of_collectives(tmp_path, transport):
    """Each queue pair that has sent something is a row; a tenth of the rate takes ten times."""
    fabric = ln.clos.two_tier(
        planes=2, leaves=2, spines=2, hosts_per_leaf=2, rate="10 Gb/s", delay="1 us"
    )
    seen = []

    @ln.plugin.controller(f"paces_{transport}")
    class Paces:
        def advance(self, now, view):
            rows = view.senders()
            seen.append(rows)
            return [ln.change.senders(slice(None), pacing=5e8)] if len(rows) else None

    job = ln.AllReduce("400 kB", 4, transport)
    given = {transport: HELD, "seed": 1, "directory": tmp_path}
    free = ln.run(fabric, job, **given)
    held = ln.run(
        fabric, job, controllers=[ln.controller(f"paces_{transport}", every="10 us")], **given
    )
    rows = np.concatenate([each[["flow", "source", "destination"]] for each in seen])
    assert set(rows["flow"]) == {-1}
    # A ring of four ranks, in their order; credits for slots go the other way.
    pairs = set(zip(rows["source"].tolist(), rows["destination"].tolist(), strict=True))
    ring = {(0, 1), (1, 2), (2, 3), (3, 0)}
    assert ring <= pairs <= ring | {(b, a) for a, b in ring}
    assert held["errors"] == 0 and 5 < held.data.completion_ps / free.data.completion_ps < 30


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (
            lambda view: ln.change.senders([0], cwnd=1e5),
            r"change.senders: rows: nobody has looked: call view.senders\(\) first \(.*py:\d+\)",
        ),
        (
            lambda view: len(view.senders()) and ln.change.senders([7], cwnd=1e5),
            r"change.senders: rows: the last look had [12] rows: index 7 is out of "
            r"bounds .*py:\d+\)",
        ),
        (
            lambda view: len(view.senders()) and ln.change.senders([0], cwnd="much"),
            r'change.senders: cwnd: "much" is not a size: write a number and a unit.*py:\d+\)',
        ),
        (
            lambda view: len(view.senders()) and ln.change.senders([0], cwnd=True),
            r"change.senders: cwnd: True is not a number or a size, nor one for each of 1 "
            r"rows \(.*py:\d+\)",
        ),
        (
            lambda view: len(view.senders()) and ln.change.senders([0], cwnd=-5.0),
            r"change.senders: cwnd: -5 is not a window of 0 to 9e15 bytes; NaN leaves it as it is",
        ),
    ],
)
def test_what_cannot_be_is_one_line(tmp_path, answer, line):
    ln.plugin.controller("wrong")(
        type("Wrong", (), {"advance": lambda self, now, view: answer(view) or None})
    )
    job = ln.Flows("1 MB", pairs=[(0, 2), (1, 3)], transport="tcp")
    with pytest.raises(PluginError, match=line) as caught:
        ln.run(
            ln.dumbbell(**FABRIC),
            job,
            directory=tmp_path,
            controllers=[ln.controller("wrong", every="20 ms")],
        )
    assert "\n" not in str(caught.value)
