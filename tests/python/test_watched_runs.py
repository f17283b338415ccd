"""Neither a watcher of a run nor a job that plays long after it changes a figure of it: the engine
decides at its own time what follows in a run, not Python when it next looks. Every kind of job
without PyTorch is tried.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from scenario_lib import lib

import loomnet as ln

mfabric = lib("mfabric")

TRANSPORTS = ("mrc", "roce", "tcp")
ROUNDS = ("Permutation", "Incast")
FLOWS = (*ROUNDS, "Flows", "Trace", "Matrix")
OTHERS = ("AllReduce", "AllToAll", "ModelJob", "AllReduce/ina", "ModelJob/ina", "MoeJob")
LOOKS = 13  # of a watcher in the time of a run


def _seed() -> str:
    """What worlds are drawn from: of the environment, else the commit at hand."""
    if given := os.environ.get("LOOMNET_WORLDS_SEED"):
        return given
    head = subprocess.run(
        ["git", "rev-parse", "--short=8", "HEAD"],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent,
        check=False,
    )
    return head.stdout.strip() or "fixed"


SEED = _seed()


@ln.plugin.controller("only_looks")
class OnlyLooks(ln.plugin.Controller):
    """Reads what it can see, hears of every event, and changes nothing."""

    subscribes = ln.plugin.EVENTS

    def advance(self, now: int, view: ln.plugin.View) -> None:
        for name in view.links[:2]:
            assert view.link(name).queued_bytes >= 0 and view.link(name).counters is not None
        assert all(job.iterations >= 0 for job in view.jobs.values())

    def on_event(self, now: int, event: ln.plugin.Event) -> None:
        assert event.kind in ln.plugin.EVENTS


class World:
    """One job on four hosts of a star of seven, drawn from the seed; a mixture of experts has a
    fabric of its own."""

    def __init__(self, kind: str, transport: str, folder: Path) -> None:
        self.draw = random.Random(f"{SEED} {kind} {transport}")
        self.kind, self.transport, self.folder = kind, transport, folder
        draw = self.draw
        self.rate, self.delay = draw.choice((10, 25, 100)), draw.choice((200, 1000, 5000, 50_000))
        self.sizes = [draw.randrange(4, 30_000) * 4 for _ in range(4)]
        self.repeat = draw.randint(2, 6)
        self.compute = draw.choice(("0 s", "0 s", f"{draw.randrange(1, 90_000)} ns"))
        self.starts = [draw.randrange(1, 40_000) for _ in range(6)]
        self.seed = draw.randrange(1000)
        self.options = draw.choice(({}, {}, {"jitter": "0 s"}, {"jitter": "3 us"}))
        # Lasts for a round, where an undisturbed one comes before it.
        self.stepped = kind in ROUNDS and draw.random() < 0.5

    def fabric(self) -> ln.Fabric:
        fabric = ln.star(hosts=7, rate=f"{self.rate} Gb/s", delay=f"{self.delay} ns")
        if self.kind.endswith("/ina"):
            leaf = next(iter(fabric.switches))
            fabric.add_link(
                fabric.add_host("ps", role="server"),
                leaf,
                rate=f"{self.rate} Gb/s",
                delay=f"{self.delay} ns",
            )
            fabric.program("*", "aggregate", policy="esa")
        return fabric

    def job(self, **values) -> ln.Job:
        draw, size = random.Random(f"{self.seed}"), f"{self.sizes[0]} B"
        values |= {"transport": self.transport, "hosts": ["h0", "h1", "h2", "h3"]}
        kind, _, sums = self.kind.partition("/")
        if sums:
            values["allreduce"] = "ina"
        if kind == "ModelJob":
            return ln.ModelJob(
                size=size, compute="20 us", buckets=2, iterations=self.repeat, **values
            )
        if kind == "Flows":
            return ln.Flows(
                [f"{each} B" for each in self.sizes],
                count=9,
                gap=f"{draw.randrange(10, 9000)} ns",
                **values,
            )
        if kind == "Trace":
            path = self.folder / "flows.jsonl"
            path.write_text(
                "".join(
                    json.dumps(
                        {
                            "at": f"{at} ns",
                            "source": i % 4,
                            "destination": (i + 1 + i % 3) % 4,
                            "size": f"{self.sizes[i % 4]} B",
                        }
                    )
                    + "\n"
                    for i, at in enumerate(self.starts)
                )
            )
            return ln.Trace(path, **values)
        if kind == "Matrix":
            path = self.folder / "flows.cm"
            path.write_text(
                "Nodes 4\nConnections 3\nTriggers 1\n"
                f"0->1 id 1 start {self.starts[0]} size {self.sizes[0]} send_done_trigger 1\n"
                f"1->2 id 2 trigger 1 size {self.sizes[1]}\n"
                f"3->2 id 3 start {self.starts[1]} size {self.sizes[2]}\ntrigger id 1 oneshot\n"
            )
            return ln.Flows.from_htsim(path, **values)
        return getattr(ln, kind)(size, self.repeat, compute=self.compute, **values)

    def run(self, job: ln.Job | None = None, *others: ln.Job, **options) -> ln.Result:
        lab = ln.Lab(
            "watched", seed=self.seed, directory=self.folder / f"run{len(os.listdir(self.folder))}"
        )
        if self.kind == "MoeJob":
            fabric, own = mfabric.compared(
                "mixnet",
                servers=8,
                rate="100 Gb/s",
                control={},
                preset=None,
                profile="infocus128",
                alpha=6,
                fabric={"nvlink": "900 GB/s"},
                data=1,
                pipeline=1,
                layers=2,
                micro_batches=1,
                iterations=2,
                exchange="64 KiB",
                compute="1 ms",
            )
            return lab.run(fabric, own, **options)
        jobs = [job or self.job(), *others]
        faults = [ln.degrade("h1--*", 0.5, at=ln.step(1), duration=ln.iterations(1), phase="slow")]
        return lab.run(
            self.fabric(),
            jobs[0] if len(jobs) == 1 else jobs,
            faults if self.stepped else [],
            **self.options,
            **options,
        )


def facts(result: ln.Result, name: str | None = None) -> dict:
    """All that a run says of its job; names of figures without the job's."""
    part = result if name is None else result.job(name)
    data = part.data
    found = {
        "ended": (data.ended, data.reason, data.end_ps, data.completion_ps),
        "errors": data.errors,
        "iterations": data.iterations,
        "flows": data.flows,
        "windows": [
            (each.phase, each.start_ps, each.end_ps)
            for each in data.windows
            if each.start_ps <= data.end_ps
        ],
        "counters": {key: steps[-1] for key, steps in data.counters.items()},
    }
    for host, series in data.hosts.items():
        spans = [
            [tuple(map(int, each)) for each in rows]
            for rows in (series.work, series.busy, series.silences)
        ]
        found[f"host {host}"] = (sorted(spans[0]), *spans[1:], list(map(int, series.payload)))
    for row in part.rows:
        figure = row.within_job
        if figure.split(".")[-1] not in ("jct_s", "expected_capacity", "recovery_s"):
            found[f"figure {figure}"] = None if row.value != row.value else row.value
    return found


