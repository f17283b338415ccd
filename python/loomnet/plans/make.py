"""From a fabric to its plan: of the whole, or of the part that some hosts' traffic can meet. A run
on the part ends like one on the whole, byte for byte."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy

from loomnet.base import bounds
from loomnet.base.errors import FabricError
from loomnet.base.names import quoted
from loomnet.fabrics.clos_shape import Clos
from loomnet.fabrics.link_settings import HEADER_BYTES, LinkDefaults, base_rtt
from loomnet.fabrics.model import Fabric
from loomnet.fabrics.panels import Ports
from loomnet.fabrics.queues import UNDER_PFC, UNDER_PFC_NAMES
from loomnet.fabrics.topology import ClosTopology, Topology, topology_of
from loomnet.fabrics.view import ClosView
from loomnet.plans.columns import Links, Part
from loomnet.plans.ecmp import EcmpTables, SwitchRoutes
from loomnet.plans.entries import HostPlan, PanelPlan, SwitchPlan
from loomnet.plans.half_kinds import HalfKinds, links_of
from loomnet.plans.model import Plan
from loomnet.plans.usid_plan import Style, UsidPlan

DEFAULTS = LinkDefaults()


def check_seed(seed: Any) -> None:
    """Raises FabricError for what is no seed."""
    if type(seed) is not int or not 0 <= seed < 2**64:
        raise FabricError(f"seed {quoted(seed)} must be a whole number from 0 to 2^64 - 1")


def make_plan(
    fabric: Fabric,
    *,
    seed: int = 0,
    style: Style = "uN",
    hosts: Iterable[int] | None = None,
    defaults: LinkDefaults = DEFAULTS,
) -> Plan:
    """Checks a fabric and works out every number. Raises FabricError or AddressError.

    `defaults`: how switches queue packets where links do not say.

    `hosts`: only what traffic among these hosts (numbers) can meet, with the numbers, addresses and
    seeds of the whole; the fabric must be regular.
    """
    check_seed(seed)
    if hosts is not None:
        hosts = _checked(fabric, hosts)
    topology = topology_of(fabric, hosts)
    addresses, routes = UsidPlan(topology, style), EcmpTables(topology)
    frame = fabric.payload.bytes + HEADER_BYTES
    rtt = base_rtt(topology, frame)
    bounds.check_round_trip(fabric.name, rtt.count)
    kinds = HalfKinds(rtt, frame, defaults)
    links = links_of(topology, kinds)
    switches = _Switches(fabric, topology, links, kinds, addresses, routes)
    return Plan(
        fabric.name,
        seed,
        topology.planes,
        fabric.payload.bytes,
        frame,
        rtt.count,
        Part(topology.host_numbers, _host_maker(fabric, topology)),
        Part(topology.switch_numbers, switches.plan),
        links,
        topology,
        addresses,
        routes,
        tuple(_panel_plan(fabric, topology, name) for name in topology.panels),
    )


def _checked(fabric: Fabric, hosts: Iterable[int]) -> list[int]:
    shape, wanted = fabric.shape, sorted(set(hosts))
    if shape is None:
        raise FabricError(f"{fabric.name}: only a regular fabric is built in part")
    if not wanted or not 0 <= wanted[0] <= wanted[-1] < shape.hosts:
        raise FabricError(f"{fabric.name}: hosts must be some of 0 … {shape.hosts - 1}")
    return wanted


# --- hosts ----------------------------------------------------------------------------------------
def _host_maker(fabric: Fabric, topology: Topology) -> Any:
    if isinstance(topology, ClosTopology):
        shape, local = topology.shape, cast(ClosView, fabric).local.planned
        planes, panels = tuple(range(shape.planes)), (None,) * shape.planes
        return lambda host: HostPlan(
            host,
            shape.name(host),
            "rank",
            tuple(shape.host_link(plane, host) for plane in planes),
            planes,
            panels,
            *local,
        )
    return lambda host: _host_plan(fabric, topology, host)


def _host_plan(fabric: Fabric, topology: Topology, host: int) -> HostPlan:
    ports = topology.neighbours(host)
    name = topology.names[host]
    return HostPlan(
        host,
        name,
        fabric.hosts[name].role,
        tuple(link for _, link, _ in ports),
        tuple(topology.plane[link] for _, link, _ in ports),
        tuple(far if topology.is_panel(far) else None for _, _, far in ports),
        *fabric.hosts[name].local.planned,
    )


# --- panels ---------------------------------------------------------------------------------------
def _panel_plan(fabric: Fabric, topology: Topology, name: str) -> PanelPlan:
    node = topology.number[name]
    links = tuple(link for _, link, _ in topology.neighbours(node))
    ports = panel_ports(topology, name)
    panel = fabric.panels[name]
    return PanelPlan(
        node,
        name,
        links,
        tuple(ports.table(panel.first)),
        panel.profile,
        panel.carrier,
        panel.placement,
    )


def panel_ports(topology: Topology, name: str) -> Ports:
    links = [topology.links[link] for _, link, _ in topology.neighbours(topology.number[name])]
    return Ports(topology.fabric.panels[name], links)


# --- switches -------------------------------------------------------------------------------------
class _Switches:
    """Each switch's plan, made when first read. Its one buffer holds what its ports may queue and
    what PFC reserves behind them. Raises FabricError where that is too much, or a port under PFC
    queues by a discipline that is not."""

    def __init__(
        self,
        fabric: Fabric,
        topology: Topology,
        links: Links,
        kinds: HalfKinds,
        addresses: UsidPlan,
        routes: EcmpTables,
    ) -> None:
        self._fabric, self._topology = fabric, topology
        self._addresses, self._routes = addresses, routes
        numbers = numpy.array(topology.switch_numbers, numpy.int64)
        # By the place of each switch among those that are there; what ends at a host or a panel
        # counts behind the last of them.
        sends, takes = (
            self._places(numbers, links.rows[:, [first, second]])
            for first, second in ((1, 3), (3, 1))
        )
        # Settings beyond all bounds are refused below by their sum: it must not wrap.
        most = max((each[field] for each in links.settings for field in _LIMITS), default=0)
        kind = object if most * (len(links) + 1) >= 2**62 else numpy.int64
        reserved = numpy.zeros(len(numbers) + 1, kind)
        for field in ("pfc_xoff_bytes", "pfc_headroom_bytes"):
            numpy.add.at(reserved, takes, links.column(field))
        others = numpy.array([each["queue"] not in UNDER_PFC for each in links.settings])
        reserved[-1] = 0
        _check_under_pfc(topology, links, others[links.kinds] & (reserved[sends] > 0))
        if isinstance(topology, ClosTopology):
            queued = _regular_queues(topology, kinds)
        else:
            queued = numpy.zeros(len(numbers) + 1, kind)
            for field in _LIMITS:
                numpy.add.at(queued, sends, links.column(field))
        self._numbers, self._reserved = numbers, reserved
        self._buffers = queued[: len(numbers)] + reserved[:-1]
        for at in numpy.unique(self._buffers, return_index=True)[1].tolist():
            bounds.check_buffer(topology.names[int(numbers[at])], int(self._buffers[at]))

    @staticmethod
    def _places(numbers: numpy.ndarray, nodes: numpy.ndarray) -> numpy.ndarray:
        at = numpy.searchsorted(numbers, nodes)
        there = at < len(numbers)
        there[there] = numbers[at[there]] == nodes[there]
        return numpy.where(there, at, len(numbers))

    def plan(self, node: int) -> SwitchPlan:
        fabric, topology = self._fabric, self._topology
        at = int(numpy.searchsorted(self._numbers, node))
        name = topology.names[node]
        ports: Sequence[int] = (
            _Ports(topology.shape, node)
            if isinstance(topology, ClosTopology)
            else tuple(link for _, link in sorted(topology.ports[node].items()))
        )
        own = fabric.switches[name]
        return SwitchPlan(
            node,
            name,
            own.plane,
            ports,
            self._addresses.tables(node),
            _Routes(self._routes, node),
            int(self._buffers[at]),
            bool(self._reserved[at]),
            own.placement,
            own.program,
            own.options,
        )


_LIMITS = ("data_limit_bytes", "control_limit_bytes")


def _check_under_pfc(topology: Topology, links: Links, wrong: numpy.ndarray) -> None:
    for at, back in numpy.argwhere(wrong).tolist():
        half = links.half(2 * int(links.rows[at, 0]) + back)
        raise FabricError(
            f"{half.name}: queue: ports of {topology.names[half.source]} are under PFC, so its "
            f'packets wait by {UNDER_PFC_NAMES}, not "{half.queue}"; give queue="priority", or '
            "pfc=False on its links"
        )


def _regular_queues(topology: ClosTopology, kinds: HalfKinds) -> numpy.ndarray:
    """What all ports of each switch may queue, those that are left out too."""
    shape = topology.shape
    kind = numpy.array([sum(each[field] for field in _LIMITS) for each in kinds.settings], object)
    host, leaf, *above = kind[kinds.tiers].tolist()  # of each tier: upwards, downwards
    core = above[0] if above else (0, 0)
    of_tier = {
        "leaf": shape.hosts_per_leaf * host[1] + shape.aggs_per_pod * leaf[0],
        "agg": shape.leaves_per_pod * leaf[1] + shape.cores_per_agg * core[0],
        "core": shape.pods * core[1],
    }
    found = {node: of_tier[shape.place(node)[0]] for node in topology.switch_numbers}
    for number, own in kinds.own.items():
        for (node, _), mine, like in zip(
            shape.ends(number), own, kinds.tiers[shape.link_tier(number)], strict=True
        ):
            if node in found:
                found[node] += int(kind[mine] - kind[like])
    return numpy.array(list(found.values()), object)


class _Routes(SwitchRoutes):
    """A switch's ECMP tables, worked out when first read: a run of MRC alone never does."""

    def __init__(self, tables: EcmpTables, node: int) -> None:
        object.__setattr__(self, "_of", (tables, node))

    def __getattr__(self, name: str) -> Any:
        if name not in ("groups", "hosts", "group"):
            raise AttributeError(name)
        tables, node = self._of
        found = tables.switch(node)
        for field in ("groups", "hosts", "group"):
            object.__setattr__(self, field, getattr(found, field))
        return getattr(self, name)


class _Ports(Sequence[int]):
    """Links at a switch's ports, by arithmetic; equal to the tuple it stands for."""

    def __init__(self, shape: Clos, node: int) -> None:
        self._shape, self._node, self._count = shape, node, shape.ports(node)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, port: Any) -> Any:
        if isinstance(port, slice):
            return tuple(self)[port]
        if not -self._count <= port < self._count:
            raise IndexError(port)
        return self._shape.link_at(self._node, port % self._count)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)
