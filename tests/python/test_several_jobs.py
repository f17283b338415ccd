"""Several jobs in one run on the virtual clock: their placement, figures and ends, hosts and
transports that they share."""

import hashlib
import json
from pathlib import Path

import pytest
from chakra_writer import ALL_REDUCE, COLLECTIVE, node, write

import endings
import loomnet as ln
from loomnet.base.errors import UsageError
from loomnet.running import reporting, virtual_clock

LEARN = Path(__file__).parent / "torch_ranks" / "learn.py"
LOSS = r"step (?P<step>\d+) loss (?P<loss>\S+)"
ALL = ["h0", "h1", "h2", "h3"]


def fabric(**changes):
    return ln.clos.two_tier(
        **{
            "planes": 2,
            "leaves": 2,
            "spines": 2,
            "hosts_per_leaf": 2,
            "rate": "10 Gb/s",
            "delay": "1 us",
            **changes,
        }
    )


def run(tmp_path, jobs, *args, name="several", seed=1, **options):
    lab = ln.Lab(name, seed=seed, directory=tmp_path / "runs")
    return lab.run(fabric(), jobs, *args, **options)


def ranks(name, *, hosts=None, transport="mrc", **changes):
    return ln.TorchJob(
        LEARN,
        args=["6"],
        ranks=2,
        name=name,
        hosts=hosts,
        transport=transport,
        compute="1 ms",
        log=LOSS,
        **changes,
    )


def ends(way, name, **changes):
    row = endings.Row(way, "mid", "last", 2, "virtual")
    return ln.TorchJob(
        endings.SCRIPT, args=row.arguments(0.1), ranks=2, compute="1 ms", name=name, **changes
    )


# --- where jobs are -------------------------------------------------------------------------------
def hosts_of(result, name):
    return sorted(result.job(name).data.hosts)


def test_jobs_without_hosts_get_the_next_free_ones(tmp_path):
    r = run(tmp_path, [ln.AllReduce(size="1 MB", ranks=2), ln.AllReduce(size="1 MB", ranks=2)])
    assert hosts_of(r, "job0") == [0, 1] and hosts_of(r, "job1") == [2, 3]


def test_a_job_without_hosts_goes_round_those_that_another_names(tmp_path):
    r = run(
        tmp_path,
        [
            ln.AllReduce(size="1 MB", ranks=2, name="late"),
            ln.AllReduce(size="1 MB", hosts=["h1", "h3"], name="named"),
        ],
    )
    assert hosts_of(r, "late") == [0, 2] and hosts_of(r, "named") == [1, 3]


@pytest.mark.parametrize(
    ("jobs", "words"),
    [
        (
            [dict(hosts=["h0", "h1"], name="a", alone=True), dict(hosts=["h1", "h2"], name="b")],
            'AllReduce "b": host h1 is of AllReduce "a", which is to be alone on its hosts',
        ),
        (
            [dict(hosts=["h1", "h2"], name="b"), dict(hosts=["h0", "h1"], name="a", alone=True)],
            'AllReduce "b": host h1 is of AllReduce "a", which is to be alone',
        ),
        (
            [dict(ranks=4, name="a"), dict(ranks=2, name="b")],
            'AllReduce "b": every host has another job; job 1 of the list, AllReduce "a", took all '
            "4 hosts: lower its ranks=, or give hosts=, which jobs may share",
        ),
        (
            [dict(hosts=["h0", "h1"], name="a"), dict(ranks=2, name="b"), dict(ranks=2, name="c")],
            'AllReduce "c": every host has another job; job 2 of the list, AllReduce "b", took 2 '
            "of 4 ",
        ),
        (
            [dict(hosts=ALL, name="a"), dict(ranks=2, name="b")],
            'AllReduce "b": every host has another job; give hosts=, which jobs may share',
        ),
        ([dict(ranks=2, name="a"), dict(ranks=2, name="a")], 'two jobs are named "a"'),
        ([dict(ranks=2, name="job1"), dict(ranks=2)], 'two jobs are named "job1"'),
        ([dict(ranks=2, name="a"), dict(hosts=["h9", "h1"], name="b")], 'no host "h9"'),
    ],
)
def test_jobs_that_cannot_be_placed_are_refused_in_one_line(tmp_path, jobs, words):
    with pytest.raises(UsageError) as caught:
        run(tmp_path, [ln.AllReduce(size="1 MB", **each) for each in jobs])
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_no_job_and_no_job_of_ours_are_refused(tmp_path):
    for jobs in ([], ["train.py"]):
        with pytest.raises(UsageError, match="job"):
            run(tmp_path, jobs)