def differences(one: dict, other: dict) -> list[str]:
    return [
        f"{key}: {one.get(key)} <> {other.get(key)}"
        for key in (one | other)
        if one.get(key) != other.get(key)
    ]


def worlds() -> list[tuple[str, str]]:
    draw = random.Random(SEED)
    return [
        *((kind, transport) for kind in FLOWS for transport in TRANSPORTS),
        *((kind, draw.choice(TRANSPORTS[:2] if "/" in kind else TRANSPORTS)) for kind in OTHERS),
    ]


@pytest.mark.parametrize(("kind", "transport"), worlds())
def test_who_watches_changes_nothing(kind, transport, tmp_path):
    world = World(kind, transport, tmp_path)
    alone = world.run()
    assert alone.data.ended == "finished", (SEED, alone.data.reason)
    every = f"{max(alone.data.end_ps // LOOKS, 1000)} ps"
    watched = {
        "sample": {"sample": every, "observe": ["*"], "links": ["*"]},
        "snapshots": {"snapshots": [every]},
        "controller": {"controllers": [ln.controller("only_looks", every=every)]},
    }
    if kind != "MoeJob":
        watched["trace"] = {"trace": tmp_path / "run.pftrace"}
        watched["capture"] = {"pcap": {"h0:0": tmp_path / "h0.pcapng"}}
    expected = facts(alone)
    for name, options in watched.items():
        found = differences(expected, facts(world.run(**options)))
        assert not found, f"seed {SEED}: {kind} over {transport} with {name}: " + "\n".join(found)


