"""`stop=` of a job: from that time on it begins nothing new, what is under way ends, and so does
the job, as one of fewer rounds, flows or iterations would."""

import json
from pathlib import Path

import pytest

import loomnet as ln
from loomnet.jobs.collectives import COLLECTIVES
from loomnet.labs.run_lint import most_flows, most_rounds
from loomnet.running.virtual_clock import VirtualRunner

LEARN = Path(__file__).parent / "torch_ranks" / "learn.py"
LOSS = r"step (?P<step>\d+) loss (?P<loss>\S+)"
MATRIX = """Nodes 4
Connections 3
Triggers 1
0->1 id 1 start 0 size 1000000 send_done_trigger 1
2->3 id 2 trigger 1 size 1000000
3->2 id 3 start 5000000000 size 1000000
trigger id 1 oneshot
"""


def star(**changes):
    return ln.star(**{"hosts": 4, "rate": "10 Gb/s", "delay": "1 us", **changes})


def run(tmp_path, job, *, name="stop", **options):
    lab = ln.Lab("stop", seed=1, directory=tmp_path / name, runner=(runner := Asked()))
    result = lab.run(star(), job, reroute_delay="off", **options)
    lab.write()
    return result, runner.request


class Asked(VirtualRunner):
    """The virtual clock's engine, which keeps what it was asked."""

    def run(self, request, on_progress):
        self.request = request
        return super().run(request, on_progress)


def report(tmp_path, name):
    [path] = (tmp_path / name).rglob("report.json")
    return path.read_bytes()