# --- figures --------------------------------------------------------------------------------------
def test_figures_are_the_jobs_own_and_times_begin_with_each(tmp_path):
    @ln.scenario
    def several(lab: ln.Lab):
        lab.run(
            fabric(),
            [
                ln.AllReduce(size="1 MB", repeat=6, ranks=2, name="a"),
                ln.AllReduce(size="1 MB", repeat=6, ranks=2, name="b", start="3 ms"),
            ],
            label="both",
        )

    report = several.run(directory=tmp_path / "runs")
    (result,) = report.results.values()
    for job in "ab":
        assert report[f"both.{job}.before.iteration_s"] == result[f"{job}.before.iteration_s"]
        assert result.job(job).data.iterations[0].start_ps == 0
    # The same work at another time, in pods of the fabric that do not meet.
    assert result["b.jct_s"] == pytest.approx(result["a.jct_s"], rel=0.01)
    assert result["a.jct_s"] == pytest.approx(6 * result["a.before.iteration_s"], rel=0.1)
    assert {row["job"] for row in result.metrics} == {"a", "b"}
    with pytest.raises(UsageError, match='no job "c"'):
        result.job("c")


def test_a_job_in_a_list_is_the_job_alone(tmp_path):
    one = run(tmp_path, ln.AllReduce(size="1 MB", ranks=4))
    listed = run(tmp_path, [ln.AllReduce(size="1 MB", ranks=4)])
    assert one.metrics.rows == listed.metrics.rows and not listed.jobs


def test_faults_are_by_the_first_jobs_time(tmp_path):
    r = run(
        tmp_path,
        [
            ln.AllReduce(size="2 MB", repeat=30, ranks=2, name="late", start="4 ms"),
            ln.AllReduce(size="2 MB", repeat=30, ranks=2, name="early"),
        ],
        [ln.down("h0->p0.leaf0", at="2 ms", duration="5 ms", phase="fault")],
    )
    (late,), (early,) = r.job("late").data.windows, r.job("early").data.windows
    assert late.start_ps == 2 * 10**9
    assert early.start_ps - late.start_ps == 4 * 10**9  # the same moment in the other's time
    assert early.end_ps - early.start_ps == late.end_ps - late.start_ps == 5 * 10**9


# --- hosts that jobs share ------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("mrc", "mrc"),
        ("mrc", "roce"),
        ("roce", "roce"),
        ("tcp", "mrc"),
        ("roce", "tcp"),
        ("tcp", "tcp"),
    ],
)
def test_traffic_on_the_same_hosts(tmp_path, first, second):
    """Every byte arrives where it should, and each job is slower than it is alone."""
    jobs = [
        ln.AllReduce(size="2 MB", repeat=3, hosts=ALL, transport=first, name="a"),
        ln.Permutation(size="4 MB", hosts=ALL, transport=second, name="b"),
    ]
    r = run(tmp_path, jobs, payload=True)
    assert r.data.fidelity.unexplained == 0
    for job in jobs:
        own = r.job(job.name)
        assert own.data.ended == "finished" and own.data.wrong == 0 and own["errors"] == 0
        alone = run(tmp_path, job, payload=True)
        sent = {host: int(series.payload.sum()) for host, series in alone.data.hosts.items()}
        assert {
            host: int(series.payload.sum()) for host, series in own.data.hosts.items()
        } == sent  # none is the other's
        if "tcp" not in (first, second):  # whose lost tails depend on chance
            assert own.data.completion_ps > alone.data.completion_ps
    assert r.metric("a.before.lost").value is not None
    retransmitted = r.metric("a.before.retransmitted")
    assert retransmitted.value is None and "another job" in retransmitted.reason


