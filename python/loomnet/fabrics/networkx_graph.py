"""Fabrics from networkx graphs."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import fields
from typing import Any

from loomnet.base.arguments import checked_call
from loomnet.base.errors import FabricError
from loomnet.base.names import did_you_mean, how_many, one_slip, quoted
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
_LINKS = re.compile(
    r"rate|band|bw|capac|speed|gbps|mbps|throughput|delay|laten|loss|queue|buffer", re.IGNORECASE
)


@checked_call
def from_networkx(
    graph: Any,
    *,
    rate: Rate | str | None = None,
    delay: Time | str | None = None,
    payload: Size | str = "2048 B",
) -> Fabric:
    """A fabric from a networkx graph, of GraphML too.

    A node is a host if its attribute `kind` is "host" or, without one, its name is h<number>, and a
    panel if it is "panel", which takes what add_panel takes; a switch may carry `plane`, `ports`
    and `placement`, a host what add_host takes. A node whose name is a whole number, as of
    networkx's generators, gets a letter: 3 is h3 if it is a host, ocs3 if it is a panel, else n3.
    An edge carries what add_link takes; its `rate` and `delay` win over the defaults. A directed
    graph is taken where each edge has one back, which may differ: a link is full duplex. Other
    attributes are counted in the notes of a run and in describe(), but those of an edge that speak
    of rate, delay, loss or queues, or are a slip of the pen for a name that is read, are refused.
    """
    if not all(hasattr(graph, part) for part in ("nodes", "edges", "name", "is_directed")):
        raise FabricError(f"from_networkx: {quoted(graph)} is not a networkx graph")
    if graph.is_directed():
        for a, b in graph.edges():
            if not graph.has_edge(b, a):
                raise FabricError(
                    "from_networkx: a directed graph; every link is full duplex: add "
                    f"an edge {b}->{a} to {a}->{b}, one of each, or give "
                    "graph.to_undirected()"
                )
    fabric = Fabric(str(graph.name or "fabric"), payload=payload)
    passed: Counter[str] = Counter()
    names = {node: _name(node, data) for node, data in graph.nodes(data=True)}
    for node, data in graph.nodes(data=True):
        _add_node(fabric, names[node], data, passed)
    default = {"rate": rate, "delay": delay}
    done: dict[tuple[str, str], dict[str, Any]] = {}  # what each link has on its way forth
    for a, b, data in graph.edges(data=True):
        forth = done.pop((names[b], names[a]), None) if graph.is_directed() else None
        if forth is not None:  # a third edge between the two is a link that exists
            _turn_back(fabric, names[a], names[b], data, forth, default)
            continue
        done[names[a], names[b]] = data
        _add_edge(fabric, names[a], names[b], data, default, passed)
    for text, count in passed.items():
        fabric.passed.append(f"{text[5:]} ({how_many(count, text[:4])})")
    if passed:
        fabric.notes["attributes passed over"] = (sum(passed.values()), "; ".join(fabric.passed))
    return fabric


def _name(node: Any, data: dict[str, Any]) -> str:
    """What the fabric calls a node."""
    name = str(node)
    if not re.fullmatch(r"\d+", name):
        return name
    return {"host": "h", "panel": "ocs"}.get(str(data.get("kind")), "n") + name


def _turn_back(
    fabric: Fabric,
    a: str,
    b: str,
    data: dict[str, Any],
    forth: dict[str, Any],
    default: dict[str, Any],
) -> None:
    """Gives a link's direction back its own rate and delay, where the two directions differ."""
    for key in _HALF:
        here, there = (each.get(key, default.get(key)) for each in (data, forth))
        if here is not None and here != there:
            fabric.override(f"{a}->{b}", **{key: here})


def _add_node(fabric: Fabric, name: str, data: dict[str, Any], passed: Counter[str]) -> None:
    kind = data.get("kind", "host" if re.fullmatch(r"h\d+", name) else "switch")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise FabricError(
            f"from_networkx: node {name}: kind {quoted(kind)} is not one of "
            f"{', '.join(_KINDS)}{did_you_mean(kind, _KINDS)}"
        )
    known = _KINDS[kind]
    values = {key: data[key] for key in known if data.get(key) is not None}
    for key in data:
        if key not in known and key not in ("kind", *_WRITTEN):
            elsewhere = any(key in names for names in _KINDS.values())
            of = f" of a {kind}" if elsewhere else ""  # where the same name is read of others
            passed[f"node {str(key)[:40]}{of}"] += 1
    fabric.roles_from_graph |= "role" in values
    getattr(fabric, f"add_{kind}")(name, **values)


def _add_edge(
    fabric: Fabric,
    a: str,
    b: str,
    data: dict[str, Any],
    default: dict[str, Any],
    passed: Counter[str],
) -> None:
    values = {key: data[key] for key in _HALF if key in data}
    for key in data:
        if key in _HALF or key in _WRITTEN:
            continue
        if _LINKS.search(str(key)):  # before a rate is missed, which it may have been meant for
            raise FabricError(
                f"link {a}--{b}: attribute {quoted(key)} is not read; name it rate "
                'or delay, with a unit ("10 Gb/s", "1 us"), or remove it'
            )
        meant = next(
            (each for each in _HALF if one_slip(str(key), each) and str(key)[:1] == each[:1]), None
        )
        if meant is not None and meant not in data:
            raise FabricError(
                f"link {a}--{b}: attribute {quoted(key)} is not read; did you mean "
                f"{meant}? If not, remove it"
            )
        passed[f"edge {str(key)[:40]}"] += 1
    for key in ("rate", "delay"):
        if values.setdefault(key, default[key]) is None:
            raise FabricError(f"link {a}--{b} has no {key}: give from_networkx({key}=…)")
    fabric.add_link(a, b, **values)
