"""A plan in the engine: the C++ network built from it, queue pairs between ranks, the timetable's
changes applied, and what was measured read back as raw series. Used by both clocks."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Any

from loomnet import _core
from loomnet.errors import UsageError
from loomnet.naming import did_you_mean
from loomnet.plan import HalfLinkPlan, Plan, SwitchPlan
from loomnet.routing import SwitchRoutes
from loomnet.rundata import HostSeries
from loomnet.timetable import Change, LinkChange, RouteChange

# MRC's `net` constants are those of software time, `sim` those of hardware ("MRC + SRv6 multi-plane
# fabrics" 4): which apply follows from the fabric, never from the clock.
SOFTWARE_RTT_PS = 500 * 10**6
FIRST_QP = 0x100  # 0 to 2 are taken by the transports' own end points
_HASH_PURPOSE = 0x9E3779B97F4A7C15


# What a request may carry for the engine: a transport's own options, whether traffic models move real
# bytes, compute gaps to replay, and leave to exceed the live budget.
OPTIONS = ("mrc", "roce", "payload", "gaps_ps", "over_budget")


def check_options(options: Iterable[str]) -> None:
    """Raises UsageError for an option of lab.run that no engine knows."""
    for name in options:
        if name not in OPTIONS:
            raise UsageError(f"run: no option {name}{did_you_mean(name, OPTIONS)}")


def link_config(half: HalfLinkPlan) -> Any:
    """The engine's settings of one direction."""
    return _core.LinkConfig(
        rate_bps=half.rate_bps, delay_ps=half.delay_ps, data_limit=half.data_limit_bytes,
        control_limit=half.control_limit_bytes, ecn_low=half.ecn_low_bytes,
        ecn_high=half.ecn_high_bytes, trim_size=half.trim_bytes, last_hop=half.last_hop)


