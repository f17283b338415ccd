"""A switch fabric in twenty lines: follows tables packet by packet, as RFC 9800 states
forwarding. Tests only; shares no code with what it checks."""

import ipaddress

MOST_HOPS = 16


def words(address):
    packed = ipaddress.IPv6Address(address).packed
    return [int.from_bytes(packed[i : i + 2], "big") for i in range(0, 16, 2)]


def follow_usids(plan, source, plane, address, down=frozenset()):
    """Host that an MRC packet reaches, and the links it crosses; None where it is dropped."""
    link = plan.hosts[source].ports[plane]
    node, crossed = plan.links[link].forward.target, [link]
    da = words(address)
    switches = {switch.number: switch for switch in plan.switches}
    for _ in range(MOST_HOPS):
        if crossed[-1] in down:
            return None, crossed
        if node not in switches:
            return node, crossed
        tables, port = switches[node].usids, None
        for _ in range(6):
            if da[0] << 16 | da[1] != tables.block:
                return None, crossed
            adjacent = dict(tables.adjacencies).get(da[2])
            if da[2] != tables.own and adjacent is None:
                break
            if not any(da[3:]):
                return None, crossed  # exhausted
            da = [*da[:2], *da[3:], 0]
            if adjacent is not None:
                port = adjacent
                break
        if port is None:
            port = dict(tables.fib).get(da[2]) if da[0] << 16 | da[1] == tables.block else None
        if port is None:
            return None, crossed
        crossed.append(switches[node].ports[port])
        node = other_end(plan, crossed[-1], node)
    raise AssertionError("a loop")


def follow_ecmp(plan, tables, source, destination, choose, plane):
    """As above for plain IPv6: `choose(ports)` stands for the flow hash."""
    link = plan.hosts[source].ports[plane]
    node, crossed = other_end(plan, link, source), [link]
    switches = {switch.number: switch for switch in plan.switches}
    for _ in range(MOST_HOPS):
        if node not in switches:
            return node, crossed
        ports = tables.switch(node).ports(destination)
        if not ports:
            return None, crossed
        crossed.append(switches[node].ports[choose(ports)])
        node = other_end(plan, crossed[-1], node)
    raise AssertionError("a loop")


def other_end(plan, link, node):
    half = plan.links[link].forward
    return half.target if half.source == node else half.source
