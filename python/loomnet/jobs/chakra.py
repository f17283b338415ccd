"""MLCommons Chakra execution traces, one file per rank: a stream of length-prefixed protobuf
messages, a GlobalMetadata and then Nodes (github.com/mlcommons/chakra,
schema/protobuf/et_def.proto). Read with a reader of the wire format that knows the fields used here
and passes over all others."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from loomnet.base.errors import UsageError
from loomnet.base.reading import parse_json, read_bytes, read_text
from loomnet.jobs.task_graph import COLLECTIVE_KINDS, MOST_TASKS, Task, TaskGraph, acked

METADATA, LOAD, STORE, COMPUTE, SEND, RECEIVE, COLLECTIVE, STORAGE, BATCH, CHECKPOINT = range(1, 11)
_WORK = (LOAD, STORE, COMPUTE, STORAGE, BATCH, CHECKPOINT)
_FILE = re.compile(r"(.*)\.([0-9]+)\.et(?:\.gz)?", re.DOTALL)
_MOST_BYTES = 1 << 30  # of one uncompressed file
_PIECE = 1 << 20
_MOST_SIZE = 1 << 50


class WireError(ValueError):
    """Bytes that are no protobuf message."""


@dataclass(slots=True)
class Node:
    """What a trace says of one operation. Times in microseconds."""

    id: int = 0
    name: str = ""
    type: int = 0
    after: list[int] = field(default_factory=list)
    duration_us: int = 0
    attributes: dict[str, int | float | str] = field(default_factory=dict)


# --- the wire format (protobuf.dev, "Encoding") ---------------------------------------------------
def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise WireError("a number that does not end")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (1 << 64) - 1, at
        shift += 7


def _fields(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """(field number, wire type, value) of a message; fixed-width values as bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if number == 0:
            raise WireError("field number 0")
        if kind == 0:
            value, at = _varint(data, at)
            yield number, kind, value
            continue
        if kind == 2:
            size, at = _varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise WireError(f"wire type {kind}")
        if size > len(data) - at:
            raise WireError("a field longer than its message")
        yield number, kind, data[at : at + size]
        at += size


def _numbers(kind: int, value: int | bytes) -> list[int]:
    """A repeated integer: packed or one by one."""
    if kind == 0 and isinstance(value, int):
        return [value]
    if kind != 2 or not isinstance(value, bytes):
        raise WireError("an integer of another wire type")
    found, at = [], 0
    while at < len(value):
        number, at = _varint(value, at)
        found.append(number)
    return found


def _text(kind: int, value: int | bytes) -> str:
    if kind != 2 or not isinstance(value, bytes):
        raise WireError("a string of another wire type")
    return value.decode("utf-8", errors="replace")


def _integer(kind: int, value: int | bytes) -> int:
    if kind != 0 or not isinstance(value, int):
        raise WireError("an integer of another wire type")
    return value


def _attribute(data: bytes) -> tuple[str, int | float | str | None]:
    """Name and value; lists, bytes and floating point are passed over."""
    name, found = "", None
    for number, kind, value in _fields(data):
        if number == 1:
            name = _text(kind, value)
        elif number in (7, 9):  # int32, int64: two's complement in 64 bits
            integer = _integer(kind, value)
            found = integer - (1 << 64) if integer >> 63 else integer
        elif number in (11, 13, 27):  # uint32, uint64, bool
            found = _integer(kind, value)
        elif number in (15, 17):  # sint32, sint64: zigzag
            integer = _integer(kind, value)
            found = integer >> 1 ^ -(integer & 1)
        elif number in (19, 21, 23, 25) and isinstance(value, bytes):
            found = int.from_bytes(value, "little", signed=number > 22)
        elif number == 29:
            found = _text(kind, value)
    return name, found


