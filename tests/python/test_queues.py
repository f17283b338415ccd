"""Queue disciplines of links: what TCP sees over each on the virtual clock, how a fabric chooses
one and how a wrong choice is refused; the largest frame in PFC's headroom."""

import dataclasses
import statistics

import pytest

import loomnet as ln
from loomnet.base.errors import FabricError
from loomnet.fabrics.link_settings import LinkDefaults
from loomnet.plans.make import make_plan
from loomnet.running.engine_settings import link_config

BOTTLENECK = "p0.leaf0->p0.leaf1"
RATE = 40 * 10**6


def dumbbell(queue, buffer="400 kB", **options):
    """Two hosts to two others over 40 Mb/s, round trip 20 ms; a buffer of 80 ms."""
    fabric = ln.dumbbell(
        left=2,
        right=2,
        rate="200 Mb/s",
        bottleneck="40 Mb/s",
        delay="1 ms",
        bottleneck_delay="8 ms",
    )
    return fabric.override(BOTTLENECK, queue=queue, data_limit=buffer, **options)


def counters(result, link=BOTTLENECK):
    return result.data.totals.get(f"link {link}", {})


# --- what the publications say of them ------------------------------------------------------------
def standing_queue(lab, queue, cc="cubic", **options):
    """Mean time in the queue in the second half of one bulk flow's life, and its share of the
    link."""
    job = ln.Flows("60 MB", pairs=[(0, 2)], transport="tcp")
    r = lab.run(
        dumbbell(queue, **options),
        job,
        label=f"{queue}-{cc}-{len(options)}",
        sample="5 ms",
        queues=[BOTTLENECK],
        tcp={"cc": cc, "mtu": 1500},
    )
    end = r.flow_records[0].end_ps
    waited = r.data.samples.queue_seconds(BOTTLENECK, RATE, end // 2, end)
    used = 60e6 * 8 * (1500 + 38) / (1500 - 72) / RATE / (end / 1e12)
    return statistics.fmean(waited), used, r


def test_codel_keeps_a_bulk_flows_queue_near_its_target_where_fifo_fills_the_buffer(lab):
    fifo, fifo_used, filled = standing_queue(lab, "fifo")
    codel, codel_used, kept = standing_queue(lab, "codel")
    assert 0.04 < fifo < 0.08 and counters(filled)["drop_queue_full"] > 0
    assert 0.001 < codel < 0.010
    assert fifo_used > 0.95 and codel_used > 0.85
    assert counters(kept)["drop_codel"] > 5
    assert "drop_codel" not in counters(filled)
    # RFC 8289, 4.4: the standing queue follows the target.
    longer, _, _ = standing_queue(lab, "codel", target="20 ms")
    assert longer > 1.5 * codel


def test_codel_marks_dctcp_instead_of_dropping(lab):
    _, _, r = standing_queue(lab, "codel", cc="dctcp")
    assert counters(r)["marked"] > 10 and "drop_codel" not in counters(r)
    _, _, r = standing_queue(lab, "codel", cc="dctcp", ecn=False)
    assert "marked" not in counters(r) and counters(r)["drop_codel"] > 0


@pytest.mark.parametrize("queue", ["fq", "fq_codel"])
def test_fair_queueing_isolates_a_sparse_flow_from_a_bulk_flow(lab, queue):
    def seconds(name):
        sizes = ["20 MB"] + ["3 kB"] * 9
        job = ln.Flows(sizes, count=60, pairs=[(0, 2), (1, 3)], gap="100 ms", transport="tcp")
        r = lab.run(dumbbell(name), job, label=name, tcp={"mtu": 1500})
        assert r["errors"] == 0
        # Short flows while a bulk flow is under way that shares the bottleneck with them.
        bulks = [f for f in r.flow_records if f.bytes > 10**6]
        first = min(f.start_ps for f in bulks) + 2 * 10**12
        last = max(f.end_ps for f in bulks)
        short = [
            f.end_ps - f.start_ps
            for f in r.flow_records
            if f.bytes < 10**4 and first < f.start_ps and f.end_ps < last
        ]
        assert len(short) > 5
        return statistics.median(short) / 1e12

    fifo, fair = seconds("fifo"), seconds(queue)
    assert fair < 0.030, "a round trip of 20 ms, the packet on the wire, a round of the bulk flows"
    assert fifo > 2 * fair


def test_fair_queueing_gives_two_flows_the_same_where_fifo_favours_the_short_way(lab):
    """Reno's rate falls with the round trip; fair queueing's shares do not."""

    def ratio(queue):
        fabric = ln.Fabric()
        near, far = fabric.add_switch("p0.leaf0"), fabric.add_switch("p0.leaf1")
        for end, delay in ((near, "1 ms"), (near, "20 ms"), (far, "1 ms"), (far, "1 ms")):
            fabric.add_link(fabric.add_host(), end, rate="200 Mb/s", delay=delay)
        fabric.add_link(near, far, rate="40 Mb/s", delay="3 ms", queue=queue, data_limit="100 kB")
        job = ln.Flows("40 MB", count=2, pairs=[(0, 2), (1, 3)], transport="tcp")
        r = lab.run(fabric, job, label=queue, tcp={"cc": "reno", "mtu": 1500})
        short, long = (f.end_ps for f in r.flow_records)
        return long / short

    assert ratio("fq") < 1.15 < 1.4 < ratio("fifo")


def test_the_default_is_strict_priority_and_named_so(lab):
    def run(label, **settings):
        fabric = ln.clos.two_tier(
            planes=1, leaves=2, spines=2, hosts_per_leaf=2, rate="100 Gb/s", delay="1 us"
        )
        fabric.override("*--*", **settings)
        return lab.run(fabric, ln.AllToAll("1 MB", transport="mrc"), label=label)

    plain, named = run("plain", trim=True), run("named", queue="priority")
    assert plain.data.totals == named.data.totals
    other = run("fifo", queue="fifo")
    assert other["errors"] == 0 and not any("trimmed" in row for row in other.data.totals.values())


# --- choosing one ---------------------------------------------------------------------------------
def test_a_choice_reaches_the_engine_and_another_discipline_starts_from_its_presets():
    fabric = dumbbell("fq_codel", target="1 ms", quantum="3 kB", flows=64, ecn=False)
    half = make_plan(fabric).links[-1].forward
    assert half.queue == "fq_codel" and half.trim_bytes == 0
    assert half.queue_options == (("ecn", 0), ("flows", 64), ("quantum", 3000), ("target", 10**9))
    link_config(dataclasses.asdict(half))
    fabric.override(BOTTLENECK, interval="20 ms")
    assert ("interval", 2 * 10**10) in make_plan(fabric).links[-1].forward.queue_options
    fabric.override(BOTTLENECK, queue="codel", ecn=None)
    assert make_plan(fabric).links[-1].forward.queue_options == ()
    assert make_plan(fabric).links[-1].backward.queue == "priority"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"queue": "cdel"}, f'{BOTTLENECK}: queue: "cdel" is not a queue discipline; near'),
        ({"queue": 5}, "queue: 5 is not a queue discipline"),
        ({"queue": "codel", "targt": "1 ms"}, 'unknown setting "targt"; nearest: target'),
        ({"target": "1 ms"}, f'{BOTTLENECK}: target is an option of queue="codel", not of "pri'),
        ({"queue": "fq", "target": "1 ms"}, 'target is an option of queue="codel", not of "fq"'),
        ({"queue": "codel", "target": 5}, f"{BOTTLENECK}: target: 5 has no unit"),
        ({"queue": "codel", "target": "0 s"}, "target: '0 s' is not from 1 ps to"),
        ({"queue": "fq", "flows": 1 << 17}, "flows: 131072 is not from 1 to 65536"),
        ({"queue": "fq", "flows": True}, "flows: True is not a whole number"),
        ({"queue": "fq", "quantum": "1 B"}, "quantum: '1 B' is not from 256 B to 1 MiB"),
    ],
)  # fmt: skip
def test_a_wrong_choice_is_one_line_that_names_the_field(settings, message):
    fabric = dumbbell("priority")
    with pytest.raises(FabricError) as caught:
        fabric.override(BOTTLENECK, **settings)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_port_under_pfc_queues_by_priority(lab):
    lossless = LinkDefaults(pfc=True)
    with pytest.raises(FabricError) as caught:
        make_plan(dumbbell("codel"), defaults=lossless)
    assert str(caught.value) == (
        f'{BOTTLENECK}: queue: a port under PFC queues by "priority" or "laggard_first", not '
        '"codel"; give queue="priority" or, on this link both ways, pfc=False'
    )
    # PFC at another port of the switch.
    fabric = dumbbell("codel").override("p0.leaf0--p0.leaf1", pfc=False)
    with pytest.raises(FabricError) as caught:
        make_plan(fabric, defaults=lossless)
    assert "queue: ports of p0.leaf0 are under PFC" in str(caught.value)
    make_plan(fabric.override("*--*", pfc=False), defaults=lossless)
    with pytest.raises(FabricError, match="a port under PFC queues by"):
        lab.run(dumbbell("fq"), ln.Flows("1 MB", pairs=[(0, 2)], transport="roce"))


