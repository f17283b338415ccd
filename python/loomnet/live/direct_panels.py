"""Panels with placement "tc": hosts' veths end in the panel's namespace. Kernel TCP keeps its
offloads there, the engine sees none of the frames, and the links have neither rate nor delay."""

from __future__ import annotations

from collections.abc import Iterator

from loomnet.base.errors import UsageError
from loomnet.faults.timetable import LinkChange, LinkState
from loomnet.plans.entries import PanelPlan
from loomnet.plans.model import Plan
from loomnet.running.request import RunRequest
from loomnet.systems.registry import transport


def direct(plan: Plan) -> Iterator[PanelPlan]:
    """The panels with this placement."""
    return (panel for panel in plan.panels if panel.placement == "tc")


def fibres(plan: Plan, panel: PanelPlan) -> Iterator[tuple[int, int]]:
    """For each linked port of the panel the host at its other end, and the port of its NIC."""
    for link in panel.ports:
        ahead = plan.links[link].forward
        host, port = (
            (ahead.source, ahead.source_port)
            if ahead.target == panel.number
            else (ahead.target, ahead.target_port)
        )
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
                        'transport="tcp"'
                    )


def check_change(plan: Plan, change: LinkChange) -> None:
    """Raises UsageError for a change that needs the model of a link, which these links do not
    have."""
    link = plan.links[change.half // 2]
    ends = {link.forward.source, link.forward.target}
    for panel in direct(plan):
        if panel.number not in ends:
            continue
        if change.state != LinkState(up=change.state.up):
            raise UsageError(
                f'link {link.name}: panel {panel.name} has placement="tc", whose '
                "links are up or down and have no rate, delay or loss of their own"
            )
        if panel.carrier == "none" and not change.state.up:
            raise UsageError(
                f'link {link.name}: panel {panel.name} has placement="tc" and '
                'carrier="none", and a link goes down by its carrier; take '
                'carrier="both"'
            )


def note(plan: Plan) -> dict[str, str]:
    """The note on these panels in a run's report."""
    return {
        f"panel {panel.name}": 'placement="tc": hosts\' kernels are joined directly, rates and '
        "delays of its links are not emulated"
        for panel in direct(plan)
    }
