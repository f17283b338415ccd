"""Where each port of a node leads: the numbers that switch programs see and name."""

from __future__ import annotations

from loomnet.base.errors import UsageError
from loomnet.base.names import did_you_mean
from loomnet.base.table import Table
from loomnet.fabrics.topology import topology_of
from loomnet.fabrics.view import FabricView


def ports_of(fabric: FabricView, node: str) -> Table:
    """One row per port of a host, switch or panel: its number, the node and port at the other end
    of its link, and the link."""
    topology = topology_of(fabric)
    number = topology.number.get(node)
    if number is None:
        raise UsageError(f'ports: no node "{node}"{did_you_mean(node, topology.names)}')
    rows = []
    for port, link, _ in topology.neighbours(number):
        far = topology.far(number, port)
        rows.append(
            {
                "port": port,
                "to": topology.names[far.node],
                "to_port": far.port,
                "link": topology.links[link].name,
            }
        )
    return Table(("port", "to", "to_port", "link"), rows)
