"""What the memory of a job's ranks has for sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from loomnet.systems.ina.pool import (
    FIXED_SCALE,
    MOST_SUM_SLOTS,
    OWN_REACH,
    REACH,
    SUM_STAGING,
    SumPool,
)
from loomnet.systems.ina.share import SumShare


def staging(
    pool: SumPool, shares: Sequence[SumShare], *, exponents: bool, floats: bool
) -> dict[str, int]:
    """Of a job with these shares, as RankBridge takes it."""
    each_window = shares[0].window
    window = each_window * len(shares)
    request = _request(shares)
    # Requests complete in order. SwitchML's worker goes on far behind a fragment
    # that is missing, and a small tensor has two requests: as many as their memory allows, but
    # always two windows, the request whose exponents are ahead, and two in preparation.
    each = 2 * request * (4 * pool.values + 1)
    slots = min(max(-(-2 * window // request) + 3, SUM_STAGING // each), MOST_SUM_SLOTS)
    return {
        "sum_slots": slots,
        "sum_values": pool.values,
        "sum_window": each_window,
        "sum_servers": len(shares),
        "sum_reach": REACH if pool.policy.has_servers else OWN_REACH,
        "sum_scale": 0 if exponents else FIXED_SCALE,
        "sum_floats": int(floats),
    }


def staging_bytes(shape: Mapping[str, int], shares: Sequence[SumShare]) -> int:
    """Of one rank's memory, for sums. `shape`: from staging()."""
    fragment = 4 * shape["sum_values"] + 1
    return 2 * shape["sum_slots"] * _request(shares) * fragment


def _request(shares: Sequence[SumShare]) -> int:
    """Fragments of the executor's longest request: StagingLayout::sum_chunk."""
    in_window = 4 if len(shares) < 8 else 2 if len(shares) < 16 else 1
    return max(shares[0].window // in_window, 1)
