"""What a fabric amounts to, by arithmetic: counts, bisection, optics and switches per NIC, the
longest path, capacity lost per failure (Araujo et al., arXiv 2605.04333). Nothing is listed or
built."""

from __future__ import annotations

import math
from collections import Counter
from typing import cast

from loomnet.base.table import Table
from loomnet.fabrics.link_settings import (
    HEADER_BYTES,
    MIN_QUEUE_PACKETS,
    LinkDefaults,
    base_rtt,
    longest_rtt,
    tier_settings,
)
from loomnet.fabrics.topology import topology_of
from loomnet.fabrics.view import ClosView, FabricView

COLUMNS = ("number", "value", "unit")


def figures(fabric: FabricView) -> dict[str, tuple[float, str]]:
    """(value, unit) by name. Those that need a regular fabric are left out of any other."""
    hosts, switches, links = fabric.counts
    found: dict[str, tuple[float, str]] = {
        "NICs": (hosts, ""),
        "planes": (fabric.planes, ""),
        "switches": (switches, ""),
        **_panels(fabric),
        **_ranks(fabric),
        "links": (links, ""),
        "switches per NIC": (switches / hosts, ""),
    } | fabric.notes
    shape = fabric.shape
    if shape is None or not fabric.uniform:
        return found | _short_queues(fabric) | _programs(fabric)
    regular = cast(ClosView, fabric)
    rates = [spec.rate.count for spec in regular.specs]
    per_plane = shape.links_of_tiers
    nic = shape.planes * rates[0]
    # A transceiver at each end of each link, in units of one NIC's rate.
    optics = shape.planes * sum(
        2 * count * rate for count, rate in zip(per_plane, rates, strict=False)
    )
    found |= {
        "NIC rate": (nic / 1e9, "Gb/s"),
        "NICs per T0": (shape.hosts_per_leaf, ""),
        "T0 per plane": (shape.leaves, ""),
        "T1 per plane": (shape.aggs, ""),
    }
    if shape.cores:
        found["T2 per plane"] = (shape.cores, "")
        found["NICs per pod"] = (shape.leaves_per_pod * shape.hosts_per_leaf, "")
    paths = shape.cores if shape.cores else shape.aggs_per_pod
    found |= {
        "optics per NIC": (optics / (shape.hosts * nic), "NIC rates"),
        "bisection": (bisection(fabric) / 1e12, "Tb/s"),
        "bisection per NIC": (bisection(fabric) / (shape.hosts / 2 * nic), "NIC rates"),
        "switches on the longest path": (shape.longest_path(), ""),
        "paths between two T0": (shape.planes * paths, ""),
        "entropy value bits": (_bits(shape.planes) + _bits(paths), ""),
        "NICs reachable through one switch": (shape.hosts_per_leaf, ""),
    }
    found |= _queues(regular)
    found |= _pfc(regular, per_plane)
    # A link above a T0 costs a share of a node's capacity in the plane at fault; a fault that takes
    # the whole plane away costs a share of all its planes.
    found |= _programs(fabric)
    found["lost with one NIC-T0 link"] = (100 / shape.planes, "%")
    found["lost with one T0"] = (100 / shape.planes, "%")
    found["lost with one T0-T1 link"] = (100 / shape.aggs_per_pod, "%")
    found["lost with one T1"] = (100 / shape.aggs_per_pod, "%")
    if shape.cores:
        found["lost with one T1-T2 link"] = (100 / shape.cores, "%")
        found["lost with one T2"] = (100 / shape.cores, "%")
    return found


def _programs(fabric: FabricView) -> dict[str, tuple[float, str]]:
    """Switches by program, where one runs another program than "forward"."""
    others = Counter(fabric.programs.values())
    return {f'switches that run "{name}"': (count, "") for name, count in sorted(others.items())}


def _panels(fabric: FabricView) -> dict[str, tuple[float, str]]:
    if not fabric.panels:
        return {}
    links = [link for link in fabric.all_links() if fabric.plane_of(link) is None]
    first = sum(len(panel.first) for panel in fabric.panels.values())
    return {
        "panels": (len(fabric.panels), ""),
        "links to panels": (len(links), ""),
        "circuits when a run begins": (first, ""),
    }


def _ranks(fabric: FabricView) -> dict[str, tuple[float, str]]:
    """Ranks that the hosts have, where some have several."""
    found = fabric.local_ranks
    if not found:
        return {}
    # Built in part or not: hosts that are not among these have one rank or none.
    single = (
        fabric.counts[0] - sum(found.values())
        if fabric.shape is not None
        else sum(host.role == "rank" and host.ranks == 1 for host in fabric.hosts.values())
    )
    rows: dict[str, tuple[float, str]] = {
        "places for ranks": (single + sum(each.count * hosts for each, hosts in found.items()), "")
    }
    for each, hosts in found.items():
        rows[f"hosts with {each.count} ranks, {each.rate}, {each.delay}"] = (hosts, "")
    return rows


