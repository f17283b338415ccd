"""Whether a fabric's ports, planes and paths add up, before anything starts."""

from __future__ import annotations

from loomnet.base.errors import FabricError
from loomnet.fabrics.links import Link
from loomnet.fabrics.panels import Ports, check_link
from loomnet.fabrics.view import FabricView

MAX_NIC_PORTS = 8


def check_fabric(fabric: FabricView) -> None:
    """Raises FabricError unless they do, with the name at fault."""
    if not fabric.hosts:
        raise FabricError("the fabric has no host: add_host() first")
    nodes = (*fabric.hosts.values(), *fabric.switches.values(), *fabric.panels.values())
    degree: dict[str, list[Link]] = {node.name: [] for node in nodes}
    for link in fabric.all_links():
        degree[link.a].append(link)
        degree[link.b].append(link)
        ends = [fabric.switches[end].plane for end in (link.a, link.b) if end in fabric.switches]
        if len(set(ends)) > 1:
            raise FabricError(
                f"link {link.name} joins plane {ends[0]} and plane {ends[1]}: planes are disjoint"
            )
        if fabric.plane_of(link) is None:
            check_link(link)
    for node in nodes:
        used = len(degree[node.name])
        if node.ports is not None and used > node.ports:
            raise FabricError(
                f"{node.name} has {node.ports} ports but {used} links: "
                f"raise ports= or remove {used - node.ports}"
            )
        if used == 0:
            raise FabricError(f"{node.name} has no link")
    for host in fabric.hosts:
        if len(degree[host]) > MAX_NIC_PORTS:
            raise FabricError(
                f"{host} has {len(degree[host])} links: a NIC has {MAX_NIC_PORTS} ports at most"
            )
        taken: dict[int, str] = {}
        for link in degree[host]:
            plane = fabric.plane_of(link)
            if plane is None:
                continue
            if plane in taken:
                raise FabricError(
                    f"{host} has two links in plane {plane} ({taken[plane]}, "
                    f"{link.name}): one NIC port per plane"
                )
            taken[plane] = link.name
        if not taken and degree[host]:
            continue  # at panels alone
        if sorted(taken) != list(range(fabric.planes)):
            missing = [plane for plane in range(fabric.planes) if plane not in taken]
            raise FabricError(
                f"{host} has no port in plane {missing[0]}: every host has one "
                f"NIC port in each of the {fabric.planes} planes"
            )
    for plane in range(fabric.planes):
        _check_connected(fabric, plane, degree)
    for panel in fabric.panels.values():
        Ports(panel, degree[panel.name]).table(panel.first)


def _check_connected(fabric: FabricView, plane: int, degree: dict[str, list[Link]]) -> None:
    hosts = [
        host
        for host, links in degree.items()
        if host in fabric.hosts and any(fabric.plane_of(link) == plane for link in links)
    ]
    if not hosts:
        raise FabricError(f"plane {plane} has no host")
    seen, todo = {hosts[0]}, [hosts[0]]
    while todo:
        node = todo.pop()
        if node in fabric.hosts and node != hosts[0]:
            continue  # hosts do not forward
        for link in degree[node]:
            far = link.b if link.a == node else link.a
            if fabric.plane_of(link) == plane and far not in seen:
                seen.add(far)
                todo.append(far)
    lost = [host for host in hosts if host not in seen]
    if lost:
        raise FabricError(f"plane {plane} has no path between {hosts[0]} and {lost[0]}")
