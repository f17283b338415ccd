"""What a lab adds to the request of a run: a trace and captures, and whom the run tells how far it
is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from loomnet.jobs.model import Job
from loomnet.running.record import Record
from loomnet.running.request import Progress, RunRequest


def with_recording(request: RunRequest, record: Record) -> RunRequest:
    """A run that records this into its folder. Raises UsageError."""
    from loomnet.running.recording import Recording, check_trace  # which load the engine

    check_trace(record, request.plan, request.jobs)
    recording = Recording(record, request.plan, request.opened())
    return dataclasses.replace(request, recording=recording)


def with_the_end(
    on_progress: Callable[[str, Progress], None] | None, name: str, job: Job
) -> Callable[[Progress], None]:
    """For an engine: passes on where the run stands, with where the job ends."""
    total = getattr(job, "repeat", None) or getattr(job, "steps", None)
    until = getattr(job, "until", None)

    def report(progress: Progress) -> None:
        if on_progress is not None:
            on_progress(name, dataclasses.replace(progress, total=total, until=until))

    return report
