"""htsim's fat-tree topologies (.topo), as its loader reads them (github.com/Broadcom/csg-htsim,
fat_tree_topology)."""

from __future__ import annotations

import math
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
    tiers: dict[int, dict[str, float]] = {}
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
        if name == "tier":
            tier = value
            if value in tiers or value > 2:
                raise UsageError(f"{where}: Tier {value}: tiers are 0, 1, 2, each once")
            tiers[value] = {}
        elif name in _TOP and tier is None:
            top[name] = value
        elif name in _TIER and tier is not None:
            tiers[tier][name] = value
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
    path: Path, top: dict[str, int], tiers: dict[int, dict[str, float]], payload: Size | str
) -> Fabric:
    for name in ("nodes", "tiers"):
        if name not in top:
            raise UsageError(f"{path}: {name.capitalize()} is missing")
    count = top["tiers"]
    if count not in (2, 3) or set(tiers) != set(range(count)):
        raise UsageError(f"{path}: Tiers {count} must be 2 or 3, each with its section Tier 0 …")

    def of(tier: int, name: str, default: float | None = None) -> int:
        value = tiers[tier].get(name, default)
        if not value and default is None:
            raise UsageError(f"{path}: Tier {tier} has no {name.title()}")
        return int(value or 0)

    down = [of(tier, "radix_down") for tier in range(count)]
    if math.prod(down) != top["nodes"]:
        raise UsageError(
            f"{path}: Nodes {top['nodes']} is not the product of Radix_Down "
            f"{' x '.join(map(str, down))}"
        )
    pod = down[0] * down[1] if count == 3 else top["nodes"]
    if top.get("podsize", pod) != pod:
        raise UsageError(f"{path}: Podsize {top['podsize']} is not {pod}, hosts below one pod")
    switch_ps = [of(tier, "switch_latency_ns", 0) for tier in range(count)]
    delays = [
        Time.of(
            of(tier, "downlink_latency_ns", 0)
            + (switch_ps[tier] + (switch_ps[tier - 1] if tier else 0)) // 2
        )
        for tier in range(count)
    ]
    bundles = [of(tier, "bundle", 1) for tier in range(count)]
    rates = [Rate.of(_speed(path, tier, tiers[tier]) * bundles[tier]) for tier in range(count)]
    up = []  # switches above one, of the ports that Radix_Up counts
    for tier in range(count - 1):
        ports, bundle = of(tier, "radix_up"), bundles[tier + 1]
        if ports % bundle:
            raise UsageError(f"{path}: Tier {tier}: Radix_Up {ports} is no multiple of Bundle "
                             f"{bundle} of tier {tier + 1}")
        up.append(ports // bundle)
    if count == 2:
        fabric = clos.two_tier(
            planes=1,
            leaves=down[1],
            spines=up[0],
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
            pods=down[2],
            leaves_per_pod=down[1],
            aggs_per_pod=up[0],
            cores_per_agg=up[1],
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
    fabric.name = path.stem or "htsim"
    for bundle, name in zip(bundles, ("NIC-T0", "T0-T1", "T1-T2"), strict=False):
        if bundle > 1:
            fabric.notes[f"links per {name} bundle"] = (bundle, "taken as one of their joint rate")
    return fabric


def _speed(path: Path, tier: int, values: dict[str, float]) -> int:
    speed = values.get("downlink_speed_gbps", 0)
    if not 0 < speed <= 10**9:
        raise UsageError(f"{path}: Tier {tier}: Downlink_speed_Gbps must be above 0")
    return int(speed) * 10**6
