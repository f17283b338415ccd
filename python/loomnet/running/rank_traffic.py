"""What jobs have in common that all their ranks play in step, in the engine."""

from __future__ import annotations

from typing import Any

from loomnet.measures.flow_rows import FlowRows
from loomnet.measures.ring_steps import RingSteps
from loomnet.measures.run_data import RunFault


class RankTraffic:
    """`core` counts the job's iterations, which are rank 0's, or of a broadcast those of all ranks,
    and names the ranks that failed."""

    core: Any

    @property
    def done(self) -> bool:
        return self.core.done

    @property
    def ended_ps(self) -> int:
        return self.core.ended_ps

    def iterations(self, since: int = 0) -> list[tuple[int, int]]:
        return self.core.iterations(since).tolist()

    def errors(self) -> list[RunFault]:
        return [RunFault(at, f"rank {rank}", message) for rank, at, message in self.core.failures()]

    def check(self) -> None:
        """Does nothing: the engine calls no user's code for this traffic."""

    def flows(self) -> FlowRows:
        return FlowRows()

    def notes(self) -> dict[str, float | int | str | None]:
        return {}

    def experts(self) -> None:
        return None

    def ring_steps(self, origin_ps: int) -> RingSteps | None:
        return None

    def payload_total(self) -> None:
        return None
