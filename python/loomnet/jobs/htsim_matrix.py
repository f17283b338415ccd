"""htsim's connection matrices (.cm), as its loaders read them (github.com/Broadcom/csg-htsim and
github.com/ultraethernet/uet-htsim, connection_matrix). Times are picoseconds unless the reader is
told otherwise, sizes bytes. In a matrix with `msg`, which uet-htsim has, connections of one id are
messages of one connection, one after another, and times are microseconds."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from loomnet.base.errors import UsageError
from loomnet.base.names import did_you_mean, how_many
from loomnet.base.reading import exact_number, read_text
from loomnet.base.units import Time
from loomnet.jobs.task_graph import MOST_TASKS, Task, TaskGraph, acked

_CONNECTION = re.compile(r"([0-9]+)->([0-9]+)")
_HEADER = ("Nodes", "Connections", "Triggers", "Failures")
_WORDS = ("start", "size", "id", "trigger", "send_done_trigger", "recv_done_trigger", "prio")
_DEFAULT_PRIO = 2_000_000
_KINDS = ("oneshot", "multishot", "barrier")
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
    id: int = 0
    message: bool = False  # shares the connection of its id
    prio: int = _DEFAULT_PRIO
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
        messages = any(c.message for c in self.connections)
        first = {c.id: number for number, c in reversed(list(enumerate(self.connections)))}
        prio = sum(c.prio != _DEFAULT_PRIO for c in self.connections)
        if prio:
            graph.passed.append(f"prio ({how_many(prio, 'connection')})")
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
                    channel=first[c.id] if messages else number,
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
                raise UsageError(
                    f"{self.path}: trigger {number} ({kind}) is fired by "
                    f"{fired[number]} connections; {count} are needed"
                )
        waiting: dict[int, list[int]] = {number: [] for number in self.triggers}
        needed = {
            number: count if kind == "barrier" else 1
            for number, (kind, count) in self.triggers.items()
        }
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
    """Reads a .cm file, whose starts are in `start_unit`: by default 1 ps, and 1 us in one with
    `msg`. Raises UsageError naming the line at fault."""
    matrix = Matrix(str(path))
    lines = read_text(path).split("\n")
    messages = any("msg" in line.split() for line in lines if not line.lstrip().startswith("#"))
    unit = start_unit.count if start_unit is not None else 10**6 if messages else 1
    stated: dict[str, int] = dict.fromkeys(_HEADER, 0)
    given: set[str] = set()
    stated_triggers: set[int] = set()
    for number, line in enumerate(lines, 1):
        where, words = f"{path}:{number}", line.split()
        if not words or words[0].startswith("#"):
            continue
        if words[0] in _HEADER:
            stated[words[0]] = _number(where, words, 1, words[0])
            given.add(words[0])
            if words[0] == "Nodes":
                matrix.nodes = stated["Nodes"]
                if not 2 <= matrix.nodes <= _MOST_NODES:
                    raise UsageError(f"{where}: Nodes {matrix.nodes} must be 2 to {_MOST_NODES}")
        elif "->" in words[0]:
            found = _CONNECTION.fullmatch(words[0])
            if found is None:
                raise UsageError(f'{where}: "{words[0][:40]}" is no connection: write 0->1')
            if not matrix.nodes:
                raise UsageError(
                    f"{where}: a connection before Nodes, which says how many there are"
                )
            matrix.connections.append(_connection(where, number, found, words, matrix.nodes, unit))
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
            says = f"says {stated[name]}" if name in given else "is missing"
            raise UsageError(f"{path}: {name} {says}, the file holds {used}")
    if not matrix.connections:
        raise UsageError(f"{path}: no connection; write Nodes, Connections, then lines 0->1 …")
    if messages:
        _check_messages(matrix)
    for c in matrix.connections:
        for trigger in (c.trigger, c.send_done, c.recv_done):
            if trigger and trigger not in matrix.triggers:
                raise UsageError(f"{path}:{c.line}: trigger {trigger} is not defined")
    return matrix


def _check_messages(matrix: Matrix) -> None:
    first: dict[int, Connection] = {}
    for c in matrix.connections:
        where = f"{matrix.path}:{c.line}"
        if not c.id:
            raise UsageError(f"{where}: no id; in a matrix with msg each connection has one")
        other = first.setdefault(c.id, c)
        if (c.source, c.destination) != (other.source, other.destination):
            raise UsageError(
                f"{where}: id {c.id} is {other.source}->{other.destination} in line "
                f"{other.line}; one connection has the same ends"
            )
        if other is not c and not c.message:
            raise UsageError(
                f"{where}: id {c.id} is that of line {other.line}; write msg for a "
                "further message of that connection"
            )


def _connection(
    where: str, number: int, found: re.Match[str], words: list[str], nodes: int, unit: int
) -> Connection:
    values: dict[str, int] = {}
    message, i = False, 1
    while i < len(words):
        name = words[i]
        if name == "msg":  # with a number of its own, or without
            message = True
            i += 2 if i + 1 < len(words) and words[i + 1].isdecimal() else 1
            continue
        if name not in _WORDS:
            known = (*_WORDS, "msg")
            raise UsageError(f'{where}: unknown word "{name}"{did_you_mean(name, known)}')
        values[name] = _number(where, words, i + 1, name, unit if name == "start" else 1)
        i += 2
    ends = [exact_number(where, text, "node") for text in found.groups()]
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
        raise UsageError(f"{where}: an endless flow: no size, or size 0; give it one in bytes")
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
        values.get("id", 0),
        message,
        values.get("prio", _DEFAULT_PRIO),
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
            if kind:
                raise UsageError(f"{where}: a trigger is {kind} or {words[i]}, not both")
            kind = words[i]
        else:
            names = ("id", "count", *_KINDS)
            raise UsageError(f'{where}: unknown word "{words[i]}"{did_you_mean(words[i], names)}')
        i += 1
    if not number or not kind:
        raise UsageError(f"{where}: a trigger needs an id above 0 and one of {', '.join(_KINDS)}")
    if number in known:
        raise UsageError(f"{where}: trigger {number} is defined twice")
    if kind == "barrier" and not count:
        raise UsageError(f"{where}: a barrier needs a count")
    known.add(number)
    matrix.triggers[number] = kind, count


def _number(where: str, words: list[str], index: int, name: str, unit: int = 1) -> int:
    if index >= len(words):
        raise UsageError(f"{where}: {name} has no value")
    return exact_number(where, words[index], name, unit)
