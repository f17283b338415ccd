"""What a fabric amounts to, by arithmetic: counts, bisection, optics and switches per NIC, the
longest path, capacity lost per failure ("MRC + SRv6 multi-plane fabrics" 2.1). Nothing is listed or
built."""

from __future__ import annotations

import inspect
import math
from typing import TYPE_CHECKING, Any

from loomnet.errors import LoomnetError, UsageError
from loomnet.fabric import Fabric
from loomnet.naming import did_you_mean
from loomnet.table import Table

if TYPE_CHECKING:
    from loomnet.scenarios import Scenario

BUILDERS = ("two_tier", "three_tier", "fat_tree", "star", "dumbbell")
COLUMNS = ("figure", "value", "unit")


def figures(fabric: Fabric) -> dict[str, tuple[float, str]]:
    """(value, unit) by name. Those that need a regular fabric are left out of any other."""
    hosts, switches, links = fabric.counts
    found: dict[str, tuple[float, str]] = {
        "NICs": (hosts, ""),
        "planes": (fabric.planes, ""),
        "switches": (switches, ""),
        "links": (links, ""),
        "switches per NIC": (switches / hosts, ""),
    } | fabric.notes
    shape, specs = fabric.shape, getattr(fabric, "specs", ())
    if shape is None or not fabric.uniform:
        return found | _short_queues(fabric)
    rates = [spec.rate.count for spec in specs]
    per_plane = (shape.hosts, shape.leaves * shape.aggs_per_pod, shape.aggs * shape.cores_per_agg)
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
    found |= _queues(fabric)
    found |= _pfc(fabric, per_plane)
    # Of the node's capacity in the plane at fault for links above a T0, as the reference counts it;
    # of all its planes for what takes the whole plane away.
    found["lost with one NIC-T0 link"] = (100 / shape.planes, "%")
    found["lost with one T0"] = (100 / shape.planes, "%")
    found["lost with one T0-T1 link"] = (100 / shape.aggs_per_pod, "%")
    found["lost with one T1"] = (100 / shape.aggs_per_pod, "%")
    if shape.cores:
        found["lost with one T1-T2 link"] = (100 / shape.cores, "%")
        found["lost with one T2"] = (100 / shape.cores, "%")
    return found


_TIERS = ("NIC-T0", "T0-T1", "T1-T2")


def _queues(fabric: Fabric) -> dict[str, tuple[float, str]]:
    """Packets that the data queues of a switch hold, and which of them are at the least number."""
    from loomnet.plan import HEADER_BYTES, MIN_QUEUE_PACKETS
    from loomnet.sparse import Halves, longest_rtt

    frame = fabric.payload.bytes + HEADER_BYTES
    rtt = longest_rtt(fabric, frame)  # type: ignore[arg-type]
    halves = Halves(fabric, rtt, frame,  # type: ignore[arg-type]
                    {"pfc": False, "dcqcn": False, "trims": True})  # fmt: skip
    found: dict[str, tuple[float, str]] = {}
    for tier, spec in enumerate(fabric.specs):  # type: ignore[attr-defined]
        held = halves.settings[tier][tier == 0]["data_limit_bytes"] / frame  # to the host
        bdp, unit = spec.rate.bytes_in(rtt) / frame, "packets"
        if spec.data_limit is None and bdp < MIN_QUEUE_PACKETS:
            unit += f", with its BDP of {bdp:.2g} taken as {MIN_QUEUE_PACKETS}"
        found[f"data queue, {_TIERS[tier]} link"] = (held, unit)
    return found


def _short_queues(fabric: Fabric) -> dict[str, tuple[float, str]]:
    """Links of an irregular fabric whose queues are at the least number of packets."""
    from loomnet.plan import MIN_QUEUE_PACKETS, make_plan
    from loomnet.units import Time

    plan = make_plan(fabric)
    rtt = Time.of(plan.base_rtt_ps)
    short = sum(
        half.data_limit is None
        and half.rate.bytes_in(rtt) < MIN_QUEUE_PACKETS * plan.frame_bytes
        for link in fabric.all_links()
        for half in (link.forward, link.backward)
    )
    return {"one-way links with the least data queue": (
        short, f"their BDP, of less than {MIN_QUEUE_PACKETS} packets, is taken as so many")}