class Engine:
    """A network of the engine, numbered as its plan. `transport` None: NICs carry kernel traffic
    only. `kernel_switches`: switches are placed in the kernel, whose packets pass the live gate."""

    def __init__(self, plan: Plan, *, transport: str | None,
                 kernel_switches: bool = False, options: dict[str, Any] | None = None,
                 bin_ps: int = 10**9, seed: int | None = None) -> None:
        self.plan, self.transport = plan, transport
        self.seed = plan.seed if seed is None else seed
        self.network = _core.Network(seed=self.seed, meter_bin_ps=bin_ps)
        self._generation = {switch.number: 0 for switch in plan.switches}
        self._addresses = [ipaddress.ip_address(host.address).packed for host in plan.hosts]
        self._kernel_switches = kernel_switches
        for host in plan.hosts:
            self.network.add_host(len(host.ports))
        for switch in plan.switches:
            node = self.network.add_switch(
                len(switch.ports), kernel=kernel_switches, hash_seed=self.hash_seed(switch.number),
                buffer_bytes=switch.buffer_bytes)
            if node != switch.number:
                raise AssertionError("plan and engine number their nodes differently")
            if not kernel_switches:
                self.network.set_tables(node, self.tables(switch, switch.routes))
        for link in plan.links:
            ahead, back = link.forward, link.backward
            self.network.connect(ahead.source, ahead.source_port, ahead.target, ahead.target_port,
                                 link_config(ahead), link_config(back))
        for host in plan.hosts:
            self._set_transport(host.number, dict(options or {}))
        self._flow = 0

    def hash_seed(self, node: int) -> int:
        """Seed of a switch's ECMP hash; every switch its own, else choices polarise."""
        return ((self.seed + 1) * _HASH_PURPOSE + node * 0xBF58476D1CE4E5B9) % 2**64

    def _set_transport(self, host: int, options: dict[str, Any]) -> None:
        rate = min(self.plan.links[port].forward.rate_bps for port in self.plan.hosts[host].ports)
        if self.transport == "mrc":
            options.setdefault("mtu", self.plan.payload_bytes)
            slow = self.plan.base_rtt_ps >= SOFTWARE_RTT_PS
            self.network.set_mrc(host, software_time=slow, net_rtt_ps=self.plan.base_rtt_ps,
                                 port_rate_bps=rate, options=options)
        elif self.transport == "roce":
            options.setdefault("payload_mtu", self.plan.payload_bytes)
            self.network.set_roce(host, options)
        elif self.transport not in (None, "gloo"):
            raise UsageError(f'transport: "{self.transport}" has no model in the engine')

    # --- tables -----------------------------------------------------------------------------------
    def tables(self, switch: SwitchPlan, routes: SwitchRoutes) -> Any:
        """The next generation of one switch's tables: static uSIDs and these ECMP routes."""
        self._generation[switch.number] += 1
        usids = switch.usids
        return _core.TableBatch(
            generation=self._generation[switch.number], block=usids.block, own=[usids.own],
            adjacencies=list(usids.adjacencies), fib=list(usids.fib),
            hosts=[(self._addresses[host], group) for host, group in enumerate(routes.group_of)
                   if group >= 0],
            groups=[list(group) for group in routes.groups])

    # --- queue pairs --------------------------------------------------------------------------------
    def connect(self, source: int, local: int, destination: int, remote: int) -> None:
        """Connects a queue pair both ways; numbers are the ends' own."""
        there = [(list(p.usids), p.uplink_slot, list(p.uplinks))
                 for p in self.plan.paths(source, destination)]
        back = [(list(p.usids), p.uplink_slot, list(p.uplinks))
                for p in self.plan.paths(destination, source)]
        self._flow += 1
        self.network.connect_qp(source, local, destination, remote, self._flow, there, back)
        self.network.connect_qp(destination, remote, source, local, self._flow, back, there)

    def connect_mesh(self, placement: Iterable[int],
                     pairs: Iterable[tuple[int, int]] | None = None) -> dict[tuple[int, int], int]:
        """Queue pairs between ranks (all pairs, or those given); (rank, peer) -> number at rank."""
        hosts = list(placement)
        wanted = ({(min(p), max(p)) for p in pairs} if pairs is not None
                  else {(a, b) for b in range(len(hosts)) for a in range(b)})
        numbers: dict[tuple[int, int], int] = {}
        for a, b in sorted(wanted):
            numbers[a, b], numbers[b, a] = FIRST_QP + b, FIRST_QP + a
            self.connect(hosts[a], numbers[a, b], hosts[b], numbers[b, a])
        return numbers

    # --- changes --------------------------------------------------------------------------------------
    def apply(self, changes: Iterable[Change], at_ps: int) -> None:
        """Puts the timetable's changes on the engine's schedule at this time (engine clock)."""
        for change in changes:
            if isinstance(change, LinkChange):
                half, state = self.plan.half(change.half), change.state
                ahead = change.half % 2 == 0
                self.network.schedule_link(
                    at_ps, change.half // 2, forward=ahead, backward=not ahead, up=state.up,
                    rate_bps=max(round(half.rate_bps * state.share), 1),
                    delay_ps=half.delay_ps + state.extra_delay_ps,
                    impairment={"loss": state.loss, "burst": state.burst})
            elif isinstance(change, RouteChange) and not self._kernel_switches:
                for switch in self.plan.switches:
                    routes = change.tables.switch(switch.number)
                    self.network.schedule_tables(at_ps, switch.number, self.tables(switch, routes))

    # --- figures ----------------------------------------------------------------------------------------
    def series(self, host: int, origin_ps: int) -> HostSeries:
        """What one host's job saw, in time since `origin_ps`."""
        raw = self.network.meter(host)
        bin_ps = raw["bin_ps"]
        skip = origin_ps // bin_ps  # bins are aligned with the engine's clock
        return HostSeries(
            work=[(b - origin_ps, e - origin_ps, n) for b, e, n in raw["work"].tolist()],
            busy=[(b - origin_ps, e - origin_ps) for b, e in raw["busy"].tolist()],
            silences=[(b - origin_ps, e - origin_ps) for b, e in raw["silences"].tolist()],
            payload=raw["bins"][skip:], bin_ps=bin_ps, silence_floor_ps=bin_ps // 10)

    def totals(self) -> dict[str, dict[str, int]]:
        """Every counter by object: links with traffic or drops, switches, NICs. Zeros are left out."""
        found: dict[str, dict[str, int]] = {}
        columns = self.network.link_counters()
        for number in range(2 * len(self.plan.links)):
            row = {name: int(column[number]) for name, column in columns.items() if column[number]}
            if row:
                found[f"link {self.plan.half(number).name}"] = row
        for switch in self.plan.switches:
            row = {name: n for name, n in self.network.switch_counters(switch.number).items() if n}
            if row:
                found[f"switch {switch.name}"] = row
        for host in self.plan.hosts:
            row = {name: n for name, n in self.network.nic_counters(host.number).items() if n}
            if row:
                found[f"nic {host.name}"] = row
        return found

    def figures(self, hosts: Iterable[int]) -> dict[str, int]:
        """Cumulative lost (packets dropped by links, whoever noticed), retransmitted and readmitted
        over these hosts, where the transport has them."""
        return figures_of(self.network.run_counters(list(hosts)), self.transport)


def figures_of(counters: dict[str, int], transport: str | None) -> dict[str, int]:
    """The counters that are figures of this transport's runs."""
    names = ["lost"]
    if transport in ("mrc", "roce"):
        names.append("retransmitted")
    if transport == "mrc":
        names.append("readmitted")
    return {name: counters[name] for name in names}


def staging_for(plan: Plan) -> dict[str, int]:
    """Slots and their size that keep all planes of a host busy: four times what is in flight on the
    longest round trip, so that a slot's way back as credit never shows."""
    rate = max(sum(plan.links[port].forward.rate_bps for port in host.ports) for host in plan.hosts)
    window = 4 * rate * plan.base_rtt_ps // (8 * 10**12)
    # 64 KiB: a message of few packets would cost an acknowledgement for every few.
    slots, payload = 16, 65536
    while payload < 1 << 20 and slots * payload < window:
        # Many small slots pipeline a ring better than few large ones.
        slots, payload = (slots * 2, payload) if slots < 64 else (slots, payload * 2)
    return {"slots": slots, "slot_payload": payload}
