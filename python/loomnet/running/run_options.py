"""The options of lab.run that a clock and its engine take, and what the models that carry a run's
jobs say of theirs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import loomnet._core as _core
from loomnet.base.errors import UsageError
from loomnet.base.names import did_you_mean, quoted
from loomnet.base.units import Time
from loomnet.jobs.model import Job
from loomnet.plans.model import Plan
from loomnet.systems.registry import carriers_of, option_tables, transport

# What a request may carry for the engine beside a transport's own options: whether traffic models
# move real bytes, compute gaps to replay, leave to exceed the live budget, what is sampled, and by
# how much flows that start together are moved apart.
OPTIONS = ("payload", "gaps_ps", "over_budget", "sample", "queues", "links", "observe", "jitter",
           "snapshots", "pools")
_SWITCHES = ("payload", "over_budget")


def check_options(options: Mapping[str, Any], jobs: Sequence[Job]) -> None:
    """Raises UsageError for an option of lab.run that no engine knows, or of another type."""
    asked = {name for each in carriers_of(jobs) for name in (each.name, each.model)}
    known = (*option_tables(), *OPTIONS)
    for name, value in options.items():
        if name not in known:
            raise UsageError(f"run: no option {name}{did_you_mean(name, known)}")
        if name in _SWITCHES and not isinstance(value, bool):
            raise UsageError(f"run: {name}={quoted(value)} must be True or False")
        if name == "jitter":
            Time.given("run: jitter", value)
        if name in option_tables() and name not in asked:
            _check_unused(name, value)


def _check_unused(table: str, given: Any) -> None:
    """Names in a transport's table that no job of the run is over: those of the others the engine
    refuses."""
    row = _core.transports().get(transport(table).model)
    if row is None:
        return  # a model without an engine has no options to compare with
    controls = _core.congestion_controls()
    known = [*transport(table).own_options, *(each["name"] for each in (
        *row["options"], *(option for control in row["congestion_controls"]
                           for option in controls[control]["options"])))]
    for name in given:
        if name not in known:
            raise UsageError(f"run: {table}: no option {name}{did_you_mean(str(name), known)}")


def model_notes(jobs: Iterable[Job], options: Mapping[str, Any], plan: Plan) -> dict[str, str]:
    """What the report's fidelity says of the models that carry these jobs on the virtual clock.
    Raises UsageError for an option that a model does not take."""
    notes: dict[str, str] = {}
    for asked in carriers_of(jobs):
        chosen = options.get(asked.model, {})
        transport(asked.model).check_options(chosen)
        notes |= asked.describe_model(chosen, plan)
    if plan.pfc:
        notes["pfc"] = "on: switch ports are lossless"
    return notes
