"""Shares of the healthy capacity that faults leave to the jobs of a run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from loomnet.faults import expected_capacity as expected
from loomnet.faults.timetable import Window
from loomnet.plans.job_request import JobRequest
from loomnet.running.request import RunRequest
from loomnet.systems.registry import carrying


class Capacities:
    """What faults leave to the jobs of a run. Jobs of the same hosts, and phases of the same
    faults, have one solution of the linear program."""

    def __init__(self, request: RunRequest) -> None:
        self._request = request
        self._edges = [each.job.edges(list(each.placement)) for each in request.jobs]
        self._known: dict[tuple[Any, ...], float] = {}

    def of(self, asked: JobRequest, windows: Iterable[Window]) -> dict[str, float]:
        """By phase."""
        return self._left(asked, windows, "slowest" if asked.job.synchronous else "mean")

    def of_rounds(self, asked: JobRequest, windows: Iterable[Window]) -> dict[str, float]:
        """By phase, of the slowest of a job's independent flows, with which a round of them ends;
        nothing for a synchronous job, whose capacity is that."""
        return {} if asked.job.synchronous else self._left(asked, windows, "slowest")

    def _left(
        self, asked: JobRequest, windows: Iterable[Window], of: Literal["slowest", "mean"]
    ) -> dict[str, float]:
        edges = asked.job.edges(list(asked.placement))
        others = [
            edge
            for each, own in zip(self._request.jobs, self._edges, strict=True)
            if each is not asked
            for edge in own
        ]
        traffic = of, tuple(sorted(edges)), tuple(sorted(others))
        part, found = carrying(self._request.parts, asked), {}
        for w in windows:
            own = None if part is None else part.capacity(asked, w.states, w.dead)
            if own is None:
                key = *traffic, frozenset(w.states.items()), w.dead
                if (own := self._known.get(key)) is None:
                    own = self._known[key] = expected.expected_capacity(
                        self._request.plan, edges, w.states, w.dead, of=of, others=others
                    )
            found[w.phase] = own
        return found
