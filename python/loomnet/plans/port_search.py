"""A port that a user names, as the direction of a link that leaves it."""

from __future__ import annotations

from loomnet.base.errors import UsageError
from loomnet.base.names import did_you_mean
from loomnet.plans.entries import HalfLinkPlan
from loomnet.plans.model import Plan


def find_port(plan: Plan, text: str) -> HalfLinkPlan:
    """The half-link that leaves `NODE:PORT`; PORT is a number (at a host: first its planes, then
    its ports at panels) or the name of the node at the link's other end. Raises UsageError naming
    what there is."""
    name, sign, port = text.rpartition(":")
    nodes = {node.name: node for node in (*plan.hosts, *plan.switches, *plan.panels)}
    if not sign or not name:
        raise UsageError(f'port "{text}": write NODE:PORT, for example {plan.hosts[0].name}:0')
    if name not in nodes:
        raise UsageError(f'port "{text}": no node "{name}"{did_you_mean(name, nodes)}')
    node = nodes[name]
    leaving = [
        link.forward if link.forward.source == node.number else link.backward
        for link in (plan.links[number] for number in node.ports)
    ]
    if port.isdecimal() and len(port) < 10 and int(port) < len(leaving):
        return leaving[int(port)]
    peers = {half.name.partition("->")[2]: half for half in leaving}
    if port in peers:
        return peers[port]
    raise UsageError(
        f'port "{text}": {name} has ports 0 to {len(leaving) - 1} '
        f"({', '.join(list(peers)[:4])}{', …' if len(peers) > 4 else ''})"
    )
