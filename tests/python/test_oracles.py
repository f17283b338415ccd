"""Answers known without simulating: one flow to the picosecond, max-min shares of an incast, the
ring all-reduce's bound, a permutation that cannot collide. M/D/1 is in tests/cpp/link."""

import pytest

import loomnet as ln
from loomnet.faults.expected_capacity import edge_rates
from loomnet.labs.lab import Lab
from loomnet.plans.make import make_plan

pytest.importorskip("loomnet._core")

BYTE_PS, DELAY_PS, PAYLOAD = 80, 10**6, 4096  # 100 Gb/s
FRAMING = 24  # preamble, gap, FCS
LINK = {"rate": "100 Gb/s", "delay": "1 us", "payload": "4096 B"}
FABRICS = {  # fabric, links on the way, a pair of hosts
    "star": (lambda: ln.star(hosts=8, **LINK), 2, (0, 1)),
    "two-tier": (
        lambda: ln.clos.two_tier(planes=1, leaves=2, spines=1, hosts_per_leaf=2, **LINK),
        4,
        (0, 1),
    ),
    "fat-tree": (lambda: ln.clos.fat_tree(4, **LINK), 6, (0, 15)),
}


def run(tmp_path, fabric, job, **options):
    r = Lab("oracle", directory=tmp_path / "run", seed=1).run(fabric, job, **options)
    assert r["errors"] == 0 and r.data.fidelity.unexplained == 0
    return r


def frames(transport, size):
    """Wire bytes of each data packet of one write, and of the acknowledgement (OCP MRC
    1.0; RoCE: Ethernet 14, IPv6 40, UDP 8, BTH 12, ICRC 4, RETH 16 on the
    first, AETH 4)."""
    cuts = [min(PAYLOAD, size - at) for at in range(0, size, PAYLOAD)]
    if transport == "mrc":
        return [cut + 142 + FRAMING for cut in cuts], 154 + FRAMING
    padded = [cut + -cut % 4 for cut in cuts]
    return [cut + 78 + 16 * (i == 0) + FRAMING for i, cut in enumerate(padded)], 82 + FRAMING


def pipeline(wire, hops):
    """When the last frame has crossed `hops` equal links in a row, each storing and forwarding."""
    free = [0] * hops
    at = 0
    for size in wire:
        at = 0
        for hop in range(hops):
            at = max(at, free[hop]) + size * BYTE_PS
            free[hop] = at
            at += DELAY_PS
    return at


@pytest.mark.parametrize("transport", ["mrc", "roce"])
@pytest.mark.parametrize("name", FABRICS)
@pytest.mark.parametrize("size", [1, 100, 4096, 8192, 40_960])
def test_one_flow_to_the_picosecond(tmp_path, name, transport, size):
    """Serialisation and propagation of every frame, and of the last one's acknowledgement."""
    fabric, hops, pair = FABRICS[name]
    r = run(tmp_path, fabric(), ln.Flows(f"{size} B", pairs=[pair], transport=transport))
    wire, ack = frames(transport, size)
    expected = pipeline(wire, hops) + pipeline([ack], hops)
    assert r.flow_records[0].completion_ps == expected


@pytest.mark.parametrize("name", FABRICS)
def test_a_long_flow_is_bound_by_the_line(tmp_path, name):
    """1 MiB of RoCE is one pipeline; MRC's window adds less than half a per cent."""
    fabric, hops, pair = FABRICS[name]
    for transport, slack in (("roce", 0), ("mrc", 0.005)):
        r = run(
            tmp_path / transport, fabric(), ln.Flows("1 MiB", pairs=[pair], transport=transport)
        )
        wire, ack = frames(transport, 2**20)
        bound = pipeline(wire, hops) + pipeline([ack], hops)
        took = r.flow_records[0].completion_ps
        assert bound <= took <= bound * (1 + slack)


def test_max_min_of_a_seven_to_one_incast(tmp_path):
    """Every sender gets a seventh of the receiver's link: by progressive filling, and as packets of
    senders that keep equal windows in flight. NSCC fills the link as well, less evenly."""
    fabric = ln.star(hosts=8, **LINK)
    edges = [(host, 0) for host in range(1, 8)]
    assert edge_rates(make_plan(fabric), edges) == pytest.approx([100e9 / 7] * 7)
    size = 4_000_000
    wire, _ = frames("mrc", size)
    least = 7 * sum(wire) * BYTE_PS
    fixed = {"cc": "fixed_window", "fixed_window": 16_384}
    r = run(tmp_path / "fixed", fabric, ln.Incast(f"{size} B"), mrc=fixed)
    times = [flow.completion_ps for flow in r.flow_records]
    # The receiver sends no data, so it probes reverse paths (OCP MRC 1.0),
    # for a hundredth of its port, and the answers, 154 B, share the link, as do those that measure
    # round trips. The rest is the first packet's way and the last SACK's.
    answers = sum(row.get("ev_probe_answered", 0) for row in r.data.totals.values())
    assert answers * (154 + FRAMING) * BYTE_PS == pytest.approx(0.0115 * least, rel=0.05)
    bound = least + answers * (154 + FRAMING) * BYTE_PS
    assert bound <= max(times) <= bound * 1.003 and min(times) / max(times) > 0.99
    r = run(tmp_path / "nscc", fabric, ln.Incast(f"{size} B"))
    assert max(flow.completion_ps for flow in r.flow_records) == pytest.approx(least, rel=0.1)


