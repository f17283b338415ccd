"""How large a quantity may be before the engine's whole numbers end: emulated time is counted in 63
bits of picoseconds (106 days), bytes in 63 bits. What is larger is refused before a run starts."""

from __future__ import annotations

from collections.abc import Mapping

from loomnet.base.errors import FabricError, UsageError
from loomnet.base.units import Rate, Size, Time

# Of any time that a run is given, and of what such times add up to: the sum of four of them, and
# what timers add, stays within 63 bits.
MOST_TIME = Time("600 h")
# The job begins 64 round trips after the fabric, and timers wait for some tens of them.
MOST_ROUND_TRIP = Time.of(MOST_TIME.count // 1024)
# A smallest frame, 84 B on the wire, takes a picosecond.
MOST_RATE = Rate("672 Tb/s")
MOST_BYTES = 2**60  # of a limit of one queue, and of all that a job moves
MOST_BUFFER = 2**63 - 1
MOST_COLLECTIVE = Size("128 GiB")  # core/collective: chunk numbers have 32 bits
MOST_ROUNDS = 10**8  # of a job, as its repetitions or flows are counted


def check_round_trip(fabric: str, rtt_ps: int) -> None:
    """Raises FabricError where the longest round trip is longer than timers can tell."""
    if rtt_ps > MOST_ROUND_TRIP.count:
        raise FabricError(
            f"{fabric}: delay: the longest round trip is {rtt_ps / 1e12:g} s, more than the "
            f"{MOST_ROUND_TRIP.seconds:g} s that emulated time has room for; lower the links' delay"
        )


def check_half(where: str, rate_bps: int, rtt_ps: int, limits: Mapping[str, int]) -> None:
    """Raises FabricError where a rate is finer than the clock, or a queue's limit is no count of
    bytes. `limits`: bytes by the field that they are given in or follow from."""
    if rate_bps > MOST_RATE.count:
        raise FabricError(
            f"{where}: rate: {Rate.of(rate_bps)} is above {MOST_RATE}, at which a "
            "smallest frame takes 1 ps, the clock's resolution"
        )
    for name, limit in limits.items():
        if limit > MOST_BYTES:
            raise FabricError(
                f"{where}: {name}: {limit:.3g} B at {Rate.of(rate_bps)} and a round trip of "
                f"{rtt_ps / 1e12:g} s is above 2^60 B; lower {name}, the rate or the delay"
            )


def check_buffer(switch: str, total: int) -> None:
    """Raises FabricError where a switch's queues together may hold more than can be counted."""
    if total > MOST_BUFFER:
        raise FabricError(
            f"{switch}: the limits of its ports' queues add up to {total:.3g} B, more "
            "than 2^63 B; lower data_limit or control_limit of its links"
        )


def check_job_bytes(where: str, size: int, times: int = 1) -> None:
    """Raises UsageError where a job moves more than can be counted."""
    if size * times > MOST_BYTES:
        raise UsageError(
            f"{where}: {Size.of(size)}{f', {times} times,' if times > 1 else ''} is "
            "more than the 2^60 B that a job may move; give less"
        )


def check_at(where: str, at_ps: int) -> None:
    """Raises UsageError for one time of a file, in picoseconds, that a run never comes to."""
    if not 0 <= at_ps <= MOST_TIME.count:
        raise UsageError(
            f"{where}: {at_ps / 1e12:g} s is not between 0 and the {hours(MOST_TIME)} "
            "that a run has"
        )


def hours(time: Time) -> str:
    """`106 h`."""
    return f"{time.count / 3.6e15:g} h"