def parse_node(data: bytes) -> Node:
    """One Node message. Raises WireError."""
    node = Node()
    for number, kind, value in _fields(data):
        if number == 1:
            node.id = _integer(kind, value)
        elif number == 2:
            node.name = _text(kind, value)
        elif number == 3:
            node.type = _integer(kind, value)
        elif number in (4, 5):
            node.after += _numbers(kind, value)
            if len(node.after) > MOST_TASKS:
                raise WireError(f"a node that waits for more than {MOST_TASKS:,} others")
        elif number == 7:
            node.duration_us = _integer(kind, value)
        elif number == 10:
            if kind != 2 or not isinstance(value, bytes):
                raise WireError("an attribute that is no message")
            name, found = _attribute(value)
            if found is not None:
                node.attributes[name] = found
    return node


def read_rank(path: Path) -> list[Node]:
    """The nodes of one rank's file. Raises UsageError naming the file and byte at fault."""
    data = read_bytes(path, _MOST_BYTES)
    if data[:2] == b"\x1f\x8b":
        data = _unpacked(path, data)
    nodes: list[Node] = []
    known: set[int] = set()
    at, first = 0, True
    while at < len(data):
        begin = at
        try:
            size, at = _varint(data, at)
            if size > len(data) - at:
                raise WireError("a message longer than the file")
            if not first:  # the first message is the GlobalMetadata
                node = parse_node(data[at : at + size])
                if node.id in known:  # at once: a file of zeros is a million empty nodes
                    raise UsageError(f"{path}: node {node.id} is there twice")
                known.add(node.id)
                nodes.append(node)
                if len(nodes) > MOST_TASKS:
                    raise UsageError(f"{path}: more than {MOST_TASKS:,} nodes")
            else:
                for _ in _fields(data[at : at + size]):
                    pass
        except WireError as error:
            raise UsageError(f"{path}: byte {begin}: {error}; is this a Chakra trace?") from None
        at, first = at + size, False
    if first:
        raise UsageError(f"{path}: empty; a Chakra trace begins with its metadata")
    return nodes


def _unpacked(path: Path, packed: bytes) -> bytes:
    """A gzip file's content, piece by piece: the size that the file states is not trusted."""
    found = bytearray()
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(packed)) as stream:
            while piece := stream.read(_PIECE):
                found += piece
                if len(found) > _MOST_BYTES:
                    raise UsageError(f"{path}: more than {_MOST_BYTES >> 30} GiB uncompressed")
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"{path}: {error}") from None
    return bytes(found)


# --- the files ------------------------------------------------------------------------------------
def rank_files(path: Path) -> list[Path]:
    """`<prefix>.<rank>.et` for ranks 0, 1, …, from their folder, one of them, or the prefix. Raises
    UsageError for a missing rank."""
    if os.path.isdir(path):
        folder, prefix = path, None
    else:
        folder, match = path.parent, _FILE.fullmatch(path.name)
        prefix = match.group(1) if match else path.name
    found: dict[str, dict[int, Path]] = {}
    for each in sorted(folder.glob("*.et*")) if os.path.isdir(folder) else []:
        if (match := _FILE.fullmatch(each.name)) and prefix in (None, match.group(1)):
            found.setdefault(match.group(1), {})[int(match.group(2))] = each
    if not found:
        raise UsageError(f"{path}: no trace files named <prefix>.<rank>.et")
    if len(found) > 1:
        raise UsageError(f"{path}: several traces ({', '.join(sorted(found))}); name one prefix")
    ((name, files),) = found.items()
    for rank in range(max(files) + 1):
        if rank not in files:
            raise UsageError(f"{path}: rank {rank} is missing: no file {name}.{rank}.et")
    return [files[rank] for rank in range(len(files))]


def read_groups(path: Path) -> dict[str, list[int]]:
    """Communicator groups: {"name": [ranks], …}. Raises UsageError."""
    found = parse_json(read_text(path), str(path))
    if not isinstance(found, dict):
        raise UsageError(f'{path}: communicator groups are {{"name": [0, 1, …], …}}')
    for name, ranks in found.items():
        whole = isinstance(ranks, list) and all(type(rank) is int and rank >= 0 for rank in ranks)
        if not whole or not ranks or len(set(ranks)) != len(ranks):
            raise UsageError(f"{path}: group {json.dumps(name)} must be a list of different ranks")
    return found


