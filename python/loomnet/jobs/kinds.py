"""Whether a job is of a kind whose module a run of other jobs does not import: each of pydantic's
models takes milliseconds to make."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from loomnet.jobs.graphs import FlowsOfAFile, Trace
    from loomnet.jobs.model_job import ModelJob
    from loomnet.jobs.moe_job import MoeJob


def is_model_job(job: object) -> TypeIs[ModelJob]:
    return _made_by(job, "model_job", "ModelJob")


def is_moe_job(job: object) -> TypeIs[MoeJob]:
    return _made_by(job, "moe_job", "MoeJob")


def is_trace(job: object) -> TypeIs[Trace]:
    return _made_by(job, "graphs", "Trace")


def is_flows_of_a_file(job: object) -> TypeIs[FlowsOfAFile]:
    return _made_by(job, "graphs", "FlowsOfAFile")


def _made_by(job: object, module: str, name: str) -> bool:
    """Without an import of its module a class has no instances."""
    home = sys.modules.get(f"loomnet.jobs.{module}")
    return home is not None and isinstance(job, getattr(home, name))
