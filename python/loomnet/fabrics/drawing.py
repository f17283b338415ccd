"""Draws a fabric: planes side by side, switches above hosts, panels below hosts."""

from __future__ import annotations

import base64
import html
import io
import itertools
from typing import Any

from loomnet.base.names import how_many
from loomnet.fabrics.circuit_drawing import draw_circuits
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
LARGEST, SMALLEST = 10.0, 6.0  # points of names
MOST_INCHES = 16
MAX_DRAWN = 400  # nodes; beyond that a drawing says less than the table


def to_networkx(fabric: FabricView) -> Any:
    """A networkx.Graph with `kind`, `plane` on nodes and `name`, `rate`, `delay` on edges;
    hosts with several ranks have `ranks`, `local_link` and `local_delay`."""
    import networkx

    graph = networkx.Graph(name=fabric.name)
    for host in fabric.hosts.values():
        graph.add_node(host.name, kind="host", role=host.role)
        if host.ranks > 1:
            graph.add_node(
                host.name,
                ranks=host.ranks,
                local_link=str(host.local.rate),
                local_delay=str(host.local.delay),
            )
    for switch in fabric.switches.values():
        graph.add_node(switch.name, kind="switch", plane=switch.plane)
    for panel in fabric.panels.values():
        graph.add_node(
            panel.name,
            kind="panel",
            ports=panel.ports,
            profile=panel.profile,
            carrier=panel.carrier,
        )
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
    """(x, y) of every node: panels at -1, hosts at 0, switches at their tiers. Hosts stand in the
    order of the switches of their first plane, so that those of one leaf are beside one another,
    whatever their numbers."""
    rows: dict[tuple[int, int], list[str]] = {}  # of a plane and a tier
    for name, tier in tiers(fabric).items():
        rows.setdefault((fabric.switches[name].plane, tier), []).append(name)
    width = 1 + max(map(len, rows.values()), default=1)
    place: dict[str, tuple[float, float]] = {}
    for (plane, tier), row in rows.items():
        for i, name in enumerate(row):
            place[name] = plane * width + (i + 0.5) * (width - 1) / len(row), float(tier)
    total = max(fabric.planes * width - 1, 1)
    number = {name: i for i, name in enumerate(fabric.switches)}
    leaf: dict[str, int] = {}
    for link in fabric.all_links():
        for host, switch in ((link.a, link.b), (link.b, link.a)):
            if host in fabric.hosts and switch in number:
                leaf[host] = min(leaf.get(host, len(number)), number[switch])
    ordered = sorted(fabric.hosts, key=lambda name: leaf.get(name, len(number)))
    for i, name in enumerate(ordered):
        place[name] = ((i + 0.5) * total / len(ordered), 0.0)
    for i, name in enumerate(fabric.panels):
        place[name] = ((i + 0.5) * total / len(fabric.panels), -1.0)
    return place


def tiers(fabric: FabricView) -> dict[str, int]:
    """Of each switch how many links lie between it and the hosts. A switch with hosts beside others
    that have more, as a spine to which a server is joined, is above those."""
    hosts: dict[str, int] = {}
    beside: dict[str, set[str]] = {name: set() for name in fabric.switches}
    for name in fabric.switches:
        ends = [link.b if link.a == name else link.a for link in fabric.links_of(name)]
        hosts[name] = sum(end in fabric.hosts for end in ends)
        beside[name] |= {end for end in ends if end in fabric.switches}
    first = [
        name
        for name in fabric.switches
        if hosts[name]
        and not any(
            (hosts[other], -len(beside[other])) > (hosts[name], -len(beside[name]))
            for other in beside[name]
            if hosts[other]
        )
    ]
    found = dict.fromkeys(first, 1)
    row, tier = first, 1
    while row:
        tier += 1
        row = [
            name
            for name in dict.fromkeys(other for each in row for other in beside[each])
            if name not in found
        ]
        found |= dict.fromkeys(row, tier)
    # In the order of the fabric; switches that no host reaches stand where spines do.
    return {name: found.get(name, 2) for name in fabric.switches}