@pytest.mark.parametrize("transport", ["mrc", "roce"])
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_ring_all_reduce_against_its_bound(tmp_path, ranks, transport):
    """Every rank sends 2 (N - 1) / N of the buffer through one link (Patarasuk and Yuan, 2009). The
    same link carries, per 64 KiB, a header of 48 B in a frame of its own (0.3 %), and what answers
    the other direction: MRC a SACK of 154 B per 16 KiB (1.1 %), RoCE one of 82 B per write (0.2 %).
    A block's way round the ring and the last acknowledgement are less than 0.5 %."""
    size = 32_000_000
    r = run(tmp_path, ln.star(hosts=ranks, **LINK), ln.AllReduce(f"{size} B", transport=transport))
    headers = (142 if transport == "mrc" else 78) + FRAMING
    bound = 2 * (ranks - 1) / ranks * size * (PAYLOAD + headers) / PAYLOAD * BYTE_PS
    write = 65_536 / PAYLOAD * (PAYLOAD + headers)  # of one slot; its header travels alone
    answers = 4 * (154 + FRAMING) if transport == "mrc" else 82 + FRAMING
    overhead = (48 + headers + answers) / write
    assert overhead == pytest.approx(0.0135 if transport == "mrc" else 0.0039, rel=0.05)
    assert bound <= r.data.iterations[0].length_ps <= bound * (1 + overhead + 0.006)


def test_a_lost_port_costs_its_share_of_a_synchronous_job(tmp_path):
    """Four ranks all-reduce and compute in step on 4 planes; one host loses one of its ports. What
    is serialised then takes 4/3 as long, what is latency does not: (L + B) / (L + 4/3 B), with B
    the ring's bytes at the line rate of 4 ports and L the rest of an undisturbed iteration. All
    ranks alike: an operation ends when what it sent has arrived, so that no NIC goes on sending
    over the narrow place while its rank computes."""
    size = 17_000_000
    fast = {**LINK, "rate": "400 Gb/s"}
    fabric = ln.clos.two_tier(planes=4, leaves=2, spines=2, hosts_per_leaf=2, **fast)
    job = ln.AllReduce(f"{size} B", repeat=30, transport="mrc", compute="100 us")
    fault = ln.down("h0--p0.leaf0", at=ln.step(10), duration="3 ms", phase="down")
    r = Lab("oracle", directory=tmp_path / "run", seed=1).run(fabric, job, [fault])
    serial = 1.5 * size * (PAYLOAD + 142 + FRAMING) / PAYLOAD * 8 / 1.6e12
    latency = r["before.iteration_s"] - serial
    assert 0 < latency < 0.4 * serial
    expected = (latency + serial) / (latency + serial * 4 / 3)
    assert r["down.goodput_ratio"] == pytest.approx(expected, rel=0.03)
    assert r["down.iteration_s"] == pytest.approx(latency + serial * 4 / 3, rel=0.03)


@pytest.mark.parametrize("transport", ["mrc", "roce"])
def test_a_permutation_without_collisions_runs_at_line_rate(tmp_path, transport):
    """On one switch no two flows share a link; acknowledgements take what little is missing."""
    size, hosts = 4_000_000, 8
    alone = run(
        tmp_path / "alone",
        ln.star(hosts=hosts, **LINK),
        ln.Flows(f"{size} B", pairs=[(0, 1)], transport=transport),
    )
    r = run(
        tmp_path / "all",
        ln.star(hosts=hosts, **LINK),
        ln.Permutation(f"{size} B", shift=3, transport=transport),
    )
    limit = alone.flow_records[0].completion_ps
    times = [flow.completion_ps for flow in r.flow_records]
    assert len(times) == hosts and min(times) >= limit and max(times) <= limit * 1.02
    assert sum(row.get("trimmed", 0) for row in r.data.totals.values()) == 0


def test_silent_loss_costs_nothing_where_uplinks_are_spare(tmp_path):
    """One of 4 uplinks of a plane loses a fifth of its packets; the other 3 carry what 2 hosts of
    the leaf send. Max-min is 1: the lossy path is left after one loss each, and each time it comes
    back it must answer twice as many probes in a row."""
    fabric = ln.clos.two_tier(planes=4, leaves=2, spines=4, hosts_per_leaf=2, **LINK)
    job = ln.AllReduce("8 MiB", repeat=60, transport="mrc", compute="10 us")
    fault = ln.loss("p1.leaf0->p1.spine1", 0.20, at="3 ms", duration="12 ms", phase="loss")
    r = Lab("oracle", directory=tmp_path / "run", seed=1).run(fabric, job, [fault])
    assert r["loss.lost"] > 100 and r["loss.goodput_ratio"] == pytest.approx(1, abs=0.02)
    # 4 pairs of neighbours, two of which leave by that leaf: 5 or so readmissions each, not dozens.
    assert r["loss.readmitted"] <= 16
