"""All figures that a job of its kind has, by phase and over the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loomnet.measures.kind import RATES, Kind, rates
from loomnet.measures.training import (
    OF_TRAINING,
    Phase,
    blip_s,
    counted,
    final_loss,
    goodput_ratio,
    iteration_s,
    iteration_slowdown,
    next_fault_ps,
    recovery_s,
    slowest_iteration_s,
    slowest_slowdown,
    stood_still_s,
    why_empty,
)
from loomnet.measures.value import Value

if TYPE_CHECKING:
    from loomnet.measures.run_data import RunData
    from loomnet.plans.model import Plan

UNITS = OF_TRAINING | dict.fromkeys(RATES, "GB/s")
RELATIVE = {"iteration_slowdown": iteration_slowdown, "slowest_slowdown": slowest_slowdown}


def standard_figures(
    data: RunData,
    phases: list[Phase],
    whose: str = "run",
    kind: Kind | None = None,
    plan: Plan | None = None,
) -> dict[str, tuple[Value, str]]:
    """(value, unit) of every `<phase>.<figure>` that the job's kind has, of `errors`, of the
    `final_loss` of training, and of flows' completion times, over the run and by phase.

    A run that ended early has null, with its reason, in the phase where it ended and in those it
    never reached. `whose`: what the reasons call the data's owner, "job" for one job of several.
    `plan`: of flows, what they would take alone."""
    kind = kind or Kind()
    collective = RATES if kind.measured_as == "collective" else ()
    early = data.ended != "finished"
    found: dict[str, tuple[Value, str]] = {}
    if kind.measured_as == "flows" and plan is not None:
        found |= _of_flows(plan, data, phases)
    for index, phase in enumerate(phases):
        names = (*kind.figures(phase.name, phases, data), *collective)
        if early and phase.end_ps >= data.end_ps:
            why = Value(
                None,
                f"the {whose} was {data.ended}"
                if data.reason == data.ended
                else f"the {whose} {data.ended}: {data.reason or 'no reason given'}",
            )
        elif phase.start_ps >= phase.end_ps:
            why = Value(None, why_empty(data, phase))
        else:
            why = None
        values = (
            dict.fromkeys(names, why)
            if why is not None
            else {name: _figure(name, data, phases, index) for name in names if name not in RATES}
        )
        if collective and why is None:
            values |= rates(kind, data.iterations, phase)
        found |= {f"{phase.name}.{name}": (value, UNITS[name]) for name, value in values.items()}
    found["errors"] = Value(len(data.errors)), UNITS["errors"]
    if kind.reads_loss:
        found["final_loss"] = final_loss(data), UNITS["final_loss"]
    return found


def _figure(name: str, data: RunData, phases: list[Phase], index: int) -> Value:
    phase, before = phases[index], phases[0]
    if name == "iteration_s":
        return iteration_s(data.iterations, phase, data.no_iterations)
    if name == "slowest_iteration_s":
        return slowest_iteration_s(data.iterations, phase, data.no_iterations)
    if name in RELATIVE:
        return RELATIVE[name](data.iterations, phase, before, data.no_iterations)
    if name == "stood_still_s":
        return stood_still_s(data, phases, index)
    if name == "goodput_ratio":
        return goodput_ratio(data.hosts, phase, before)
    if name == "blip_s":
        return blip_s(data.hosts, phase)
    if name == "recovery_s":
        return recovery_s(data, phase, before, next_fault_ps(phases, index, data.end_ps))
    return counted(data, name, phase)


def _of_flows(plan: Plan, data: RunData, phases: list[Phase]) -> dict[str, tuple[Value, str]]:
    from loomnet.measures import flow_completion as flows  # other jobs do without

    all_flows = flows.FlowTimes.of(plan, data)
    found = {
        name: (value, flows.UNITS[name])
        for name, value in flows.figures(all_flows).items()
        if name in flows.SHOWN
    }
    # Of `before` and `after` only where a fault was between them.
    struck = any(phase.start_ps < phase.end_ps for phase in phases[1:-1])
    for phase in phases if struck else phases[1:-1]:
        found |= {
            f"{phase.name}.{name}": (value, flows.UNITS[name])
            for name, value in flows.figures(all_flows.of_phase(phase)).items()
            if name in flows.SHOWN and name != "unfinished"
        }
    return found