@pytest.mark.parametrize(("kind", "transport"), [each for each in worlds() if each[0] != "MoeJob"])
def test_a_job_that_idles_meanwhile_changes_nothing(kind, transport, tmp_path):
    world = World(kind, transport, tmp_path)
    expected = facts(world.run())
    for later in (
        ln.SendRecv(
            "20 kB",
            transport=transport,
            start="100 s",
            name="later",
            hosts=["h0", "h1", "h2", "h3"],
        ),
        ln.Permutation(
            "20 kB", transport=transport, start="50 s", name="later", hosts=["h5", "h6"]
        ),
    ):
        both = world.run(world.job(name="own"), later)
        shared = {"own"} if later.hosts is None or "h0" in later.hosts else set()
        found = [
            each
            for each in differences(expected, facts(both, "own"))
            # NICs that two jobs share count for both, and links for all jobs of the run.
            if not (
                shared and any(name in each for name in ("retransmitted", "timeouts", "readmitted"))
            )
            and not each.startswith("counters:")
            and ".lost" not in each
        ]
        assert not found, f"seed {SEED}: {kind} over {transport}, {later.describe()}: {found}"
        # A job's completion is from its start to the end of its last operation.
        data = both.job("own").data
        assert both["own.jct_s"] == data.completion_ps / 1e12
        if kind in FLOWS:
            assert data.completion_ps == max(flow.end_ps for flow in data.flows)
        else:
            assert data.iterations[-1].end_ps <= data.completion_ps


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("compute", ["0 s", "5 us", "300 us"])
def test_a_round_begins_when_the_one_before_has_ended(transport, compute, tmp_path):
    """However long links are and whether or not the engine serves hosts apart."""
    job = ln.Permutation("50 kB", 6, transport, hosts=["h0", "h1"], compute=compute)
    fabric = ln.star(hosts=4, rate="100 Gb/s", delay="100 us")
    r = ln.run(fabric, job, seed=4, write=False, jitter="0 s")
    gap = ln.Time(compute).count
    for one, following in zip(r.data.iterations, r.data.iterations[1:], strict=False):
        assert following.start_ps == one.end_ps + gap
    ends = [flow.end_ps for flow in r.data.flows]
    assert len(ends) == 12 and max(ends) == r.data.completion_ps == r.data.end_ps
    jittered = ln.run(fabric, job, seed=4, write=False, jitter="2 us").data.iterations
    for one, following in itertools.pairwise(jittered):
        assert gap <= following.start_ps - one.end_ps < gap + 2 * 10**6


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_fault_at_a_step_begins_with_the_end_of_its_round(transport):
    fabric = ln.star(hosts=4, rate="10 Gb/s", delay="20 us")
    job = ln.Permutation("100 kB", 8, transport)
    slow = ln.degrade("h1--*", 0.25, at=ln.step(3), duration=ln.iterations(2), phase="slow")
    r = ln.run(fabric, job, [slow], seed=2, write=False)
    [window] = r.data.windows
    assert window.start_ps == r.data.iterations[2].end_ps
    # From the end of one round to the end of the next: flows of a round start a little apart.
    ends = [r.data.iterations[0].start_ps, *(each.end_ps for each in r.data.iterations[:3])]
    lengths = sorted(b - a for a, b in itertools.pairwise(ends))
    assert window.end_ps == window.start_ps + 2 * lengths[1]
    # The links have changed by then: the round that follows has them from its begin.
    assert r.data.iterations[3].length_ps > 1.5 * lengths[2]


def test_no_flow_begins_at_a_stop_or_later():
    job = ln.Permutation("20 kB", 1000, stop="300 us")
    fabric = ln.star(hosts=4, rate="10 Gb/s", delay="2 us")
    runs = [
        ln.run(fabric, job, seed=3, write=False, **options) for options in ({}, {"sample": "7 us"})
    ]
    assert facts(runs[0]) == facts(runs[1])
    data = runs[0].data
    assert 3 < len(data.iterations) < 20
    assert all(flow.start_ps < 300 * 10**6 for flow in data.flows)
    assert data.end_ps == max(flow.end_ps for flow in data.flows)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_stall_is_seen_at_the_same_time_whoever_looks(transport):
    """Counted from the last byte that came, which the engine knows."""
    fabric = ln.star(hosts=3, rate="10 Gb/s", delay="2 us")
    dead = ln.loss("h1--*", 1.0, at="30 us")
    job = ln.Flows(
        "900 kB", pairs=[(0, 1), (0, 2)], count=2, transport=transport, stall_timeout="3 ms"
    )
    options = (
        {},
        {"sample": "50 us"},
        {"sample": "1.7 ms"},
        {"controllers": [ln.controller("only_looks", every="310 us")]},
    )
    runs = [ln.run(fabric, job, [dead], seed=3, write=False, **each) for each in options]
    assert {r.data.ended for r in runs} == {"stalled"}
    assert len({r.data.end_ps for r in runs}) == 1


def test_looking_at_rounds_costs_what_is_new():
    """Python's work for four times the rounds is four times as much."""

    def calls(rounds: int) -> int:
        count = 0

        def note(frame, event, argument) -> None:
            nonlocal count
            count += event == "call"

        fabric = ln.star(hosts=4, rate="100 Gb/s", delay="1 us")
        job = ln.Permutation("2 kB", rounds, "roce")
        ln.run(fabric, job, write=False)
        sys.setprofile(note)
        try:
            ln.run(fabric, job, write=False)
        finally:
            sys.setprofile(None)
        return count

    few, many = calls(100), calls(400)
    assert many < 4.2 * few
