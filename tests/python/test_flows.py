"""Flows: sizes drawn from published distributions, Poisson arrivals at a load, completion times."""

import itertools
import re
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import loomnet as ln
from loomnet.base.errors import UsageError
from loomnet.jobs import flow_sizes as flowsizes
from loomnet.jobs.flows import RingClaim
from loomnet.labs.lab import Lab
from loomnet.measures.flow_completion import percentile

pytest.importorskip("loomnet._core")
LINK = {"rate": "100 Gb/s", "delay": "1 us"}


def fabric(**values):
    shape = {"planes": 2, "leaves": 4, "spines": 4, "hosts_per_leaf": 4, **values}
    return ln.clos.two_tier(**shape, **LINK)


@pytest.mark.parametrize(
    ("name", "median", "largest", "mean"),
    [
        # Median between 33 and 53 packets, at most 20,000; mean as pFabric's table has it (1.7 MB).
        ("websearch", (33 * 1460, 53 * 1460), 20_000 * 1460, 1.7e6),
        # Half the flows are one packet; the rest holds nearly all bytes (7.4 MB mean).
        ("datamining", (1460, 1460), 666_667 * 1460, 7.4e6),
    ],
)
def test_published_distributions(name, median, largest, mean):
    sizes = flowsizes.named(name)
    assert median[0] <= sizes.at(0.5) <= median[1] and sizes.at(1.0) == largest
    assert sizes.mean == pytest.approx(mean, rel=0.05)
    drawn = statistics.fmean(sizes.at((i + 0.5) / 200_000) for i in range(200_000))
    assert drawn == pytest.approx(sizes.mean, rel=0.01)


