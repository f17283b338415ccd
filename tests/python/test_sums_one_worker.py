"""One worker of sums in the network: what real ranks send and what a traffic model sends for a
tensor of the same size are the same packets at the same times, but for payload."""

import struct
import textwrap

import pytest
from recorded import recorded

import loomnet as ln

pytest.importorskip("torch")

SCRIPT = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.linspace(0, 1, {values}))
dist.destroy_process_group()
"""
HEADER_AT, VALUES_AT = 62, 94  # of a frame: Ethernet, IPv6, UDP are in front
# Bytes of the header that hold payload or the time of day: a block's exponent, the sender's clock.
OTHERS = {HEADER_AT + 15, *range(HEADER_AT + 28, HEADER_AT + 32)}


def frames(path):
    """(time, bytes on the wire, captured bytes) of each packet of a pcapng file."""
    data, at, found = path.read_bytes(), 0, []
    while at < len(data):
        kind, length = struct.unpack_from("<II", data, at)
        if kind == 6:  # Enhanced Packet Block
            _, high, low, kept, wire = struct.unpack_from("<IIIII", data, at + 8)
            found.append((high << 32 | low, wire, data[at + 28 : at + 28 + kept]))
        at += length
    return found


def without_payload(packets):
    """Times count from the first."""
    return [
        (
            at - packets[0][0],
            wire,
            bytes(byte for place, byte in enumerate(kept[:VALUES_AT]) if place not in OTHERS),
        )
        for at, wire, kept in packets
    ]


# One fragment; fewer than a window; more than the exponents that travel before any value.
@pytest.mark.parametrize("values", [100, 40_000, 150_000])
@pytest.mark.parametrize("quant", ["block_exp", "fixed"])
def test_ranks_and_models_send_the_same_packets(tmp_path, values, quant):
    fabric = ln.clos.two_tier(
        planes=1, leaves=2, spines=1, hosts_per_leaf=2, rate="10 Gb/s", delay="1 us"
    ).program("*", "aggregate", policy="esa", saturate=True)
    (tmp_path / "train.py").write_text(textwrap.dedent(SCRIPT.format(values=values)))
    # RoCE sends nothing of its own, such as MRC's probes, that would move the sums' packets.
    jobs = {
        "ranks": ln.TorchJob(
            tmp_path / "train.py", ranks=3, compute="1 ms", transport="roce", allreduce="ina"
        ),
        "model": ln.AllReduce(
            ln.Size.of(4 * values), repeat=1, ranks=3, transport="roce", allreduce="ina"
        ),
    }
    seen = {}
    for name, job in jobs.items():
        result = recorded(
            tmp_path / name, job, pcap=["h0:0"], fab=fabric, seed=3, ina={"quant": quant}
        )
        assert result["errors"] == 0
        seen[name] = without_payload(frames(next((tmp_path / name).glob("*.pcapng"))))
    assert len(seen["ranks"]) > 2 * values / 256
    assert seen["ranks"] == seen["model"]
