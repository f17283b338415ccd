"""Draws a fabric: planes side by side, spines above leaves above hosts, panels below hosts."""

from __future__ import annotations

import io
from typing import Any

from loomnet.base.names import how_many
from loomnet.fabrics.view import FabricView

PLANE_COLOURS = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#e69f00",
    "#525252",
    "#882255",
)
PANEL_COLOUR = "#b0a070"
MAX_DRAWN = 400  # nodes; beyond that a drawing says less than the table


def to_networkx(fabric: FabricView) -> Any:
    """A networkx.Graph with `kind`, `plane` on nodes and `name`, `rate`, `delay` on edges;
    hosts with several ranks have `ranks`, `local_link` and `local_delay`."""
    import networkx

    graph = networkx.Graph(name=fabric.name)
    for host in fabric.hosts.values():
        graph.add_node(host.name, kind="host", role=host.role)
        if host.ranks > 1:
            graph.add_node(host.name, ranks=host.ranks, local_link=str(host.local.rate),
                           local_delay=str(host.local.delay))
    for switch in fabric.switches.values():
        graph.add_node(switch.name, kind="switch", plane=switch.plane)
    for panel in fabric.panels.values():
        graph.add_node(panel.name, kind="panel", ports=panel.ports, profile=panel.profile,
                       carrier=panel.carrier)
    for link in fabric.all_links():
        graph.add_edge(
            link.a,
            link.b,
            name=link.name,
            plane=fabric.plane_of(link),
            rate=str(link.forward.rate),
            delay=str(link.forward.delay),
        )
    return graph


def positions(fabric: FabricView) -> dict[str, tuple[float, float]]:
    """(x, y) of every node: panels at -1, hosts at 0, switches with hosts at 1, switches without at
    2."""
    leaves: dict[int, list[str]] = {}
    spines: dict[int, list[str]] = {}
    for switch in fabric.switches.values():
        ends = {end for link in fabric.links_of(switch.name) for end in (link.a, link.b)}
        tier = leaves if ends & set(fabric.hosts) else spines
        tier.setdefault(switch.plane, []).append(switch.name)
    width = 1 + max(
        (len(tier.get(p, ())) for p in range(fabric.planes) for tier in (leaves, spines)), default=1
    )
    place: dict[str, tuple[float, float]] = {}
    for plane in range(fabric.planes):
        for height, tier in ((1.0, leaves), (2.0, spines)):
            row = tier.get(plane, [])
            for i, name in enumerate(row):
                place[name] = (plane * width + (i + 0.5) * (width - 1) / max(len(row), 1), height)
    total = max(fabric.planes * width - 1, 1)
    for i, name in enumerate(fabric.hosts):
        place[name] = ((i + 0.5) * total / len(fabric.hosts), 0.0)
    for i, name in enumerate(fabric.panels):
        place[name] = ((i + 0.5) * total / len(fabric.panels), -1.0)
    return place


def fabric_figure(fabric: FabricView) -> Any:
    """A matplotlib Figure of the fabric, planes told apart by colour."""
    import networkx
    from matplotlib.figure import Figure

    graph, place = to_networkx(fabric), positions(fabric)
    wide = max(x for x, _ in place.values()) if place else 1
    figure = Figure(figsize=(min(4 + 0.7 * wide, 16), 3.6), layout="constrained")
    axes = figure.subplots()
    colours = [PANEL_COLOUR if data["plane"] is None else PLANE_COLOURS[data["plane"] % 8]
               for _, _, data in graph.edges(data=True)]
    networkx.draw_networkx_edges(graph, place, ax=axes, edge_color=colours, width=1.1, alpha=0.7)
    for kind, shape, colour in (("host", "s", "#333333"), ("switch", "o", "#888888"),
                                ("panel", "D", PANEL_COLOUR)):
        nodes = [name for name, data in graph.nodes(data=True) if data["kind"] == kind]
        networkx.draw_networkx_nodes(
            graph, place, nodes, ax=axes, node_shape=shape, node_size=130, node_color=colour
        )
    if len(graph) <= 48:
        lifted = {name: (x, y + 0.17) for name, (x, y) in place.items()}
        labels = {name: f"{name} x{data['ranks']}" if "ranks" in data else name
                  for name, data in graph.nodes(data=True)}
        networkx.draw_networkx_labels(graph, lifted, labels, ax=axes, font_size=6)
    axes.set_title(f"{fabric.name}: {how_many(len(fabric.hosts), 'host')}, "
                   f"{how_many(fabric.planes, 'plane')}", fontsize=9)
    axes.set_axis_off()
    axes.margins(y=0.2)
    return figure


def fabric_svg(fabric: FabricView) -> str:
    """The drawing as SVG text; a very large fabric is drawn as its one-line description."""
    if len(fabric.hosts) + len(fabric.switches) + len(fabric.panels) > MAX_DRAWN:
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="640" height="24">'
            f'<text x="4" y="16" font-size="12">{fabric!r}</text></svg>'
        )
    buffer = io.StringIO()
    fabric_figure(fabric).savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()
