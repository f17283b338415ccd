"""The options of lab.run that a clock and its engine take, and what the models that carry a run's
jobs say of theirs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import loomnet._core as _core
from loomnet.base.errors import UsageError
from loomnet.base.names import did_you_mean, nearest, one_slip, quoted
from loomnet.base.units import Time
from loomnet.jobs.model import Job
from loomnet.plans.model import Plan
from loomnet.systems.controls import check_job_control, options_of_job
from loomnet.systems.registry import carriers_of, option_tables, transport

# What a request may carry for the engine beside a transport's own options: whether traffic models
# move real bytes, compute gaps to replay, leave to exceed the live budget, what is sampled, and by
# how much flows that start together are moved apart.
OPTIONS = (
    "payload",
    "gaps_ps",
    "over_budget",
    "sample",
    "queues",
    "links",
    "observe",
    "jitter",
    "snapshots",
    "pools",
)
# Names that lab.run itself takes beside them, for what an error proposes.
OF_LAB = (
    "faults",
    "label",
    "seed",
    "reroute_delay",
    "settle",
    "dilation",
    "trace",
    "pcap",
    "controllers",
    "model",
)
_SWITCHES = ("payload", "over_budget")


def check_names(options: Mapping[str, Any], own: Iterable[str]) -> None:
    """Raises UsageError for an option of lab.run that no engine knows. `own`: the names that the
    caller itself takes, which may have been meant."""
    known = (*option_tables(), *OPTIONS)
    for name in options:
        if name not in known:
            several = (
                "; a run has one seed, and ln.sweep(scenario, seeds=3) has several"
                if name == "seeds"
                else ""
            )
            raise UsageError(f"run: no option {name}{did_you_mean(name, (*known, *own))}{several}")


def check_options(options: Mapping[str, Any], jobs: Sequence[Job], *, live: bool = False) -> None:
    """Raises UsageError for an option of lab.run that no engine knows, or of another type. `live`:
    a congestion control may be one that only the kernel has, which is asked for it later."""
    asked = {name for each in carriers_of(jobs) for name in (each.name, each.model)}
    check_names(options, OF_LAB)
    for name, value in options.items():
        if name in _SWITCHES and not isinstance(value, bool):
            raise UsageError(f"run: {name}={quoted(value)} must be True or False")
        if name == "jitter":
            Time.given("run: jitter", value)
        if name in option_tables():
            _check_names(name, value, used=name in asked, live=live)
    for job in jobs:
        if job.cc is not None:
            check_job_control(job, options, live=live)
            table = transport(job.transport).model
            _check_names(table, options_of_job(job, options), used=True, live=live)


def _check_names(table: str, given: Any, *, used: bool, live: bool) -> None:
    """Names and values in a transport's table, as far as the nearest one and the default of a
    user's control help; the engine refuses the rest. `used`: a job of the run is over it."""
    carrier = transport(table)
    row = _core.transports().get(carrier.model)
    if row is None:
        return  # a model without an engine has no options to compare with
    controls = _core.congestion_controls()
    chosen = given.get(carrier.control_option)
    if not isinstance(chosen, str):
        chosen = None  # none, or a value that the transport refuses
    if used and not (live and carrier.by_kernel) and chosen is not None and chosen not in controls:
        usable = row["congestion_controls"]
        raise UsageError(
            f"run: {table}: {carrier.control_option}: no control {chosen}"
            f"{did_you_mean(chosen, usable)}; there are {', '.join(usable)}"
        )
    own = controls[chosen]["options"] if chosen and chosen in row["congestion_controls"] else []
    names = [each["name"] for each in own]  # first: those of the control that is chosen
    known = dict.fromkeys(
        [
            *names,
            *carrier.own_options,
            *(
                each["name"]
                for each in (
                    *row["options"],
                    *(
                        option
                        for control in row["congestion_controls"]
                        for option in controls[control]["options"]
                    ),
                )
            ),
        ]
    )
    for name in given:
        if name not in known:
            near = [each for each in nearest(name, names, 1) if _alike(str(name), each)]
            near = list(dict.fromkeys([*near, *nearest(name, known)]))[:3]
            listed = f"; there are {', '.join(known)}" if used else ""
            raise UsageError(f"run: {table}: no option {name}; nearest: {', '.join(near)}{listed}")
    for each in own if controls.get(chosen or "", {}).get("virtual_only") else ():
        value, default = given.get(each["name"], each["default"]), each["default"]
        if not _takes(each["type"], value):
            raise UsageError(
                f"run: {table}: {each['name']}={quoted(value)} must be "
                f"{_TYPES[each['type']]}, as its default {quoted(default)} is"
            )


_TYPES = {"flag": "True or False", "text": "a text", "real": "a number", "whole": "a whole number"}


def _takes(kind: str, value: Any) -> bool:
    """Whether the engine takes a value where a control's default is of this type. It takes numbers
    of other libraries, too, so that only Python's own are refused here."""
    refused = {
        "flag": (int, float, str),
        "text": (bool, int, float),
        "real": (bool, str),
        "whole": (bool, str),
    }[kind]
    return not isinstance(value, refused) or (kind == "flag" and isinstance(value, bool))


def _alike(given: str, known: str) -> bool:
    """Whether one begins with the other, as target and target_us, or it is a slip."""
    return given.startswith(known) or known.startswith(given) or one_slip(given, known)


def unused_tables(options: Mapping[str, Any], jobs: Sequence[Job]) -> list[str]:
    """Transports whose options were given and over which no job of the run is."""
    asked = {name for each in carriers_of(jobs) for name in (each.name, each.model)}
    return [
        name
        for name, value in options.items()
        if name in option_tables() and value and name not in asked
    ]


def model_notes(jobs: Iterable[Job], options: Mapping[str, Any], plan: Plan) -> dict[str, str]:
    """What the report's fidelity says of the models that carry these jobs on the virtual clock.
    Raises UsageError for an option that a model does not take."""
    notes: dict[str, str] = {}
    jobs = list(jobs)
    for asked in carriers_of(jobs):
        chosen = options.get(asked.model, {})
        transport(asked.model).check_options(chosen)
        notes |= asked.describe_model(chosen, plan)
    for job in jobs:
        if job.cc is not None:
            carrier = transport(job.transport)
            for name, text in carrier.describe_model(options_of_job(job, options), plan).items():
                notes[f"{name} of {job.name or type(job).__name__}"] = text
    if plan.pfc:
        notes["pfc"] = "on: switch ports are lossless"
    return notes
