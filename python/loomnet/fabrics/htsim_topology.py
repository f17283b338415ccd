"""htsim's fat-tree topologies (.topo), as its loader reads them (github.com/Broadcom/csg-htsim,
fat_tree_topology)."""

from __future__ import annotations

from pathlib import Path

from loomnet.base.arguments import checked_call
from loomnet.base.errors import UsageError
from loomnet.base.names import did_you_mean
from loomnet.base.reading import exact_number, read_text, user_path
from loomnet.base.units import Rate, Size, Time
from loomnet.fabrics import clos
from loomnet.fabrics.model import Fabric

_MOST_BUNDLE = 256
_TOP = ("nodes", "tiers", "podsize")
_TIER = (
    "downlink_speed_gbps",
    "radix_down",
    "radix_up",
    "downlink_latency_ns",
    "switch_latency_ns",
    "bundle",
    "oversubscribed",
    "queue_up",
    "queue_down",
)


@checked_call
def from_htsim_topology(path: str | Path, *, payload: Size | str = "4096 B") -> Fabric:
    """The Clos of a .topo file, hosts in blocks as htsim numbers them. A switch's latency is spread
    over the two links that a packet uses to pass it. The links of a bundle are one link of their
    rates together, as describe() says: no packet of a bundle waits while a link of it is idle.
    Raises UsageError naming the line at fault."""
    path = user_path("from_htsim_topology", path)
    top: dict[str, int] = {}
    tiers: dict[int, dict[str, int]] = {}
    tier: int | None = None
    for number, line in enumerate(read_text(path).split("\n"), 1):
        where, words = f"{path}:{number}", line.split("#", 1)[0].split()
        if not words:
            continue
        name = words[0].lower()
        if len(words) < 2:
            raise UsageError(f"{where}: {words[0]} has no value")
        unit = 1000 if name.endswith(("_ns", "_gbps")) else 1  # picoseconds, Mb/s
        value = exact_number(where, words[1], words[0], unit)
        section = top if tier is None else tiers[tier]
        if name == "tier":
            tier = value
            if value in tiers or value > 2:
                raise UsageError(f"{where}: Tier {value}: tiers are 0, 1, 2, each once")
            tiers[value] = {}
        elif name in (_TOP if tier is None else _TIER):
            if name in section:
                raise UsageError(f"{where}: {words[0]} is there twice")
            section[name] = value
        else:
            known = _TOP if tier is None else _TIER
            raise UsageError(f'{where}: unknown word "{words[0]}"{did_you_mean(name, known)}')
        if name in ("queue_up", "queue_down"):
            raise UsageError(
                f"{where}: {words[0]} is not carried over; remove the line and say "
                "fabric.override(…, data_limit=…)"
            )
        if name == "bundle" and not 1 <= value <= _MOST_BUNDLE:
            raise UsageError(f"{where}: Bundle {value} must be 1 to {_MOST_BUNDLE} links")
    return _clos(path, top, tiers, payload)


