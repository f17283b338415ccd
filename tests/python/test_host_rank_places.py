"""Several ranks on a host: where the ranks of a job are, and what a fabric says of such hosts."""

import pytest
from test_host_ranks import fabric, run

import loomnet as ln
from loomnet.base.errors import FabricError, UnitError, UsageError
from loomnet.plans.make import make_plan


# --- where ranks are ------------------------------------------------------------------------------
def placement(made, *jobs):
    from loomnet.labs.placement import placements

    return placements(list(jobs), made)


def test_ranks_fill_hosts_in_order():
    made = fabric(hosts=4, ranks=2)
    assert placement(made, ln.AllReduce("1 MB")) == [[0, 0, 1, 1, 2, 2, 3, 3]]
    assert placement(made, ln.AllReduce("1 MB", ranks=3)) == [[0, 0, 1]]
    assert placement(made, ln.AllReduce("1 MB", hosts=["h3", "h1"])) == [[3, 3, 1, 1]]
    assert placement(made, ln.AllReduce("1 MB", hosts=["h3", "h1"], ranks=3)) == [[3, 3, 1]]
    assert placement(made, ln.AllReduce("1 MB", hosts=["h2"])) == [[2, 2]]


def test_a_host_with_few_of_a_jobs_ranks_is_taken_whole():
    made = fabric(hosts=4, ranks=2)
    assert placement(made, ln.AllReduce("1 MB", ranks=3), ln.AllReduce("1 MB")) == [
        [0, 0, 1],
        [2, 2, 3, 3],
    ]


def test_hosts_of_one_fabric_may_differ():
    made = ln.Fabric()
    made.add_switch("p0.leaf0")
    for count in (1, 3, 2):
        made.add_link(made.add_host(ranks=count), "p0.leaf0", rate="100 Gb/s", delay="1 us")
    made.add_link(made.add_host("s0", role="server"), "p0.leaf0", rate="100 Gb/s", delay="1 us")
    assert placement(made, ln.AllReduce("1 MB")) == [[0, 1, 1, 1, 2, 2]]
    assert make_plan(made).ranks == (0, 1, 1, 1, 2, 2)
    assert {row["number"]: row["value"] for row in made.describe()}["places for ranks"] == 6


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (ln.AllReduce("1 MB", ranks=9), "AllReduce.ranks: 9 ranks but 2 hosts, with 8 places"),
        (ln.AllReduce("1 MB", hosts=["h1"], ranks=5), "5 ranks but 1 hosts, with 4 places"),
        (ln.AllReduce("1 MB", hosts=["h1", "h1"]), "a host is named twice; name it once"),
        (ln.Flows("1 MB", pairs=[(0, 8)]), "Flows.pairs: (0, 8) is no pair of two of 8 ranks"),
    ],
)
def test_ranks_without_a_place_are_refused(tmp_path, job, words):
    with pytest.raises(UsageError) as caught:
        run(tmp_path, fabric(), job)
    assert words in str(caught.value) and "\n" not in str(caught.value)