_TIERS = ("NIC-T0", "T0-T1", "T1-T2")


def _queues(fabric: ClosView) -> dict[str, tuple[float, str]]:
    """Full packets of the fabric's payload that the data queues of a switch hold, and which of them
    are at the least number: a run over TCP, whose packets have a size of their own, may have longer
    ones."""
    frame = fabric.payload.bytes + HEADER_BYTES
    rtt = longest_rtt(fabric, frame)
    settings = tier_settings(fabric, rtt, frame, LinkDefaults())
    found: dict[str, tuple[float, str]] = {}
    for tier, spec in enumerate(fabric.specs):
        held = settings[tier][tier == 0]["data_limit_bytes"] / frame  # to the host
        bdp, unit = spec.rate.bytes_in(rtt) / frame, "packets"
        if spec.data_limit is None and bdp < MIN_QUEUE_PACKETS:
            unit += f", with its BDP of {bdp:.2g} taken as {MIN_QUEUE_PACKETS} of the run's largest"
        found[f"data queue, {_TIERS[tier]} link"] = (held, unit)
    return found


def _short_queues(fabric: FabricView) -> dict[str, tuple[float, str]]:
    """Links of an irregular fabric whose queues are at the least number of packets."""
    frame = fabric.payload.bytes + HEADER_BYTES
    rtt = base_rtt(topology_of(fabric), frame)
    short = sum(
        count
        for half, count in fabric.half_counts.items()
        if half.data_limit is None and half.rate.bytes_in(rtt) < MIN_QUEUE_PACKETS * frame
    )
    return {
        "one-way links with the least data queue": (
            short,
            f"their BDP, of less than {MIN_QUEUE_PACKETS} packets, is taken as so many",
        )
    }


def _pfc(fabric: ClosView, per_plane: tuple[int, ...]) -> dict[str, tuple[float, str]]:
    """Switch ports under PFC, and what each reserves of its switch's buffer."""
    frame = fabric.payload.bytes + HEADER_BYTES
    settings = tier_settings(fabric, longest_rtt(fabric, frame), frame, LinkDefaults(pfc=True))
    tiers = range(len(fabric.specs))
    with_roce = [fabric.specs[tier].pfc is None for tier in tiers]
    ports = sum(
        fabric.planes * per_plane[tier]
        for tier in tiers
        for half in settings[tier]
        if half["pfc_xoff_bytes"]
    )
    if not ports:
        return {"lossless switch ports": (0, "")}
    found: dict[str, tuple[float, str]] = {
        "lossless switch ports": (ports, "with RoCE" if all(with_roce) else "")
    }
    for tier, name in zip(tiers, _TIERS, strict=False):
        half = settings[tier][0]
        if half["pfc_xoff_bytes"]:
            found[f"PFC xoff, {name} link"] = (half["pfc_xoff_bytes"] / 1e3, "kB")
            found[f"PFC headroom, {name} link"] = (half["pfc_headroom_bytes"] / 1e3, "kB")
    return found


def bisection(fabric: FabricView) -> float:
    """Bits per second, one way, between two halves of the leaves; of the pods with three tiers."""
    shape, specs = fabric.shape, getattr(fabric, "specs", ())
    assert shape is not None
    rates = [spec.rate.count for spec in specs]
    half = shape.pods // 2 * shape.leaves_per_pod if shape.cores else shape.leaves // 2
    across = [half * shape.hosts_per_leaf * rates[0], half * shape.aggs_per_pod * rates[1]]
    if shape.cores:
        across.append(shape.pods // 2 * shape.cores * rates[2])
    return shape.planes * min(across)


def _bits(count: int) -> int:
    return math.ceil(math.log2(count)) if count > 1 else 0


def describe(fabric: FabricView) -> Table:
    """The figures as a table: name, value, unit."""
    rows = [
        {"number": name, "value": value, "unit": unit}
        for name, (value, unit) in figures(fabric).items()
    ]
    return Table(COLUMNS, rows)


def table_text(fabric: FabricView) -> str:
    """The figures as aligned lines."""
    lines = [repr(fabric)]
    for name, (value, unit) in figures(fabric).items():
        text = f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
        lines.append(f"  {name:<34} {text:>12} {unit}".rstrip())
    return "\n".join(lines)
