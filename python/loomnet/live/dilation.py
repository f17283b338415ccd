"""How slowly emulated time must pass for a run to fit this machine."""

from __future__ import annotations

import math

from loomnet.base.errors import UsageError
from loomnet.live.budget import offered_by
from loomnet.live.kernel_tcp import KernelTcp
from loomnet.live.machine_budget import budget
from loomnet.running.request import RunRequest


def check_load(request: RunRequest) -> None:
    """Raises UsageError for a run whose links at line rate are more than this machine carries,
    unless it was told over_budget=True."""
    if request.options.get("over_budget"):
        return
    affordable = budget().frames_per_s
    load = offered_by(request) / request.dilation
    if load <= affordable:
        return
    raise UsageError(
        f"offered load of {load:,.0f} switch passes/s is over the {affordable:,} that this machine "
        "was measured to carry (loomnet doctor --measure); lower the links' rate=, or let emulated "
        f"time pass more slowly than wall time: lab.run(…, dilation={least_dilation(request)})"
    )


def least_dilation(request: RunRequest) -> int:
    """The least whole dilation at which the run's offered load fits this machine."""
    return max(1, math.ceil(offered_by(request) / budget().frames_per_s))


def refuse_kernel_tcp(request: RunRequest) -> None:
    """Raises UsageError where hosts' kernels carry a job: their timers run on wall time, so at a
    dilation of the machine's choice their figures would be the machine's."""
    if KernelTcp.wanted_by(request) is not None:
        raise UsageError(
            'run: dilation="auto" with kernel TCP: its timers run on wall time, so '
            "D = 1 is the only dilation at which its figures may be compared; leave "
            "dilation= out"
        )
