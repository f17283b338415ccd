"""What a run asks of traffic under way, whatever kind of job it is of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from loomnet.measures.flow_rows import FlowRows
from loomnet.measures.ring_steps import RingSteps
from loomnet.measures.run_data import RunFault

if TYPE_CHECKING:
    from loomnet.measures.expert_rounds import ExpertRounds


class Traffic(Protocol):
    """A job under way. Times are the engine's clock in picoseconds. `core`: its half in the
    engine."""

    core: Any

    @property
    def done(self) -> bool: ...
    @property
    def ended_ps(self) -> int:
        """When the job's last transfer or task ended. Valid once the job is done."""
        ...

    def iterations(self, since: int = 0) -> list[tuple[int, int]]:
        """(begin, end) of rank 0's finished iterations, without the first `since`."""
        ...

    def errors(self) -> list[RunFault]: ...
    def check(self) -> None:
        """Called whenever the engine has stopped. Raises the exception that a user's code, which
        the engine called meanwhile, has raised."""
        ...

    def wrong(self) -> int | None:
        """Elements or bytes that arrived altered; None: it moves none, whatever a run asks."""
        ...

    def flows(self) -> FlowRows:
        """The job's flows so far, where it has any."""
        ...

    def notes(self) -> dict[str, float | int | str | None]:
        """What the report says of how it was played."""
        ...

    def experts(self) -> ExpertRounds | None:
        """What a mixture of experts was seen to do; None of any other job."""
        ...

    def ring_steps(self, origin_ps: int) -> RingSteps | None:
        """When ranks had received which ring steps, in time since `origin_ps`; None of a job that
        has no ring steps, or whose ring steps nobody notes."""
        ...

    def payload_total(self) -> float | None:
        """Payload bytes that it sends in all, as far as is known; None where it counts iterations
        instead."""
        ...


class CoreTraffic:
    """The methods that are the same for each kind of traffic that runs entirely in the engine."""

    core: Any

    @property
    def done(self) -> bool:
        return self.core.done

    @property
    def ended_ps(self) -> int:
        return self.core.ended_ps

    def check(self) -> None:
        """Does nothing: the engine calls no user's code for this traffic."""

    def experts(self) -> None:
        return None
