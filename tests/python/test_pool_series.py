"""Slots of switches by the job that holds them, over time: the series that lab.run(pools=…) keeps,
what the report says of it, and what is refused."""

import csv
from collections import Counter
from itertools import pairwise

import pytest

import loomnet as ln

SLOTS = 64


def star(policy="esa", hosts=8, **options):
    fabric = ln.star(hosts=hosts, rate="10 Gb/s", delay="1 us")
    options.setdefault("pool", SLOTS * 1056)
    return fabric.program("*", "aggregate", policy=policy, **options)


def two(**options):
    return [
        ln.AllReduce("200 kB", repeat=4, ranks=4, allreduce="ina", name="a", **options),
        ln.AllReduce(
            "200 kB", repeat=8, ranks=4, allreduce="ina", name="b", start="0.1 ms", **options
        ),
    ]


def go(tmp_path, fabric=None, jobs=None, **options):
    options.setdefault("ina", {"window": 64, "rto_first": 10**9})
    return ln.run(fabric or star(), jobs or two(), seed=3, directory=tmp_path, **options)


@pytest.mark.parametrize("policy", ["esa", "atp", "switchml"])
def test_series_agree_with_snapshots_of_the_same_moment(tmp_path, policy):
    times = ["0.2 ms", "0.4 ms", "0.5 ms"]
    r = go(tmp_path, star(policy), pools="100 us", snapshots=times)
    table = r.pool("p0.leaf0")
    assert table.columns == ("time", "job", "held", "summing", "done") and table.slots == SLOTS
    seen = 0
    for at in times:
        states = {1: Counter(), 2: Counter()}
        for row in r.switch("p0.leaf0").snapshot(at)["slots"]:
            if row["state"]:
                # A slot's owner is the job's number on the wire, from 1, plus one.
                states[row["state"]]["ab"[row["job"] - 2]] += 1
        for row in table:
            if row["time"] == pytest.approx(ln.Time(at).seconds):
                job = row["job"]
                assert (row["summing"], row["done"]) == (states[1][job], states[2][job])
                assert row["held"] == row["summing"] + row["done"]
                seen += row["held"]
    assert seen > 0


@pytest.mark.parametrize("policy", ["esa", "atp"])
def test_no_more_slots_are_held_than_there_are_and_ended_jobs_hold_none(tmp_path, policy):
    r = go(tmp_path, star(policy), pools="20 us")
    table = r.pool("p0.leaf0")
    at = Counter()
    for row in table:
        at[row["time"]] += row["held"]
    assert 0 < max(at.values()) <= SLOTS and len(at) > 20
    ended = r["a.jct_s"]
    assert r["b.jct_s"] > ended + 1e-4
    later = [row for row in table if row["time"] > ended + 2e-5]
    assert sum(row["held"] for row in later if row["job"] == "a") == 0
    assert sum(row["held"] for row in later if row["job"] == "b") > 0
    assert sum(row["held"] for row in table if row["job"] == "b" and row["time"] < 9e-5) == 0
    if policy == "esa":  # it frees a slot when the sum leaves
        assert sum(table.column("done")) == 0
    else:  # it holds them until the result comes back
        assert sum(table.column("done")) > sum(table.column("summing"))


def test_switchml_jobs_have_equal_shares_of_any_number_of_slots(tmp_path):
    """64 slots among three jobs: two sets of ten for each."""
    jobs = [
        ln.AllReduce("200 kB", repeat=4, allreduce="ina", name=name, hosts=hosts)
        for name, hosts in (("a", ["h0", "h1"]), ("b", ["h2", "h3"]), ("c", ["h4", "h5"]))
    ]
    r = go(tmp_path, star("switchml"), jobs, pools="10 us", payload=True)
    held = Counter()
    for row in r.pool("p0.leaf0"):
        held[row["job"]] = max(held[row["job"]], row["held"])
    assert held == {"a": 20, "b": 20, "c": 20}
    assert all(r.job(name).data.wrong == 0 and r[f"{name}.errors"] == 0 for name in "abc")


