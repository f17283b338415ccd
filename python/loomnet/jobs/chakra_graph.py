"""What the nodes of a Chakra trace mean, as transfers and delays: the reading of ASTRA-sim
(github.com/astra-sim/astra-sim, astra-sim/workload and astra-sim/system), for which Chakra's
converter and generators write."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from loomnet.base.errors import UsageError, printable
from loomnet.base.names import how_many, quoted
from loomnet.base.reading import parse_json
from loomnet.jobs.chakra import (
    COLLECTIVE,
    COMPUTE,
    INVALID,
    LOAD,
    METADATA,
    RECEIVE,
    SEND,
    STORE,
    Node,
    rank_files,
    read_groups,
    read_rank,
)
from loomnet.jobs.chakra_order import in_order
from loomnet.jobs.dimensions import over_dimensions
from loomnet.jobs.task_graph import COLLECTIVE_KINDS, Task, TaskGraph, acked

_STORAGE = (8, 9, 10)  # of a version of the schema: storage, a batch, a checkpoint
_WORK = (LOAD, STORE, COMPUTE, *_STORAGE)
_MOST_SIZE = 1 << 50
_MOST_PS = 10**18
# Attributes that ASTRA-sim reads, and those by which producers say where a node comes from.
_READ = {
    "is_cpu_op",
    "num_ops",
    "tensor_size",
    "comm_type",
    "comm_priority",
    "comm_size",
    "comm_src",
    "comm_dst",
    "comm_tag",
    "pg_name",
    "comm_group",
    "involved_dim",
    "root",
}
_ORIGIN = {
    "rf_id",
    "fw_parent",
    "seq_id",
    "scope",
    "tid",
    "fw_tid",
    "op_schema",
    "op_type",
    "stream",
    "inputs",
    "outputs",
    "tensor_loc",
    "",
}
_ROOTED = ("broadcast", "reduce", "scatter", "gather")
_LANES = _CPU, _GPU, _MEMORY = 1, 2, 3  # of a rank


@dataclass(frozen=True)
class Reading:
    """What a trace leaves to the machine. `peak` (operations/s) and `memory` (bytes/s) are the
    roofline of a GPU, 0 without; `dimensions` the sizes of the network's dimensions, the first one
    of neighbouring ranks."""

    peak: float = 0
    memory: float = 0
    dimensions: tuple[int, ...] = ()

    def compute_ps(self, operations: int, size: int) -> int:
        """How long so many operations on so many bytes take: the larger of what the arithmetic and
        what the memory asks (Williams et al., "Roofline", CACM 2009)."""
        return round(max(operations / self.peak, size / self.memory) * 10**12)


def read_graph(path: Path, groups: Path | None = None, reading: Reading | None = None) -> TaskGraph:
    """The whole trace as transfers and delays.

    A rank runs one CPU operation and one GPU kernel at a time, the lowest number first, and the
    collectives of each group one after another. A COMM_SEND goes when its own rank is ready and
    meets the COMM_RECV of its source, destination and tag; a COMM_COLL meets that of its group's
    other ranks. The group of a node is its `pg_name`, by the file `groups` or else by the trace's
    own process groups; without one, or with "0", all ranks. Raises UsageError naming the rank and
    node at fault."""
    files = rank_files(path)
    traces = [read_rank(file) for file in files]
    members = read_groups(groups) if groups is not None else {}
    for name, ranks in members.items():
        for rank in ranks:
            if rank >= len(files):
                raise UsageError(
                    f"{groups}: group {json.dumps(name)}: rank {rank} is missing from the trace"
                )
    reading = reading or Reading()
    if reading.dimensions and math.prod(reading.dimensions) != len(files):
        raise UsageError(
            f"Trace.dims: {' x '.join(map(str, reading.dimensions))} is not the number"
            f" of ranks of {path}, {len(files)}"
        )
    return _Builder(str(path), traces, members, reading).build()


Members = tuple[int, ...]


class _Builder:
    def __init__(
        self, name: str, traces: list[list[Node]], groups: dict[str, list[int]], reading: Reading
    ) -> None:
        self.graph, self.traces, self.reading = TaskGraph(name, len(traces)), traces, reading
        self.groups = {name: tuple(ranks) for name, ranks in groups.items()}
        # By rank: the process groups that its METADATA nodes state.
        self.stated: list[dict[str, Members]] = [{} for _ in traces]
        # By rank: node number -> task that begins it, task that ends it.
        self.begin: list[dict[int, int]] = []
        self.end: list[dict[int, int]] = []
        self.ordered: list[Sequence[Node]] = []  # by rank
        self.passed: Counter[str] = Counter()  # what has no effect -> in how many nodes

    def fail(self, rank: int, node: Node, text: str) -> UsageError:
        return UsageError(f"{self.graph.name}: rank {rank} {_label(node)}: {text}")

    def build(self) -> TaskGraph:
        graph = self.graph
        for rank, nodes in enumerate(self.traces):
            begin: dict[int, int] = {}
            end: dict[int, int] = {}
            for node in nodes:
                self._count_passed(node)
                begin[node.id] = graph.add(self._begin(rank, node))
                end[node.id] = -1 if self._communicates(node) else begin[node.id]
            self.begin.append(begin)
            self.end.append(end)
        self._order()
        self._messages()
        self._collectives()
        for rank, nodes in enumerate(self.traces):
            for node in nodes:
                for other in dict.fromkeys((*node.after, *node.control)):
                    graph.after[self.begin[rank][node.id]].append(self.end[rank][other])
        graph.passed = [
            f"{text} ({how_many(count, 'node')})" for text, count in self.passed.items() if count
        ]
        return graph.check()

    def _order(self) -> None:
        """Puts each rank's nodes into an order in which they can run. Control dependencies that
        make that impossible are dropped: older converters numbered nodes anew, but not these, and
        Chakra's own feeder follows data dependencies alone."""
        for rank, nodes in enumerate(self.traces):
            for node in nodes:
                for other in node.after:
                    if other not in self.end[rank]:
                        raise self.fail(rank, node, f"waits for node {other}, which is not there")
                there = [other for other in node.control if other in self.end[rank]]
                if len(there) < len(node.control):
                    self.passed["control dependencies on nodes that are not there"] += 1
                    node.control = there
            if any(node.control for node in nodes):
                ordered = in_order(nodes, control=True)
                if ordered is None and in_order(nodes, control=False) is not None:
                    for node in nodes:
                        self.passed["control dependencies that make a cycle"] += bool(node.control)
                        node.control = []
            self.ordered.append(in_order(nodes, control=True) or nodes)

    # --- one node --------------------------------------------------------------------------------
    @staticmethod
    def _communicates(node: Node) -> bool:
        """False, too, for the host's part of a collective, which older converters called one."""
        return node.type in (SEND, RECEIVE) or (node.type == COLLECTIVE and not _host_part(node))

    def _begin(self, rank: int, node: Node) -> Task:
        """The task with which a node begins: all of it, but for a communication."""
        task = Task(what=f"rank {rank} {_label(node)}", rank=rank)
        if node.type not in (INVALID, METADATA, *_WORK, SEND, RECEIVE, COLLECTIVE):
            raise self.fail(rank, node, f"unknown node type {node.type}")
        cpu = self._attribute(rank, node, "is_cpu_op", 1, 0)
        if node.type == METADATA:
            self._read_process_groups(rank, node)
        if self._communicates(node):
            self.passed["is_cpu_op of communications"] += cpu
            return task
        lane = _CPU if cpu else _GPU if node.type == COMPUTE else _MEMORY
        if cpu or node.type in _WORK:
            task.lane = rank * len(_LANES) + lane
        if node.type in (*_WORK, COLLECTIVE):
            task.duration_ps = self._duration_ps(rank, node, cpu=bool(cpu))
            if task.duration_ps > _MOST_PS:
                raise self.fail(
                    rank,
                    node,
                    f"takes {task.duration_ps // 10**6} us, which is more than {_MOST_PS // 10**6}",
                )
        return task

    def _duration_ps(self, rank: int, node: Node, *, cpu: bool) -> int:
        stated = node.duration_us * 10**6
        if node.type in (LOAD, STORE) and not stated:
            self.passed["tensor_size of loads and stores without a duration"] += (
                self._attribute(rank, node, "tensor_size", 2**63, 0) > 0
            )
        if node.type != COMPUTE or cpu or "num_ops" not in node.attributes:
            return stated
        operations = self._attribute(rank, node, "num_ops", 2**63)
        size = self._attribute(rank, node, "tensor_size", 2**63, 0)
        if self.reading.peak:
            if size:
                return self.reading.compute_ps(operations, size)
            self.passed["num_ops without tensor_size, which ASTRA-sim skips"] += operations > 0
            return 0
        if operations and not stated:
            raise self.fail(
                rank,
                node,
                f"has {operations} num_ops and no duration; give the "
                "machine's roofline, Trace(peak_tflops=…, memory_bandwidth=…)",
            )
        self.passed["num_ops, where the duration counts"] += operations > 0
        return stated

    def _count_passed(self, node: Node) -> None:
        if node.type == INVALID:
            self.passed["nodes of no type, which take no time"] += 1
        if node.type in _STORAGE:
            self.passed["storage, of which the duration counts"] += 1
        if node.type == COLLECTIVE and _host_part(node):
            self.passed["collectives on the CPU without comm_type, taken as CPU operations"] += 1
        for name, value in node.attributes.items():
            if name == "comm_priority":
                self.passed[name] += value != 0
            elif name not in _READ and name not in _ORIGIN:
                self.passed[f"attribute {printable(name[:40])}"] += 1

    def _attribute(
        self, rank: int, node: Node, name: str, most: int, default: int | None = None
    ) -> int:
        if name not in node.attributes and default is not None:
            return default
        value = node.attributes.get(name)
        if name not in node.attributes:
            raise self.fail(rank, node, f"has no {name}")
        if not isinstance(value, int) or not 0 <= value <= most:
            shown = "of another kind" if value is None else quoted(value)
            raise self.fail(rank, node, f"{name} {shown} is no whole number from 0 to {most}")
        return value

    # --- groups ----------------------------------------------------------------------------------
    def _read_process_groups(self, rank: int, node: Node) -> None:
        """Those of a METADATA node that PyTorch's profiler has written: a list in a list."""
        text = node.inputs.strip()
        if not text:
            return
        try:
            found = parse_json(text[2:-2], "process groups")
            for each in found:
                ranks = each["ranks"] or range(len(self.traces))
                members = tuple(ranks)
                if (
                    not isinstance(each["pg_name"], str)
                    or len(set(members)) != len(members)
                    or not all(type(each) is int and each >= 0 for each in members)
                ):
                    raise ValueError
                self.stated[rank][each["pg_name"]] = members
        except (UsageError, ValueError, TypeError, KeyError):
            self.passed["METADATA nodes whose inputs are no process groups"] += 1

    def _members(self, rank: int, node: Node) -> tuple[str, Members]:
        """A node's group by name and ranks; the name is "" where it is all ranks of the trace."""
        group = node.attributes.get("pg_name", node.attributes.get("comm_group", ""))
        name = str(group)
        shown = printable(name[:40])
        everyone = tuple(range(len(self.traces)))
        if name in self.groups:
            members = self.groups[name]
        elif name in ("", "0"):
            return "", everyone
        elif name in self.stated[rank]:
            members = self.stated[rank][name]
        else:
            raise self.fail(
                rank,
                node,
                f'unknown communicator group "{shown}"; give '
                "Trace(groups=…) a JSON file that names it",
            )
        if max(members) not in everyone:
            raise self.fail(
                rank, node, f'group "{shown}": rank {max(members)} is missing from the trace'
            )
        if rank not in members:
            raise self.fail(rank, node, f'is no member of group "{shown}"')
        return name, members

    # --- messages --------------------------------------------------------------------------------
    def _messages(self) -> None:
        waiting: dict[tuple[int, int, int, int], list[tuple[int, Node]]] = {}
        for rank, nodes in enumerate(self.traces):
            for node in nodes:
                if node.type not in (SEND, RECEIVE):
                    continue
                ends = tuple(
                    self._attribute(rank, node, name, 2**31, rank if own == node.type else None)
                    for name, own in (("comm_src", SEND), ("comm_dst", RECEIVE))
                )
                if max(ends) >= len(self.traces):
                    raise self.fail(rank, node, f"rank {max(ends)} is missing from the trace")
                if ends[node.type == RECEIVE] != rank:
                    raise self.fail(
                        rank,
                        node,
                        f"is rank {ends[node.type == RECEIVE]}'s by its "
                        f"comm_{'src' if node.type == SEND else 'dst'}",
                    )
                if ends[0] == ends[1]:
                    raise self.fail(rank, node, "sends to itself")
                tag = self._attribute(rank, node, "comm_tag", 2**63, 0)
                waiting.setdefault((ends[0], ends[1], tag, node.type), []).append((rank, node))
        for (source, destination, tag, kind), nodes in waiting.items():
            other = waiting.get((source, destination, tag, SEND + RECEIVE - kind), [])
            if len(nodes) > len(other):
                rank, node = nodes[len(other)]
                who, does = (destination, "receives") if kind == SEND else (source, "sends")
                raise self.fail(rank, node, f"no rank {who} {does} it (tag {tag})")
            if kind == SEND:  # where a receive is left over, it is refused when its turn comes
                for (_, send), (_, receive) in zip(nodes, other, strict=False):
                    self._message(source, send, destination, receive)

    def _message(self, source: int, send: Node, destination: int, receive: Node) -> None:
        size = self._attribute(source, send, "comm_size", _MOST_SIZE)
        expected = self._attribute(destination, receive, "comm_size", _MOST_SIZE, size)
        if expected != size:
            raise self.fail(
                destination,
                receive,
                f"receives {expected} B, but rank {source} {_label(send)} sends {size} B",
            )
        # The sender does not wait for the receiver, as in ASTRA-sim: what comes early is kept.
        task = self.graph.send(
            source,
            destination,
            size,
            [self.begin[source][send.id]],
            f"rank {source} {_label(send)}",
        )
        self.end[source][send.id] = acked(task)
        self.end[destination][receive.id] = self.graph.join(
            [task, self.begin[destination][receive.id]],
            f"rank {destination} {_label(receive)}",
            destination,
        )

    # --- collectives -----------------------------------------------------------------------------
    def _collectives(self) -> None:
        by_group: dict[tuple[str, Members], dict[int, list[Node]]] = {}
        for rank, nodes in enumerate(self.ordered):
            for node in nodes:
                if node.type == COLLECTIVE and self._communicates(node):
                    group = self._members(rank, node)
                    by_group.setdefault(group, {}).setdefault(rank, []).append(node)
        for (name, members), calls in by_group.items():
            most = max(len(nodes) for nodes in calls.values())
            for rank in members:
                if len(calls.get(rank, ())) < most:
                    other = next(r for r in calls if len(calls[r]) == most)
                    missing = calls[other][len(calls.get(rank, ()))]
                    raise self.fail(other, missing, f"rank {rank} takes no part in it")
            for number in range(most):
                nodes = [calls[rank][number] for rank in members]
                if number:  # a group's collectives run one after another, as on one CUDA stream
                    for rank, node in zip(members, nodes, strict=True):
                        before = calls[rank][number - 1]
                        self.graph.after[self.begin[rank][node.id]].append(
                            self.end[rank][before.id]
                        )
                self._collective(name, members, nodes)

    def _collective(self, name: str, members: Members, nodes: list[Node]) -> None:
        stated = [
            self._facts(rank, node, members[0]) for rank, node in zip(members, nodes, strict=True)
        ]
        kind, size, root, involved = stated[0]
        if kind == "scatter" and root in members:  # other ranks put nothing in
            size = stated[members.index(root)][1]
            stated = [(k, size if s == 0 else s, r, i) for k, s, r, i in stated]
        for rank, node, facts in zip(members, nodes, stated, strict=True):
            if facts != stated[0]:
                raise self.fail(
                    rank,
                    node,
                    f"is {_spoken(*facts)}, but rank {members[0]} "
                    f"{_label(nodes[0])} is {_spoken(*stated[0])}",
                )
        if root not in members:
            raise self.fail(members[0], nodes[0], f"root {root} is no member of its group")
        enter = [self.begin[rank][node.id] for rank, node in zip(members, nodes, strict=True)]
        what = f"rank {members[0]} {_label(nodes[0])}"
        dimensions = self.reading.dimensions
        if name:  # ASTRA-sim: one ring of its own, or all dimensions for a group of all ranks
            self.passed["involved_dim of named groups"] += len(nodes) * (
                involved is not None and not all(involved)
            )
            involved = None
            if len(members) < len(self.traces):
                dimensions = ()
        elif involved is not None and not all(involved[: len(dimensions) or None]):
            if len(involved) < len(dimensions) or not dimensions:
                raise self.fail(
                    members[0],
                    nodes[0],
                    f"involved_dim has {len(involved)} entries; "
                    "give the sizes of as many dimensions, the first of neighbouring "
                    "ranks: Trace(dims=[…, …])",
                )
        if dimensions:
            chosen = involved if involved is not None else (True,) * len(dimensions)
            if len(chosen) < len(dimensions):
                raise self.fail(
                    members[0],
                    nodes[0],
                    f"involved_dim has {len(chosen)} entries for "
                    f"{len(dimensions)} dimensions of Trace(dims=…)",
                )
            # A rank's place in the dimensions is its number, in whatever order a group lists them.
            places = sorted(range(len(members)), key=members.__getitem__)
            along = over_dimensions(
                self.graph,
                kind,
                [members[place] for place in places],
                size,
                [enter[place] for place in places],
                what,
                root,
                dimensions,
                chosen,
            )
            ends = [along[rank] for rank in members]
        else:
            ends = self.graph.collective(kind, members, size, enter, what, members.index(root))
        for rank, node, end in zip(members, nodes, ends, strict=True):
            self.end[rank][node.id] = end

    def _facts(
        self, rank: int, node: Node, first: int
    ) -> tuple[str, int, int, tuple[bool, ...] | None]:
        number = self._attribute(rank, node, "comm_type", 2**31)
        if number not in COLLECTIVE_KINDS:
            raise self.fail(rank, node, f"unknown collective {number}")
        kind = COLLECTIVE_KINDS[number]
        least = 0 if kind == "barrier" else None
        size = self._attribute(rank, node, "comm_size", _MOST_SIZE, least)
        involved = node.attributes.get("involved_dim", ())
        if not isinstance(involved, tuple):
            raise self.fail(rank, node, "involved_dim is no list of true and false")
        root = self._attribute(rank, node, "root", 2**31, first)
        if kind not in _ROOTED:
            self.passed[f"root of {kind}"] += root != first
            root = first
        return kind, size, root, involved or None


def _host_part(node: Node) -> bool:
    return bool(node.attributes.get("is_cpu_op")) and "comm_type" not in node.attributes


def _spoken(kind: str, size: int, root: int, involved: tuple[bool, ...] | None) -> str:
    dims = "" if involved is None else f" with involved_dim {[int(each) for each in involved]}"
    return f"{kind} of {size} B{f' from root {root}' if kind in _ROOTED else ''}{dims}"


def _label(node: Node) -> str:
    return f'node {node.id} "{printable(node.name[:40])}"' if node.name else f"node {node.id}"