def _pfc(fabric: Fabric, per_plane: tuple[int, ...]) -> dict[str, tuple[float, str]]:
    """Switch ports under PFC, and what each reserves of its switch's buffer."""
    from loomnet.plan import HEADER_BYTES
    from loomnet.sparse import Halves, longest_rtt

    frame = fabric.payload.bytes + HEADER_BYTES
    halves = Halves(fabric, longest_rtt(fabric, frame), frame,  # type: ignore[arg-type]
                    {"pfc": True, "dcqcn": False, "trims": True})  # fmt: skip
    tiers = range(len(fabric.specs))  # type: ignore[attr-defined]
    with_roce = [fabric.specs[tier].pfc is None for tier in tiers]  # type: ignore[attr-defined]
    ports = sum(
        fabric.planes * per_plane[tier]
        for tier in tiers
        for half in halves.settings[tier]
        if half["pfc_xoff_bytes"]
    )
    if not ports:
        return {"lossless switch ports": (0, "")}
    found: dict[str, tuple[float, str]] = {
        "lossless switch ports": (ports, "with RoCE" if all(with_roce) else "")
    }
    for tier, name in zip(tiers, _TIERS, strict=False):
        half = halves.settings[tier][0]
        if half["pfc_xoff_bytes"]:
            found[f"PFC xoff, {name} link"] = (half["pfc_xoff_bytes"] / 1e3, "kB")
            found[f"PFC headroom, {name} link"] = (half["pfc_headroom_bytes"] / 1e3, "kB")
    return found


def bisection(fabric: Fabric) -> float:
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


def describe(fabric: Fabric) -> Table:
    """The figures as a table: name, value, unit."""
    rows = [
        {"figure": name, "value": value, "unit": unit}
        for name, (value, unit) in figures(fabric).items()
    ]
    return Table(COLUMNS, rows)


def table_text(fabric: Fabric) -> str:
    """The figures as aligned lines."""
    lines = [repr(fabric)]
    for name, (value, unit) in figures(fabric).items():
        text = f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
        lines.append(f"  {name:<34} {text:>12} {unit}".rstrip())
    return "\n".join(lines)


def built(target: str, settings: list[str]) -> Fabric | None:
    """The fabric of a builder's name and its name=value settings; None if it names none."""
    name = target.removeprefix("ln.").removeprefix("clos.")
    if name not in BUILDERS:
        return None
    from loomnet import clos

    make = getattr(clos, name)
    known = inspect.signature(make).parameters
    values: dict[str, Any] = {"rate": "100 Gb/s", "delay": "1 us"}
    for text in settings:
        key, sign, value = (part.strip() for part in text.partition("="))
        if not sign:
            raise UsageError(f"--set {text}: write name=value")
        if key not in known:
            raise UsageError(
                f'--set {text}: {name} has no parameter "{key}"{did_you_mean(key, known)}'
            )
        values[key] = int(value) if value.isdecimal() else value
    missing = [
        key
        for key, parameter in known.items()
        if parameter.default is parameter.empty and key not in values
    ]
    if missing:
        raise UsageError(f"describe {name}: --set {missing[0]}=… is missing")
    return make(**values)


class _Found(LoomnetError):
    """Ends a scenario once its fabric is known."""


def fabric_of(scenario: Scenario, values: dict[str, Any]) -> Fabric | None:
    """The fabric of a scenario's first run, which is not run; None if it has none."""
    from loomnet.laboratory import Lab

    found: list[Fabric] = []

    class Looking(Lab):
        def run(self, fabric: Fabric, *args: Any, **kwargs: Any) -> Any:
            found.append(fabric)
            raise _Found("found")

    typed = scenario.validate(values)
    lab = Looking(scenario.name, base=scenario.file.parent if scenario.file else None)
    try:
        scenario.play(lab, typed)
    except _Found:
        pass
    return found[0] if found and isinstance(found[0], Fabric) else None
