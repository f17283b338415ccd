"""Regular fabrics: the multi-plane two-tier Clos, three tiers and the fat tree, one star, one
dumbbell.

Three tiers need an address plan of their own, which the published one (Araujo et al., arXiv
2605.04333) leaves open. It keeps the ranges of two tiers: leaf L is 0x2000 + L, aggregation switch
A (T1) 0x1000 + A, a leaf's downlink H 0x4000 + H, and core C (T2) takes the free range 0x3000 + C;
L, A < 4,096, numbered through all pods of a plane. A destination address then reads, uN style:

    block  T0src  T1src  T2  T1dst  T0dst  dst        across pods: all six uSIDs are used
    block  T0src  T1  T0dst  dst                      inside a pod
    block  T0  dst                                    inside a T0 group

and in uA style 0xf000 + T1, 0xf000 + T2, 0xf000 + T1, 0xe000 + T0, 0xe800 + H, tenant. An uplink
number names the whole up-path: across pods the core's, u = a * C + c for the a-th aggregation
switch's c-th of C cores, so that T1src and T1dst are those of index a = u // C in their pods and T2
is core u; inside a pod the index a. The entropy value carries it as 0xC000 | u << 3 | plane, in
bits 13..3 (two tiers use bits 10..3 of them), which allows 2,048 up-paths per plane and keeps the
source port in 0xC000 … 0xFFFF. RoCE and TCP are plain IPv6: ECMP at the leaf and at the aggregation
switch, each with its own hash."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loomnet.base.arguments import checked_call
from loomnet.base.errors import AddressError, FabricError
from loomnet.base.names import in_quotes, quoted
from loomnet.base.units import Rate, Size, Time
from loomnet.fabrics.clos_fabric import ClosFabric
from loomnet.fabrics.clos_shape import Clos, Order
from loomnet.fabrics.links import HalfLink, pfc_setting
from loomnet.fabrics.model import MAX_PLANES, Fabric
from loomnet.fabrics.nodes import LocalRanks

if TYPE_CHECKING:
    from loomnet.fabrics.pfc import Pfc

# Ours: an order above the largest cluster published; jobs list the hosts that they run on.
MAX_HOSTS = 1 << 20
MAX_UP_PATHS = 2048  # eleven bits of an entropy value name the up-path


__all__ = ["dumbbell", "fat_tree", "star", "three_tier", "two_tier"]


def __dir__() -> list[str]:
    """What Tab offers behind `ln.clos.`."""
    return __all__


def _positive(where: str, most: dict[str, int] | None = None, **counts: int) -> None:
    for name, value in counts.items():
        if type(value) is not int or value < 1:
            raise FabricError(f"{where}.{name}: {quoted(value)} must be a whole number, 1 or more")
        limit = (most or {}).get(name, MAX_HOSTS)
        if value > limit:
            raise FabricError(
                f"{where}.{name}: {quoted(value)} is more than the {limit} that addresses can name"
            )


def _hosts(where: str, count: int) -> None:
    if count > MAX_HOSTS:
        raise FabricError(f"{where}: {count:,} hosts are more than the {MAX_HOSTS:,} of one fabric")


def _half(
    where: str, rate: Rate | str, delay: Time | str, pfc: Pfc | bool | None, tier: str = ""
) -> HalfLink:
    return HalfLink(
        Rate.given(f"{where}.{tier}rate", rate),
        Time.given(f"{where}.{tier}delay", delay),
        pfc=pfc_setting(pfc),
    )


def _local(where: str, ranks: int, link: Rate | str | None, delay: Time | str | None) -> LocalRanks:
    return LocalRanks.given(f"{where}.", ranks, link, delay, field="ranks_per_host")


def _add_host(fabric: Fabric, ports: int, local: LocalRanks) -> str:
    if local.count == 1:
        return fabric.add_host(ports=ports)
    return fabric.add_host(
        ports=ports, ranks=local.count, local_link=local.rate, local_delay=local.delay
    )


@checked_call
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
    pfc: Pfc | bool | None = None,
    order: Order = "spread",
    ranks_per_host: int = 1,
    local_link: Rate | str | None = None,
    local_delay: Time | str | None = None,
) -> Fabric:
    """`planes` disjoint leaf-spine fabrics; every host has one NIC port in each.

    Host i hangs on leaf i mod `leaves`, so that ring neighbours never share a leaf,
    or with `order="block"` on leaf i // `hosts_per_leaf`. `rate`
    is a NIC port's; a leaf–spine link has `uplink_rate` (default: the same). `radix` refuses a
    switch with more ports than that. `pfc`, here and in the other builders: True or ln.Pfc(…) makes
    every switch port lossless, False none; by default only the ports of a run with RoCE on the
    virtual clock are, because published results of RoCE are over PFC. `ranks_per_host`,
    `local_link` and `local_delay`, here and in the other builders, are those of every host, as in
    Fabric.add_host.
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
    _order(where, order)
    _hosts(where, leaves * hosts_per_leaf)
    low = _half(where, rate, delay, pfc)
    high = _half(
        where,
        rate if uplink_rate is None else uplink_rate,
        delay if uplink_delay is None else uplink_delay,
        pfc,
        "uplink_",
    )
    shape = Clos(planes, leaves, spines, hosts_per_leaf, order=order)
    name = f"clos-{planes}x{leaves}x{spines}"
    return ClosFabric(
        name,
        shape,
        (low, high),
        radix=radix,
        payload=payload,
        local=_local(where, ranks_per_host, local_link, local_delay),
    ).check()


