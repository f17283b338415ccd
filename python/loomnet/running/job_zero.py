"""Where the time of a PyTorch job begins, from which its figures and its faults by time count."""

from __future__ import annotations

from loomnet.jobs.training_script import steps_by_text
from loomnet.plans.job_request import JobRequest


class JobZero:
    """Time 0 of a job, on the engine's clock. `origin_ps` is None until it is known.

    It is the end of rank 0's first step: what a script does before, as DistributedDataParallel's
    broadcast of parameters, is set-up. A script that never steps has its time 0 at the begin of its
    first operation. Which of the two a script is, its text tells where it can (steps_by_text).
    Where it cannot, a fault by time decides: if rank 0 has made no optimizer by the time at which
    the fault is due from the first operation on, that operation is time 0. Where nothing has
    decided, the job's end does.

    Samples and controllers, which look at the run, have no influence on it.
    """

    def __init__(self, asked: JobRequest) -> None:
        self._start_ps = asked.start_ps
        self.origin_ps: int | None = None
        self._first_ps: int | None = None  # begin of the job's first operation
        self._steps = None if asked.script is None else steps_by_text(asked.script)

    @property
    def told(self) -> str:
        """What time 0 is of a job without steps."""
        if self._first_ps is None:
            return "time 0 is the job's start"
        return "time 0 is the begin of the job's first operation"

    def began(self, at_ps: int) -> None:
        """A rank has begun its first operation."""
        if self._first_ps is None or at_ps < self._first_ps:
            self._first_ps = at_ps

    def take_operations(self) -> None:
        """All ranks have been heard: the earliest operation that began is known."""
        if self._steps is False and self.origin_ps is None:
            self.origin_ps = self._first_ps

    def steps_will_come(self) -> None:
        """Rank 0 or another has made an optimizer."""
        if self.origin_ps is None:
            self._steps = True

    def stepped(self, at_ps: int) -> None:
        """Rank 0 has ended its first step."""
        if self.origin_ps is None:
            self.origin_ps = at_ps

    @property
    def unless_it_steps_ps(self) -> int | None:
        """Time 0 if no optimizer is made; None where that cannot be."""
        return self._first_ps if self.origin_ps is None and self._steps is None else None

    def decide(self) -> None:
        """A fault by time is due, or the job is over."""
        if self.origin_ps is None:
            self.origin_ps = self._start_ps if self._first_ps is None else self._first_ps