def test_the_report_says_what_each_job_held(tmp_path):
    r = go(tmp_path, star("switchml"), pools="10 us")
    for name in "ab":
        held = [row["held"] for row in r.pool("p0.leaf0") if row["job"] == name and row["held"]]
        assert r[f"{name}.slots_peak.p0.leaf0"] == max(held) == SLOTS // 2
        assert r[f"{name}.slots_mean.p0.leaf0"] == pytest.approx(SLOTS // 2, rel=0.1)
    assert r.metric("a.slots_mean.p0.leaf0").unit == "slots"


def test_one_job_on_two_levels_has_a_series_for_each_switch(tmp_path):
    fabric = ln.clos.two_tier(
        planes=1, leaves=2, spines=1, hosts_per_leaf=4, rate="10 Gb/s", delay="1 us"
    )
    fabric.program("*", "aggregate", policy="atp", pool=SLOTS * 1056)  # it holds slots for long
    r = go(tmp_path, fabric, ln.AllReduce("300 kB", repeat=3, allreduce="ina"), pools="20 us")
    for leaf in ("p0.leaf0", "p0.leaf1"):
        assert set(r.pool(leaf).column("job")) == {"job"} and sum(r.pool(leaf).column("held")) > 0
        assert 0 < r[f"slots_mean.{leaf}"] < r[f"slots_peak.{leaf}"] <= SLOTS
    assert r["slots_peak.p0.spine0"] == 0  # on the tree, with one way below it


def test_a_ring_beside_sums_holds_no_slot_and_is_not_in_the_series(tmp_path):
    ring = ln.AllReduce("200 kB", repeat=2, ranks=4, allreduce="ring", name="ring")
    r = go(tmp_path, jobs=[ring, two()[1]], pools="20 us")
    assert set(r.pool("p0.leaf0").column("job")) == {"b"}
    with pytest.raises(ln.UsageError, match=r'no number "ring\.slots_mean'):
        r["ring.slots_mean.p0.leaf0"]


def test_looking_changes_nothing_and_is_the_same_again(tmp_path):
    plain = go(tmp_path / "plain")
    first = go(tmp_path / "first", pools="7 us")
    go(tmp_path / "again", pools="7 us")
    rows = [row for row in first.rows if not row.name.startswith("slots_")]
    assert rows == plain.rows and len(first.rows) == len(rows) + 4
    assert first.data.totals == plain.data.totals
    files = [(tmp_path / name / "pools.csv").read_bytes() for name in ("first", "again")]
    assert files[0] == files[1] and not (tmp_path / "plain" / "pools.csv").exists()
    with (tmp_path / "first" / "pools.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(first.pool("p0.leaf0"))
    assert [int(row["held"]) for row in rows] == first.pool("p0.leaf0").column("held")
    assert {row["switch"] for row in rows} == {"p0.leaf0"}


def test_every_keeps_the_first_look_of_each_step(tmp_path):
    r = go(tmp_path, pools="10 us")
    whole, some = r.pool("p0.leaf0"), r.pool("p0.leaf0", every="50 us")
    assert list(some) == [row for row in whole if round(row["time"] * 1e6) % 50 == 0]


def test_a_long_run_is_looked_at_less_often(tmp_path, monkeypatch):
    monkeypatch.setattr("loomnet.measures.pools.MOST_COUNTS", 100)
    r = go(tmp_path, pools="1 us")
    times = sorted(set(r.pool("p0.leaf0").column("time")))
    step = r.data.pools.every_ps
    assert step in {2**n * 10**6 for n in range(1, 12)} and len(times) <= 25
    assert {round(b * 1e12) - round(a * 1e12) for a, b in pairwise(times)} == {step}
    assert r["b.slots_peak.p0.leaf0"] > 0


def test_slots_that_no_sample_met_are_said(tmp_path):
    """Workers in step: all packets of a sum come in one instant, so none is held for a time."""
    fabric = star(hosts=4)
    fabric.add_host("ps0", role="server")
    fabric.add_link("ps0", "p0.leaf0", rate="10 Gb/s", delay="1 us")
    job = ln.AllReduce("200 kB", ranks=4, allreduce="ina")
    r = go(tmp_path / "step", fabric, job, pools="1 us")
    assert r.switch("p0.leaf0").counters["complete"] > 300
    assert r["slots_mean.p0.leaf0"] == 0 and r["slots_peak.p0.leaf0"] is None
    why = r.metric("slots_peak.p0.leaf0").reason
    assert "no sample met a slot" in why and "each for no time" in why
    pool = r.pool("p0.leaf0")
    assert pool.unseen and pool.taken_text == (
        f"Slots were taken {r.switch('p0.leaf0').counters['claim']} times, each for no time: "
        "all packets of a sum came at once"
    )
    assert any("No sample met a slot" in text.get_text() for text in pool.plot().texts)
    assert "each for no time" in pool._repr_html_()
    # A server on a worker's link delays that worker: slots are held, and nothing of this is said.
    r = go(tmp_path / "late", star(hosts=4), job, pools="1 us")
    counters = r.switch("p0.leaf0").counters
    assert r["slots_peak.p0.leaf0"] > 0 and not r.pool("p0.leaf0").unseen
    each_us = counters["held_ps"] / counters["claim"] / 1e6
    assert f"each for {each_us:.4g} us on average" in r.pool("p0.leaf0").taken_text
    drawn = r.pool("p0.leaf0").plot()
    assert not drawn.texts
    drawn.savefig(tmp_path / "pool.png")  # as a figure's
    assert (tmp_path / "pool.png").stat().st_size > 1000


def test_the_table_draws_itself(tmp_path):
    from matplotlib.figure import Figure

    axes = go(tmp_path, pools="20 us").pool("p0.leaf0").plot(Figure().subplots())
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a", "b"]
    assert axes.get_ylim()[1] >= SLOTS


REFUSED = {
    "no time": ({"pools": 5}, "run: pools"),
    "no unit": ({"pools": "5"}, "run: pools"),
    "no step": ({"pools": "0 s"}, "run: pools=0 ps must be 1 ns or more"),
    "less than none": ({"pools": "-1 us"}, "run: pools: time '-1 us' is out of range"),
    "a slip": ({"pool": "1 us"}, "run: no option pool; nearest: pools"),
    "live, too often": (
        {"pools": "1 ms", "clock": "live"},
        "run: pools=1 ms: live, two samples are 20 ms of wall time or more apart",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_looked_at_is_one_line(tmp_path, monkeypatch, what):
    monkeypatch.chdir(tmp_path)
    options, line = REFUSED[what]
    with pytest.raises(ln.UsageError) as refused:
        ln.run(star(), two(), **options)
    assert line in str(refused.value) and "\n" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_a_run_in_which_no_switch_sums_has_no_series(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        ln.UsageError, match='pools: no switch sums for a job of this run; give one allreduce="ina"'
    ):
        ln.run(star(), ln.AllReduce("1 MB"), pools="1 us")
    assert list(tmp_path.iterdir()) == []


def test_a_pool_without_a_series_is_one_line(tmp_path):
    plain = go(tmp_path / "plain")
    with pytest.raises(ln.UsageError, match='the run did not sample the slots; give it pools="100'):
        plain.pool("p0.leaf0")
    fabric = (
        ln.clos.two_tier(
            planes=1, leaves=2, spines=1, hosts_per_leaf=4, rate="10 Gb/s", delay="1 us"
        )
        .program("*", "aggregate")
        .program("p0.spine0", "aggregate", pool=0)
    )
    r = go(tmp_path / "clos", fabric, ln.AllReduce("100 kB", allreduce="ina"), pools="20 us")
    with pytest.raises(ln.UsageError, match=r"pool: p0\.spine0 has no slots; there are p0\.leaf0"):
        r.pool("p0.spine0")
    with pytest.raises(ln.UsageError, match="leaf7"):
        r.pool("p0.leaf7")
    with pytest.raises(ln.UsageError, match="stands for 2 switches"):
        r.pool("p0.leaf*")
    with pytest.raises(ln.UsageError, match="pool: every"):
        r.pool("p0.leaf0", every="0 s")
    assert set(r.pool("p0.leaf1", every="1 ms").column("time")) == {0.0}
