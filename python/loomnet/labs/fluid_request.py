"""Models of how links are shared: runs by packets, runs without them (model="fluid"), and what the
latter may be asked."""

from __future__ import annotations

import dataclasses

from loomnet.base.errors import UsageError
from loomnet.base.names import in_quotes
from loomnet.fabrics.nodes import FORWARD
from loomnet.running.request import RunRequest
from loomnet.systems.registry import transport, transports

MODELS = ("packets", "fluid")
# Options of lab.run that ask for what only packets have.
_OF_PACKETS = ("sample", "queues", "links", "observe", "snapshots", "pools", "over_budget")
_FAULTS = ("loss", "duplicate", "reorder", "jitter", "bunch")


def check_model(model: str) -> None:
    """Raises UsageError for a name of no model."""
    if model not in MODELS:
        raise UsageError(
            f"run: model={in_quotes(model)} is not a model; there are "
            f"{' and '.join(map(in_quotes, MODELS))}"
        )


def fluid_request(request: RunRequest, clock: str, *, recorded: bool) -> RunRequest:
    """The request as one of a fluid run. Raises UsageError for what such a run cannot have."""
    where = 'run: model="fluid"'
    if clock != "virtual":
        raise UsageError(
            f"{where}: flows without packets run on the virtual clock; leave it out "
            f"on the {clock} clock"
        )
    if recorded:
        raise UsageError(f"{where}: there are no packets to record; leave trace= and pcap= out")
    for name in _OF_PACKETS:
        if name in request.options:
            raise UsageError(
                f"{where}: {name}= looks at packets, queues and senders, which are "
                "not there; leave it out"
            )
    for name, each in transports().items():
        for option in request.options.get(name, {}):
            if option not in each.size_options:
                raise UsageError(
                    f"{where}: {name}: {option}= steers packets, which are not there; leave it out"
                )
    for asked in request.jobs:
        if any(part.on_packets and part.carries(asked) for part in request.parts):
            raise UsageError(
                f'{where}: allreduce="{asked.job.allreduce}" sums packets in '
                'switches; use allreduce="ring"'
            )
        if transport(asked.job.transport).sprays:
            raise UsageError(
                f"{where}: {asked.job.transport} sends each packet by another path, "
                "and a flow has one; use transport roce or tcp"
            )
    for switch in request.plan.switches:
        if switch.program != FORWARD:
            raise UsageError(
                f"{where}: {switch.name} runs the program {switch.program}, which "
                f'works on packets; use "{FORWARD}"'
            )
    for fault in request.faults:
        if fault.kind in _FAULTS:
            raise UsageError(
                f"{where}: fault {fault.label}: there are no packets to lose, "
                "repeat, reorder or delay each by itself; use down, degrade, delay or kill"
            )
    return dataclasses.replace(request, fluid=True)
