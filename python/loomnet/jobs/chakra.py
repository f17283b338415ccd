"""MLCommons Chakra execution traces, one file per rank: a stream of length-prefixed protobuf
messages, a GlobalMetadata and then Nodes (github.com/mlcommons/chakra,
schema/protobuf/et_def.proto). Read with a reader of the wire format that knows the fields used
here. What the nodes mean is in chakra_graph."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from loomnet.base.errors import UsageError
from loomnet.base.reading import parse_json, read_bytes, read_text
from loomnet.jobs.task_graph import MOST_TASKS

INVALID, METADATA, LOAD, STORE, COMPUTE, SEND, RECEIVE, COLLECTIVE = range(8)
Value = int | float | str | tuple[bool, ...] | None
_FILE = re.compile(r"(.*)\.([0-9]+)\.et(?:\.gz)?", re.DOTALL)
_MOST_BYTES = 1 << 30  # of one uncompressed file
_PIECE = 1 << 20
_MOST_SIZE = 1 << 50


class WireError(ValueError):
    """Bytes that are no protobuf message."""


@dataclass(slots=True)
class Node:
    """What a trace says of one operation. Times in microseconds; an attribute of a kind that no
    reading uses, such as a list of strings, is None. `inputs`: those of a METADATA node."""

    id: int = 0
    name: str = ""
    type: int = 0
    after: list[int] = field(default_factory=list)  # data dependencies
    control: list[int] = field(default_factory=list)
    duration_us: int = 0
    attributes: dict[str, Value] = field(default_factory=dict)
    inputs: str = ""


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


def _attribute(data: bytes) -> tuple[str, Value]:
    name, found = "", None
    for number, kind, value in _fields(data):
        if number == 1:
            name = _text(kind, value)
        elif number in (3, 5):  # double, float
            if not isinstance(value, bytes) or len(value) != (8 if number == 3 else 4):
                raise WireError("a floating-point number of another wire type")
            found = struct.unpack("<d" if number == 3 else "<f", value)[0]
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
        elif number == 28:  # a BoolList
            if not isinstance(value, bytes):
                raise WireError("a list that is no message")
            found = tuple(
                bool(each)
                for of, kind, values in _fields(value)
                if of == 1
                for each in _numbers(kind, values)
            )
        elif number == 29:
            found = _text(kind, value)
    return name, found


def _inputs(data: bytes) -> str:
    """The values of an IOInfo."""
    for number, kind, value in _fields(data):
        if number == 1:
            return _text(kind, value)
    return ""


def parse_node(data: bytes) -> Node:
    """One Node message. Of an attribute that is there twice the first counts, as for Chakra's
    feeder. Raises WireError, also for a field that the schema does not have: version 0.0.1 has
    other fields, whose numbers would be taken for something else."""
    node, inputs = Node(), b""
    for number, kind, value in _fields(data):
        if number == 1:
            node.id = _integer(kind, value)
        elif number == 2:
            node.name = _text(kind, value)
        elif number == 3:
            node.type = _integer(kind, value)
        elif number in (4, 5):
            after = node.control if number == 4 else node.after
            after += _numbers(kind, value)
            if len(after) > MOST_TASKS:
                raise WireError(f"a node that waits for more than {MOST_TASKS:,} others")
        elif number == 7:
            node.duration_us = _integer(kind, value)
        elif number in (8, 10):
            if kind != 2 or not isinstance(value, bytes):
                raise WireError("inputs or an attribute that are no message")
            if number == 8:
                inputs = value
                continue
            name, found = _attribute(value)
            node.attributes.setdefault(name, found)
        elif number > 11 or (number == 11 and kind != 2):  # 11: what a storage node is about
            raise WireError(
                f"a node with a field {number}, which Chakra's schema from 0.0.4 on does not have"
            )
    if node.type == METADATA:
        node.inputs = _inputs(inputs)
    return node


def read_rank(path: Path) -> list[Node]:
    """The nodes of one rank's file, by number. Raises UsageError naming the file and byte at
    fault."""
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
    return sorted(nodes, key=lambda node: node.id)


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
            raise UsageError(
                f"{path}: group {json.dumps(name)} must be a list of ranks, one or "
                "more, each once: whole numbers from 0"
            )
    return found
