"""monitored_barrier: a barrier that names the ranks that did not come, in Gloo's words."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch

import loomnet.torch.connection as _connection

# Above the tags of users.
ARRIVED, ALL_ARRIVED = 0xFFFF_FF00, 0xFFFF_FF01


def monitored_barrier(group: Any, timeout: timedelta, wait_all_ranks: bool) -> None:
    """Rank 0 of `group` gives the others `timeout` to come; the others wait as long as any other
    operation of the group may take, so that rank 0 is the first to speak.

    Raises DistBackendError, after which the group is aborted on all its ranks. With
    `wait_all_ranks` rank 0 gives each rank its full `timeout` and names all that did not come.
    """
    if group.rank() != 0:
        _arrive(group)
        return
    limit = round(timeout / timedelta(milliseconds=1))
    arrivals = {peer: group.recv([_token()], peer, ARRIVED) for peer in range(1, group.size())}
    _collect(group, arrivals, timeout, limit, wait_all_ranks)
    answers = {peer: group.send([_token()], peer, ALL_ARRIVED) for peer in range(1, group.size())}
    _collect(group, answers, timeout, limit, wait_all_ranks)


def _seconds(group: Any) -> float:
    """The clock that the works' time limits go by."""
    return group._session.now_ps / 1e12


def _token() -> torch.Tensor:
    return torch.zeros(1, dtype=torch.uint8)


def _arrive(group: Any) -> None:
    arrival = group.send([_token()], 0, ARRIVED)
    answer = group.recv([_token()], 0, ALL_ARRIVED)
    try:
        arrival.wait()
        answer.wait()
    except RuntimeError as error:
        raise _connection.error(
            f"Rank {group.rank()} successfully reached monitoredBarrier, but received errors while "
            f"waiting for send/recv from rank 0. Please check rank 0 logs for faulty rank.\n"
            f"Original exception: {error}"
        ) from error


def _collect(
    group: Any, works: dict[int, Any], timeout: timedelta, limit: int, wait_all_ranks: bool
) -> None:
    """Waits for the works of rank 0, one per peer; fails the group where one does not end."""
    began = _seconds(group)
    missing, came = [], []
    for peer, work in works.items():
        remaining = timeout
        if not wait_all_ranks:
            remaining -= timedelta(seconds=_seconds(group) - began)
            if remaining <= timedelta(0) and not work.is_completed():
                seen = (
                    f"Successfully processed ranks: {_names(came)}"
                    if came
                    else "No ranks successfully processed in monitoredBarrier."
                )
                _fail(group, f"Rank 0 timed out in monitoredBarrier after {limit} ms.\n{seen}")
        try:
            work.wait(max(remaining, timedelta(microseconds=1)))
            came.append(peer)
        except RuntimeError as error:
            if not wait_all_ranks:
                _fail(
                    group,
                    f"[Rank 0]: Rank {peer} failed to pass monitoredBarrier in {limit} ms",
                    error,
                )
            missing.append(peer)
    if missing:
        ranks = "Ranks" if len(missing) > 1 else "Rank"
        _fail(
            group,
            f"[Rank 0]: {ranks} {_names(missing)} failed to pass monitoredBarrier in {limit} ms",
        )


def _names(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks))


def _fail(group: Any, reason: str, cause: BaseException | None = None) -> None:
    group.fail(reason.splitlines()[0])
    if cause is not None:
        reason += f"\nOriginal exception: {cause}"
    raise _connection.error(f"loomnet: {reason}") from cause
