"""Which figures mean something for which kind of job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loomnet.measures.timeouts import NONE as NO_TIMEOUT
from loomnet.measures.training import (
    FIGURES,
    NO_FAULT,
    UNDISTURBED,
    Phase,
    whole_iterations,
    why_not_counted,
)
from loomnet.measures.value import Value

if TYPE_CHECKING:
    from loomnet.jobs.model import MeasuredAs
    from loomnet.measures.run_data import Iteration, RunData

RATES = ("algbw", "busbw")
GB_S = 1e9
_OF_ITERATIONS = (
    "iteration_s",
    "iteration_slowdown",
    "slowest_iteration_s",
    "slowest_slowdown",
    "stood_still_s",
    "recovery_s",
)
_RELATIVE = ("goodput_ratio", "iteration_slowdown", "slowest_slowdown")  # to `before`


@dataclass(frozen=True)
class Kind:
    """What a job is measured by. `reads_loss`: a training job was told how to read its loss.
    `size`, `bus_factor`: of a collective, bytes as nccl-tests count them, and its bus bandwidth
    over its algorithm bandwidth (nccl-tests, "Performance reported by NCCL tests")."""

    measured_as: MeasuredAs = "training"
    reads_loss: bool = True
    size: int = 0
    bus_factor: float = 1.0

    def left_out(
        self, figure: str, phase: str, phases: Sequence[Phase], data: RunData
    ) -> str | None:
        """Why this standard figure of a phase would say nothing of such a job; None: it does."""
        rounds = self.measured_as != "flows" or len(data.iterations) > 1
        struck = phase not in UNDISTURBED or any(
            each.name not in UNDISTURBED and each.start_ps < each.end_ps for each in phases
        )
        if figure == "timeouts" and "timeouts" not in data.counters:
            return NO_TIMEOUT if "retransmitted" in data.counters else why_not_counted(data)
        if figure in ("recovery_s", "stood_still_s") and phase in UNDISTURBED:
            return NO_FAULT
        if figure in _OF_ITERATIONS and not rounds:
            return "flows have no iterations: see fct_p50_s, fct_p99_s and slowdown_p99"
        if figure in _RELATIVE and not struck:
            return "the job met no fault, so there is no other phase to compare with"
        if figure == "blip_s" and not struck and self.measured_as == "flows":
            return "the job met no fault, and flows are as silent as their queue is long"
        return None

    def none(self, phases: Sequence[Phase], data: RunData) -> dict[str, str]:
        """Why such a job has no such figure, by the names that other kinds of jobs have."""
        found = {
            f"{phase.name}.{name}": why
            for phase in phases
            for name in FIGURES
            if (why := self.left_out(name, phase.name, phases, data)) is not None
        }
        if not self.reads_loss:
            found["final_loss"] = "the job was not told how to read a loss: ln.TorchJob(…, log=…)"
        return found

    def figures(self, phase: str, phases: Sequence[Phase], data: RunData) -> list[str]:
        """The standard figures that such a job has in a phase."""
        return [name for name in FIGURES if self.left_out(name, phase, phases, data) is None]


def rates(kind: Kind, iterations: list[Iteration], phase: Phase) -> dict[str, Value]:
    """algbw and busbw (GB/s) of a collective, over the mean of the iterations wholly inside the
    phase, which nccl-tests take."""
    whole = whole_iterations(iterations, phase)
    spent = sum(each.length_ps for each in whole)
    if not spent:
        return dict.fromkeys(RATES, Value(None, "no whole iteration in the phase"))
    algbw = kind.size * len(whole) * 1e12 / spent / GB_S
    return {
        "algbw": Value(algbw, span_ps=spent),
        "busbw": Value(algbw * kind.bus_factor, span_ps=spent),
    }