def test_four_jobs_of_every_kind_on_the_same_hosts(tmp_path):
    trace = tmp_path / "flows.jsonl"
    trace.write_text(
        '{"at": "0 s", "source": 0, "destination": 1, "size": "1 MB"}\n'
        '{"at": "10 us", "source": 1, "destination": 0, "size": "2 MB"}\n'
    )
    jobs = [
        ln.AllToAll(size="1 MB", repeat=3, hosts=ALL, name="all"),
        ln.Incast(size="500 kB", hosts=ALL, name="incast", repeat=3),
        ln.Trace(trace, hosts=["h0", "h3"], name="trace", transport="roce"),
        ln.SendRecv(size="1 MB", repeat=4, hosts=ALL, name="ring", transport="tcp", start="100 us"),
    ]
    r = run(tmp_path, jobs, payload=True)
    for job in jobs:
        own = r.job(job.name).data
        assert (own.ended, own.errors, own.wrong) == ("finished", [], 0), job.name
    assert r.data.fidelity.unexplained == 0


def test_the_same_seed_gives_the_same_bytes(tmp_path):
    @ln.scenario
    def mixed(lab: ln.Lab):
        lab.run(
            fabric(),
            [
                ln.AllReduce(size="1 MB", repeat=3, hosts=ALL, name="a"),
                ln.Flows(
                    load=0.4, count=50, sizes="websearch", hosts=ALL, name="b", transport="tcp"
                ),
            ],
        )

    def digest(folder):
        mixed.run(directory=tmp_path / folder, seed=5)
        (report,) = (tmp_path / folder).rglob("report.json")
        return hashlib.sha256(report.read_bytes()).hexdigest()

    assert digest("one") == digest("two")


# --- PyTorch --------------------------------------------------------------------------------------
def losses(result):
    return [loss for _, loss in result.loss_curve]


# Over one transport they are tested live too.
@pytest.mark.in_turns
@pytest.mark.parametrize("second", [pytest.param("mrc", marks=pytest.mark.soak), "roce"])
def test_two_pytorch_jobs_on_the_same_hosts_learn_as_each_does_alone(tmp_path, second):
    """A recording of both has all of it, and keeps the files of their ranks apart."""
    both = ["h0", "h2"]
    trace = tmp_path / "two.pftrace"
    r = run(
        tmp_path, [ranks("a", hosts=both), ranks("b", hosts=both, transport=second)], trace=trace
    )
    assert trace.stat().st_size > 10_000
    alone = [run(tmp_path, ranks(None, hosts=both, transport=each)) for each in ("mrc", second)]
    for name, one in zip("ab", alone, strict=True):
        own = r.job(name)
        assert len(losses(own)) == 6 and losses(own) == losses(one)
        assert own.data.unequal_hashes in (0, None) and own["errors"] == 0
        assert own["jct_s"] > one.data.completion_ps / 1e12  # links are shared
        assert own.data.ended == "finished"
        assert (own.data.directory / "ranks" / "0.log").exists()
    assert r.data.deterministic
    # And beside traffic of no script.
    noise = ln.AllReduce(size="4 MB", repeat=20, hosts=ALL, name="noise")
    r = run(tmp_path, [ranks("train", hosts=both), noise])
    assert losses(r.job("train")) == losses(alone[0])
    assert r["noise.errors"] == 0 and r.job("noise").data.ended == "finished"


