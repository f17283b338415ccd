"""Controllers in Python on the virtual clock: when they are called, and what they see and
change."""

import itertools
import time
from typing import ClassVar

import pytest

import loomnet as ln

MS = 10**9


def fabric():
    return ln.clos.two_tier(
        planes=1, leaves=2, spines=2, hosts_per_leaf=2, rate="10 Gb/s", delay="5 us"
    )


def go(directory, controllers, faults=(), job=None, **options):
    job = job or ln.AllReduce("2 MB", 10, "roce", compute="1 ms")
    return ln.run(
        fabric(), job, faults, seed=1, directory=directory, controllers=controllers, **options
    )


class Recorder:
    """Keeps what it is called with."""

    subscribes = ("iteration", "phase", "link", "switch", "end")
    calls: ClassVar[list] = []
    events: ClassVar[list] = []

    def __init__(self, **unused):
        Recorder.calls, Recorder.events = [], []

    def advance(self, now, view):
        assert view.now == now
        self.calls.append((now, view.jobs["job"].iterations))

    def on_event(self, now, event):
        assert event.at <= now
        self.events.append((event.kind, event.where, event.value))


def register(kind):
    """As a notebook's cell does that is run again."""
    ln.plugin.controller(kind.__name__.lower())(kind)
    return kind.__name__.lower()