def test_lists_and_files(tmp_path):
    sizes = ln.Flows(["1 kB", "3 kB"]).distribution
    assert {sizes.at(i / 100) for i in range(1, 101)} == {1000, 3000} and sizes.mean == 2000
    path = tmp_path / "own.csv"
    path.write_text("bytes,share\n1000,0\n2000,0.5\n10000,1\n")
    own = ln.Flows(str(path)).distribution
    assert own.mean == 0.5 * 1500 + 0.5 * 6000 and own.at(0.25) == 1500
    for text, message in (
        ("1000,0.5\n500,1\n", "own.csv:2: size 500 is below 1000"),
        ("1000,0.5\nx,1\n", "own.csv:2: a row is"),
        ("1000,0.5\n", "last row's share"),
        ("", "own.csv: no row"),
    ):
        path.write_text(text)
        with pytest.raises(UsageError, match=message):
            ln.Flows(str(path))
    for bad, message in (
        ("webserch", "nearest: websearch"),
        ([], "empty"),
        (str(tmp_path / "no.csv"), "No such file"),
        (3, "no size"),
    ):
        with pytest.raises(UsageError, match=message):
            ln.Flows(bad)
    with pytest.raises(UsageError, match="give one"):
        ln.Flows("1 kB", gap="1 us", load=0.5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("csv")


@settings(max_examples=100, deadline=None)
@given(text=st.text(max_size=60) | st.text("0123456789.,-e\n", max_size=40))
def test_any_csv_is_read_or_refused(folder, text):
    path = folder / "x.csv"
    path.write_text(text, errors="replace")
    try:
        sizes = flowsizes.from_csv(path)
    except UsageError:
        return
    assert sizes.at(0) >= 1 and sizes.at(1) == sizes.points[-1][0] and sizes.mean >= 0


def test_poisson_arrivals_offer_the_load(tmp_path):
    """32 senders of 200 Gb/s at load 0.3: offered bytes over time, and exponential gaps."""
    job = ln.Flows("20 kB", count=3000, load=0.3)
    r = Lab("load", seed=2, directory=tmp_path).run(fabric(), job)
    flows = r.flow_records
    assert r["errors"] == 0 and len(flows) == 3000
    starts = [flow.start_ps for flow in flows]
    offered = sum(flow.bytes for flow in flows) * 8e12 / starts[-1]
    assert offered == pytest.approx(0.3 * 16 * 200e9, rel=0.06)
    gaps = [b - a for a, b in itertools.pairwise(starts)]
    assert statistics.stdev(gaps) == pytest.approx(statistics.fmean(gaps), rel=0.1)
    assert len({flow.source for flow in flows}) == 16
    assert all(flow.source != flow.destination for flow in flows)
    figures = r.flow_figures()
    assert figures["unfinished"][0] == 0 and figures["slowdown_mean"][0] >= 1
    assert figures["fct_p50_s"][0] <= figures["fct_p99_s"][0] <= figures["fct_max_s"][0]


@pytest.mark.parametrize("transport", ["mrc", "roce"])
def test_a_flow_alone_has_a_slowdown_near_one(tmp_path, transport):
    for size in ("1 B", "2048 B", "100 kB", "3 MB"):
        lab = Lab("alone", directory=tmp_path / size.replace(" ", ""))
        r = lab.run(fabric(), ln.Flows(size, pairs=[(0, 1)], transport=transport))
        (flow,) = r.flow_records
        slowdown = flow.completion_ps / flow.ideal_ps
        assert 1 <= slowdown < (1.3 if size != "3 MB" else 1.1), (size, slowdown)


@pytest.mark.parametrize("transport", ["mrc", "roce", "tcp"])
def test_ideals_round_each_frame_as_links_do(tmp_path, transport):
    """At a rate at which a byte takes no whole number of picoseconds."""
    for planes, size, most in ((1, "1 B", 1), (4, "836440 B", 1.5)):
        odd = ln.star(hosts=2, planes=planes, rate="677 Gb/s", delay="11.9 ns", payload="256 B")
        r = Lab("odd", directory=tmp_path / size[0]).run(
            odd, ln.Flows(size, pairs=[(0, 1)], transport=transport)
        )
        (flow,) = r.flow_records
        assert flow.ideal_ps <= flow.completion_ps <= flow.ideal_ps * most


def test_tcps_ideal_takes_the_nearer_plane_each_way(tmp_path):
    """Data may go by one plane and acknowledgements come back by the other."""
    unlike = ln.star(hosts=8, planes=2, rate="25 Gb/s", delay="1 us")
    pairs = [(a, b) for a in range(4) for b in range(4, 8)]
    for a, b in pairs[::5]:
        unlike.override(f"h{a}->p0.*", delay="3 us")
        unlike.override(f"h{b}->p1.*", delay="7 us")
    r = Lab("unlike", directory=tmp_path / "unlike").run(
        unlike, ln.Flows("1 B", pairs=pairs, count=64, gap="40 us", transport="tcp")
    )
    beyond = {flow.completion_ps - flow.ideal_ps for flow in r.flow_records}
    assert {0, 2_000_000, 6_000_000, 8_000_000} <= beyond and min(beyond) == 0


def test_a_random_permutation_moves_every_rank_and_follows_its_seed():
    hosts = list(range(50))
    first = ln.Permutation("1 kB", shift="random", seed=1).edges(hosts)
    assert sorted(a for a, _ in first) == sorted(b for _, b in first) == hosts
    assert all(a != b for a, b in first)
    assert first == ln.Permutation("1 kB", shift="random", seed=1).edges(hosts)
    assert first != ln.Permutation("1 kB", shift="random", seed=2).edges(hosts)


def test_percentiles_are_nearest_rank():
    values = [float(i) for i in range(1, 101)]
    assert [percentile(values, s) for s in (0.01, 0.5, 0.99, 1.0)] == [1, 50, 99, 100]
    assert percentile([7.0], 0.99) == 7


def test_flows_as_a_table(tmp_path):
    r = Lab("table", directory=tmp_path).run(fabric(), ln.Incast("10 kB", ranks=4))
    rows = list(r.flows)
    assert [row["source"] for row in rows] == ["h1", "h2", "h3"]
    assert all(row["destination"] == "h0" and row["fct_s"] > 0 for row in rows)
    assert r.flow_figures()["flows"] == (3, "flows")


@pytest.mark.parametrize("name", ["permutation", "incast"])
def test_the_scenario_holds(tmp_path, name):
    from pathlib import Path

    scenario = ln.load(Path(__file__).parents[2] / "scenarios" / f"{name}.py")
    small = {"hosts": 16} if name == "permutation" else {}
    report = scenario.run(directory=tmp_path, **small)
    assert report.ok, report.failed


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {"sizes": "10 B", "steps": 11},
            "Flows: steps: 11 steps of a flow of 10 B would be shorter",
        ),
        ({"sizes": ["1 MB", "3 B"], "steps": 4}, "Flows: steps: 4 steps of a flow of 3 B"),
        ({"sizes": "websearch", "steps": 2000}, "Flows: steps: 2000 steps of a flow of 1.46 kB"),
        ({"sizes": "1 MB", "steps": 4, "count": 1}, "Flows: steps: steps of a ring go with 2 to"),
        ({"sizes": "1 MB", "claims": [RingClaim()]}, "Flows: claims: packets say a ring step of"),
        (
            {"sizes": "1 MB", "steps": 4, "claims": RingClaim()},
            "Flows.claims: give a list of claims",
        ),
        ({"sizes": "1 MB", "steps": 4, "claims": 5}, "Flows.claims: give a list of claims"),
        (
            {"sizes": "1 MB", "steps": 4, "claims": [RingClaim()] * 3},
            "Flows: claims: 3 claims for 2",
        ),
    ],
)
def test_steps_and_claims_that_flows_cannot_have(values, words):
    with pytest.raises(ln.UsageError, match=f"^{re.escape(words)}"):
        ln.Flows(values.pop("sizes"), **{"count": 2, "transport": "roce", **values})
