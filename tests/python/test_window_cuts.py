"""A congestion control may cut its window at any acknowledgement, down to one packet and for as
long as it likes: no sender then stands until its timeout on a network that loses nothing."""

from __future__ import annotations

import random
from typing import ClassVar

import pytest

import loomnet as ln

# Each sender has a receiver of its own, so that no queue of a switch overflows.
FABRIC = ln.star(hosts=4, rate="100 Gb/s", delay="1 us")


@ln.plugin.congestion("cuts_at_random")
class Cuts(ln.plugin.Congestion):
    """Its first window, but for spells of a few packets that begin and end at random."""

    options: ClassVar = {"least": 1, "ticks": False}

    def __init__(self, flow: ln.plugin.CongestionFlow) -> None:
        self.random = random.Random(flow.seed * 2**64 + flow.stream)
        self.mss, self.whole, self.window = flow.mss, flow.initial_window, flow.initial_window
        self.least, self.ticks = flow.options["least"], flow.options["ticks"]
        self.change = self.random.randint(1, 40)
        self.next_tick = 10**6 if self.ticks else None

    def draw(self) -> None:
        cut = self.window >= self.whole
        self.window = self.mss * self.random.randint(self.least, 12) if cut else self.whole

    def on_ack(self, ack: ln.plugin.AckSample) -> None:
        self.change -= 1
        if self.change == 0:
            self.change = self.random.randint(1, 40)
            self.draw()

    def on_tick(self, now_ps: int) -> None:
        self.draw()
        self.next_tick = now_ps + self.random.randint(10**6, 2 * 10**7)


def run(transport, seed, faults=(), **options):
    job = ln.Flows("1 MB", count=4, pairs=[(0, 2), (1, 3)], transport=transport)
    return ln.run(
        FABRIC,
        job,
        faults,
        seed=seed,
        write=False,
        **{transport: {"cc": "cuts_at_random", **options}},
    )


@pytest.mark.parametrize("ticks", [False, True], ids=["acks", "ticks"])
@pytest.mark.parametrize(
    ("transport", "options"),
    [
        ("mrc", {}),
        ("mrc", {"loss_infer": "rto_only"}),
        ("mrc", {"sack_bytes": 65_535}),
        ("roce", {}),
        ("roce", {"ack_interval": 2}),
        ("roce", {"ack_interval": 64}),
        ("roce", {"cnp_gap_ps": 0}),
    ],
    ids=lambda given: "-".join(map(str, given)) if isinstance(given, dict) else given,
)
def test_no_sender_stands_still(transport, options, ticks):
    """The two flows of a sender take 0.17 ms at 100 Gb/s; a packet per round trip of 4.4 us would
    take 2.2 ms for each. RoCE's timeout is 4.3 s."""
    for seed in range(20):
        r = run(transport, seed, ticks=ticks, **options)
        assert r["errors"] == 0
        assert r["fct_max_s"] < 0.005, f"seed {seed}"
        assert r["before.lost"] == 0
        # Without MRC's tail probes silence is taken for a loss, after tens of microseconds.
        assert r["before.retransmitted"] == 0 or options == {"loss_infer": "rto_only"}, seed


@pytest.mark.parametrize("ticks", [False, True], ids=["acks", "ticks"])
def test_tcp_waits_for_no_more_than_delayed_acknowledgements(ticks):
    """One packet under way is answered after 40 ms: with windows of two packets or more a delayed
    acknowledgement comes at the end of a spell at most, and no timeout (200 ms) is needed."""
    for seed in range(10):
        r = run("tcp", seed, ticks=ticks, least=2)
        assert r["errors"] == r["before.lost"] == r["before.retransmitted"] == 0
        assert r["fct_max_s"] < 0.2, f"seed {seed}"


def test_tcp_with_one_packet_pays_a_delayed_acknowledgement_for_each():
    """1 MB are 301 packets, 32 bytes in front of each flow's; the first 16 are answered at once."""

    @ln.plugin.congestion("one_packet")
    class OnePacket(ln.plugin.Congestion):
        def __init__(self, flow):
            self.window = flow.mss

    r = ln.run(
        FABRIC,
        ln.Flows("1 MB", pairs=[(0, 2)], transport="tcp"),
        write=False,
        tcp={"cc": "one_packet"},
    )
    assert r["errors"] == r["before.retransmitted"] == 0
    assert r["fct_max_s"] == pytest.approx((301 - 17) * 0.040004, abs=0.041)
