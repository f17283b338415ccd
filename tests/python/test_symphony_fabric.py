"""The fabric of Symphony's experiments, thresholds of one's own, and the oracle queue in a run."""

import pytest
from scenario_lib import lib

import loomnet as ln
from loomnet.base.errors import FabricError
from loomnet.fabrics.link_settings import LinkDefaults
from loomnet.plans.make import make_plan

symphony = lib("symphony")

pytest.importorskip("loomnet._core")


def half(fabric, name, defaults=None):
    plan = make_plan(fabric, defaults=defaults or LinkDefaults(pfc=True, dcqcn=True, trims=False))
    return next(
        each for link in plan.links for each in (link.forward, link.backward) if each.name == name
    )


@pytest.mark.parametrize("hosts, over, spines", [(8, 1, 4), (16, 2, 4), (32, 1, 16)])
def test_every_hop_of_a_ring_crosses_an_uplink(hosts, over, spines):
    fabric = symphony.ring_fabric(hosts, oversubscription=over)
    leaf_of = {link.a: link.b for link in fabric.all_links() if link.a in fabric.hosts}
    ring = [leaf_of[f"h{i}"] for i in range(hosts)]
    assert all(ring[i] != ring[i - 1] for i in range(hosts))
    uplinks = fabric.match(symphony.UPLINKS)
    assert len(uplinks) == 2 * spines == hosts // over
    assert all(
        direction == 1 and link.forward.rate == ln.Rate("100 Gb/s") for link, direction in uplinks
    )


def test_thresholds_are_those_of_the_simulations():
    for name in ("p0.leaf0->p0.spine1", "p0.spine1->p0.leaf1", "p0.leaf1->h1"):
        port = half(symphony.ring_fabric(8), name)
        assert (port.ecn_low_bytes, port.ecn_high_bytes) == (400_000, 1_600_000)
        assert port.ecn_share == 0.2
    assert half(symphony.ring_fabric(8), "p0.leaf0->p0.spine1").pfc_xoff_bytes == 4_000_000
    assert half(symphony.ring_fabric(8), "h0->p0.leaf0").ecn_high_bytes == 0  # a NIC marks nothing
    slow = half(symphony.ring_fabric(8, rate="10 Gb/s"), "p0.leaf0->p0.spine1")
    assert (slow.ecn_low_bytes, slow.ecn_high_bytes) == (40_000, 160_000)
    deep = half(symphony.ring_fabric(8, pfc=False), "p0.leaf0->p0.spine1")
    assert (deep.pfc_xoff_bytes, deep.data_limit_bytes) == (0, 64_000_000)


def test_a_link_may_have_thresholds_of_its_own():
    fabric = ln.star(hosts=2, rate="100 Gb/s", delay="1 us")
    name = "p0.leaf0->h1"
    assert half(fabric, name, LinkDefaults()).ecn_high_bytes == 0  # the last hop marks nothing
    fabric.override(name, ecn=ln.Ecn("10 kB", "30 kB"))
    port = half(fabric, name, LinkDefaults())
    assert (port.ecn_low_bytes, port.ecn_high_bytes, port.ecn_share) == (10_000, 30_000, 1.0)
    fabric.override(name, ecn=ln.Ecn("10 MB", "30 MB", share=0.5))
    assert half(fabric, name, LinkDefaults()).data_limit_bytes == 120_000_000  # holds what it marks
    for wrong, says in (
        (lambda: ln.Ecn("40 kB", "30 kB"), "high: 30 kB must not be below low, 40 kB"),
        (lambda: ln.Ecn("1 kB", "2 kB", share=0), "share: 0.0 is not a share"),
        (lambda: fabric.override(name, ecn="400 kB"), "ecn: '400 kB' is not True, False or ln.Ecn"),
    ):
        with pytest.raises(ln.UsageError) as refused:
            wrong()
        assert says in str(refused.value) and "\n" not in str(refused.value)


