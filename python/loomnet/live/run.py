"""The live clock: Mininet namespaces, XDP switches, AF_XDP, real ranks. One run from bring-up to
nothing left behind."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

import numpy as np  # noqa: F401  (the engine's counters are arrays: no import after Ctrl-C)

from loomnet.base.errors import UnavailableError, UsageError, WallTimeError
from loomnet.base.names import how_many
from loomnet.base.units import Time
from loomnet.live import direct_panels, doctor
from loomnet.live.budget import offered_by
from loomnet.live.clock import LiveClock, switches_text
from loomnet.live.dilation import check_load
from loomnet.live.kernel_tcp import KernelTcp
from loomnet.live.machine_budget import budget
from loomnet.live.network import check_plan, require_live
from loomnet.measures.observed import Observed
from loomnet.measures.run_data import RunData
from loomnet.measures.samples import Sampler
from loomnet.measures.switch_state import snapshot_times
from loomnet.processes.interrupts import Interrupts
from loomnet.running.request import Progress, RunRequest
from loomnet.running.run_loop import RunLoop
from loomnet.running.run_options import check_options
from loomnet.systems.registry import option_tables, transport

LEAST_EVERY_PS = 5 * 10**9  # wall time between two calls of a controller in Python
# Wall time: each slot is a system call of about a microsecond, and a pool may have thousands.
LEAST_STEP_PS = 20 * 10**9
LEAST_SAMPLE_PS = 10**9  # wall time: each look at the queues takes the loop from its packets


class LiveRunner:
    """Runs requests on the live clock. Needs root."""

    def describe(self, request: RunRequest) -> str:
        self.check(request)
        plan = request.plan
        load = offered_by(request)
        jobs = "; ".join(each.job.describe() for each in request.jobs)
        return (
            f"{plan.name}: {how_many(len(plan.hosts), 'host')}, "
            f"{how_many(plan.planes, 'plane')}, {switches_text(plan)}, "
            f"{how_many(len(plan.links), 'link')}; live, D = {request.dilation:g}\n"
            f"offered load {load / request.dilation / 1000:.0f} k of "
            f"{budget().frames_per_s / 1000:.0f} k switch passes/s\n"
            f"{jobs}{_expected_wall(request)}"
        )

    def check(self, request: RunRequest) -> None:
        check_options(request.options, [asked.job for asked in request.jobs], live=True)
        for name in option_tables():
            transport(name).check_live(request.options.get(name, {}))
        KernelTcp.wanted_by(request)
        sampler = Sampler.of(request.options, request.plan)
        if sampler is not None and sampler.samples.every_ps * request.dilation < LEAST_SAMPLE_PS:
            raise UsageError(
                f"run: sample={Time.of(sampler.samples.every_ps)}: live, two samples "
                f"are {Time.of(LEAST_SAMPLE_PS)} of wall time or more apart"
            )
        snapshot_times(request.options)
        for option, step in filter(None, (part.step for part in request.parts)):
            if step.count * request.dilation < LEAST_STEP_PS:
                raise UsageError(
                    f"run: {option}={step}: live, two samples are "
                    f"{Time.of(LEAST_STEP_PS)} of wall time or more apart"
                )
        Observed.of(request.options, None if sampler is None else sampler.samples.every_ps)
        for seat in request.controllers:
            seat.least_ps = round(LEAST_EVERY_PS / request.dilation)
            if seat.every_ps is not None and seat.every_ps < seat.least_ps:
                raise UsageError(
                    f'controller "{seat.name}": every={Time.of(seat.every_ps)}: live, '
                    f"a controller is called every {Time.of(seat.least_ps)} or "
                    "slower; a faster one is a plug-in in C++"
                )
        check_plan(request.plan)
        direct_panels.check_jobs(request)
        require_live()
        check_load(request)

    def run(self, request: RunRequest, on_progress: Callable[[Progress], None]) -> list[RunData]:
        self.check(request)
        os.environ["PATH"] = doctor.tool_path()  # Mininet ends the process without its tools
        with Interrupts() as interrupts:
            with contextlib.ExitStack() as stack:
                try:
                    clock = LiveClock(request, stack, interrupts)
                except WallTimeError as over:
                    raise WallTimeError(f"{over} before the live network was there") from None
                # SystemExit: Mininet ends the process where a tool it calls did not answer.
                except (OSError, RuntimeError, SystemExit) as error:
                    interrupts.check()  # Ctrl-C reaches what bring-up started, too
                    raise UnavailableError(doctor.cannot_start(error)) from error
                sampler = Sampler.of(request.options, request.plan)
                plays = [clock.play(asked, sampler) for asked in request.jobs]
                for seat in request.controllers:
                    seat.listening = interrupts.listen
                found = RunLoop(request, clock, plays, on_progress, sampler).go()
            for data in found if interrupts.pending else ():  # on the way down
                if data.ended != "interrupted":
                    data.ended, data.reason = "interrupted", interrupts.pending
        return found


def _expected_wall(request: RunRequest) -> str:
    until, lasts = getattr(request.lead.job, "until", None), request.lead.begins_for_ps
    ends = [] if until is None else [until.seconds]
    ends += [] if lasts is None else [lasts / 1e12]
    return f"; about {min(ends) * request.dilation + 15:.0f} s" if ends else ""
