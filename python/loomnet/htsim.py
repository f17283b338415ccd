"""htsim's inputs: connection matrices (.cm) and fat-tree topologies (.topo), as its loaders read
them (github.com/Broadcom/csg-htsim, connection_matrix and fat_tree_topology). Times of a matrix are
picoseconds unless its reader is told otherwise, sizes bytes."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

from loomnet import clos
from loomnet.arguments import checked_call
from loomnet.errors import UsageError
from loomnet.fabric import Fabric
from loomnet.naming import did_you_mean
from loomnet.reading import read_text, user_path
from loomnet.taskgraph import MOST_TASKS, Task, TaskGraph, acked
from loomnet.units import Rate, Size, Time

_CONNECTION = re.compile(r"([0-9]+)->([0-9]+)")
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,3})?")
_HEADER = ("Nodes", "Connections", "Triggers", "Failures")
_WORDS = ("start", "size", "id", "trigger", "send_done_trigger", "recv_done_trigger", "prio")
_KINDS = ("oneshot", "multishot", "barrier")
_MOST = 2**62
_MOST_NODES = 1 << 24


@dataclass(frozen=True)
class Connection:
    source: int
    destination: int
    size: int  # bytes
    start_ps: int | None  # None: waits for its trigger
    trigger: int = 0
    send_done: int = 0
    recv_done: int = 0
    line: int = 0


@dataclass
class Matrix:
    """A connection matrix as read."""

    path: str
    nodes: int = 0
    connections: list[Connection] = field(default_factory=list)
    triggers: dict[int, tuple[str, int]] = field(default_factory=dict)  # id -> kind, count

    def graph(self) -> TaskGraph:
        """The flows as tasks; a trigger is the join of what fires it."""
        graph = TaskGraph(self.path, self.nodes)
        begun = self._begun()
        begins = sorted({c.start_ps for c in self.connections if c.start_ps is not None})
        at = {start: graph.add(Task(duration_ps=start, what=f"start {start}")) for start in begins}
        gates = {number: graph.join(what=f"trigger {number}") for number in self.triggers}
        fires: dict[int, list[int]] = {number: [] for number in self.triggers}
        for number, c in enumerate(self.connections):
            if number not in begun:
                graph.never.append(f"{c.source}->{c.destination} (line {c.line})")
                continue
            gate = gates[c.trigger] if c.start_ps is None else at[c.start_ps]
            task = graph.add(
                Task(
                    c.source,
                    c.destination,
                    c.size,
                    channel=number,
                    flow=True,
                    what=f"connection {c.source}->{c.destination} (line {c.line})",
                ),
                [gate],
            )
            if c.send_done:  # by the sender, which waits for the last acknowledgement
                fires[c.send_done].append(acked(task))
            if c.recv_done:
                fires[c.recv_done].append(task)
        for number, (kind, _) in self.triggers.items():
            # The first of several firings starts the connection; later ones change nothing.
            graph.tasks[gates[number]].any = kind != "barrier"
            graph.after[gates[number]] = fires[number]
        return graph.check()

    def _begun(self) -> set[int]:
        """Connections that start: by themselves, or because those that fire their trigger do; all
        where none starts by itself. Raises UsageError for a barrier that the file does not fire as
        often as it counts."""
        fired = Counter(at for c in self.connections for at in (c.send_done, c.recv_done) if at)
        for number, (kind, count) in self.triggers.items():
            if kind == "barrier" and fired[number] not in (0, count):
                raise UsageError(f"{self.path}: trigger {number} ({kind}) is fired by "
                                 f"{fired[number]} connections; {count} are needed")
        waiting: dict[int, list[int]] = {number: [] for number in self.triggers}
        needed = {number: count if kind == "barrier" else 1
                  for number, (kind, count) in self.triggers.items()}
        for number, c in enumerate(self.connections):
            if c.start_ps is None:
                waiting[c.trigger].append(number)
        todo = [n for n, c in enumerate(self.connections) if c.start_ps is not None]
        begun = set(todo) or {n for n, c in enumerate(self.connections) if fired[c.trigger]}
        while todo:
            c = self.connections[todo.pop()]
            for trigger in filter(None, (c.send_done, c.recv_done)):
                needed[trigger] -= 1
                if needed[trigger] == 0:
                    begun.update(waiting[trigger])
                    todo += waiting[trigger]
        return begun


def read_matrix(path: Path, start_unit: Time | None = None) -> Matrix:
    """Reads a .cm file, whose starts are in `start_unit` (1 ps). Raises UsageError naming the line
    at fault."""
    unit = 1 if start_unit is None else start_unit.count
    matrix, stated = Matrix(str(path)), dict.fromkeys(_HEADER, 0)
    stated_triggers: set[int] = set()
    for number, line in enumerate(_lines(path), 1):
        where, words = f"{path}:{number}", line.split()
        if not words or words[0].startswith("#"):
            continue
        if words[0] in _HEADER:
            stated[words[0]] = _number(where, words, 1, words[0])
            if words[0] == "Nodes":
                matrix.nodes = stated["Nodes"]
                if not 2 <= matrix.nodes <= _MOST_NODES:
                    raise UsageError(f"{where}: Nodes {matrix.nodes} must be 2 to {_MOST_NODES}")
        elif found := _CONNECTION.match(words[0]):
            if found.end() < len(words[0]):  # "0->1id" is two words run together
                raise UsageError(f'{where}: "{words[0]}" is no connection: write 0->1')
            matrix.connections.append(
                _connection(where, number, found, words, matrix.nodes, unit))
            if len(matrix.connections) > MOST_TASKS:
                raise UsageError(f"{path}: more than {MOST_TASKS:,} connections")
        elif words[0] == "trigger":
            _trigger(where, words, matrix, stated_triggers)
        elif words[0] == "failure":
            raise UsageError(f"{where}: failures are not read; give them as faults, ln.down(…)")
        else:
            raise UsageError(
                f'{where}: unknown word "{words[0]}"{did_you_mean(words[0], (*_HEADER, "trigger"))}'
            )
    for name, used in (
        ("Connections", len(matrix.connections)),
        ("Triggers", len(matrix.triggers)),
    ):
        if stated[name] != used:
            raise UsageError(f"{path}: {name} says {stated[name]}, the file holds {used}")
    if not matrix.connections:
        raise UsageError(f"{path}: no connection; write Nodes, Connections, then lines 0->1 …")
    for c in matrix.connections:
        for trigger in (c.trigger, c.send_done, c.recv_done):
            if trigger and trigger not in matrix.triggers:
                raise UsageError(f"{path}:{c.line}: trigger {trigger} is not defined")
    return matrix


def _connection(
    where: str, number: int, found: re.Match[str], words: list[str], nodes: int, unit: int
) -> Connection:
    values: dict[str, int] = {}
    i = 1
    while i < len(words):
        name = words[i]
        if name not in _WORDS:
            raise UsageError(f'{where}: unknown word "{name}"{did_you_mean(name, _WORDS)}')
        values[name] = _number(where, words, i + 1, name, unit if name == "start" else 1)
        i += 2
    ends = [_bounded(where, text, "node") for text in found.groups()]
    for node in ends:
        if node >= nodes:
            raise UsageError(f"{where}: no node {node}; Nodes says {nodes}")
    if ends[0] == ends[1]:
        raise UsageError(f"{where}: {ends[0]}->{ends[1]} sends to itself")
    if "start" not in values and "trigger" not in values:
        raise UsageError(f"{where}: neither start nor trigger")
    if "start" in values and "trigger" in values:
        raise UsageError(f"{where}: both start and trigger")
    if not values.get("size"):
        raise UsageError(f"{where}: an endless flow; give it a size in bytes")
    for name in ("id", "trigger"):
        if name in values and values[name] == 0:
            raise UsageError(f"{where}: {name} 0 is not allowed")
    return Connection(
        ends[0],
        ends[1],
        values["size"],
        values.get("start"),
        values.get("trigger", 0),
        values.get("send_done_trigger", 0),
        values.get("recv_done_trigger", 0),
        number,
    )


def _trigger(where: str, words: list[str], matrix: Matrix, known: set[int]) -> None:
    number, kind, count = 0, "", 0
    i = 1
    while i < len(words):
        if words[i] == "id":
            number = _number(where, words, i + 1, "id")
            i += 1
        elif words[i] == "count":
            count = _number(where, words, i + 1, "count")
            i += 1
        elif words[i] in _KINDS:
            kind = words[i]
        else:
            names = ("id", "count", *_KINDS)
            raise UsageError(f'{where}: unknown word "{words[i]}"{did_you_mean(words[i], names)}')
        i += 1
    if not number or not kind:
        raise UsageError(f"{where}: a trigger needs an id and one of {', '.join(_KINDS)}")
    if number in known:
        raise UsageError(f"{where}: trigger {number} is defined twice")
    if kind == "barrier" and not count:
        raise UsageError(f"{where}: a barrier needs a count")
    known.add(number)
    matrix.triggers[number] = kind, count


def _lines(path: Path) -> list[str]:
    return read_text(path).split("\n")


def _number(where: str, words: list[str], index: int, name: str, unit: int = 1) -> int:
    if index >= len(words):
        raise UsageError(f"{where}: {name} has no value")
    return _bounded(where, words[index], name, unit)


def _bounded(where: str, text: str, name: str, unit: int = 1) -> int:
    """So many times `unit`, which must be whole: nothing is cut in silence."""
    value = Fraction(-1)
    if _NUMBER.fullmatch(text) and len(text) < 40:
        value = Fraction(text) * unit
    if not 0 <= value < _MOST:
        raise UsageError(f'{where}: {name} "{text[:40]}" is not a number from 0 to 2^62')
    if value.denominator != 1:
        raise UsageError(f'{where}: {name} "{text[:40]}" is not whole'
                         + (f" in units of 1/{unit}" if unit > 1 else ""))
    return int(value)


# --- topologies -----------------------------------------------------------------------------------
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
    for number, line in enumerate(_lines(path), 1):
        where, words = f"{path}:{number}", line.split("#", 1)[0].split()
        if not words:
            continue
        name = words[0].lower()
        if len(words) < 2:
            raise UsageError(f"{where}: {words[0]} has no value")
        unit = 1000 if name.endswith(("_ns", "_gbps")) else 1  # picoseconds, Mb/s
        value = _bounded(where, words[1], words[0], unit)
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
