"""Draws the circuits that a fabric's panels have when a run begins: an arc below two hosts for each
pair that is joined, thicker where several circuits join it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from loomnet.base.errors import FabricError
from loomnet.fabrics.panels import Panel, Ports
from loomnet.fabrics.view import FabricView

COLOUR = "#b07d00"
DEPTH = 0.45  # of the deepest arc, in the distance of hosts and panels


def joined_hosts(fabric: FabricView, panel: Panel) -> Counter[tuple[str, str]]:
    """How many circuits join two hosts at first; none where the circuits do not add up yet."""
    ports = Ports(panel, fabric.links_of(panel.name))
    try:
        table = ports.table(panel.first)
    except FabricError:
        return Counter()
    return Counter(
        (ports.hosts[port], ports.hosts[far])
        for port, far in enumerate(table)
        if port < far < len(ports.hosts) and port < len(ports.hosts)
    )


def draw_circuits(axes: Any, fabric: FabricView, place: Mapping[str, tuple[float, float]]) -> int:
    """On axes, with nodes at these places; returns how many circuits there are."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    total = 0
    widest = max((abs(x - u) for x, _ in place.values() for u, _ in place.values()), default=1.0)
    for panel in fabric.panels.values():
        for (a, b), count in joined_hosts(fabric, panel).items():
            (x, y), (u, v) = place[a], place[b]
            deep = DEPTH * (0.35 + 0.65 * abs(x - u) / (widest or 1.0)) * 4 / 3
            curve = Path(
                [(x, y), (x, y - deep), (u, v - deep), (u, v)],
                [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4],
            )
            axes.add_patch(
                PathPatch(
                    curve,
                    facecolor="none",
                    edgecolor=COLOUR,
                    linewidth=0.9 + 0.6 * count,
                    zorder=0.5,
                )
            )
            total += count
    return total
