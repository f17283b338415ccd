"""The plan of a whole fabric."""

from __future__ import annotations

from collections.abc import Sequence

from loomnet.base import bounds
from loomnet.base.errors import FabricError
from loomnet.base.units import Time
from loomnet.fabrics.link_settings import (
    HEADER_BYTES,
    LinkDefaults,
    base_rtt,
    half_settings,
    panel_settings,
)
from loomnet.fabrics.model import Fabric
from loomnet.fabrics.panels import Ports
from loomnet.fabrics.queues import UNDER_PFC, UNDER_PFC_NAMES
from loomnet.fabrics.topology import Topology
from loomnet.plans.ecmp import EcmpTables
from loomnet.plans.model import (
    HalfLinkPlan,
    HostPlan,
    LinkPlan,
    PanelPlan,
    Plan,
    SwitchPlan,
)
from loomnet.plans.usid_plan import Style, UsidPlan, host_address


def whole_plan(fabric: Fabric, seed: int, style: Style, defaults: LinkDefaults) -> Plan:
    """Checks a fabric and works out every number. Raises FabricError or AddressError."""
    topology = Topology(fabric)
    addresses, routes = UsidPlan(topology, style), EcmpTables(topology)
    frame = fabric.payload.bytes + HEADER_BYTES
    rtt = base_rtt(topology, frame)
    bounds.check_round_trip(fabric.name, rtt.count)
    links = tuple(
        LinkPlan(
            i,
            link.name,
            topology.plane[i],
            _half_plan(topology, i, False, rtt, frame, defaults),
            _half_plan(topology, i, True, rtt, frame, defaults),
        )
        for i, link in enumerate(topology.links)
    )
    host_plans = tuple(_host_plan(fabric, topology, i) for i in range(len(topology.hosts)))
    switches = tuple(
        _switch_plan(fabric, topology, name, links, addresses, routes)
        for name in topology.switches
    )
    return Plan(
        fabric.name,
        seed,
        topology.planes,
        fabric.payload.bytes,
        frame,
        rtt.count,
        host_plans,
        switches,
        links,
        topology,
        addresses,
        routes,
        tuple(_panel_plan(fabric, topology, name) for name in topology.panels),
    )


def _host_plan(fabric: Fabric, topology: Topology, host: int) -> HostPlan:
    ports = topology.neighbours(host)
    name = topology.names[host]
    return HostPlan(
        host,
        name,
        fabric.hosts[name].role,
        str(host_address(host)),
        tuple(link for _, link, _ in ports),
        tuple(topology.plane[link] for _, link, _ in ports),
        tuple(far if topology.is_panel(far) else None for _, _, far in ports),
        *fabric.hosts[name].local.planned,
    )


def _panel_plan(fabric: Fabric, topology: Topology, name: str) -> PanelPlan:
    node = topology.number[name]
    links = tuple(link for _, link, _ in topology.neighbours(node))
    ports = panel_ports(topology, name)
    panel = fabric.panels[name]
    return PanelPlan(node, name, links, tuple(ports.table(panel.first)), panel.profile,
                     panel.carrier, panel.placement)


def panel_ports(topology: Topology, name: str) -> Ports:
    links = [topology.links[link] for _, link, _ in topology.neighbours(topology.number[name])]
    return Ports(topology.fabric.panels[name], links)


def _half_plan(
    topology: Topology, link: int, back: bool, rtt: Time, frame: int, defaults: LinkDefaults
) -> HalfLinkPlan:
    ahead, reverse = topology.links[link].forward, topology.links[link].backward
    spec, other = (reverse, ahead) if back else (ahead, reverse)
    source, target = topology.ends[link][::-1] if back else topology.ends[link]
    last_hop, from_host = topology.is_host(target.node), topology.is_host(source.node)
    name = topology.links[link].halves[back][0]
    glass = topology.is_panel(source.node)
    if glass or topology.is_panel(target.node):
        settings = panel_settings(spec, rtt, frame, from_host=from_host, defaults=defaults,
                                  where=name)
    else:
        settings = half_settings(spec, other, rtt, frame, last_hop=last_hop, from_host=from_host,
                                 where=name, defaults=defaults)
    return HalfLinkPlan(
        number=2 * link + back,
        name=name,
        source=source.node,
        source_port=source.port,
        target=target.node,
        target_port=target.port,
        last_hop=last_hop,
        glass=glass,
        **settings,
    )


def _switch_plan(fabric: Fabric, topology: Topology, name: str, links: Sequence[LinkPlan],
                 addresses: UsidPlan, routes: EcmpTables) -> SwitchPlan:
    """Its one buffer holds what its ports may queue and what PFC reserves behind them."""
    node = topology.number[name]
    ports = tuple(link for _, link in sorted(topology.ports[node].items()))
    queued = reserved = 0
    others: list[HalfLinkPlan] = []
    for number in ports:
        ahead, back = links[number].forward, links[number].backward
        leaves, arrives = (ahead, back) if ahead.source == node else (back, ahead)
        queued += leaves.data_limit_bytes + leaves.control_limit_bytes
        reserved += arrives.reserved_bytes
        others += [leaves] if leaves.queue not in UNDER_PFC else []
    if reserved and others:
        raise FabricError(
            f'{others[0].name}: queue: ports of {name} are under PFC, so its packets wait by '
            f'{UNDER_PFC_NAMES}, not "{others[0].queue}"; give queue="priority", or pfc=False on '
            "its links")
    bounds.check_buffer(name, queued + reserved)
    return SwitchPlan(
        node,
        name,
        fabric.switches[name].plane,
        ports,
        addresses.tables(node),
        routes.switch(node),
        queued + reserved,
        reserved > 0,
        fabric.switches[name].placement,
        fabric.switches[name].program,
        fabric.switches[name].options,
    )