# --- as the user states them ----------------------------------------------------------------------
def test_a_rate_with_a_capital_b_is_in_bytes():
    made = ln.Fabric()
    made.add_host(ranks=8, local_link="900 GB/s")
    assert made.hosts["h0"].local.rate == ln.Rate("7.2 Tb/s")
    assert made.hosts["h0"].local.delay == ln.Time("1 us")
    made.add_host(ranks=8, local_link="64 GB/s", local_delay="500 ns")
    assert made.hosts["h1"].local.rate == ln.Rate("512 Gb/s")
    assert made.hosts["h1"].local.delay == ln.Time("500 ns")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"ranks": 0}, "host h0: ranks: 0 must be a whole number from 1 to 256"),
        ({"ranks": -1}, "host h0: ranks: -1 must be"),
        ({"ranks": True}, "host h0: ranks: True must be"),
        ({"ranks": 2.0}, "host h0: ranks: 2.0 must be"),
        ({"ranks": "8"}, "must be a whole number from 1 to 256"),
        ({"ranks": None}, "host h0: ranks: None must be"),
        ({"ranks": 257}, "host h0: ranks: 257 must be"),
        ({"ranks": 10**30}, "must be a whole number from 1 to 256"),
        ({"ranks": 2, "local_link": 0}, "host h0: local_link: 0 has no unit"),
        ({"ranks": 2, "local_link": 900}, "host h0: local_link: 900 has no unit"),
        ({"ranks": 2, "local_link": "0 GB/s"}, "local_link: rate '0 GB/s' is out of range"),
        ({"ranks": 2, "local_link": "-1 GB/s"}, "host h0: local_link: rate"),
        ({"ranks": 2, "local_link": "900"}, "has no unit"),
        ({"ranks": 2, "local_link": "900 GiB"}, 'unknown unit "GiB"'),
        (
            {"ranks": 2, "local_link": "1000 Tb/s"},
            "host h0: local_link: 1000 Tb/s is above 672 Tb/s",
        ),
        ({"ranks": 2, "local_delay": "-1 us"}, "host h0: local_delay: time"),
        ({"ranks": 2, "local_delay": "100 h"}, "host h0: local_delay: 360000 s is above"),
        (
            {"local_link": "900 GB/s"},
            "host h0: local_link: joins several ranks of one host, and there "
            "is one: give ranks=2 or more, or leave local_link= out",
        ),
        ({"ranks": 1, "local_delay": "1 us"}, "host h0: local_delay: joins several ranks"),
        ({"ranks": 4, "role": "server"}, "host h0: ranks: a host of role server runs no rank"),
        ({"rank": 4}, 'unknown name "rank"'),
    ],
)
def test_a_bad_host_is_refused_in_one_line(values, words):
    made = ln.Fabric()
    with pytest.raises((FabricError, UnitError, UsageError)) as caught:
        made.add_host(**values)
    assert words in str(caught.value) and "\n" not in str(caught.value)
    assert not made.hosts


@pytest.mark.parametrize(
    "build",
    [
        lambda **v: ln.clos.two_tier(planes=1, leaves=2, spines=1, hosts_per_leaf=1, **v),
        lambda **v: ln.clos.three_tier(
            pods=2, leaves_per_pod=1, aggs_per_pod=1, cores_per_agg=1, hosts_per_leaf=1, **v
        ),
        lambda **v: ln.clos.fat_tree(4, **v),
        lambda **v: ln.star(hosts=2, **v),
        lambda **v: ln.dumbbell(left=1, right=1, **v),
    ],
)
def test_every_builder_takes_ranks_per_host(build):
    made = build(
        rate="100 Gb/s", delay="1 us", ranks_per_host=2, local_link="64 GB/s", local_delay="2 us"
    )
    plan = make_plan(made)
    assert {(h.ranks, h.local_rate_bps, h.local_delay_ps) for h in plan.hosts} == {
        (2, 512 * 10**9, 2 * 10**6)
    }
    with pytest.raises(FabricError, match=r"ranks_per_host: 0 must be a whole number from 1"):
        build(rate="100 Gb/s", delay="1 us", ranks_per_host=0)
    with pytest.raises(FabricError, match=r"local_link: joins .* give ranks_per_host=2 or more"):
        build(rate="100 Gb/s", delay="1 us", local_link="64 GB/s")


def test_a_fabric_says_and_keeps_its_ranks():
    made = fabric(local_link="64 GB/s", local_delay="2 us")
    text = str(made.describe())
    assert "hosts with 4 ranks, 512 Gb/s, 2 us" in text and "places for ranks" in text
    assert "h1 x4" in made._repr_svg_() or "x4" in made._repr_svg_()
    again = ln.from_networkx(made.to_networkx())
    assert [host.local for host in again.hosts.values()] == [
        host.local for host in made.hosts.values()
    ]
    made.add_host("h2", ranks=2)
    assert [host.ranks for host in made.hosts.values()] == [4, 4, 2]


def test_a_fabric_of_single_ranks_says_nothing_of_them():
    made = fabric(ranks=1)
    assert "ranks" not in str(made.describe())
    assert all(
        set(data) == {"kind", "role"}
        for _, data in made.to_networkx().nodes(data=True)
        if data["kind"] == "host"
    )
    host = make_plan(made).hosts[0]
    assert (host.ranks, host.local_rate_bps, host.local_delay_ps) == (1, 0, 0)