def _clos(
    path: Path, top: dict[str, int], tiers: dict[int, dict[str, int]], payload: Size | str
) -> Fabric:
    """Counts switches as htsim does: its radices count ports, of which a bundle takes as many as
    it has links; how many switches a tier has follows from the speeds and `Oversubscribed`."""
    for name in _TOP:
        if not top.get(name):
            raise UsageError(f"{path}: {name.capitalize()} is missing or 0")
    count = top["tiers"]
    if count not in (2, 3) or set(tiers) != set(range(count)):
        raise UsageError(f"{path}: Tiers {count} must be 2 or 3, each with its section Tier 0 …")

    def of(tier: int, name: str, default: int | None = None) -> int:
        value = tiers[tier].get(name, default)
        if not value and default is None:
            raise UsageError(f"{path}: Tier {tier} has no {name.title()} above 0")
        return value or 0

    down = [of(tier, "radix_down") for tier in range(count)]
    up = [of(tier, "radix_up") for tier in range(count - 1)]
    bundles = [of(tier, "bundle", 1) for tier in range(count)]
    speeds = [_speed(path, tier, tiers[tier]) for tier in range(count)]
    over = [of(tier, "oversubscribed", 1) or 1 for tier in range(count)]
    if bundles[0] != 1:
        raise UsageError(f"{path}: Tier 0: Bundle {bundles[0]}: a host has one link; leave it out")
    for tier in range(1, count):
        for of_tier, name, ports in (
            (tier, "Radix_Down", down[tier]),
            (tier - 1, "Radix_Up", up[tier - 1]),
        ):
            if ports % bundles[tier]:
                raise UsageError(
                    f"{path}: Tier {of_tier}: {name} {ports} is no multiple of Bundle "
                    f"{bundles[tier]} of tier {tier}"
                )
    if 2 in tiers and "radix_up" in tiers[2]:
        raise UsageError(f"{path}: Tier 2: Radix_Up: nothing is above it; leave it out")
    pods, leaves = _divided(path, top, down[0], count)
    if down[0] // up[0] != over[0]:
        raise UsageError(
            f"{path}: Tier 0: Oversubscribed {over[0]} is not Radix_Down {down[0]} / "
            f"Radix_Up {up[0]}, rounded down"
        )
    uplinks, odd = divmod(top["nodes"] * speeds[0], speeds[1] * over[0])
    per_pod, more = divmod(uplinks, pods * down[1])
    if odd or more or per_pod * bundles[1] != up[0]:
        raise UsageError(
            f"{path}: Tier 0: Radix_Up {up[0]} is not what the speeds of tiers 0 and 1 ask for: "
            f"{uplinks} uplinks in {pods} pods, to switches with Radix_Down {down[1]} and Bundle "
            f"{bundles[1]}"
        )
    cores_per_agg = 0
    if count == 3:
        above, odd = divmod(uplinks * speeds[1], speeds[2] * over[1])
        cores, more = divmod(above, down[2])
        if odd or more or cores % per_pod or cores * bundles[2] // per_pod != up[1]:
            raise UsageError(
                f"{path}: Tier 1: Radix_Up {up[1]} is not what the speeds of tiers 1 and 2 ask for:"
                f" {above} uplinks of {pods * per_pod} switches, to switches with Radix_Down "
                f"{down[2]} and Bundle {bundles[2]}"
            )
        cores_per_agg = cores // per_pod
    switch_ps = [of(tier, "switch_latency_ns", 0) for tier in range(count)]
    delays = [
        Time.of(
            of(tier, "downlink_latency_ns")
            + (switch_ps[tier] + (switch_ps[tier - 1] if tier else 0)) // 2
        )
        for tier in range(count)
    ]
    rates = [Rate.of(speeds[tier] * bundles[tier]) for tier in range(count)]
    if count == 2:
        fabric = clos.two_tier(
            planes=1,
            leaves=leaves,
            spines=per_pod,
            hosts_per_leaf=down[0],
            rate=rates[0],
            delay=delays[0],
            uplink_rate=rates[1],
            uplink_delay=delays[1],
            payload=payload,
            order="block",
        )
    else:
        fabric = clos.three_tier(
            pods=pods,
            leaves_per_pod=leaves,
            aggs_per_pod=per_pod,
            cores_per_agg=cores_per_agg,
            hosts_per_leaf=down[0],
            rate=rates[0],
            delay=delays[0],
            uplink_rate=rates[1],
            uplink_delay=delays[1],
            core_rate=rates[2],
            core_delay=delays[2],
            payload=payload,
            order="block",
        )
    stem = "".join(each for each in path.stem if each.isprintable())[:100]
    fabric.name = stem or "htsim"
    for bundle, name in zip(bundles, ("NIC-T0", "T0-T1", "T1-T2"), strict=False):
        if bundle > 1:
            fabric.notes[f"links per {name} bundle"] = (bundle, "taken as one of their joint rate")
    return fabric


def _divided(path: Path, top: dict[str, int], down: int, tiers: int) -> tuple[int, int]:
    """How many pods there are, and how many leaves each has."""
    nodes, pod = top["nodes"], top["podsize"]
    if tiers == 3 and nodes == pod:
        raise UsageError(
            f"{path}: Podsize {pod} is all of Nodes, so that nothing goes by tier 2; "
            "say Tiers 2 and leave it out"
        )
    if nodes % pod or (tiers == 2 and nodes != pod):
        asked = "is not" if tiers == 2 else "does not divide"
        raise UsageError(
            f"{path}: Podsize {pod} {asked} Nodes {nodes}"
            + (", though two tiers are one pod" if tiers == 2 else "")
        )
    if pod % down:
        raise UsageError(f"{path}: Podsize {pod} is no multiple of Radix_Down {down} of tier 0")
    return nodes // pod, pod // down


def _speed(path: Path, tier: int, values: dict[str, int]) -> int:
    speed = values.get("downlink_speed_gbps", 0)
    if not 0 < speed <= 10**9:
        raise UsageError(
            f"{path}: Tier {tier}: Downlink_speed_Gbps must be given, from above 0 to 1,000,000"
        )
    return speed * 10**6
