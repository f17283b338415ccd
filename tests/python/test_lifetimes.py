"""Flows that end by their time post a little at a time, and send what flows of a given size do."""

import pytest

import loomnet as ln

BOTTLENECK, BDP = "p0.leaf0->p0.leaf1", 100_000


def of_one_flow(lifetimes, loss, **tcp):
    """A flow over 40 Mb/s with a round trip of 20 ms and a queue of 30 times what these hold."""
    fabric = ln.dumbbell(
        left=1,
        right=1,
        rate="200 Mb/s",
        bottleneck="40 Mb/s",
        delay="1 ms",
        bottleneck_delay="8 ms",
    ).override(BOTTLENECK, data_limit=f"{30 * BDP} B")
    job = ln.Flows("20 MB", count=1, pairs=[(0, 1)], lifetimes=lifetimes, transport="tcp")
    faults = [ln.loss(BOTTLENECK, loss, at="0 s")] if loss else []
    return ln.Lab(seed=3).run(fabric, job, faults, tcp=tcp)


def most_queued(r):
    return r.data.totals[f"link {BOTTLENECK}"]["max_queue"]


@pytest.mark.parametrize("cc", ["cubic", "reno"])
def test_fills_a_queue_of_many_bandwidth_delay_products(cc):
    plain, lives = (of_one_flow(times, 0, cc=cc) for times in ((), ["100 s"]))
    assert most_queued(plain) > 9 * BDP
    assert most_queued(lives) == pytest.approx(most_queued(plain), rel=0.01)


def test_sends_behind_a_lost_packet_where_the_window_is_long():
    """Writes complete in order: behind a packet that is lost twice two windows of bytes wait."""
    held = {"cc": "astraea", "policy": "hold", "startup": "none", "initial_window": 700}
    plain, lives = (of_one_flow(times, 0.01, **held) for times in ((), ["100 s"]))
    assert plain.data.totals["nic h0"]["retransmitted"] > 50
    one, other = (r.data.flows[0].arrived_ps for r in (plain, lives))
    assert other == pytest.approx(one, rel=0.02)
