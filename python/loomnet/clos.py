"""Regular fabrics: the multi-plane two-tier Clos, one star, one dumbbell."""

from __future__ import annotations

from loomnet.errors import FabricError
from loomnet.fabric import MAX_PLANES, Fabric
from loomnet.units import Rate, Size, Time


def _positive(where: str, most: dict[str, int] | None = None, **counts: int) -> None:
    for name, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise FabricError(f"{where}.{name}: {value!r} must be a whole number, 1 or more")
        limit = (most or {}).get(name)
        if limit is not None and value > limit:
            raise FabricError(
                f"{where}.{name}: {value} is more than the {limit} that addresses can name"
            )


def two_tier(
    *,
    planes: int,
    leaves: int,
    spines: int,
    hosts_per_leaf: int,
    rate: Rate | str,
    delay: Time | str,
    uplink_rate: Rate | str | None = None,
    uplink_delay: Time | str | None = None,
    radix: int | None = None,
    payload: Size | str = "2048 B",
) -> Fabric:
    """`planes` disjoint leaf-spine fabrics; every host has one NIC port in each.

    Host i hangs on leaf i mod `leaves`, so that ring neighbours never share a leaf ("MRC + SRv6
    multi-plane fabrics" 6, trap 14). `rate` is a NIC port's; a leaf–spine link has `uplink_rate`
    (default: the same). `radix` refuses a switch with more ports than that.
    """
    where = "clos.two_tier"
    _positive(
        where,
        {"planes": MAX_PLANES, "leaves": 4096, "spines": 256, "hosts_per_leaf": 4096},
        planes=planes,
        leaves=leaves,
        spines=spines,
        hosts_per_leaf=hosts_per_leaf,
    )
    fabric = Fabric(f"clos-{planes}x{leaves}x{spines}", payload=payload)
    hosts = [fabric.add_host(ports=planes) for _ in range(leaves * hosts_per_leaf)]
    rate, delay = Rate(rate), Time(delay)
    for plane in range(planes):
        leaf = [fabric.add_switch(f"p{plane}.leaf{i}", ports=radix) for i in range(leaves)]
        spine = [fabric.add_switch(f"p{plane}.spine{i}", ports=radix) for i in range(spines)]
        for i, host in enumerate(hosts):
            fabric.add_link(host, leaf[i % leaves], rate=rate, delay=delay)
        for low in leaf:
            for high in spine:
                fabric.add_link(
                    low,
                    high,
                    rate=rate if uplink_rate is None else uplink_rate,
                    delay=delay if uplink_delay is None else uplink_delay,
                )
    return fabric.check()


def star(
    *,
    hosts: int,
    rate: Rate | str,
    delay: Time | str,
    planes: int = 1,
    payload: Size | str = "2048 B",
) -> Fabric:
    """All hosts on one switch per plane, `p<plane>.leaf0`."""
    _positive("star", {"planes": MAX_PLANES, "hosts": 4096}, hosts=hosts, planes=planes)
    fabric = Fabric(f"star-{hosts}", payload=payload)
    names = [fabric.add_host(ports=planes) for _ in range(hosts)]
    for plane in range(planes):
        hub = fabric.add_switch(f"p{plane}.leaf0")
        for name in names:
            fabric.add_link(name, hub, rate=rate, delay=delay)
    return fabric.check()


def dumbbell(
    *,
    left: int,
    right: int,
    rate: Rate | str,
    delay: Time | str,
    bottleneck: Rate | str | None = None,
    bottleneck_delay: Time | str | None = None,
    planes: int = 1,
    payload: Size | str = "2048 B",
) -> Fabric:
    """Hosts on two switches per plane, `p<plane>.leaf0` (h0 …) and `p<plane>.leaf1`, and one link
    between them of rate `bottleneck` (default: `rate`)."""
    _positive(
        "dumbbell",
        {"planes": MAX_PLANES, "left": 4096, "right": 4096},
        left=left,
        right=right,
        planes=planes,
    )
    fabric = Fabric(f"dumbbell-{left}-{right}", payload=payload)
    names = [fabric.add_host(ports=planes) for _ in range(left + right)]
    for plane in range(planes):
        sides = [fabric.add_switch(f"p{plane}.leaf{i}") for i in range(2)]
        for i, name in enumerate(names):
            fabric.add_link(name, sides[i >= left], rate=rate, delay=delay)
        fabric.add_link(
            sides[0],
            sides[1],
            rate=rate if bottleneck is None else bottleneck,
            delay=delay if bottleneck_delay is None else bottleneck_delay,
        )
    return fabric.check()
