"""Switch programs by glob: from the fabric to the switches of a run on the virtual clock, and what
is refused before anything starts."""

import pytest

import loomnet as ln


def fabric(**more):
    return ln.clos.two_tier(
        planes=1, leaves=2, spines=1, hosts_per_leaf=2, rate="10 Gb/s", delay="5 us", **more
    )


def go(tmp_path, made, job=None, faults=(), **options):
    return ln.run(
        made, job or ln.AllReduce("200 kB", 3), faults, seed=1, directory=tmp_path, **options
    )


def test_every_switch_forwards_unless_told_otherwise(tmp_path):
    made = fabric().program("p0.leaf*", "sum")
    assert made.programs == {"p0.leaf0": "sum", "p0.leaf1": "sum"}
    assert made.describe().rows[-1]["number"] != ""
    shown = {row["number"]: row["value"] for row in made.describe()}
    assert shown['switches that run "sum"'] == 2
    r = go(tmp_path, made)
    assert r["errors"] == 0
    leaf, spine = r.switch("p0.leaf0"), r.switch("p0.spine0")
    assert (leaf.program, leaf.snapshot()) == ("sum", {"sums": []})
    assert (spine.program, spine.snapshot()) == ("forward", {})
    assert leaf.counters["received"] > 0
    made.program("p0.leaf*")
    assert made.programs == {}


@pytest.mark.parametrize("transport", ["mrc", "roce", "tcp"])
def test_a_program_that_falls_through_to_forward_changes_no_figure(tmp_path, transport):
    job = ln.AllReduce("200 kB", 3, transport)
    runs = [
        go(tmp_path / name, fabric().program("*", name), job)
        for name in ("forward", "sum", "mirror")
    ]
    assert [str(r.metrics) for r in runs] == [str(runs[0].metrics)] * 3


def test_options_reach_the_program(tmp_path):
    """Two hosts send to one over links that mark nothing; mirror marks by its own threshold."""
    job = ln.Flows(pairs=[(0, 2), (1, 2)], count=2, sizes="2 MB", transport="tcp")
    marks = {}
    for above in (0, 20_000):
        made = fabric().override("*--*", ecn=False).program("p0.*", "mirror", mark_above=above)
        r = go(tmp_path / str(above), made, job, tcp={"cc": "dctcp"})
        assert r["errors"] == 0 and r.switch("p0.leaf1").options == {"mark_above": above}
        marks[above] = sum(row.get("marked", 0) for row in r.data.totals.values())
    assert marks[0] == 0 and marks[20_000] > 0


def test_a_killed_switch_gets_its_tables_again(tmp_path):
    fault = ln.kill("p0.spine0", at=ln.step(2), duration="2 ms", reboot="2 ms", phase="dead")
    r = go(tmp_path, fabric().program("*", "sum"), ln.AllReduce("200 kB", 20), [fault])
    assert r["errors"] == 0 and len(r.data.iterations) == 20
    assert r.switch("p0.spine0").counters["drop_no_route"] > 0
    assert 0.004 <= r["dead.blip_s"] < 1


REFUSED = {
    "a glob without a match": (("p9.*", "sum"), {}, 'no switch "p9.*"; nearest: p0.'),
    "an unknown program": (("*", "summ"), {}, 'no switch program "summ"; there are aggregate, f'),
    "a policy that there is not": (
        ("p0.*", "aggregate"),
        {"policy": "esb"},
        'option policy: must be switchml, atp or esa, not "esb"',
    ),
    "a size that is none": (("p0.*", "aggregate"), {"pool": "5 miles"}, "pool"),
    "an option that the program lacks": (("*", "sum"), {"pool": 5}, 'has no option "pool"'),
    "a value out of range": (("*", "mirror"), {"sample": 0}, "must be 1 to 1000000000, not 0"),
    "a value of no type": (("*", "mirror"), {"sample": object()}, "option sample: must be"),
    "no name": (("*", 5), {}, "5 is not the name of a switch program"),
    "no pattern": ((5,), {}, "program: 5 is not a name"),
    "nothing": ((), {}, "missing a required argument"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused_is_one_line(what):
    given, options, line = REFUSED[what]
    made = fabric()
    with pytest.raises(ln.UsageError) as refused:
        made.program(*given, **options)
    assert line in str(refused.value) and "\n" not in str(refused.value)
    assert refused.value.exit_code == 2 and made.programs == {}


def test_a_result_names_the_switches_that_there_are(tmp_path):
    r = go(tmp_path, fabric())
    with pytest.raises(ln.UsageError, match=r'no switch "p0.leaf7"; nearest: p0.leaf'):
        r.switch("p0.leaf7")
    with pytest.raises(ln.UsageError, match=r'"p0.leaf\*" stands for 2 switches; name one, as p0'):
        r.switch("p0.leaf*")


def test_a_switch_that_a_large_run_did_not_build_forwards(tmp_path):
    made = ln.clos.two_tier(
        planes=1, leaves=64, spines=8, hosts_per_leaf=16, rate="100 Gb/s", delay="1 us"
    )
    job = ln.Flows(pairs=[(0, 1)], count=1, sizes="10 kB", ranks=2)
    r = go(tmp_path / "part", made, job)
    assert r.plan.partial and r.switch("p0.leaf63").program == "forward"
    whole = go(tmp_path / "whole", made.program("p0.leaf63", "sum"), job)
    assert not whole.plan.partial and whole.switch("p0.leaf63").snapshot() == {"sums": []}
    assert str(whole.metrics) == str(r.metrics)


def test_snapshots_are_taken_at_the_times_that_a_run_is_given(tmp_path):
    made = fabric().program("p0.leaf0", "sum")
    plain = go(tmp_path / "plain", made)
    r = go(tmp_path / "run", made, snapshots=["0.1 ms", "0 s"])
    leaf = r.switch("p0.leaf0")
    assert leaf.snapshot(at="0.1 ms") == leaf.snapshot(at="100 us") == {"sums": []}
    assert leaf.snapshot(at="0 s") == {"sums": []}
    assert str(r.metrics) == str(plain.metrics) and r.data.totals == plain.data.totals
    with pytest.raises(
        ln.UsageError,
        match=r"at=3 ms: none was taken then; give the run "
        r'snapshots=\["3 ms"\]; there are 0 ps, 100 us',
    ):
        leaf.snapshot(at="3 ms")
    with pytest.raises(ln.UsageError, match="there are none"):
        r.switch("p0.leaf1").snapshot(at="0 s")
    for wrong, line in ((5, "snapshots=5 is no list of times"), (["x"], "x"), ("-1 s", "-1 s")):
        with pytest.raises(ln.UsageError, match=line):
            go(tmp_path / "refused", made, snapshots=wrong)
        assert not (tmp_path / "refused").exists() or not list((tmp_path / "refused").iterdir())
