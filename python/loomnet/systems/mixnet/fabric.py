"""The publication's fabrics: MixNet's hybrid of wires and circuits, and its baselines'
(SIGCOMM 2025, doi 10.1145/3718958.3750465)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from loomnet.base.arguments import checked_call
from loomnet.base.errors import FabricError
from loomnet.base.names import did_you_mean, quoted
from loomnet.base.units import Rate, Size, Time
from loomnet.fabrics.model import MAX_PLANES, Fabric

NETWORKS = ("mixnet", "fattree", "fattree31", "rail", "eps_only", "topoopt")
_MOST_SERVERS = 1 << 14
_MOST_PANEL = 1024
_MOST_RANKS = 64  # most ranks of a server
# The largest payload of RoCE. The publication simulates packets of 9,000 bytes.
PAYLOAD = "4096 B"


@checked_call
def mixnet(
    *,
    servers: int = 8,
    gpus: int = 8,
    alpha: int = 6,
    wires: int | None = None,
    ranks: int | None = None,
    region: int | None = None,
    rate: Rate | str = "400 Gb/s",
    delay: Time | str = "1 us",
    network: str = "mixnet",
    eps: Literal["links", "lumped"] = "links",
    one_switch: bool = False,
    profile: str = "sim25",
    carrier: str | None = None,
    nvlink: Rate | str = "900 GB/s",
    payload: Size | str = PAYLOAD,
    links: Sequence[tuple[int, int]] | None = None,
    preset: Literal["paper"] | None = None,
) -> Fabric:
    """MixNet's fabric: servers of `gpus` GPUs and as many NICs, `alpha` of them at the panel of the
    server's region, the others in an electrical fat tree.

    Args:
        servers: hosts h0, h1, …, with `gpus` ranks each.
        wires: electrical NICs of a server; None: all of `gpus` NICs but the optical ones.
        ranks: of a job, that a server has room for; None: `gpus`.
        region: servers of a region, which have a panel together, ocs0, ocs1, …; None: all.
        rate, delay: of a NIC and of every link.
        network: "mixnet"; or of the fabrics it is compared with "fattree", all NICs in it,
            non-blocking; "fattree31", with a third of the edge's capacity above it; "rail", NIC k
            of every server on switch k: GPUs hand what is for GPU k to their own server's GPU k
            first, as NCCL's PXN does, so no spine above the rails is used; "eps_only", its
            electrical NICs alone; "topoopt", a host for each server that forwards, with the
            `links` of topoopt_links() (scenarios/mfabric/lib).
        eps: each electrical NIC has a link and a tree of its own, or a server has one of all their
            rates together ("lumped").
        one_switch: a switch in place of each tree, in which no two flows meet by their hashes.
        profile, carrier: of panels, as Fabric.add_panel() takes them; carrier None: "both".
        nvlink: of a GPU inside its server.
        preset: "paper" is as the publication simulates it: eps "lumped" and carrier "none".

    Raises:
        FabricError: a number that makes no such fabric.
    """
    if preset not in (None, "paper"):
        raise FabricError(f"mixnet.preset: {quoted(preset)} is neither None nor 'paper'")
    if preset == "paper":
        eps, carrier = "lumped", carrier or "none"
    if ranks is not None and (type(ranks) is not int or not 1 <= ranks <= _MOST_RANKS):
        raise FabricError(
            f"mixnet.ranks: {quoted(ranks)} must be a whole number from 1 to {_MOST_RANKS}"
        )
    each = Rate.given("mixnet.rate", rate)
    _check(servers, gpus, alpha, region, network, eps)
    if wires is not None and (type(wires) is not int or not 1 <= wires <= MAX_PLANES):
        raise FabricError(
            f"mixnet.wires: {quoted(wires)} must be a whole number from 1 to {MAX_PLANES}"
        )
    if (links is None) == (network == "topoopt"):
        raise FabricError(
            'mixnet.links: go with network="topoopt", which has the links that '
            "topoopt_links() finds, in scenarios/mfabric/lib of a "
            "clone of Loomnet"
        )
    name = f"{network}-{servers}"
    fabric = Fabric(name, payload=payload)
    if links is not None:
        return _forwarders(fabric, servers, gpus, each, delay, nvlink, links)
    light = alpha if network == "mixnet" else 0
    if wires is None:
        wires = gpus - alpha if network in ("mixnet", "eps_only") else gpus
    if wires == 0:
        raise FabricError(
            f"mixnet.alpha: {alpha} of {gpus} NICs leave no electrical one, which "
            "stages and replicas need"
        )
    planes = 1 if eps == "lumped" and network != "rail" else wires
    hosts = [
        fabric.add_host(f"h{i}", ports=planes + light, ranks=ranks or gpus, local_link=nvlink)
        for i in range(servers)
    ]
    tree_rate = Rate.of(each.count * wires // planes)
    for plane in range(planes):
        if network == "rail" or one_switch:
            switch = fabric.add_switch(f"p{plane}.rail", plane=plane)
            for host in hosts:
                fabric.add_link(host, switch, rate=tree_rate, delay=delay)
        else:
            _fat_tree(fabric, plane, hosts, tree_rate, delay, 3 if network == "fattree31" else 1)
    size = region or servers
    for first in range(0, servers if light else 0, size):
        panel = fabric.add_panel(
            f"ocs{first // size}", ports=size * light, profile=profile, carrier=carrier or "both"
        )
        for host in hosts[first : first + size]:
            for _ in range(light):
                fabric.add_link(host, panel, rate=each, delay=delay)
    return fabric.check()


def _check(servers: int, gpus: int, alpha: int, region: int | None, network: str, eps: str) -> None:
    for field, value, least, most in (
        ("servers", servers, 1, _MOST_SERVERS),
        ("gpus", gpus, 1, MAX_PLANES),
        ("alpha", alpha, 0, gpus),
        ("region", servers if region is None else region, 1, servers),
    ):
        if type(value) is not int or not least <= value <= most:
            what = f" (of {gpus} NICs)" if field == "alpha" else ""
            raise FabricError(
                f"mixnet.{field}: {quoted(value)} must be a whole number from "
                f"{least} to {most}{what}"
            )
    if network not in NETWORKS:
        raise FabricError(
            f"mixnet.network: {quoted(network)} is none of {', '.join(NETWORKS)}"
            f"{did_you_mean(network, NETWORKS)}"
        )
    if eps not in ("links", "lumped"):
        raise FabricError(f"mixnet.eps: {quoted(eps)} is neither links nor lumped")
    if servers % (region or servers):
        raise FabricError(
            f"mixnet.region: {servers} servers are no multiple of regions of {region}"
        )
    if network == "mixnet" and (region or servers) * alpha > _MOST_PANEL:
        raise FabricError(
            f"mixnet.region: {region or servers} servers with alpha={alpha} need "
            f"{(region or servers) * alpha} ports of a panel, and one has "
            f"{_MOST_PANEL} at most; give smaller regions"
        )


def _fat_tree(
    fabric: Fabric, plane: int, hosts: list[str], rate: Rate, delay: Time | str, over: int
) -> None:
    """The smallest k-ary fat tree that has room for the hosts (Al-Fares et al., SIGCOMM 2008), as
    far as it is filled; leaves have an `over`-th of their hosts' rate above them. A leaf alone
    where its hosts are half of a pod or fewer."""
    k = 4
    while k**3 // 4 < len(hosts):
        k += 2
    half = k // 2
    leaves = -(-len(hosts) // half)
    pods = -(-leaves // half)
    above = Rate.of(rate.count // over)
    names = [fabric.add_switch(f"p{plane}.leaf{i}", plane=plane) for i in range(leaves)]
    for i, host in enumerate(hosts):
        fabric.add_link(host, names[i // half], rate=rate, delay=delay)
    if leaves == 1:
        return
    aggs = [fabric.add_switch(f"p{plane}.agg{i}", plane=plane) for i in range(pods * half)]
    for i, leaf in enumerate(names):
        for a in range(half):
            fabric.add_link(leaf, aggs[i // half * half + a], rate=above, delay=delay)
    if pods == 1:
        return
    for a in range(half):
        for c in range(half):
            core = fabric.add_switch(f"p{plane}.core{a * half + c}", plane=plane)
            for pod in range(pods):
                fabric.add_link(aggs[pod * half + a], core, rate=above, delay=delay)


def _forwarders(
    fabric: Fabric,
    servers: int,
    gpus: int,
    rate: Rate,
    delay: Time | str,
    nvlink: Rate | str,
    links: Sequence[tuple[int, int]],
) -> Fabric:
    """Servers joined by the static links of a patch panel, which delays nothing and is left out.
    Each server forwards for others, by a switch of its own here."""
    hosts = [
        fabric.add_host(f"h{i}", ports=1, ranks=gpus, local_link=nvlink) for i in range(servers)
    ]
    nodes = [fabric.add_switch(f"p0.server{i}", plane=0) for i in range(servers)]
    for host, node in zip(hosts, nodes, strict=True):
        fabric.add_link(host, node, rate=Rate.of(rate.count * gpus), delay="0 s")
    together: dict[tuple[int, int], int] = {}
    for a, b in links:
        if not (0 <= a < servers and 0 <= b < servers and a != b):
            raise FabricError(f"mixnet.links: ({a}, {b}) joins no two of {servers} servers")
        pair = (min(a, b), max(a, b))
        together[pair] = together.get(pair, 0) + 1
    for (a, b), count in sorted(together.items()):
        fabric.add_link(nodes[a], nodes[b], rate=Rate.of(rate.count * count), delay=delay)
    return fabric.check()
