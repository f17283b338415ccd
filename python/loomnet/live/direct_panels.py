"""Panels placed as programs of tc: hosts' veths end at the panel, so that kernel TCP keeps its
offloads and the engine has none of their frames. Links there have neither rate nor delay."""

from __future__ import annotations

from collections.abc import Iterator

from loomnet.base.errors import UsageError
from loomnet.faults.timetable import LinkChange, LinkState
from loomnet.plans.model import PanelPlan, Plan
from loomnet.running.request import RunRequest
from loomnet.systems.registry import transport


def direct(plan: Plan) -> Iterator[PanelPlan]:
    """The panels that are placed so."""
    return (panel for panel in plan.panels if panel.placement == "tc")


def fibres(plan: Plan, panel: PanelPlan) -> Iterator[tuple[int, int]]:
    """By port of the panel with a link: the host there, and the port of its NIC."""
    for link in panel.ports:
        ahead = plan.links[link].forward
        host, port = ((ahead.source, ahead.source_port) if ahead.target == panel.number
                      else (ahead.target, ahead.target_port))
        yield host, port


def check_jobs(request: RunRequest) -> None:
    """Raises UsageError for a job over emulated NICs on hosts of such a panel."""
    for panel in direct(request.plan):
        there = {host for host, _ in fibres(request.plan, panel)}
        for asked in request.jobs:
            if transport(asked.job.transport).by_kernel:
                continue
            for host in asked.hosts:
                if host in there:
                    raise UsageError(
                        f'panel {panel.name}: placement="tc" joins hosts\' kernels alone, and '
                        f"{asked.job.transport} runs over the emulated NIC of "
                        f'{request.plan.hosts[host].name}; take placement="engine" or "xdp", or '
                        'transport="tcp"')


def check_change(plan: Plan, change: LinkChange) -> None:
    """Raises UsageError for what a link without a model cannot do."""
    link = plan.links[change.half // 2]
    ends = {link.forward.source, link.forward.target}
    for panel in direct(plan):
        if panel.number not in ends:
            continue
        if change.state != LinkState(up=change.state.up):
            raise UsageError(f'link {link.name}: panel {panel.name} has placement="tc", whose '
                             "links are up or down and have no rate, delay or loss of their own")
        if panel.carrier == "none" and not change.state.up:
            raise UsageError(f'link {link.name}: panel {panel.name} has placement="tc" and '
                             'carrier="none", and a link goes down by its carrier; take '
                             'carrier="both"')


def note(plan: Plan) -> dict[str, str]:
    """What a run's report says of them."""
    return {f"panel {panel.name}": 'placement="tc": hosts\' kernels are joined directly, rates and '
                                   "delays of its links are not emulated"
            for panel in direct(plan)}
