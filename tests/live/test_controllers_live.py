"""Controllers in Python on the live clock: called between looks, changing real links and switches;
a broken one ends the run and leaves nothing."""

import itertools
import time
from typing import ClassVar

import pytest

import loomnet as ln
from loomnet.labs.lab import Lab

SCENARIO = """
import loomnet as ln

@ln.plugin.controller("breaks")
class Breaks:
    def advance(self, now, view):
        if view.jobs["job"].iterations:
            raise RuntimeError("no more")

@ln.scenario
def broken(lab: ln.Lab):
    fabric = ln.clos.two_tier(planes=1, leaves=2, spines=1, hosts_per_leaf=1, rate="40 Mb/s",
                              delay="0.5 ms")
    lab.run(fabric, ln.AllReduce("100 kB", 50, "mrc"),
            controllers=[ln.controller("breaks", every="20 ms")])
"""


class Cutter:
    """Takes a switch's program and links for the time between two iterations, and looks."""

    subscribes = ("iteration",)
    calls: ClassVar[list] = []

    def __init__(self):
        Cutter.calls = []

    def advance(self, now, view):
        link = view.link("p0.leaf0->p0.spine0")
        self.calls.append(
            (
                now,
                link.up,
                link.counters["packets"],
                link.queued_bytes,
                view.jobs["job"].payload_bytes,
                view.switch("p0.spine0").counters.get("received", 0),
            )
        )

    def on_event(self, now, event):
        if event.value.number == 2:
            return [ln.change.switch("p0.spine0", up=False), ln.change.routes(avoid="p0.spine0")]
        if event.value.number == 4:
            return [ln.change.switch("p0.spine0", up=True), ln.change.routes()]
        return None


def fabric(pattern=None):
    made = ln.clos.two_tier(
        planes=1, leaves=2, spines=2, hosts_per_leaf=1, rate="40 Mb/s", delay="0.5 ms"
    ).program("p0.spine0", "sum")
    return made.place(pattern, "engine") if pattern else made


@pytest.mark.parametrize("pattern", [None, "p*"])
def test_a_controller_changes_a_live_network(uses_machine, tmp_path, pattern):
    ln.plugin.controller("cutter")(Cutter)
    lab = Lab("control", clock="live", directory=tmp_path / "run")
    r = lab.run(
        fabric(pattern),
        ln.AllReduce("200 kB", 8, "mrc"),
        payload=True,
        controllers=[ln.controller("cutter", every="20 ms")],
    )
    assert r["errors"] == 0, r.data.errors
    assert r.data.fidelity.unexplained == 0 and len(r.data.iterations) == 8
    assert r.data.fidelity.notes["controllers"] == "cutter every 20 ms"
    times = [call[0] for call in Cutter.calls]
    assert len(times) >= 5
    assert all(later - sooner >= 5 * 10**9 for sooner, later in itertools.pairwise(times))
    assert {call[1] for call in Cutter.calls} == {True, False}
    for column in (2, 4, 5):
        values = [call[column] for call in Cutter.calls]
        assert values == sorted(values) and values[-1] > 0


def test_a_controller_sets_live_senders(uses_machine, tmp_path):
    """At a twentieth of the links' rate a job takes several times as long."""
    ln.plugin.controller("paces")(
        type(
            "Paces",
            (),
            {
                "advance": lambda self, now, view: (
                    view.senders() is None or [ln.change.senders(slice(None), pacing=2e6)]
                )
            },
        )
    )

    def took(name, *controllers):
        lab = Lab(name, clock="live", directory=tmp_path / name)
        r = lab.run(
            fabric(),
            ln.AllReduce("100 kB", 2, "mrc"),
            payload=True,
            mrc={"cc": "held"},
            controllers=controllers,
        )
        assert r["errors"] == 0 and r.data.wrong == 0, r.data.errors
        return r.data.completion_ps

    assert took("paced", ln.controller("paces", every="20 ms")) > 3 * took("free")


def test_what_the_live_clock_refuses(tmp_path):
    ln.plugin.controller("cutter")(Cutter)
    lab = Lab("control", clock="live", directory=tmp_path / "run")
    with pytest.raises(
        ln.UsageError,
        match=r'"cutter": every=1 ms: live, a controller is called '
        r"every 5 ms or slower",
    ):
        lab.run(
            fabric(), ln.AllReduce("200 kB"), controllers=[ln.controller("cutter", every="1 ms")]
        )
    assert not (tmp_path / "run").exists()


def test_a_broken_controller_ends_a_live_run_in_one_line(loomnet, tmp_path):
    (tmp_path / "broken.py").write_text(SCENARIO)
    run = loomnet.start("run", "broken.py", "--clock", "live")
    assert run.wait() == 2, run.output
    assert (
        'loomnet: controller "breaks": advance raised RuntimeError: no more (broken.py:8)'
        in run.output
    )
    assert "Traceback" not in run.output
    assert not (tmp_path / "runs").exists()


ENDLESS = """
import time
import loomnet as ln

@ln.plugin.controller("endless")
class Endless:
    def advance(self, now, view):
        print("called", flush=True)
        while True:
            WORK

@ln.scenario
def endless(lab: ln.Lab):
    fabric = ln.clos.two_tier(planes=1, leaves=2, spines=1, hosts_per_leaf=1, rate="40 Mb/s",
                              delay="0.5 ms").place("p0.spine0", "engine")
    lab.run(fabric, ln.AllReduce("100 kB", 5000, "mrc"),
            controllers=[ln.controller("endless", every="20 ms")])
"""
# The last one pauses the engine nearly all the time: it must go on before the run can end.
WORK = {
    "computes": "pass",
    "sleeps": "time.sleep(60)",
    "catches": "\n            try:\n                time.sleep(60)\n"
    "            except Exception:\n                pass",
    "looks": 'view.switch("p0.spine0").snapshot()',
}


def endless(loomnet, tmp_path, work, *options):
    (tmp_path / "endless.py").write_text(ENDLESS.replace("WORK", WORK[work]))
    return loomnet.start("run", "endless.py", "--clock", "live", *options)


@pytest.mark.parametrize("work", WORK)
def test_one_that_never_comes_back_ends_with_the_wall_time(loomnet, tmp_path, work):
    run = endless(loomnet, tmp_path, work, "--max-wall", "4s")
    assert run.wait(20) == 2, run.output
    assert (
        'loomnet: controller "endless": advance had not come back when --max-wall 4 s is over'
        in run.output
    )
    assert "Traceback" not in run.output and not (tmp_path / "runs").exists()


@pytest.mark.parametrize("work", WORK)
def test_one_that_never_comes_back_ends_with_one_interrupt(loomnet, tmp_path, work):
    run = endless(loomnet, tmp_path, work)
    run.until("called")
    time.sleep(0.5)
    run.interrupt()
    began = time.monotonic()
    assert run.wait(20) == 130, run.output
    assert time.monotonic() - began < 3, run.output
    assert "Traceback" not in run.output
    assert loomnet.report()["fidelity"][0]["ended"] == "interrupted"