# --- the graph ------------------------------------------------------------------------------------
def read_graph(path: Path, groups: Path | None = None) -> TaskGraph:
    """The whole trace as transfers and delays. Every COMM_SEND meets the COMM_RECV of its source,
    destination and tag, and every COMM_COLL that of its group's other ranks, in the order of the
    files; operations of one rank that take time and no network run one after another. A node
    without `pg_name` belongs to all ranks. Raises UsageError naming the rank and node at fault."""
    files = rank_files(path)
    traces = [read_rank(file) for file in files]
    members = read_groups(groups) if groups is not None else {}
    for name, ranks in members.items():
        for rank in ranks:
            if rank >= len(files):
                raise UsageError(f"{groups}: group {json.dumps(name)}: rank {rank} is missing from "
                                 "the trace")
    return _Builder(str(path), traces, members).build()


class _Builder:
    def __init__(self, name: str, traces: list[list[Node]], groups: dict[str, list[int]]) -> None:
        self.graph, self.traces, self.groups = TaskGraph(name, len(traces)), traces, groups
        # Per rank: node id -> task that begins it, task that ends it.
        self.begin: list[dict[int, int]] = []
        self.end: list[dict[int, int]] = []

    def fail(self, rank: int, node: Node, text: str) -> UsageError:
        return UsageError(f"{self.graph.name}: rank {rank} {_label(node)}: {text}")

    def build(self) -> TaskGraph:
        graph = self.graph
        for rank, nodes in enumerate(self.traces):
            begin: dict[int, int] = {}
            end: dict[int, int] = {}
            for node in nodes:
                what = f"rank {rank} {_label(node)}"
                if node.type in _WORK:
                    if node.duration_us > 10**12:
                        raise self.fail(rank, node, f"takes {node.duration_us} us")
                    task = Task(duration_ps=node.duration_us * 10**6, lane=rank + 1, what=what,
                                rank=rank)
                    begin[node.id] = end[node.id] = graph.add(task)
                elif node.type in (METADATA, SEND, RECEIVE, COLLECTIVE):
                    begin[node.id] = graph.join(what=what, rank=rank)
                    end[node.id] = begin[node.id] if node.type == METADATA else -1
                else:
                    raise self.fail(rank, node, f"unknown node type {node.type}")
            self.begin.append(begin)
            self.end.append(end)
        self._messages()
        self._collectives()
        for rank, nodes in enumerate(self.traces):
            for node in nodes:
                for other in node.after:
                    if other not in self.end[rank]:
                        raise self.fail(rank, node, f"waits for node {other}, which is not there")
                    graph.after[self.begin[rank][node.id]].append(self.end[rank][other])
        return graph.check()

    def _attribute(
        self, rank: int, node: Node, name: str, most: int, default: int | None = None
    ) -> int:
        value = node.attributes.get(name, default)
        if value is None:
            raise self.fail(rank, node, f"has no {name}")
        if not isinstance(value, int) or not 0 <= value <= most:
            raise self.fail(rank, node, f"{name} {value} is not a number from 0 to {most}")
        return value

    def _messages(self) -> None:
        waiting: dict[tuple[int, int, int, int], list[tuple[int, Node]]] = {}
        for rank, nodes in enumerate(self.traces):
            for node in nodes:
                if node.type not in (SEND, RECEIVE):
                    continue
                ranks = len(self.traces) - 1
                if node.type == SEND:
                    ends = rank, self._attribute(rank, node, "comm_dst", 2**31)
                else:
                    ends = self._attribute(rank, node, "comm_src", 2**31), rank
                if max(ends) > ranks:
                    raise self.fail(rank, node, f"rank {max(ends)} is missing from the trace")
                if ends[0] == ends[1]:
                    raise self.fail(rank, node, "sends to itself")
                tag = self._attribute(rank, node, "comm_tag", 2**63, 0)
                waiting.setdefault((*ends, tag, node.type), []).append((rank, node))
        for (source, destination, tag, kind), nodes in waiting.items():
            other = waiting.get((source, destination, tag, SEND + RECEIVE - kind), [])
            if len(nodes) > len(other):
                rank, node = nodes[len(other)]
                raise self.fail(
                    rank,
                    node,
                    f"no rank {destination if kind == SEND else source} "
                    f"{'receives' if kind == SEND else 'sends'} it (tag {tag})",
                )
            if kind != SEND:
                continue
            for (rank, node), (_, receive) in zip(nodes, other, strict=True):
                size = self._attribute(rank, node, "comm_size", _MOST_SIZE)
                # An RDMA write goes when both ends are ready: the receiver must have posted.
                task = self.graph.send(
                    source,
                    destination,
                    size,
                    [self.begin[source][node.id], self.begin[destination][receive.id]],
                    f"rank {rank} {_label(node)}",
                )
                self.end[source][node.id] = acked(task)
                self.end[destination][receive.id] = task

    def _collectives(self) -> None:
        by_group: dict[str, dict[int, list[Node]]] = {}
        for rank, nodes in enumerate(self.traces):
            for node in nodes:
                if node.type == COLLECTIVE:
                    group = str(node.attributes.get("pg_name", ""))
                    by_group.setdefault(group, {}).setdefault(rank, []).append(node)
        for group, calls in by_group.items():
            if group and group not in self.groups:
                rank, nodes = next(iter(calls.items()))
                raise self.fail(
                    rank,
                    nodes[0],
                    f'unknown communicator group "{group}"; give '
                    "Trace(groups=…) a JSON file that names it",
                )
            members = self.groups[group] if group else list(range(len(self.traces)))
            for rank, nodes in calls.items():
                if rank not in members:
                    raise self.fail(rank, nodes[0], f'is no member of group "{group}"')
            most = max(len(nodes) for nodes in calls.values())
            for rank in members:
                if len(calls.get(rank, ())) < most:
                    other = next(r for r in calls if len(calls[r]) == most)
                    missing = calls[other][len(calls.get(rank, ()))]
                    raise self.fail(other, missing, f"rank {rank} takes no part in it")
            for number in range(most):
                self._collective(members, [calls[rank][number] for rank in members])

    def _collective(self, members: list[int], nodes: list[Node]) -> None:
        facts = []
        for rank, node in zip(members, nodes, strict=True):
            kind = self._attribute(rank, node, "comm_type", 2**31)
            if kind not in COLLECTIVE_KINDS:
                raise self.fail(rank, node, f"unknown collective {kind}")
            barrier = COLLECTIVE_KINDS[kind] == "barrier"
            size = self._attribute(rank, node, "comm_size", _MOST_SIZE, 0 if barrier else None)
            facts.append((kind, size, self._attribute(rank, node, "root", 2**31, members[0])))
            if facts[-1] != facts[0]:
                raise self.fail(
                    rank,
                    node,
                    f"is {COLLECTIVE_KINDS[kind]} of {size} B, but rank "
                    f"{members[0]} {_label(nodes[0])} is "
                    f"{COLLECTIVE_KINDS[facts[0][0]]} of {facts[0][1]} B",
                )
        kind, size, root = facts[0]
        if root not in members:
            raise self.fail(members[0], nodes[0], f"root {root} is no member of its group")
        enter = [self.begin[rank][node.id] for rank, node in zip(members, nodes, strict=True)]
        ends = self.graph.collective(
            COLLECTIVE_KINDS[kind],
            members,
            size,
            enter,
            f"rank {members[0]} {_label(nodes[0])}",
            members.index(root),
        )
        for rank, node, end in zip(members, nodes, ends, strict=True):
            self.end[rank][node.id] = end


def _label(node: Node) -> str:
    return f'node {node.id} "{node.name[:40]}"' if node.name else f"node {node.id}"
