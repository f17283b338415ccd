"""Each kind of job has the figures that mean something for it, and a sentence that says what
happened."""

import statistics

import pytest
from rich.console import Console

import loomnet as ln
from loomnet.base.errors import UsageError
from loomnet.base.number_text import number_text
from loomnet.cli.console import print_report
from loomnet.labs.lab import Lab
from loomnet.results.markdown import to_markdown

TIMES = ("fct_p50_s", "fct_p99_s", "fct_max_s", "slowdown_p50", "slowdown_p99", "slowdown_max")


def fabric(planes=2):
    return ln.clos.two_tier(
        planes=planes, leaves=2, spines=2, hosts_per_leaf=4, rate="100 Gb/s", delay="1 us"
    )


def nearest_rank(values, percent):
    return sorted(values)[max(0, -(-len(values) * percent // 100) - 1)]


def test_flows_have_completion_times_and_slowdowns_of_each_flow():
    r = ln.run(fabric(), ln.Flows("websearch", count=60, load=0.3))
    flows = r.flow_records
    times = [flow.completion_ps / 1e12 for flow in flows]
    slowdowns = [flow.completion_ps / flow.ideal_ps for flow in flows]
    for name, percent in (("p50", 50), ("p99", 99), ("max", 100)):
        assert r[f"fct_{name}_s"] == nearest_rank(times, percent)
        assert r[f"slowdown_{name}"] == nearest_rank(slowdowns, percent)
    assert r["flows"] == 60 and r["unfinished"] == 0
    assert r.flow_figures()["fct_mean_s"] == (pytest.approx(statistics.fmean(times)), "s")
    assert not {
        "before.iteration_s",
        "before.goodput_ratio",
        "before.blip_s",
        "before.recovery_s",
        "final_loss",
    } & set(r.keys())
    assert all(row.value is not None for row in r.rows)


def test_what_a_job_has_no_figure_of_is_said():
    r = ln.run(fabric(), ln.Permutation("1 MB"))
    for name, why in (
        ("before.iteration_s", "flows have no iterations: see fct_p50_s"),
        ("before.recovery_s", "there is no fault to recover from"),
        ("before.goodput_ratio", "the job met no fault"),
        ("final_loss", "not told how to read a loss"),
    ):
        with pytest.raises(UsageError, match=f'no number "{name}": .*{why}'):
            r[name]
    several = ln.run(
        fabric(),
        [ln.Permutation("1 MB", ranks=4, name="a"), ln.AllReduce("1 MB", ranks=4, name="b")],
    )
    with pytest.raises(UsageError, match=r'no number "a.before.iteration_s": flows have'):
        several["a.before.iteration_s"]
    assert several["b.before.busbw"] > 0 and several["a.fct_p99_s"] > 0


@pytest.mark.parametrize(
    ("job", "factor"),
    [(ln.AllReduce, 2 * 7 / 8), (ln.AllGather, 7 / 8), (ln.AllToAll, 7 / 8), (ln.Broadcast, 1)],
)
def test_collectives_have_the_bandwidths_of_nccl_tests(job, factor):
    r = ln.run(fabric(), job("2 MB", repeat=4, compute="1 ms"))
    mean = statistics.fmean(each.length_ps for each in r.data.iterations)
    assert r["before.algbw"] == pytest.approx(2e6 * 1e12 / mean / 1e9)
    assert r["before.busbw"] == pytest.approx(factor * r["before.algbw"])
    assert f"{r['before.busbw']:.4g} GB/s of bus bandwidth" in r.summary


def test_a_flow_is_of_the_phase_that_it_was_under_way_in():
    fault = ln.degrade("h1->p0.leaf1", 0.1, at="150 us", duration="300 us", phase="slow")
    r = ln.run(
        fabric(planes=1),
        ln.Flows("1 MB", count=3, pairs=[(1, 0)], starts=["0 s", "140 us", "5 ms"]),
        [fault],
    )
    first, struck, last = (flow.completion_ps / 1e12 for flow in r.flow_records)
    assert struck > 2 * first
    assert [r[f"{phase}.flows"] for phase in ("before", "slow", "after")] == [1, 1, 1]
    assert (r["before.fct_max_s"], r["slow.fct_max_s"], r["after.fct_max_s"]) == (
        first,
        struck,
        last,
    )
    assert r.summary.startswith("h1->p0.leaf1 slowed to 10 % of its rate: ")


def test_a_flow_that_never_ended_is_slower_than_any():
    fault = ln.down("h0--p0.leaf0", at="0 s", duration="10 s")
    r = ln.run(
        fabric(planes=1),
        ln.Flows("100 kB", count=3, pairs=[(2, 3), (4, 5), (1, 0)], stall_timeout="2 ms"),
        [fault],
    )
    assert r["unfinished"] == 1 and r["fct_p50_s"] > 0 and r["fct_p99_s"] is None
    assert r.metric("slowdown_max").reason == "1 flow of 3 never ended"
    assert r.summary.startswith("stalled after ")


def test_a_job_that_stood_still_is_said_with_its_iteration_and_how_long():
    fault = ln.down("h0--p0.leaf0", at=ln.step(7), duration="20 ms", phase="down")
    r = ln.run(fabric(), ln.AllReduce("1 MB", repeat=20, transport="roce"), [fault])
    longest = max(b - a for host in r.data.hosts.values() for a, b in host.silences) / 1e12
    assert longest > 0.1
    said = r.summary
    assert said == (
        f"h0--p0.leaf0 went down: the job stood still for "
        f"{number_text(float(longest), 's')} in iteration 8."
    ), said


def test_a_job_that_went_on_is_said_with_what_it_kept():
    fault = ln.down("h0--p0.leaf0", at=ln.step(7), duration=ln.iterations(10), phase="down")
    r = ln.run(fabric(), ln.AllReduce("4 MB", repeat=30), [fault])
    assert r.summary.startswith(
        f"h0--p0.leaf0 went down: the job kept "
        f"{r['down.goodput_ratio']:.4g} of its rate; no silence above "
    )


def test_a_stall_is_said_of_the_fault_that_brought_it_about():
    """The second fault begins while the job stands still for the first."""
    faults = [
        ln.down("h0--p0.leaf0", at=ln.step(7), duration="20 ms", phase="first"),
        ln.loss("p1.leaf0->*", 0.01, at="15 ms", duration="10 ms", phase="second"),
    ]
    r = ln.run(fabric(), ln.AllReduce("1 MB", repeat=20, transport="roce"), faults)
    first, second = r.summary.rstrip(".").split("; p1.leaf0->")
    assert "the job stood still for" in first and "stood still" not in second


def test_middle_flows_by_time_and_by_slowdown_are_told_apart():
    r = ln.run(fabric(), ln.Flows("websearch", count=60, load=0.3))
    half, most = (number_text(r[f"slowdown_{share}"]) for share in ("p50", "p99"))
    assert f"slowdowns are up to {half} for half and {most} for 99 %" in r.summary


def test_the_report_and_the_terminal_say_the_same(tmp_path):
    lab = Lab("said", directory=tmp_path)
    one = lab.run(fabric(), ln.Permutation("1 MB"), label="one")
    two = lab.run(fabric(), ln.AllReduce("1 MB", 3), label="two")
    assert lab.report.summary == f"one: {one.summary} two: {two.summary}"
    assert lab.report.to_dict()["summary"] == lab.report.summary
    assert one.summary in one._repr_html_()


def test_two_runs_are_named_by_what_they_differ_in():
    a, b = (ln.run(fabric(), ln.Permutation(size)) for size in ("1 MB", "2 MB"))
    found = ln.compare(a, b)
    assert found.heads == ("size=1 MB", "size=2 MB")
    assert {row.name: row.verdict for row in found}["fct_p99_s"] == "worse"
    over = ln.compare(a, ln.run(fabric(), ln.Permutation("1 MB", transport="roce")))
    assert over.heads == ("mrc", "roce")


def test_ideals_are_found_once_for_each_way(monkeypatch):
    """What figures of flows cost is linear in flows, and a host's links are looked up once."""
    from loomnet.measures.lone_ways import LoneWays

    looked = []
    leaving = LoneWays._leaving
    monkeypatch.setattr(
        LoneWays,
        "_leaving",
        lambda self, node, far: looked.append(node) or leaving(self, node, far),
    )
    counts = []
    for flows in (200, 800):
        looked.clear()
        ln.run(fabric(), ln.Flows("10 kB", count=flows, gap="1 us"))
        counts.append(len(looked))
    assert counts[1] == counts[0] < 100


def test_a_run_writes_a_summary_in_markdown(tmp_path):
    lab = Lab("page", directory=tmp_path, parameters={"size": "1 MB"})
    r = lab.run(fabric(), ln.Permutation("1 MB"), label="a.b")
    lab.check("slow", r["slowdown_p99"], le=0.5)
    text = to_markdown(lab.report)
    assert text.startswith("## page: a check failed") and "size=1 MB" in text
    assert "- a.b: 8 flows: half ended within " in text
    assert "| slow | " in text and "**FAIL**" in text
    assert f"| slowdown_p99 | {number_text(r['slowdown_p99'])} |" in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert all(line.count("|") - line.count("\\|") >= 3 for line in rows)


def test_a_run_that_is_not_repeatable_says_so_on_the_terminal_and_in_markdown(tmp_path, capsys):
    lab = Lab("once", directory=tmp_path)
    r = lab.run(fabric(), ln.Permutation("1 MB"))
    console = Console(width=200)
    print_report(lab.report, console)
    assert "not repeatable" not in capsys.readouterr().out + to_markdown(lab.report)
    lab.report.deterministic = False
    r.data.fidelity.notes["waited outside the network"] = "rank 1 sleeps outside the network"
    print_report(lab.report, console)
    said = (
        "not repeatable (deterministic: false): once: waited outside the network: rank 1 "
        "sleeps outside the network"
    )
    assert said in capsys.readouterr().out and said in to_markdown(lab.report)


def test_a_round_of_flows_has_recovered_by_its_slowest_flow():
    """Four flows share three links: 4/3 of the time, though the mean flow keeps 7/8 of its rate."""
    network = ln.clos.two_tier(
        planes=1, leaves=4, spines=4, hosts_per_leaf=4, rate="100 Gb/s", delay="1 us"
    )
    dead = ln.down("p0.leaf0--p0.spine0", at=ln.step(6), phase="dead")
    r = ln.run(network, ln.Permutation("2 MB", shift=1, repeat=16), [dead], seed=1)
    assert r["dead.expected_capacity"] == 0.875
    begin = r.phases[1].start_ps / 1e12
    rounds = [(row["end_s"] - begin, row["length_s"]) for row in r.iterations][6:]
    assert all(length > 4 / 3 * r["before.iteration_s"] for _, length in rounds)
    bound = 1.1 * r["before.iteration_s"] / 0.75
    assert r["dead.recovery_s"] == pytest.approx(
        next(
            rounds[i][0]
            for i in range(8)
            if all(length <= bound for _, length in rounds[i : i + 3])
        )
    )


@pytest.mark.parametrize(("lasts", "recovers"), [("300 us", True), (None, False)])
def test_rounds_of_a_flow_that_had_no_way_recover_once_it_has_one(lasts, recovers):
    network = ln.star(hosts=4, rate="100 Gb/s", delay="1 us")
    gone = ln.down("h0--p0.leaf0", at=ln.step(6), duration=lasts, phase="gone")
    r = ln.run(network, ln.Permutation("1 MB", shift=1, repeat=16, stall_timeout="10 ms"), [gone])
    assert r["gone.expected_capacity"] == 0.5 if recovers else r.data.ended != "finished"
    assert (r["gone.recovery_s"] is not None) is recovers
