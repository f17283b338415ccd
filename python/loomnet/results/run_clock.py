"""A job of several on the clock of its run, for pictures, and goodput in bins of that clock."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from loomnet.base.units import Time
from loomnet.measures.run_data import HostSeries


def moved(result: Any) -> Any:
    """A Result of a job in time since time 0 of the run's first job: what pictures read of it."""
    made, data, zero = copy.copy(result), result.data, result.data.zero_ps
    made.__dict__.pop("_flow_records", None)
    made.data = replace(
        data,
        zero_ps=0,
        end_ps=data.end_ps + zero,
        iterations=[
            replace(each, start_ps=each.start_ps + zero, end_ps=each.end_ps + zero)
            for each in data.iterations
        ],
        hosts={host: replace(each, begin_ps=zero) for host, each in data.hosts.items()},
        log=[(at + zero, groups) for at, groups in data.log],
        events=None if data.events is None else data.events.since(-zero),
    )
    made.phases = [
        replace(phase, start_ps=phase.start_ps + zero, end_ps=phase.end_ps + zero)
        for phase in result.phases
    ]
    return made


def goodput_bins(
    hosts: Sequence[HostSeries], step: Time | None, until: float | None
) -> tuple[list[float], list[float]]:
    """Begins of bins of `step` in seconds, up to `until` seconds, and the payload that all hosts
    received in each, in Gb/s."""
    import numpy

    own = max((host.bin_ps for host in hosts), default=10**9)
    width = own if step is None else max(step.count // own, 1) * own
    kept = [
        host.payload
        if until is None
        else host.payload[: max(math.ceil((until * 1e12 - host.begin_ps) / host.bin_ps), 0)]
        for host in hosts
    ]
    ends = [
        host.begin_ps + len(payload) * host.bin_ps
        for host, payload in zip(hosts, kept, strict=True)
    ]
    first = min([0, *(host.begin_ps // width for host in hosts)])
    sums = numpy.zeros(max(-(-max(ends, default=0) // width) - first, 0))
    for host, payload in zip(hosts, kept, strict=True):
        at = host.begin_ps + numpy.arange(len(payload), dtype=numpy.int64) * host.bin_ps
        sums += numpy.bincount(at // width - first, payload, minlength=len(sums))
    times = (first + numpy.arange(len(sums))) * (width / 1e12)
    return times.tolist(), (sums * (8e3 / width)).tolist()