@checked_call
def three_tier(
    *,
    pods: int,
    leaves_per_pod: int,
    aggs_per_pod: int,
    cores_per_agg: int,
    hosts_per_leaf: int,
    rate: Rate | str,
    delay: Time | str,
    planes: int = 1,
    uplink_rate: Rate | str | None = None,
    uplink_delay: Time | str | None = None,
    core_rate: Rate | str | None = None,
    core_delay: Time | str | None = None,
    radix: int | None = None,
    payload: Size | str = "2048 B",
    pfc: Pfc | bool | None = None,
    order: Order = "spread",
    ranks_per_host: int = 1,
    local_link: Rate | str | None = None,
    local_delay: Time | str | None = None,
) -> Fabric:
    """`planes` disjoint fabrics of leaves (T0), aggregation switches (T1) and cores (T2).

    Every leaf is linked to the `aggs_per_pod` aggregation switches of its pod, each of which has
    `cores_per_agg` cores of its own: core a·`cores_per_agg` + c is linked to the a-th aggregation
    switch of every pod. Switches are `p<plane>.leaf<i>`, `.agg<i>`, `.core<i>`, numbered through
    all pods. A leaf–T1 link has `uplink_rate` (default `rate`), a T1–core link `core_rate` (default
    that). Raises FabricError, naming the count at fault, where uSIDs or entropy values run out.
    """
    where = "clos.three_tier"
    _positive(
        where,
        {"planes": MAX_PLANES, "hosts_per_leaf": 4096},
        planes=planes,
        pods=pods,
        leaves_per_pod=leaves_per_pod,
        aggs_per_pod=aggs_per_pod,
        cores_per_agg=cores_per_agg,
        hosts_per_leaf=hosts_per_leaf,
    )
    _order(where, order)
    if pods < 2:
        raise FabricError(f"{where}.pods: {pods} pod needs no cores; use clos.two_tier")
    for what, used, most, space in (
        ("leaves", pods * leaves_per_pod, 4096, "uSID"),
        ("aggregation switches", pods * aggs_per_pod, 4096, "uSID"),
        ("cores", aggs_per_pod * cores_per_agg, MAX_UP_PATHS, "entropy value"),
    ):
        if used > most:
            raise AddressError(
                f"{where}: {space} space exhausted: {used} {what} per plane, at most {most} have a "
                "number; use more planes or smaller pods"
            )
    _hosts(where, pods * leaves_per_pod * hosts_per_leaf)
    uplink_rate = rate if uplink_rate is None else uplink_rate
    uplink_delay = delay if uplink_delay is None else uplink_delay
    specs = (
        _half(where, rate, delay, pfc),
        _half(where, uplink_rate, uplink_delay, pfc, "uplink_"),
        _half(
            where,
            uplink_rate if core_rate is None else core_rate,
            uplink_delay if core_delay is None else core_delay,
            pfc,
            "core_",
        ),
    )
    shape = Clos(
        planes, pods * leaves_per_pod, aggs_per_pod, hosts_per_leaf, pods, cores_per_agg, order
    )
    name = f"clos3-{planes}x{pods}x{leaves_per_pod}x{aggs_per_pod}x{cores_per_agg}"
    return ClosFabric(
        name,
        shape,
        specs,
        radix=radix,
        payload=payload,
        local=_local(where, ranks_per_host, local_link, local_delay),
    ).check()