def test_a_controller_is_called_every_so_often_from_the_first_iteration_on(tmp_path):
    register(Recorder)
    r = go(tmp_path, [ln.controller("recorder", every="0.3 ms")])
    times = [now for now, _ in Recorder.calls]
    assert times == list(range(0, times[-1] + 1, 3 * MS // 10)) and len(times) > 30
    assert times[-1] <= r.data.end_ps <= times[-1] + 3 * MS // 10
    assert Recorder.calls[-1][1] >= 9
    assert [event[2].number for event in Recorder.events if event[0] == "iteration"] == list(
        range(1, 11)
    )


def test_it_changes_no_figure_by_looking(tmp_path):
    register(Recorder)
    fault = [ln.down("p0.leaf0--p0.spine0", at="3 ms", duration="2 ms", phase="gone")]
    with_it, without = (
        go(tmp_path / str(n), each, fault)
        for n, each in enumerate(([ln.controller("recorder", every="0.1 ms")], []))
    )
    assert str(with_it.metrics) == str(without.metrics)
    assert with_it.data.totals == without.data.totals


def test_it_hears_what_faults_and_jobs_do(tmp_path):
    register(Recorder)
    faults = [ln.kill("p0.spine1", at="2 ms", duration="3 ms", phase="dead")]
    jobs = [
        ln.AllReduce("2 MB", 10, "mrc", name="long", ranks=2),
        ln.AllReduce("1 MB", 1, "mrc", name="short", ranks=2),
    ]
    Recorder.advance = lambda self, now, view: self.calls.append(
        {name: (job.iterations, job.payload_bytes, job.ended) for name, job in view.jobs.items()}
    )
    try:
        ln.Lab(directory=tmp_path).run(
            fabric(), jobs, faults, controllers=[ln.controller("recorder", every="1 ms")]
        )
    finally:
        Recorder.advance = lambda self, now, view: None
    heard = [event for event in Recorder.events if event[0] != "iteration"]
    assert [event for event in heard if event[0] == "end"] == [
        ("end", "short", "finished"),
        ("end", "long", "finished"),
    ]
    assert {event[1] for event in Recorder.events if event[0] == "iteration"} == {"long", "short"}
    rest = [event for event in heard if event[0] != "end"]
    assert rest[0] == ("switch", "p0.spine1", "down")
    assert ("link", "p0.leaf0->p0.spine1", "down") in rest
    assert rest.index(("phase", "dead", "begin")) < rest.index(("phase", "dead", "end"))
    assert rest.count(("switch", "p0.spine1", "up")) == 1
    assert Recorder.calls[-1]["short"][2] == "finished" and Recorder.calls[-1]["long"][1] > 10**6


def broken(**methods):
    return type("Broken", (), {"__module__": __name__, "__qualname__": "Broken", **methods})


class Closer:
    """Takes a link away at one time and gives it back at another, by next_time()."""

    def __init__(self, link="p0.leaf0--p0.spine0", at_ms=2, until_ms=6, avoid=True):
        self.link, self.avoid = link, avoid
        self.times = [at_ms * MS, until_ms * MS]
        self.seen = []

    def next_time(self):
        return self.times[0] if self.times else None

    def advance(self, now, view):
        assert now == self.times.pop(0)
        down = bool(self.times)
        ways = [ln.change.routes(avoid=[self.link] if down else [])] if self.avoid else []
        return [ln.change.link(self.link, up=not down), *ways]


def test_what_it_takes_down_is_as_what_a_fault_takes_down(tmp_path):
    """Without rerouting: the same link, the same times, the same bytes."""
    register(Closer)
    fault = ln.down("p0.leaf0--p0.spine0", at="2 ms", duration="4 ms")
    by_fault = go(tmp_path / "a", [], [fault], reroute_delay="off")
    by_it = go(tmp_path / "b", [ln.controller("closer", avoid=False)], reroute_delay="off")
    assert str(by_it.metrics) == str(by_fault.metrics)
    lost = {
        name: row.get("drop_down", row.get("drop_link_down", 0))
        for name, row in by_it.data.totals.items()
    }
    assert by_it.data.totals == by_fault.data.totals and lost


def test_routes_lead_around_what_it_says(tmp_path):
    register(Closer)
    r = go(tmp_path, [ln.controller("closer", link="p0.leaf*--p0.spine0", at_ms=0, until_ms=10**6)])
    assert r["errors"] == 0
    counted = r.data.totals
    assert counted["link p0.leaf0->p0.spine1"]["packets"] > 1000
    assert counted.get("link p0.leaf0->p0.spine0", {}).get("packets", 0) == 0


class Slower:
    """Halves the rate of a link, and looks at it."""

    def __init__(self, link):
        self.link = link
        Slower.seen = []

    def advance(self, now, view):
        link = view.link(self.link)
        self.seen.append((link.up, link.rate_bps, link.counters["packets"], link.queued_bytes))
        assert self.link in view.links
        return ln.change.link(self.link, rate="5 Gb/s")


def test_faults_and_controllers_add_up(tmp_path):
    register(Slower)
    faults = [ln.degrade("p0.leaf1->h1", 0.5, at="2 ms", duration="4 ms")]
    r = go(tmp_path, [ln.controller("slower", link="p0.leaf1->h1", every="1 ms")], faults)
    assert r["errors"] == 0
    rates = [rate for _, rate, *_ in Slower.seen]
    assert [rate for rate, _ in itertools.groupby(rates)] == [
        10 * 10**9,
        5 * 10**9,
        2_500_000_000,
        5 * 10**9,
    ]
    assert Slower.seen[-1][2] > Slower.seen[0][2] == 0


class OnOff:
    """Takes a switch down when the job's second iteration ends, and gives it back at the fifth."""

    subscribes = ("iteration",)

    def on_event(self, now, event):
        match event.value.number:
            case 2:
                yield ln.change.switch("p0.spine1", up=False)
                yield ln.change.routes(avoid=["p0.spine1"])
            case 5:
                yield ln.change.switch("p0.spine1", up=True)
                yield ln.change.routes()


def test_it_takes_switches_and_answers_events(tmp_path):
    register(OnOff)
    job = ln.AllReduce("2 MB", 10, "mrc", compute="1 ms")
    r = go(tmp_path, ln.controller("onoff"), job=job)
    assert r["errors"] == 0 and len(r.data.iterations) == 10
    sent = [r.data.totals[f"link p0.leaf0->p0.spine{spine}"]["packets"] for spine in (0, 1)]
    assert 0.2 < sent[1] / sent[0] < 0.9, "by one spine in three iterations, by both in the others"


def test_the_report_names_what_ran(tmp_path):
    register(Closer)
    r = go(tmp_path, [ln.controller("closer", at_ms=1)])
    assert r.data.fidelity.notes["controllers"] == "closer at_ms=1"


# --- what breaks the contract ---------------------------------------------------------------------


@pytest.mark.parametrize("method", ["advance", "on_event", "next_time"])
def test_one_that_never_comes_back_ends_with_the_wall_time(tmp_path, method):
    def forever(*_):
        while True:
            pass

    made = broken(
        **{
            "advance": lambda self, now, view: None,
            "subscribes": ("iteration",),
            "on_event": lambda self, now, event: None,
            method: forever,
        }
    )
    ln.plugin.controller("endless")(made)

    @ln.scenario
    def waits(lab: ln.Lab):
        lab.run(
            fabric(), ln.AllReduce("2 MB", 10), controllers=[ln.controller("endless", every="1 ms")]
        )

    began = time.monotonic()
    with pytest.raises(ln.UsageError, match=f"{method} had not come back when --max-wall 1 s is"):
        waits.run(directory=tmp_path / "runs", max_wall_s=1)
    assert time.monotonic() - began < 10


def test_a_cell_that_runs_again_registers_again(tmp_path):
    for delay in (1, 2):

        class Again:
            at = delay * MS

            def advance(self, now, view):
                return None

        ln.plugin.controller("again")(Again)
    assert go(tmp_path, [ln.controller("again", every="1 ms")])["errors"] == 0


def test_what_a_controller_says_again_and_again_is_done_once(tmp_path):
    class Same:
        def advance(self, now, view):
            return [ln.change.routes(avoid=["p0.spine0"]), ln.change.switch("p0.spine0", up=False)]

    ln.plugin.controller("same")(Same)
    job = ln.AllReduce("200 kB", 4, "mrc", compute="1 ms")
    often, seldom = (
        go(tmp_path / every, [ln.controller("same", every=f"{every} ms")], job=job)
        for every in ("0.1", "100")
    )
    assert often["errors"] == 0
    assert often.data.totals == seldom.data.totals and str(often.metrics) == str(seldom.metrics)


SCENARIO = """
import loomnet as ln

@ln.plugin.controller("cuts")
class Cuts:
    def __init__(self, at=10**9):
        self.at = at

    def advance(self, now, view):
        return ln.change.link("h0--p0.leaf0", rate=0.5 if now >= self.at else 1.0)

@ln.plugin.congestion("steady")
class Steady(ln.plugin.Congestion):
    pass

@ln.scenario
def cut(lab: ln.Lab):
    fabric = ln.clos.two_tier(planes=1, leaves=2, spines=1, hosts_per_leaf=2, rate="10 Gb/s",
                              delay="5 us")
    r = lab.run(fabric, ln.AllReduce("2 MB", 6, "tcp"), tcp={"cc": "steady"},
                controllers=[ln.controller("cuts", every="0.5 ms")])
    lab.metric("last_s", r.data.iterations[-1].length_ps / 1e12, unit="s")
"""


def test_a_scenario_with_plug_ins_runs_twice_and_replays(tmp_path, monkeypatch, capsys):
    from loomnet.cli import main

    monkeypatch.chdir(tmp_path)
    (tmp_path / "cut.py").write_text(SCENARIO)
    for name in "ab":
        assert main(["run", "cut.py", "--seed", "3", "--json", f"{name}.json"]) == 0
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    [first, _] = sorted((tmp_path / "runs").iterdir())
    assert main(["replay", str(first)]) == 0, capsys.readouterr()


def test_a_view_shows_the_circuits_of_a_panel(tmp_path):
    class Turns:
        seen: ClassVar[list] = []

        def advance(self, now, view):
            self.seen.append(view.circuits("ocs0"))
            turned = [("h0", "h2"), ("h1", "h3")] if len(self.seen) % 2 else [("h0", "h1")]
            return ln.change.circuits("ocs0", turned)

    ln.plugin.controller("turns")(Turns)
    made = fabric()
    made.add_panel("ocs0")
    for host in range(4):
        made.add_link(f"h{host}", "ocs0", rate="10 Gb/s", delay="1 us")
    made.panel("ocs0").circuits([("h0", "h1")])
    job = ln.AllReduce("1 MB", 5, "mrc", compute="1 ms")
    r = ln.run(
        made, job, seed=1, directory=tmp_path, controllers=[ln.controller("turns", every="1 ms")]
    )
    assert r["errors"] == 0
    seen = [sorted(tuple(sorted(pair)) for pair in each) for each in Turns.seen]
    assert seen[:3] == [[("h0", "h1")], [("h0", "h2"), ("h1", "h3")], [("h0", "h1")]]


@pytest.mark.parametrize(
    ("name", "line"),
    [("ocs1", 'no panel "ocs1"; nearest: ocs0'), ("ocs0", "no panel 'ocs0': the fabric has none")],
)
def test_a_panel_that_is_not_there_is_named(tmp_path, name, line):
    class Looks:
        def advance(self, now, view):
            view.circuits(name)

    ln.plugin.controller("looks")(Looks)
    made = fabric()
    if name == "ocs1":
        made.add_panel("ocs0")
        made.add_link("h0", "ocs0", rate="10 Gb/s", delay="1 us")
    with pytest.raises(ln.UsageError) as refused:
        ln.run(
            made,
            ln.AllReduce("1 MB", 1, "mrc"),
            directory=tmp_path / "run",
            controllers=[ln.controller("looks", every="1 ms")],
        )
    assert f'controller "looks": advance raised {line} (test_controllers.py:' in str(refused.value)
