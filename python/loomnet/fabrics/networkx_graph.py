"""Fabrics from networkx graphs."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import fields
from typing import Any

from loomnet.base.arguments import checked_call
from loomnet.base.errors import FabricError
from loomnet.base.names import did_you_mean, how_many, quoted
from loomnet.base.units import Rate, Size, Time
from loomnet.fabrics.links import HalfLink
from loomnet.fabrics.model import Fabric

_KINDS = {
    "host": ("role", "ports", "ranks", "local_link", "local_delay"),
    "switch": ("plane", "ports", "placement"),
    "panel": ("ports", "profile", "carrier", "placement"),
}
_HALF = tuple(each.name for each in fields(HalfLink) if each.name != "queue_options")
_WRITTEN = ("name", "plane")  # by Fabric.to_networkx(), which the fabric works out again
# Words for what a link has: an attribute with one of them is meant to count.
_LINKS = re.compile(r"rate|band|bw|capac|speed|gbps|mbps|throughput|delay|laten|loss|queue|buffer",
                    re.IGNORECASE)


@checked_call
def from_networkx(
    graph: Any,
    *,
    rate: Rate | str | None = None,
    delay: Time | str | None = None,
    payload: Size | str = "2048 B",
) -> Fabric:
    """A fabric from an undirected networkx graph with string nodes.

    A node is a host if its attribute `kind` is "host" or, without one, its name is h<number>, and a
    panel if it is "panel", which takes what add_panel takes; a switch may carry `plane`, `ports`
    and `placement`, a host what add_host takes. An edge carries what add_link takes; its `rate` and
    `delay` win over the defaults. Other attributes are counted in the notes of a run and in
    describe(), but those of an edge that speak of rate, delay, loss or queues are refused, as are
    directed graphs: a link is full duplex.
    """
    if not all(hasattr(graph, part) for part in ("nodes", "edges", "name", "is_directed")):
        raise FabricError(f"from_networkx: {quoted(graph)} is not a networkx graph")
    if graph.is_directed():
        raise FabricError("from_networkx: a directed graph; every link is full duplex: give "
                          "graph.to_undirected(), and override(\"a->b\", rate=…) one direction")
    fabric = Fabric(str(graph.name or "fabric"), payload=payload)
    passed: Counter[str] = Counter()
    for name, data in graph.nodes(data=True):
        _add_node(fabric, str(name), data, passed)
    for a, b, data in graph.edges(data=True):
        _add_edge(fabric, str(a), str(b), data, {"rate": rate, "delay": delay}, passed)
    for text, count in passed.items():
        fabric.passed.append(f"{text[5:]} ({how_many(count, text[:4])})")
    if passed:
        fabric.notes["attributes passed over"] = (sum(passed.values()), "; ".join(fabric.passed))
    return fabric


def _add_node(fabric: Fabric, name: str, data: dict[str, Any], passed: Counter[str]) -> None:
    kind = data.get("kind", "host" if re.fullmatch(r"h\d+", name) else "switch")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise FabricError(f"from_networkx: node {name}: kind {quoted(kind)} is not one of "
                          f"{', '.join(_KINDS)}{did_you_mean(kind, _KINDS)}")
    known = _KINDS[kind]
    values = {key: data[key] for key in known if data.get(key) is not None}
    for key in data:
        if key not in known and key not in ("kind", *_WRITTEN):
            passed[f"node {str(key)[:40]}"] += 1
    getattr(fabric, f"add_{kind}")(name, **values)


def _add_edge(fabric: Fabric, a: str, b: str, data: dict[str, Any], default: dict[str, Any],
              passed: Counter[str]) -> None:
    values = {key: data[key] for key in _HALF if key in data}
    for key in ("rate", "delay"):
        if values.setdefault(key, default[key]) is None:
            raise FabricError(f"link {a}--{b} has no {key}: give from_networkx({key}=…)")
    for key in data:
        if key in _HALF or key in _WRITTEN:
            continue
        if _LINKS.search(str(key)):
            raise FabricError(f"link {a}--{b}: attribute {quoted(key)} is not read; name it rate "
                              'or delay, with a unit ("10 Gb/s", "1 us"), or remove it')
        passed[f"edge {str(key)[:40]}"] += 1
    fabric.add_link(a, b, **values)
