"""What a controller sees of a run under way: jobs, links and switches, read when asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from loomnet.base.errors import UsageError
from loomnet.base.names import did_you_mean, in_quotes
from loomnet.faults.timetable import LinkState
from loomnet.measures.switch_state import SwitchState, switch_named
from loomnet.plans.entries import HalfLinkPlan, SwitchPlan
from loomnet.plans.job_request import ONLY_JOB
from loomnet.plans.model import Plan
from loomnet.running.engine import Engine
from loomnet.running.play import Play


class SeenClock(Protocol):
    """What a view reads of the clock."""

    @property
    def engine(self) -> Engine: ...
    def held(self) -> AbstractContextManager[None]:
        """While it lasts no time passes, and the engine's objects may be touched."""
        ...

    def queued(self, halves: Iterable[int]) -> list[int]: ...
    def switch_state(self, switch: SwitchPlan) -> SwitchState: ...


def name_of(play: Play) -> str:
    """The name of a job for controllers."""
    return play.asked.name or ONLY_JOB


class RunView:
    """The run at `now`, picoseconds since the first job's first iteration began. `state`: how a
    direction of a link is now; `senders`: View.senders."""

    def __init__(
        self,
        now: int,
        clock: SeenClock,
        plays: Sequence[Play],
        state: Callable[[int], LinkState],
        senders: Callable[[], np.ndarray],
    ) -> None:
        self.now, self.senders = now, senders
        self._clock, self._plays, self._state = clock, plays, state

    @property
    def _plan(self) -> Plan:
        return self._clock.engine.plan

    @property
    def jobs(self) -> Mapping[str, SeenJob]:
        return {name_of(play): SeenJob(play) for play in self._plays}

    @property
    def links(self) -> list[str]:
        return list(self._halves)

    @cached_property
    def _halves(self) -> dict[str, int]:
        return self._plan.links.half_numbers()

    def link(self, name: str) -> SeenLink:
        number = self._halves.get(name) if isinstance(name, str) else None
        if number is None:
            raise UsageError(
                f"view.link: no direction {in_quotes(name)}{did_you_mean(name, self._halves)}"
            )
        return SeenLink(self._plan.half(number), self._state(number), self)

    def switch(self, name: str) -> SwitchState:
        found = switch_named(self._plan, name)
        assert not isinstance(found, str)  # runs with controllers are of whole fabrics
        return self._clock.switch_state(found)

    def circuits(self, panel: str) -> list[tuple[str, str]]:
        with self._clock.held():
            return self._clock.engine.panels.circuits(panel)

    @cached_property
    def _counted(self) -> tuple[dict[int, int], dict[str, Any]]:
        with self._clock.held():
            columns = self._clock.engine.network.link_counters()
        return {half: at for at, half in enumerate(columns.pop("half").tolist())}, columns

    def counters(self, half: int) -> dict[str, int]:
        """Of one direction, by name."""
        places, columns = self._counted
        at = places.get(self._clock.engine.half(half))
        return {name: 0 if at is None else int(column[at]) for name, column in columns.items()}

    def queued(self, half: int) -> int:
        return self._clock.queued([half])[0]


class SeenJob:
    """A job of the run."""

    def __init__(self, play: Play) -> None:
        self._play, self.name = play, name_of(play)

    @property
    def iterations(self) -> int:
        return len(self._play.iterations)

    @property
    def last_iteration_s(self) -> float | None:
        done = self._play.iterations
        return done[-1].length_ps / 1e12 if done else None

    @property
    def payload_bytes(self) -> int:
        return self._play.run_counters()["payload"]

    @property
    def ended(self) -> str | None:
        return self._play.ended


class SeenLink:
    """One direction of a link."""

    def __init__(self, half: HalfLinkPlan, state: LinkState, view: RunView) -> None:
        self._half, self._state, self._view = half, state, view
        self.name = half.name

    @property
    def up(self) -> bool:
        return self._state.up

    @property
    def rate_bps(self) -> int:
        return max(round(self._half.rate_bps * self._state.share), 1)

    @property
    def queued_bytes(self) -> int:
        return self._view.queued(self._half.number)

    @property
    def counters(self) -> Mapping[str, int]:
        return self._view.counters(self._half.number)
