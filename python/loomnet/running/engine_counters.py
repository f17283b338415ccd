"""The counters of all objects of an engine, by the names that the plan has for them."""

from __future__ import annotations

from collections.abc import Callable

import loomnet._core as _core
from loomnet.plans.model import Plan
from loomnet.running.engine_numbers import EngineNode


def counters(
    plan: Plan, network: _core.Network, node: Callable[[int], EngineNode]
) -> dict[str, dict[str, int]]:
    """Links with traffic or drops, switches, panels, NICs and the fabric; zeros left out. `node`:
    the engine's number of one of the plan's."""
    found: dict[str, dict[str, int]] = {}
    columns = {name: column.tolist() for name, column in network.link_counters().items()}
    for at, half in enumerate(columns.pop("half")):
        number = 2 * int(plan.links.numbers[half // 2]) + half % 2
        found[f"link {plan.links.half_name(number)}"] = {
            name: column[at] for name, column in columns.items() if column[at]
        }
    if deadlocks := network.pfc_deadlocks:
        found["fabric"] = {"pfc_deadlocks": deadlocks}
    for kind, nodes, read in (
        ("switch", plan.switches, network.switch_counters),
        ("panel", plan.panels, network.panel_counters),
    ):
        for each in nodes:
            if row := {name: n for name, n in read(node(each.number)).items() if n}:
                found[f"{kind} {plan.topology.names[each.number]}"] = row
    for host in plan.hosts:
        if row := network.nic_counters(node(host.number)):
            found[f"nic {host.name}"] = row
    return found