# --- rounds ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("compute", ["0 s", "100 us"])
@pytest.mark.parametrize(
    "kind", [*COLLECTIVES, ln.Permutation, ln.Incast], ids=lambda kind: kind.__name__
)
def test_a_run_that_stops_is_one_of_fewer_rounds(tmp_path, kind, compute):
    values = {"compute": compute, "size": "400 kB"}
    whole, _ = run(tmp_path, kind(repeat=6, **values), name="whole")
    third, fourth = whole.data.iterations[2:4]
    first = fourth.start_ps  # of rank 0; another may be earlier through the third
    if kind in COLLECTIVES:
        first = min(host.work[3][0] for host in whole.data.hosts.values())
    # In the middle of the third round, and at the time at which the first rank begins the fourth.
    for number, at in enumerate(((third.start_ps + third.end_ps) // 2, first)):
        stopped, request = run(
            tmp_path, kind(repeat=6, stop=f"{at} ps", **values), name=f"stopped {number}"
        )
        run(tmp_path, kind(repeat=3, **values), name=f"fewer {number}")
        assert stopped.data.ended == "finished" and len(stopped.data.iterations) == 3
        assert report(tmp_path, f"stopped {number}") == report(tmp_path, f"fewer {number}")
        [asked] = request.jobs
        assert 3 <= most_rounds(request.plan, asked) <= 6
    run(tmp_path, kind(repeat=6, stop="1 h", **values), name="late")
    assert report(tmp_path, "late") == report(tmp_path, "whole")


def test_a_round_begins_before_the_stop_and_none_at_it(tmp_path):
    """The ranks of a broadcast are through a round at different times: those that are first begin
    the next before the stop, and the others take part in it after it."""
    values = {"size": "1 MB", "compute": "200 us"}
    whole, _ = run(tmp_path, ln.Broadcast(repeat=4, **values), name="whole")
    begins = [host.work[1][0] for host in whole.data.hosts.values()]
    second = min(begins)
    assert max(begins) > second + 1
    for late, rounds in ((0, 1), (1, 2)):
        stopped, _ = run(
            tmp_path, ln.Broadcast(repeat=4, stop=f"{second + late} ps", **values), name=f"{late}"
        )
        assert stopped.data.ended == "finished" and len(stopped.data.iterations) == rounds


def test_a_stop_counts_from_the_runs_begin(tmp_path):
    jobs = [
        ln.AllReduce("1 MB", repeat=3, name="a", ranks=2),
        ln.AllReduce("1 MB", repeat=10**6, start="5 ms", stop="5.001 ms", name="b", ranks=2),
    ]
    r, _ = run(tmp_path, jobs)
    assert [len(r.job(name).data.iterations) for name in "ab"] == [3, 1]
    assert {r.job(name).data.ended for name in "ab"} == {"finished"}
    assert r["b.jct_s"] == pytest.approx(r.job("b").data.iterations[0].length_ps / 1e12)


# --- flows ----------------------------------------------------------------------------------------
def started(result):
    return [
        (flow.source, flow.destination, flow.bytes, flow.start_ps) for flow in result.data.flows
    ]


@pytest.mark.parametrize("transport", ["mrc", "roce", "tcp"])
def test_flows_that_begin_are_those_of_the_whole_run(tmp_path, transport):
    values = {"sizes": "100 kB", "count": 200, "gap": "10 us", "transport": transport}
    whole, _ = run(tmp_path, ln.Flows(**values), name="whole")
    stopped, request = run(tmp_path, ln.Flows(stop="500 us", **values))
    assert stopped.data.ended == "finished"
    assert started(stopped) == [row for row in started(whole) if row[3] < 500 * 10**6]
    assert 10 < len(stopped.data.flows) < 200
    assert all(flow.end_ps is not None for flow in stopped.data.flows), "what has begun ends"
    assert 0 <= stopped.data.end_ps - max(flow.end_ps for flow in stopped.data.flows) < 10**7
    assert stopped.data.iterations == [], "the round was not a whole one"
    assert len(stopped.data.flows) <= most_flows(request.plan, request.jobs[0]) < 200


def test_flows_at_times_of_their_own(tmp_path):
    starts = ["3 ms", "0 s", "2 ms", "1 ms"]
    r, request = run(tmp_path, ln.Flows("10 kB", count=4, starts=starts, stop="2 ms"))
    assert sorted(flow.start_ps for flow in r.data.flows) == [0, 10**9]
    assert most_flows(request.plan, request.jobs[0]) == 2


def test_flows_of_a_file(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text(
        "".join(
            json.dumps({"at": at, "source": 0, "destination": 1, "size": "1 MB"}) + "\n"
            for at in ("2 us", "1 ms", "2 ms")
        )
    )
    r, _ = run(tmp_path, ln.Trace(path, stop="1 ms"))
    assert [flow.start_ps for flow in r.data.flows] == [2 * 10**6]
    assert r.data.ended == "finished" and r.data.end_ps < 10**9


# --- graphs ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("stop", "flows", "iterations"),
    [("100 us", 1, 0), ("1 ms", 2, 0), ("5 ms", 2, 0), ("5.1 ms", 3, 1)],
)
def test_a_matrix_fires_no_trigger_and_starts_no_connection(tmp_path, stop, flows, iterations):
    (tmp_path / "m.cm").write_text(MATRIX)
    whole, _ = run(tmp_path, ln.Flows.from_htsim(tmp_path / "m.cm"), name="whole")
    r, _ = run(tmp_path, ln.Flows.from_htsim(tmp_path / "m.cm", stop=stop))
    assert r.data.ended == "finished" and len(r.data.iterations) == iterations
    assert r.data.flows == [
        flow for flow in whole.data.flows if flow.start_ps < ln.Time(stop).count
    ]
    assert len(r.data.flows) == flows
    # A connection that never begins is not waited for, nor is the time at which it would.
    assert r.data.end_ps == max(flow.end_ps for flow in r.data.flows)


def test_a_trace_of_ranks_ends_with_the_compute_that_is_under_way(tmp_path):
    pytest.importorskip("google.protobuf")
    from chakra_writer import ALL_REDUCE, COLLECTIVE, COMPUTE, node, write

    nodes = [
        [
            node(0, COMPUTE, us=100),
            node(1, COLLECTIVE, after=[0], comm_type=ALL_REDUCE, comm_size=1_000_000),
            node(2, COMPUTE, after=[1], us=100),
        ]
        for _ in range(4)
    ]
    prefix = write(tmp_path, nodes)
    whole, _ = run(tmp_path, ln.Trace(prefix), name="whole")
    r, _ = run(tmp_path, ln.Trace(prefix, stop="50 us"))
    assert r.data.ended == "finished" and r.data.iterations == []
    # The first compute ends; no collective begins.
    assert r.data.end_ps == pytest.approx(100e6, rel=0.001)
    assert sum(int(host.payload.sum()) for host in r.data.hosts.values()) == 0
    late, _ = run(tmp_path, ln.Trace(prefix, stop="1 h"), name="late")
    assert late.data.iterations == whole.data.iterations != []


# --- PyTorch --------------------------------------------------------------------------------------
def training(**changes):
    return ln.TorchJob(LEARN, args=["30"], ranks=2, compute="1 ms", log=LOSS, **changes)


@pytest.mark.parametrize(
    "limits",
    [
        {"stop": "20 ms", "until": "1 h"},
        {"stop": "1 h", "until": "20 ms"},
        {"start": "15 ms", "stop": "30 ms"},
    ],
)
def test_ranks_stop_after_the_iteration_at_hand(tmp_path, limits):
    r, _ = run(tmp_path, training(**limits), name="one")
    assert r.data.ended == "finished" and r["errors"] == 0, r.data.errors
    if "start" in limits:
        run(tmp_path, training(**limits), name="two")
        assert report(tmp_path, "one") == report(tmp_path, "two"), "at the same step in every run"
    begins = [each.start_ps for each in r.data.iterations]
    assert 3 <= len(begins) < 29
    # The ranks hear of it in one iteration and end with the next.
    lasts = 20 * 10**9 if "start" not in limits else 15 * 10**9
    assert begins[-3] < lasts


# --- what is refused ------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("make", "line"),
    [
        (
            lambda: ln.AllReduce("1 MB", start="2 ms", stop="2 ms"),
            "AllReduce: stop=2 ms is not after start=2 ms: nothing of the job could begin; "
            "give a later ",
        ),
        (
            lambda: ln.TorchJob("train.py", ranks=2, stop="0 s"),
            "TorchJob: stop=0 ps is not after start=0 ps",
        ),
        (lambda: ln.Incast("1 MB", stop="-1 ms"), "Incast.stop: time '-1 ms' is out of range"),
        (lambda: ln.AllReduce("1 MB", stop=5), "AllReduce.stop: "),
        (lambda: ln.AllReduce("1 MB", stop="soon"), "AllReduce.stop: "),
        (lambda: ln.AllReduce("1 MB", stop=ln.step(3)), "AllReduce.stop: "),
        (
            lambda: ln.run(star(), ln.AllReduce("1 MB", stop="700 h")),
            "AllReduce.stop: 700 h is more than the 600 h that a run has",
        ),
        (
            lambda: ln.run(
                star(),
                ln.Flows("1 kB", count=2, starts=["4 ms", "3 ms"], start="1 ms", stop="4 ms"),
            ),
            "Flows.stop: 4 ms is not after 4 ms, when the job's first flow begins; give a "
            "later stop",
        ),
    ],
)
def test_a_stop_that_is_none_is_one_line(tmp_path, monkeypatch, make, line):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ln.UsageError) as refused:
        make()
    assert str(refused.value).startswith(line) and "\n" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_files_whose_flows_all_begin_later_are_refused(tmp_path):
    (tmp_path / "m.cm").write_text("Nodes 2\nConnections 1\n0->1 start 5000000 size 1000\n")
    (tmp_path / "t.jsonl").write_text(
        '{"at": "5 us", "source": 0, "destination": 1, "size": "1 kB"}\n'
    )
    for job in (
        ln.Flows.from_htsim(tmp_path / "m.cm", stop="5 us"),
        ln.Trace(tmp_path / "t.jsonl", stop="5 us"),
    ):
        with pytest.raises(ln.UsageError, match="stop: 5 us is not after 5 us, when the job's"):
            ln.run(star(), job)


# --- what is foretold -----------------------------------------------------------------------------
def test_what_will_not_begin_is_not_counted(tmp_path):
    """Without their stop these are refused, for the time that they would take."""
    kinds = (
        (ln.AllReduce, {"size": "1 MB", "repeat": 10**8, "compute": "1 h"}),
        (ln.Permutation, {"size": "1 MB", "repeat": 10**5, "compute": "1 h"}),
        (ln.Flows, {"sizes": "10 kB", "count": 10**6, "gap": "1 h"}),
    )
    for number, (kind, values) in enumerate(kinds):
        with pytest.raises(ln.UsageError):
            ln.run(star(), kind(**values))
        job = kind(stop="10 us", **values)
        said = []
        lab = ln.Lab("stop", directory=tmp_path / f"{number}", say=said.append)
        r = lab.run(star(), job, reroute_delay="off")
        assert r.data.ended == "finished" and len(r.data.iterations) <= 1
        assert not [line for line in said if line.startswith("note: ") or "memory" in line], said
