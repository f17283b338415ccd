"""identity="auto" of the program "symphony": how a run reads the steps of its rings where neither
the program nor the hosts say it, what it says of that, and what is refused."""

import pytest
from scenario_lib import lib

import loomnet as ln

symphony = lib("symphony")

pytest.importorskip("loomnet._core")

READS = 'program "symphony" reads ring steps by identity='


def ring(**more):
    return ln.AllReduce(**{"size": "4 MB", "transport": "roce", "whole_steps": True, **more})


def played(tmp_path, jobs, program=None, roce=None, hosts=4, **options):
    """(the run, lines that it printed of Symphony)"""
    said = []
    several = isinstance(jobs, list)
    transports = {each.transport for each in (jobs if several else [jobs])}
    fabric = symphony.ring_fabric(hosts, pfc=transports == {"roce"})
    fabric.program("*", "symphony", **(program or {}))
    r = ln.Lab(directory=tmp_path, seed=1, say=said.append).run(
        fabric, jobs, roce={"preset": "B", **(roce or {})}, **options
    )
    return r, [line for line in said if "symphony" in line]


def test_a_ring_that_keeps_its_queue_pairs_is_read_by_sequence_numbers(tmp_path):
    burst = [ln.degrade("h0--p0.leaf0", "20 Gb/s", at="0 s", duration="1 s")]
    auto, (note,) = played(tmp_path / "auto", ring(), {"gate": 0}, faults=burst)
    assert (
        note == f'note: {READS}"seq", since every ring keeps its queue pairs, and its steps '
        "have 1 MB"
    )
    stated, silent = played(
        tmp_path / "stated", ring(), {"gate": 0, "identity": "seq", "step": "1 MB"}, faults=burst
    )
    assert silent == []
    assert auto.switch("p0.leaf0").counters["extra_marks"] > 0
    assert auto.data.totals == stated.data.totals
    assert auto.switch("p0.leaf0").snapshot() == stated.switch("p0.leaf0").snapshot()


def test_each_ring_has_the_steps_of_its_own_size(tmp_path):
    jobs = [
        ring(name="a", hosts=["h0", "h1"]),
        ring(name="b", size="1 MB", hosts=["h2", "h3"]),
        ln.Flows(
            "2 MB",
            count=2,
            pairs=[(0, 1), (1, 0)],
            steps=4,
            transport="roce",
            name="c",
            hosts=["h4", "h5"],
        ),
    ]
    r, (note,) = played(tmp_path, jobs, {"gate": 0}, hosts=8)
    assert 'identity="seq"' in note and note.endswith("have 2 MB, 500 kB")
    rows = [
        row
        for name in ("p0.leaf0", "p0.leaf1")
        for row in r.switch(name).snapshot()["rings"]
        if row["state"] & 1
    ]
    low = {job: max(row["low"] for row in rows if row["job"] == job) for job in (0, 1, 2)}
    # Progress is in bytes, packets that are not full counted as full: of two steps of 2 MB, of
    # 500 kB, and of four of 500 kB.
    assert 3_500_000 < low[0] < 4_400_000 and 900_000 < low[1] < 1_100_000
    assert 1_800_000 < low[2] < 2_200_000
    assert r.switch("p0.leaf0").counters.get("implausible", 0) == 0


@pytest.mark.parametrize(
    ("job", "why"),
    [
        (
            {"queue_pair": "per-step"},
            'queue_pair="per-step" gives each step of the job another queue',
        ),
        ({"channels": 2}, "channels of the job send between the same hosts"),
        ({"size": "3 GB"}, "32 bits cannot tell a lead from a lag in the bytes of the job"),
        ({"transport": "mrc"}, "packets of mrc have no sequence number that counts bytes"),
    ],
)
def test_else_by_the_step_header_and_the_run_says_why(tmp_path, job, why):
    from loomnet.plans.job_request import JobRequest
    from loomnet.plans.make import make_plan
    from loomnet.systems.symphony.lint import silent_rings

    plan = make_plan(symphony.ring_fabric(4).program("*", "symphony"))
    asked = JobRequest(ring(**job), tuple(range(4)))
    model = job.get("transport", "roce")
    note, *_ = silent_rings(plan, [asked], {})
    assert note.startswith(f'{READS}"hdr", since {why}')
    assert "no packet is marked" in note and f'give {model}={{"identity": "hdr"}}' in note
    # What the hosts write is what the switches read.
    told = list(silent_rings(plan, [asked], {model: {"identity": "hdr", "dcqcn": True}}))
    assert told == []


def test_hosts_that_state_an_identity_are_read_by_it(tmp_path):
    for identity in ("hdr", "sport"):
        r, told = played(
            tmp_path / identity, ring(queue_pair="per-step"), {"gate": 0}, {"identity": identity}
        )
        counters = r.switch("p0.leaf0").counters
        assert told == [] and counters["tagged"] > 1000
        assert counters.get("implausible", 0) < counters["tagged"] / 20


def test_two_rings_between_the_same_hosts_are_read_by_the_step_header(tmp_path):
    jobs = [ring(name=name, hosts=["h0", "h1", "h2", "h3"]) for name in ("a", "b")]
    _, (note, *_) = played(tmp_path, jobs)
    assert f'{READS}"hdr", since several ranks or rings send from h0 to h1' in note


def test_jobs_that_are_not_tracked_decide_nothing(tmp_path):
    jobs = [
        ring(name="a", hosts=["h0", "h1"]),
        ring(name="b", queue_pair="per-step", hosts=["h2", "h3"]),
    ]
    r, (note,) = played(tmp_path / "a", jobs, {"jobs": ["a"]})
    assert 'identity="seq"' in note
    assert {row["job"] for row in r.switch("p0.leaf0").snapshot()["rings"] if row["state"] & 1} == {
        0
    }
    _, (note,) = played(tmp_path / "b", jobs)
    assert 'gives each step of job "b" another queue pair' in note


def test_sequence_numbers_of_a_queue_pair_for_each_step_are_refused_in_one_line(tmp_path):
    with pytest.raises(ln.UsageError) as refused:
        played(
            tmp_path, ring(queue_pair="per-step", name=None), {"identity": "seq", "step": "1 MB"}
        )
    line = str(refused.value)
    assert "\n" not in line and line.startswith('program "symphony": identity="seq" cannot read')
    assert 'leave queue_pair out, or give identity="hdr" to the program and to roce' in line