# --- the largest frame ----------------------------------------------------------------------------
def test_pfc_loses_nothing_of_frames_longer_than_the_fabrics_own(lab):
    """TCP of an MTU of 9,000 B, seven to one: headroom for frames of 4,238 B lost 142 of them."""
    fabric = ln.star(hosts=8, rate="10 Gb/s", delay="100 ns", pfc=True)
    pairs = [(a, 0) for a in range(1, 8)]
    job = ln.Flows("8 MB", count=len(pairs), pairs=pairs, transport="tcp")
    r = lab.run(fabric, job, tcp={"mtu": 9000})
    assert r["errors"] == 0
    totals = [row for name, row in r.data.totals.items() if name.startswith("link ")]
    assert not any(name.startswith("drop_") for row in totals for name in row)
    assert sum(row.get("pfc_pauses", 0) for row in totals) > 1000
    half = r.plan.links[0].forward
    assert half.largest_frame_bytes == 9014
    # Of the round trip of 200 ns at 10 Gb/s, a pause frame and two frames, all framed.
    assert 250 + 84 + 2 * 9038 + 9014 <= half.pfc_headroom_bytes <= 27_424 + 32


def test_runs_of_shorter_frames_have_the_headroom_they_had(lab):
    for transport, options in (("tcp", {"tcp": {"mtu": 1500}}), ("mrc", {}), ("tcp", {})):
        r = lab.run(
            ln.star(hosts=2, rate="10 Gb/s", delay="1 us", pfc=True),
            ln.Flows("100 kB", pairs=[(0, 1)], transport=transport),
            label=f"{transport}{len(options)}",
            **options,
        )
        assert r.plan.links[0].forward.largest_frame_bytes == 4238


def test_queues_hold_eight_of_tcps_packets_whatever_the_fabrics_payload():
    """A queue below one packet drops each that comes while a longer one before it still leaves."""
    fabric = ln.dumbbell(left=1, right=1, rate="332 Mb/s", delay="100 ns", payload="256 B")
    # A held window of 50 packets, and messages whose last segment is shorter than the others.
    held = {"cc": "astraea", "policy": "hold", "startup": "none", "initial_window": 50}
    job = ln.Flows("1.7 MB", count=1, pairs=[(0, 1)], lifetimes=["10 s"], transport="tcp")
    runs = {mtu: ln.Lab().run(fabric, job, tcp={**held, "mtu": mtu}) for mtu in (1500, 3414)}
    for mtu, r in runs.items():
        assert not any(row.get("drop_queue_full") for row in r.data.totals.values())
        assert r.data.totals[f"link {BOTTLENECK}"]["max_queue"] > 1000
        limit = r.plan.links[1].forward.data_limit_bytes
        assert limit % (8 * (mtu + 14)) == 0 and limit > 0
