"""Queue pairs between the servers of a job whose circuits are patched: by wires, a queue pair for
each electrical port or each two GPUs; by light, one for each circuit that two servers may have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loomnet.base.errors import UsageError
from loomnet.plans.entries import HostPlan
from loomnet.plans.job_request import JobRequest
from loomnet.systems.given import PartEngine

Way = tuple[int, int, int]
Row = tuple[Any, ...]  # as Engine.path_row() has it
_DIRECT: Row = ((), -1, (0,), 0, 1, None, 1.0)
_NONE: Row = ((), -1, (), 0, 1, None, 1.0)


class Ways:
    """Connects queue pairs of one job."""

    def __init__(self, engine: PartEngine, asked: JobRequest) -> None:
        self._engine, self._job, self._start_ps = engine, asked.number, asked.start_ps
        carrier = engine.carrier(asked.job)
        assert carrier is not None
        self._transport = carrier.model
        # A transport that sprays takes all planes; others have one path.
        self._sprays = carrier.sprays
        self._flow = 0
        self._electrical: dict[int, list[int]] = {}
        self._optical: dict[int, list[int]] = {}
        self._labels: dict[int, list[int]] = {}

    def electrical(self, host: int) -> list[int]:
        """Ports of a host's NIC that lead to switches."""
        return self._ports(host, self._electrical, light=False)

    def optical(self, host: int) -> list[int]:
        """Ports of a host's NIC that lead to a panel."""
        return self._ports(host, self._optical, light=True)

    def _ports(self, host: int, known: dict[int, list[int]], *, light: bool) -> list[int]:
        if host not in known:
            planes = self._host(host).planes
            known[host] = [port for port, plane in enumerate(planes) if (plane is None) == light]
        return known[host]

    def _host(self, host: int) -> HostPlan:
        return self._engine.plan.hosts[host]

    def by_wire(self, source: int, destination: int) -> tuple[list[Way], list[Way]]:
        """Both directions between two hosts: a way for each plane, or one for a transport that uses
        all of them. Raises UsageError where no switch joins them."""
        if not (self.electrical(source) and self.electrical(destination)):
            a, b = (self._host(host).name for host in (source, destination))
            raise UsageError(
                f"run: no electrical port of {a} and {b}, which a mixture of experts "
                "needs for its stages and replicas"
            )
        there, back = self._wires(source, destination), self._wires(destination, source)
        return self._both(source, destination, list(zip(there, back, strict=True)))

    def wires(self, source: int, destination: int, number: int) -> list[Row]:
        """Paths of one queue pair by wires, of each port; queue pairs take ports in turn."""
        found = self._wires(source, destination)
        return found[number % len(found)]

    def spread(self, source: int, destination: int, count: int) -> tuple[list[Way], list[Way]]:
        """As by_wire(), as many ways, each by one port of both hosts in turn."""
        if not (self.electrical(source) and self.electrical(destination)):
            a, b = (self._host(host).name for host in (source, destination))
            raise UsageError(
                f"run: no electrical port of {a} and {b}, which ranks need beside circuits"
            )
        return self._both(
            source,
            destination,
            [
                (self.wires(source, destination, number), self.wires(destination, source, number))
                for number in range(count)
            ],
        )

    def by_light(self, source: int, destination: int, count: int) -> tuple[list[Way], list[Way]]:
        """As many ways, which take the ports of a circuit when there is one; until then each has a
        port of its own."""
        return self._both(
            source,
            destination,
            [
                (
                    self._rows(source, {self.optical(source)[way]: _DIRECT}),
                    self._rows(destination, {self.optical(destination)[way]: _DIRECT}),
                )
                for way in range(count)
            ],
        )

    def fallback(self, source: int, destination: int) -> list[Row]:
        """Paths by wires of what has no circuit any more."""
        return self._wires(source, destination)[0]

    def _wires(self, source: int, destination: int) -> list[list[Row]]:
        ports = self.electrical(source)
        if not self._sprays:
            return [self._rows(source, {port: _DIRECT}) for port in ports]
        host = self._host(source)
        paths = self._engine.plan.paths(source, destination)
        found: dict[int, Row] = {}
        for port in ports:
            plane = host.planes[port]
            assert plane is not None
            found[port] = self._engine.path_row(paths[plane])
        return [self._rows(source, found)]

    def _rows(self, host: int, paths: dict[int, Row]) -> list[Row]:
        return [paths.get(port, _NONE) for port in range(len(self._host(host).ports))]

    def _planes(self, host: int) -> list[int]:
        """Of each port: its own plane, and of a panel's ports numbers behind those."""
        if host not in self._labels:
            planes = self._host(host).planes
            taken = {plane for plane in planes if plane is not None}
            spare = iter(sorted(set(range(len(planes) + len(taken))) - taken))
            self._labels[host] = [next(spare) if each is None else each for each in planes]
        return self._labels[host]

    def _both(
        self, source: int, destination: int, rows: Sequence[tuple[list[Row], list[Row]]]
    ) -> tuple[list[Way], list[Way]]:
        network = self._engine.network
        first, last = self._engine.node(source), self._engine.node(destination)
        here = network.reserve_qps(first, len(rows))
        far = network.reserve_qps(last, len(rows))
        labels, far_labels = self._planes(source), self._planes(destination)
        ahead: list[Way] = []
        behind: list[Way] = []
        for number, (there, back) in enumerate(rows):
            self._flow += 1
            local, remote = here + number, far + number
            network.connect_qp(
                first,
                local,
                last,
                remote,
                self._flow,
                there,
                back,
                job=self._job,
                transport=self._transport,
                planes=labels,
                at_ps=self._start_ps,
            )
            network.connect_qp(
                last,
                remote,
                first,
                local,
                self._flow,
                back,
                there,
                job=self._job,
                transport=self._transport,
                planes=far_labels,
                at_ps=self._start_ps,
            )
            ahead.append((first, last, local))
            behind.append((last, first, remote))
        return ahead, behind


def panel_of(engine: PartEngine, hosts: Sequence[int], ways: Ways) -> tuple[int, int, Any] | None:
    """The panel of a region's servers, the first of its ports that are theirs, and (node, port) of
    their optical NICs in the order of its ports; None where the servers have none. Raises
    UsageError where they are not at one panel, or in another order than its ports."""
    plan = engine.plan
    names = [plan.hosts[host].name for host in hosts]
    alphas = {len(ways.optical(host)) for host in hosts}
    if alphas == {0}:
        return None
    where = f"run: region {names[0]} to {names[-1]}"
    panels = {panel for host in hosts for panel in plan.hosts[host].panels if panel is not None}
    if len(alphas) > 1 or len(panels) > 1:
        raise UsageError(
            f"{where}: its servers have {sorted(alphas)} links to {len(panels)} "
            "panels; the servers of a region need equally many links, to one panel"
        )
    found = next(panel for panel in plan.panels if panel.number in panels)
    nics, first = [], None
    for host in hosts:
        for port in ways.optical(host):
            at = found.ports.index(plan.hosts[host].ports[port])
            first = at if first is None else first
            if at != first + len(nics):
                raise UsageError(
                    f"{where}: port {at} of {found.name} is out of order: a region's "
                    "servers take its ports one after another"
                )
            nics.append((engine.node(host), port))
    assert first is not None
    return found.number, first, nics