def fabric_figure(fabric: FabricView) -> Any:
    """A matplotlib Figure of the fabric, planes told apart by colour."""
    import networkx
    from matplotlib.figure import Figure

    graph, place = to_networkx(fabric), positions(fabric)
    wide = max(x for x, _ in place.values()) if place else 1
    high = max((y for _, y in place.values()), default=2)
    figure = Figure(
        figsize=(min(3 + 0.9 * wide, MOST_INCHES), 3.6 + 0.9 * max(high - 2, 0)),
        layout="constrained",
    )
    axes = figure.subplots()
    level = [(a, b) for a, b in graph.edges if place[a][1] == place[b][1]]
    for edges, more in (
        ([edge for edge in graph.edges if edge not in set(level)], {}),
        # Along a row a link would run behind the switches between its ends.
        (level, {"arrows": True, "arrowstyle": "-", "connectionstyle": "arc3,rad=-0.25"}),
    ):
        planes = [graph.edges[edge]["plane"] for edge in edges]
        networkx.draw_networkx_edges(
            graph,
            place,
            edges,
            ax=axes,
            alpha=0.7,
            width=[0.5 if plane is None else 1.1 for plane in planes],
            edge_color=[
                PANEL_COLOUR if plane is None else PLANE_COLOURS[plane % 8] for plane in planes
            ],
            **more,
        )
    circuits = draw_circuits(axes, fabric, place)
    for kind, shape, colour in (
        ("host", "s", "#333333"),
        ("switch", "o", "#888888"),
        ("panel", "D", PANEL_COLOUR),
    ):
        nodes = [name for name, data in graph.nodes(data=True) if data["kind"] == kind]
        networkx.draw_networkx_nodes(
            graph, place, nodes, ax=axes, node_shape=shape, node_size=130, node_color=colour
        )
    if len(graph) <= 48:
        labels = {
            name: f"{name} x{data['ranks']}" if "ranks" in data else name
            for name, data in graph.nodes(data=True)
        }
        _name(axes, fabric, place, labels)
    counts = [how_many(len(fabric.hosts), "host")]
    if fabric.planes or not fabric.panels:
        counts.append(how_many(fabric.planes, "plane"))
    if fabric.panels:
        counts += [how_many(len(fabric.panels), "panel"), how_many(circuits, "circuit")]
    axes.set_title(f"{fabric.name}: {', '.join(counts)}", fontsize=9)
    axes.set_axis_off()
    axes.margins(y=0.2)
    return figure


def _name(
    axes: Any, fabric: FabricView, place: dict[str, tuple[float, float]], labels: dict[str, str]
) -> None:
    """Names on white, so that no link runs through them: of hosts and panels below, of switches
    above. As large as the fullest row leaves room for."""
    rows: dict[float, list[tuple[float, str]]] = {}
    for name, (x, y) in place.items():
        rows.setdefault(y, []).append((x, labels[name]))
    across = (
        0.9
        * axes.figure.get_figwidth()
        / max(max(x for x, _ in place.values()) - min(x for x, _ in place.values()), 1.0)
    )
    font = LARGEST
    for row in map(sorted, rows.values()):
        for (x, left), (u, right) in itertools.pairwise(row):
            letters = (len(left) + len(right)) / 2 + 0.5
            font = min(font, (u - x) * across * 72 / (0.58 * letters))
    font = max(font, SMALLEST)
    for name, at in place.items():
        below = name not in fabric.switches and not (fabric.panels and name in fabric.hosts)
        axes.annotate(
            labels[name],
            at,
            xytext=(0, -8 if below else 8),
            fontsize=font,
            textcoords="offset points",
            ha="center",
            va="top" if below else "bottom",
            annotation_clip=False,
            zorder=4,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.6},
        )


def fabric_html(fabric: FabricView) -> str:
    """The drawing as an element of a page that is never wider than the page."""
    code = base64.b64encode(fabric_svg(fabric).encode()).decode()
    return (
        f'<img alt="{html.escape(repr(fabric))}" style="max-width:100%;height:auto" '
        f'src="data:image/svg+xml;base64,{code}"/>'
    )


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
