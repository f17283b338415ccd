"""The rows of one job's result: its standard figures, the capacity that it could expect in each
phase, its completion time, and the figures of systems."""

from __future__ import annotations

import math

from loomnet.base.errors import UsageError
from loomnet.base.names import in_quotes
from loomnet.measures.kind import Kind
from loomnet.measures.rows import Metric, metric, stands
from loomnet.measures.run_data import RunData
from loomnet.measures.standard import standard_figures
from loomnet.measures.training import Phase
from loomnet.plans.model import Plan


def rows_of(
    plan: Plan, data: RunData, phases: list[Phase], kind: Kind, label: str | None, job: str | None
) -> list[Metric]:
    """`job`: its name, of a run of several. Raises UsageError where a system's figure has a name
    that another figure has."""
    rows = _standard(plan, data, phases, kind, label, job)
    for phase in phases:
        if phase.name not in ("before", "after"):
            known = math.isfinite(phase.capacity)
            rows.append(
                metric(
                    "expected_capacity",
                    phase.capacity if known else None,
                    unit="ratio",
                    reason=None
                    if known
                    else "not known of traffic that circuits carry, or of none",
                    label=label,
                    job=job,
                    phase=phase.name,
                )
            )
    if job is not None:
        rows.append(_completion(data, label, job))
    taken = {row.within_job for row in rows}
    for name, *_ in data.of_systems:
        if name in taken:
            raise UsageError(
                f"a system's figure {in_quotes(name)}: the job has one of this name; take another"
            )
        taken.add(name)
    rows += [
        metric(
            name, value, unit=unit, label=label, job=job, reason=reason if value is None else None
        )
        for name, value, unit, reason in data.of_systems
    ]
    return rows


def _standard(
    plan: Plan, data: RunData, phases: list[Phase], kind: Kind, label: str | None, job: str | None
) -> list[Metric]:
    p99 = data.fidelity.lateness_p99_ps
    rows: list[Metric] = []
    whose = "run" if job is None else "job"
    for name, (value, unit) in standard_figures(data, phases, whose, kind, plan).items():
        phase, _, figure = name.rpartition(".")
        rows.append(
            metric(
                figure,
                value.value,
                unit=unit,
                reason=value.reason,
                label=label,
                job=job,
                phase=phase or None,
                stands=stands(value.value, unit, value.span_ps, p99),
            )
        )
    return rows


def _completion(data: RunData, label: str | None, job: str) -> Metric:
    """The job's completion time: from its start to its end."""
    done = data.ended == "finished" and data.completion_ps is not None
    return metric(
        "jct_s",
        data.completion_ps / 1e12 if done and data.completion_ps is not None else None,
        unit="s",
        label=label,
        job=job,
        reason=None if done else f"the job {data.ended}: {data.reason or 'no reason given'}",
    )