def test_a_condition_says_what_its_switches_run():
    def options(kind, **more):
        made = symphony.Condition(hosts=4, **more).fabric(kind)
        return {name: dict(each.options) for name, each in made.switches.items() if each.options}

    assert options("off") == options("oracle") == {}
    gated = options("on", switches=(("gate", 4),))
    assert len(gated) == 4 and all(
        each == {"mode": "spaced", "tau": "1 step", "gate": 4, "identity": "hdr"}
        for each in gated.values()
    )
    # Without base marks the program or none; with them each of the rules for base marks.
    assert options("no_marks") == {} and len(options("alone")) == 4
    rules = {
        kind: {each.get("base_marks") for each in options(kind).values()} for kind in symphony.KINDS
    }
    assert {kind: found for kind, found in rules.items() if found - {None}} == {
        kind: {kind} for kind in ("not_owner", "leaders", "not_random", "not_leader")
    }
    for kind, switches in symphony.KINDS.items():
        port = half(symphony.Condition(hosts=4).fabric(kind), "p0.leaf0->p0.spine0")
        assert (port.ecn_high_bytes > 0) == switches.base, kind
    assert {each["mode"] for each in options("on", host="D").values()} == {"prob"}


@pytest.mark.parametrize(
    "wrong, says",
    [
        (
            {"hosts": 6, "oversubscription": 2},
            "hosts=6 must be a multiple of 4 from 4 to 512 with oversubscription=2",
        ),
        ({"hosts": 4, "oversubscription": 8}, "hosts=4 must be a multiple of 16 from 16 to 512"),
        ({"oversubscription": 0}, "oversubscription=0 must be a whole number"),
        ({"queue": "fifo"}, 'queue: a port under PFC queues by "priority" or "laggard_first"'),
        (
            {"queue": "fifo", "parts": 2},
            'parts is an option of queue="laggard_first", not of "fifo"',
        ),
    ],
)
def test_wrong_settings_are_refused_in_one_line(wrong, says):
    with pytest.raises(FabricError) as refused:
        make_plan(symphony.ring_fabric(**wrong), defaults=LinkDefaults(pfc=True))
    assert says in str(refused.value) and "\n" not in str(refused.value)


# --- the oracle -----------------------------------------------------------------------------------
def seconds(lab, label, **settings):
    """Time of one all-reduce whose flows meet on two uplinks of each leaf, senders without
    congestion control; what was lost or paused."""
    fabric = symphony.ring_fabric(16, oversubscription=4, **settings)
    burst = ln.bursts(fabric, symphony.UPLINKS, until="20 ms", mean="400 us", seed=4)
    job = ln.AllReduce("8 MB", transport="roce")
    r = lab.run(fabric, job, burst, label=label, seed=7, payload=True)
    assert (r["errors"], r["before.lost"], r.data.wrong) == (0, 0, 0)
    totals = r.data.totals.values()
    return r.data.iterations[-1].end_ps / 1e12, sum(row.get("pfc_pauses", 0) for row in totals)


@pytest.mark.parametrize("pfc", [True, ln.Pfc("200 kB"), False])
def test_the_oracle_loses_nothing_and_is_another_order(lab, pfc):
    plain, plain_pauses = seconds(lab, "plain", pfc=pfc)
    oracle, pauses = seconds(lab, "oracle", pfc=pfc, queue="laggard_first")
    assert oracle != plain
    assert oracle < 1.1 * plain
    assert (pauses > 0) == (plain_pauses > 0) == (pfc not in (True, False))
    assert seconds(lab, "again", pfc=pfc, queue="laggard_first")[0] == oracle


def test_on_traffic_that_is_in_no_ring_the_oracle_is_the_default(lab):
    def ends(label, **settings):
        r = lab.run(
            symphony.ring_fabric(8, **settings),
            ln.AllToAll("4 MB", transport="roce"),
            label=label,
            seed=7,
        )
        assert r["errors"] == 0
        return [each.end_ps for each in r.data.iterations]

    assert ends("oracle", queue="laggard_first") == ends("plain")
