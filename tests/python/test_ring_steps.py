"""Ring jobs: step headers, queue pairs and paths by step, and what is noted of the steps."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy
import pytest

import loomnet as ln
from loomnet.base.errors import UsageError
from loomnet.measures.ring_steps import RingSteps

RANKS = 4
STEPS = {"all_reduce": 2 * (RANKS - 1), "reduce_scatter": RANKS - 1, "all_gather": RANKS - 1}


def _fabric() -> Any:
    return ln.clos.two_tier(
        planes=1, leaves=2, spines=2, hosts_per_leaf=2, rate="100 Gb/s", delay="1 us"
    )


def _run(job: Any, **options: Any) -> Any:
    return ln.run(_fabric(), job, seed=3, **options)


@pytest.mark.parametrize("job", [ln.AllReduce, ln.ReduceScatter, ln.AllGather])
@pytest.mark.parametrize("transport", ["roce", "mrc", "tcp"])
def test_every_rank_completes_every_step_in_order(job: Any, transport: str) -> None:
    found = _run(job("2 MB", 3, transport)).ring_steps
    assert found.ranks == list(range(RANKS)) and found.channels == [0]
    steps = 3 * STEPS[job.kind]
    for rank, times in found.completions().items():
        assert len(times) == steps and (numpy.diff(times) >= 0).all()
        own = found.rows[found.rows[:, 0] == rank]
        assert own[:, 2].tolist() == list(range(steps))
    assert 0 <= found.gap() <= RANKS - 1 and found.largest_gap() <= RANKS
    assert found.unnoted == 0


def test_a_laggard_widens_the_gap_and_is_never_ahead_of_the_leader() -> None:
    slow = [ln.degrade("h2--p0.leaf0", 0.2, at="0 s", duration="1 s")]
    job = ln.AllReduce("4 MB", 3, "roce")
    even, uneven = _run(job).ring_steps, ln.run(_fabric(), job, slow, seed=3).ring_steps
    assert uneven.gap() > even.gap()
    assert (uneven.laggard() >= uneven.leader()).all()
    assert uneven.laggard()[-1] > 2 * even.laggard()[-1]


@pytest.mark.parametrize("transport", ["roce", "mrc"])
def test_step_headers_change_only_the_length_of_packets(transport: str) -> None:
    job = ln.AllReduce("2 MB", 2, transport)
    plain = _run(job, payload=True)
    stepped = _run(job, payload=True, **{transport: {"identity": "hdr"}})
    none = _run(job, payload=True, **{transport: {"identity": "none"}})
    assert (none.ring_steps.rows == plain.ring_steps.rows).all()
    longer = stepped.ring_steps.laggard()[-1] / plain.ring_steps.laggard()[-1]
    assert 1.0005 < longer < 1.02


def test_packets_in_a_capture_carry_the_header(tmp_path: Path) -> None:
    file = tmp_path / "h0.pcapng"
    job = ln.AllReduce("1 MB", 1, "roce", first_step=9)
    _run(job, roce={"identity": "hdr"}, pcap={"h0:0": str(file)})
    raw = file.read_bytes()
    # UDP to 18771 with magic, version 1 and no flags, gen 0, job 0, ring 0, rank 0 of 4, step 9.
    first = bytes.fromhex("53591000000000000000000400090000")
    assert first in raw and raw[raw.index(first) - 6 : raw.index(first) - 4] == b"\x49\x53"
    assert bytes.fromhex("535912000000000000000004000e") in raw, "L of step 14"


@pytest.mark.parametrize("options", [{"rehash": "step"}, {"identity": "sport"}])
def test_ports_by_step_leave_results_right(options: dict[str, str]) -> None:
    job = ln.AllReduce("2 MB", 3, "roce")
    found = _run(job, payload=True, roce=options)
    assert found.data.wrong == 0
    assert (found.ring_steps.rows[:, 3] != _run(job, payload=True).ring_steps.rows[:, 3]).any()


def test_a_queue_pair_for_each_step() -> None:
    job = ln.AllReduce("2 MB", 3, "roce", queue_pair="per-step", channels=2)
    found = _run(job, payload=True, roce={"dcqcn": True})
    assert found.data.wrong == 0 and found.ring_steps.channels == [0, 1]
    persistent = ln.AllReduce("2 MB", 3, "roce", channels=2)
    other = _run(persistent, payload=True, roce={"dcqcn": True})
    assert (found.ring_steps.rows[:, 3] != other.ring_steps.rows[:, 3]).any()


def test_communicators_made_anew_begin_their_steps_again() -> None:
    job = ln.AllReduce("1 MB", 4, "roce", new_communicator_every=2, first_step=65_530)
    found = _run(job, payload=True)
    assert found.data.wrong == 0
    own = found.ring_steps.rows[found.ring_steps.rows[:, 0] == 0, 2].tolist()
    twelve = list(range(65_530, 65_542))
    assert own == twelve + twelve


def test_computing_between_steps_is_seeded_and_takes_longer() -> None:
    job = ln.AllReduce("4 MB", 2, "roce", step_jitter=2.0)
    ends = [ln.run(_fabric(), job, seed=seed).ring_steps.laggard()[-1] for seed in (3, 3, 4)]
    assert ends[0] == ends[1] != ends[2]
    whole = _run(ln.AllReduce("4 MB", 2, "roce", whole_steps=True)).ring_steps.laggard()[-1]
    assert ends[0] > 1.2 * whole


@pytest.mark.parametrize("job", [ln.Incast("4 MB", transport="mrc"), ln.AllReduce("4 MB", 2)])
def test_room_for_the_header_in_trimmed_packets(job: Any) -> None:
    fabric = _fabric().override("p0.leaf*->p0.spine*", rate="10 Gb/s", data_limit="80 kB")
    found = ln.run(fabric, job, seed=3, payload=True, mrc={"identity": "hdr", "cc": "fixed_window"})
    assert found.data.wrong == 0
    trimmed = sum(row.get("trimmed", 0) for row in found.data.totals.values())
    short = sum(row.get("drop_short", 0) for row in found.data.totals.values())
    assert short == 0 and trimmed > 20
    halves = [half for link in found.plan.links for half in (link.forward, link.backward)]
    assert {half.trim_bytes for half in halves} == {0, 144}


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: ln.AllReduce("1 MB", allreduce="ina", channels=2), "channels="),
        (lambda: ln.AllReduce("1 MB", 20, new_communicator_every=1), "15 times"),
        (lambda: ln.AllReduce("1 MB", channels=65), "channels"),
        (lambda: ln.AllReduce("1 MB", queue_pair="fresh"), "queue_pair"),  # pyright: ignore
        (lambda: _run(ln.AllReduce("1 MB", 1, "mrc", queue_pair="per-step")), "roce"),
        (lambda: _run(ln.AllReduce("1 MB", 1, "mrc"), mrc={"identity": "sport"}), "identity"),
        (lambda: _run(ln.AllReduce("1 MB", 1, "roce"), roce={"rehash": "packet"}), "rehash"),
        (lambda: _run(ln.Broadcast("1 MB", 1, "roce")).ring_steps, "ring_steps"),
        (lambda: _run(ln.AllReduce("1 MB", 1, "roce")).ring_steps.completions(3), "channel 3"),
    ],
)
def test_what_is_wrong_is_refused_in_a_line(make: Any, text: str) -> None:
    with pytest.raises(UsageError, match=text) as refused:
        make()
    assert "\n" not in str(refused.value)


def test_figures_of_steps_on_a_hand_made_run() -> None:
    # Rank 0 completes a step each second, rank 1 each two seconds.
    rows = [(0, 0, n, (n + 1) * 10**12) for n in range(4)]
    rows += [(1, 0, n, 2 * (n + 1) * 10**12) for n in range(4)]
    found = RingSteps.of(numpy.array(sorted(rows, key=lambda row: row[3]), dtype=numpy.int64), 0)
    assert found is not None
    assert found.leader().tolist() == [1, 2, 3, 4] and found.laggard().tolist() == [2, 4, 6, 8]
    assert found.gap() == pytest.approx((1 + 2 + 3 + 4) / 8)
    assert found.gap(begin_s=4) == pytest.approx((2 + 4) / 4)
    times, gaps = found.gap_series()
    assert list(zip(times, gaps, strict=True)) == [(1, 1), (2, 1), (3, 2), (4, 2), (6, 1), (8, 0)]
    assert found.largest_gap() == 2
    assert [row["time"] for row in found.table().rows] == sorted(row[3] / 1e12 for row in rows)
    late = RingSteps.of(found.rows[:5], 10**12)  # rank 1 never completes its last steps
    assert late is not None and late.leader().tolist() == [0, 1, 2, 3]
    assert late.laggard().tolist() == [1]
    assert late.gap() == pytest.approx((1 + 2 + 1) / 3), "what is never completed lags to the end"
    assert all(a <= b for a, b in pairwise(late.gap_series()[0]))
    for begin in (9, -1, float("nan")):
        with pytest.raises(UsageError, match="begin_s"):
            found.gap(begin_s=begin)


def test_a_gap_over_all_channels_is_their_mean() -> None:
    rows = [
        (rank, channel, 0, (1 + rank * (1 + channel)) * 10**12)
        for channel in range(2)
        for rank in range(2)
    ]
    found = RingSteps.of(numpy.array(sorted(rows, key=lambda row: row[3]), dtype=numpy.int64), 0, 5)
    assert found is not None and found.unnoted == 5
    assert [found.gap(channel) for channel in (0, 1)] == pytest.approx([1 / 2, 2 / 3])
    assert found.gap() == pytest.approx((1 / 2 + 2 / 3) / 2)


def test_rows_of_ranks_are_joined_in_the_order_of_time_with_channels_from_zero() -> None:
    one = numpy.array([(0, 40, 0, 5), (0, 7, 0, 6), (0, 40, 1, 9)], dtype=numpy.int64)
    other = numpy.array([(1, 7, 0, 3), (1, 40, 0, 5), (1, 40, 1, 7)], dtype=numpy.int64)
    found = RingSteps.joined([one, other], 2, 4)
    assert found is not None and found.unnoted == 4
    assert found.rows.tolist() == [
        [1, 0, 0, 1],
        [0, 1, 0, 3],
        [1, 1, 0, 3],
        [0, 0, 0, 4],
        [1, 1, 1, 5],
        [0, 1, 1, 7],
    ]
    assert RingSteps.joined([], 0) is None