@pytest.mark.parametrize("shared", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_a_job_that_fails_leaves_the_others_alone(tmp_path, shared):
    hosts = (["h0", "h1"], ["h0", "h1"] if shared else ["h2", "h3"])
    lab = ln.Lab("fails", seed=1, directory=tmp_path / "runs")
    r = lab.run(fabric(), [ends("raise", "bad", hosts=hosts[0]), ranks("good", hosts=hosts[1])])
    bad, good = r.job("bad").data, r.job("good").data
    assert bad.ended == "failed" and "on purpose" in bad.errors[0].message
    assert good.ended == "finished" and len(losses(r.job("good"))) == 6
    (ended,) = lab.report.fidelity
    assert ended.ended == "failed" and ended.reason.startswith("bad: rank 1 ended")


def test_the_report_is_valid_json_with_a_job_per_figure(tmp_path):
    @ln.scenario
    def two(lab: ln.Lab):
        lab.run(
            fabric(),
            [
                ln.AllReduce(size="1 MB", ranks=2, name="a"),
                ln.Incast(size="1 MB", ranks=2, name="b"),
            ],
        )

    two.run(directory=tmp_path / "runs")
    (file,) = (tmp_path / "runs").rglob("report.json")
    rows = json.loads(file.read_text())["metrics"]
    assert {row["labels"]["job"] for row in rows} == {"a", "b"}


def test_what_is_left_of_a_cut_fabric_is_shared(tmp_path):
    """Two pairs of hosts use both spines; without one of them each pair has half."""
    r = run(
        tmp_path,
        [
            ln.AllReduce(size="1 MB", repeat=60, hosts=["h0", "h1"], name="a"),
            ln.AllReduce(size="1 MB", repeat=60, hosts=["h2", "h3"], name="b"),
        ],
        [
            ln.down(
                f"p{plane}.leaf0--p{plane}.spine0",
                at=ln.step(20),
                duration=ln.iterations(20),
                phase="cut" if plane == 0 else None,
            )
            for plane in (0, 1)
        ],
    )
    assert r["a.cut.expected_capacity"] == r["b.cut.expected_capacity"] == 0.5


def test_the_run_of_several_says_how_its_worst_job_ended(tmp_path):
    r = run(
        tmp_path,
        [
            ln.AllReduce(size="1 MB", hosts=["h2", "h3"], name="good"),
            ends("raise", "bad", hosts=["h0", "h1"]),
        ],
    )
    assert r.data.ended == "failed" and "good finished, bad failed" in repr(r)
    for ask in (
        lambda: r.loss_curve,
        lambda: r.rank_log(0),
        lambda: r.flows,
        lambda: r.series("goodput"),
    ):
        with pytest.raises(UsageError, match=r'of which job\? Write r.job\("good"\)'):
            ask()
    assert r.job("good").series("goodput").values


def test_the_only_job_of_a_run_is_the_result_itself(tmp_path):
    r = run(tmp_path, ln.AllReduce(size="1 MB", ranks=2, name="a"))
    with pytest.raises(UsageError, match="the run had one job, whose result this is"):
        r.job("a")


def test_figures_have_a_line_for_each_job(tmp_path):
    from loomnet.results.plots import goodput_figure, iteration_figure

    r = run(tmp_path, [ln.AllReduce(size="1 MB", repeat=5, ranks=2, name=name) for name in "ab"])
    (axes,) = iteration_figure({"mrc": r}).axes
    assert [text.get_text() for text in axes.figure.legends[0].get_texts()] == ["mrc a", "mrc b"]
    assert len(goodput_figure({"mrc": r}).axes) == 2


# --- what a job that fails or begins late says ----------------------------------------------------
def test_each_failed_rank_is_named_with_the_time_of_its_failure(tmp_path):
    r = run(
        tmp_path,
        [
            ln.AllReduce(size="2 MB", repeat=30, ranks=2, name="good"),
            ln.AllReduce(size="2 MB", repeat=30, ranks=2, name="bad", start="1 ms"),
        ],
        [ln.down("h2--p*.leaf*", at="2 ms")],
    )
    good, bad = r.job("good").data, r.job("bad").data
    assert good.ended == "finished" and bad.ended == "failed"
    assert {each.who for each in bad.errors} == {"rank 0", "rank 1"}
    assert bad.reason == bad.errors[0].message
    for each in bad.errors:  # in the job's own time, behind the fault
        assert 10**9 < each.at_ps <= bad.end_ps


def test_a_graph_says_when_it_failed(tmp_path):
    pytest.importorskip("google.protobuf")
    from chakra_writer import ALL_REDUCE, COLLECTIVE, node, write

    prefix = write(
        tmp_path,
        [[node(0, COLLECTIVE, comm_type=ALL_REDUCE, comm_size=10_000_000)] for _ in range(4)],
    )
    r = run(tmp_path, ln.Trace(prefix), [ln.down("h2--p*.leaf*", at="1 ms")])
    (error,) = r.data.errors
    assert r.data.ended == "failed" and 10**9 < error.at_ps <= r.data.end_ps


def test_a_phase_before_a_jobs_begin_says_so(tmp_path):
    r = run(
        tmp_path,
        [
            ln.AllReduce(size="2 MB", repeat=10, ranks=2, name="first"),
            ln.AllReduce(size="2 MB", repeat=10, ranks=2, name="late", start="3 ms"),
        ],
        [ln.down("h0->p0.leaf0", at="1 ms", duration="1 ms", phase="fault")],
    )
    reasons = {
        row["job"]: row["reason"]
        for row in r.metrics.rows
        if row["name"] == "goodput_ratio" and row["phase"] == "before"
    }
    assert reasons == {"first": None, "late": "the job began after this phase"}


def test_the_report_of_a_failed_rank_does_not_depend_on_its_folder(tmp_path):
    script = tmp_path / "fails.py"
    script.write_text(
        "import torch\nimport torch.distributed as dist\n"
        "dist.init_process_group('gloo')\ndist.all_reduce(torch.ones(1000))\n"
        "assert dist.get_rank() == 0\ndist.barrier()\n"
    )
    written = []
    for folder in ("one", "two"):
        lab = ln.Lab("fails", seed=1, directory=tmp_path / folder)
        lab.run(
            fabric(),
            [
                ln.TorchJob(script, ranks=2, compute="1 ms", name="bad"),
                ln.AllReduce("1 MB", ranks=2, name="good"),
            ],
        )
        written.append(lab.write().read_bytes())
    assert written[0] == written[1] and b"(bad/ranks/1.log)" in written[0]


@pytest.mark.parametrize(
    "beside",
    [
        lambda **of: ln.AllReduce("1 kB", 3, **of),
        lambda **of: ln.ModelJob(size="1 kB", compute="1 us", iterations=3, **of),
        lambda path, **of: ln.Trace(path, **of),
    ],
    ids=["collective", "model", "trace of collectives"],
)
def test_flows_of_a_matrix_beside_a_job_whose_hosts_hear_of_one_another(tmp_path, beside):
    """Hosts of the matrix hear of one another by packets alone, so that the engine could serve each
    host's events of a while together. Those of the other job do not allow that."""
    (tmp_path / "flows.cm").write_text("Nodes 2\nConnections 1\n0->1 id 1 start 1 size 300000\n")
    matrix = ln.Flows.from_htsim(tmp_path / "flows.cm", hosts=["h0", "h2"], name="matrix")
    reduce = {"comm_type": ALL_REDUCE, "comm_size": 1000}
    path = write(
        tmp_path, [[node(1, COLLECTIVE, **reduce), node(2, COLLECTIVE, after=[1], **reduce)]] * 2
    )
    more = {"path": path} if "path" in beside.__code__.co_varnames else {}
    other = beside(hosts=["h1", "h3"], name="other", transport="mrc", **more)
    both = run(tmp_path / "both", [matrix, other])
    assert both["matrix.errors"] == both["other.errors"] == 0
    alone = run(tmp_path / "alone", other)
    assert both.job("other").data.iterations == alone.data.iterations


def test_a_job_that_stalled_has_ended_although_its_traffic_goes_on(tmp_path):
    """The link comes back while the other job runs: what the engine then sends is no more of the
    stalled job's."""
    jobs = [
        ln.AllReduce("100 kB", 40, name="held", hosts=["h0", "h2"], stall_timeout="3 ms"),
        ln.AllReduce("100 kB", 400, name="other", hosts=["h1", "h3"]),
    ]
    r = run(tmp_path, jobs, [ln.down("h0--*", at="1 ms", duration="8 ms")])
    held, other = (r.job(name).data for name in ("held", "other"))
    assert held.ended == "stalled" and other.ended == "finished"
    assert other.end_ps > 20e9, "long enough for the held one's traffic to go on"
    assert 0 < len(held.iterations) < 40
    assert held.iterations[-1].end_ps < 1.2e9 < held.end_ps < 5e9


def test_progress_knows_the_first_job_while_others_end(tmp_path, monkeypatch):
    """Where one job ends after another, the engine says which, and the rest is not looked at."""
    shown = []

    class Watched(virtual_clock.VirtualRunner):
        def run(self, request, on_progress):
            return super().run(request, lambda progress: shown.append(progress.step or 0))

    monkeypatch.setattr(virtual_clock, "VirtualRunner", Watched)
    monkeypatch.setattr(reporting, "PROGRESS_S", 0)
    monkeypatch.setattr(reporting, "REST", 0)
    made = ln.clos.two_tier(
        planes=1, leaves=2, spines=1, hosts_per_leaf=8, rate="10 Gb/s", delay="1 us"
    )
    jobs = [ln.AllReduce("10 kB", 400, name="first", ranks=2)]
    jobs += [ln.AllReduce("10 kB", 50 * n, name=f"job{n}", ranks=2) for n in range(1, 7)]
    ln.Lab("progress", directory=tmp_path / "runs").run(made, jobs)
    assert len(shown) >= 6 and shown == sorted(shown)
    assert len(set(shown)) >= 6 and shown[0] < 100 < shown[-1]