@checked_call
def fat_tree(
    k: int,
    *,
    rate: Rate | str,
    delay: Time | str,
    planes: int = 1,
    payload: Size | str = "2048 B",
    pfc: Pfc | bool | None = None,
    order: Order = "spread",
    ranks_per_host: int = 1,
    local_link: Rate | str | None = None,
    local_delay: Time | str | None = None,
) -> Fabric:
    """The k-ary fat tree of k-port switches: k pods of k/2 leaves and k/2 aggregation switches,
    k²/4 cores, k³/4 hosts, non-blocking (Al-Fares, Loukissas, Vahdat, "A Scalable, Commodity Data
    Center Network Architecture", SIGCOMM 2008). At most k = 90: uSIDs number 4,096 leaves."""
    _positive("clos.fat_tree", k=k)
    if k % 2 or k < 4:
        raise FabricError(f"clos.fat_tree.k: {k} must be an even number, 4 or more")
    half = k // 2
    fabric = three_tier(
        pods=k,
        leaves_per_pod=half,
        aggs_per_pod=half,
        cores_per_agg=half,
        hosts_per_leaf=half,
        rate=rate,
        delay=delay,
        planes=planes,
        radix=k,
        payload=payload,
        pfc=pfc,
        order=order,
        ranks_per_host=ranks_per_host,
        local_link=local_link,
        local_delay=local_delay,
    )
    fabric.name = f"fat-tree-{k}" if planes == 1 else f"fat-tree-{planes}x{k}"
    return fabric


def _order(where: str, order: str) -> None:
    if order not in ("spread", "block"):
        raise FabricError(f"{where}.order: {in_quotes(order)} is not one of spread, block")


@checked_call
def star(
    *,
    hosts: int,
    rate: Rate | str,
    delay: Time | str,
    planes: int = 1,
    payload: Size | str = "2048 B",
    pfc: Pfc | bool | None = None,
    ranks_per_host: int = 1,
    local_link: Rate | str | None = None,
    local_delay: Time | str | None = None,
) -> Fabric:
    """All hosts on one switch per plane, `p<plane>.leaf0`."""
    _positive("star", {"planes": MAX_PLANES, "hosts": 4096}, hosts=hosts, planes=planes)
    local = _local("star", ranks_per_host, local_link, local_delay)
    fabric = Fabric(f"star-{hosts}", payload=payload)
    names = [_add_host(fabric, planes, local) for _ in range(hosts)]
    for plane in range(planes):
        hub = fabric.add_switch(f"p{plane}.leaf0")
        for name in names:
            fabric.add_link(name, hub, rate=rate, delay=delay, pfc=pfc)
    return fabric.check()


@checked_call
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
    pfc: Pfc | bool | None = None,
    ranks_per_host: int = 1,
    local_link: Rate | str | None = None,
    local_delay: Time | str | None = None,
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
    local = _local("dumbbell", ranks_per_host, local_link, local_delay)
    fabric = Fabric(f"dumbbell-{left}-{right}", payload=payload)
    names = [_add_host(fabric, planes, local) for _ in range(left + right)]
    for plane in range(planes):
        sides = [fabric.add_switch(f"p{plane}.leaf{i}") for i in range(2)]
        for i, name in enumerate(names):
            fabric.add_link(name, sides[i >= left], rate=rate, delay=delay, pfc=pfc)
        fabric.add_link(
            sides[0],
            sides[1],
            rate=rate if bottleneck is None else bottleneck,
            delay=delay if bottleneck_delay is None else bottleneck_delay,
            pfc=pfc,
        )
    return fabric.check()
