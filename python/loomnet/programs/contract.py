"""What a compiled switch program says of itself. It is read from the object's bytes: nothing of the
program runs for it. ebpf/switch_program.h writes rows of one form into a section of their own."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

CONTRACT = 1  # LN_CONTRACT_HERE
MOST_ROW = 4096  # bytes of one state row: a page of the kernel's memory
MOST_STATE = 64 << 20  # bytes of all rows of one switch, which the kernel never swaps out
MOST_HEADER = 192  # bytes that the engine keeps of a packet as header
MOST_PAYLOAD = 3500  # of a frame on the live clock
MOST_OPTION = 2**53  # up to which the engine compares exactly

_MAGIC = b"LOOMNET-SWITCH\0\0"
_ROW = struct.Struct("=16s64s128s4q")
_NAME = re.compile("[a-z][a-z0-9_]*")


class Broken(Exception):
    """The object does not keep the contract; the message says how."""


@dataclass(frozen=True)
class Option:
    name: str
    unit: str
    fallback: int
    least: int
    most: int


@dataclass(frozen=True)
class Field:
    """Of a state row; `number`: else raw bytes."""

    name: str
    offset: int
    bytes: int
    number: bool


@dataclass(frozen=True)
class Facts:
    """`counters`: its own, in order. Both builds of a program have the same."""

    summary: str
    counters: tuple[str, ...]
    options: tuple[Option, ...]
    fields: tuple[Field, ...]
    rows: int
    row_bytes: int
    payload_at: int
    payload_bytes: int


def facts_of(data: bytes) -> Facts:
    """Reads a compiled object. Raises Broken."""
    at = data.find(_MAGIC)
    if at < 0:
        raise Broken("includes no <loomnet/switch_program.h>: it must, behind its #define lines")
    rows: dict[str, list[tuple[str, str, tuple[int, ...]]]] = {}
    while at + _ROW.size <= len(data):
        kind, name, text, *numbers = _ROW.unpack_from(data, at)
        if kind.startswith(b"end\0"):
            break
        rows.setdefault(_text(kind), []).append((_text(name), _text(text), tuple(numbers)))
        at += _ROW.size
    else:
        raise Broken("its compiled object is cut short; compile it anew")
    [(_, summary, (written, here, size, _))] = rows[_text(_MAGIC)]
    if written != CONTRACT or here != CONTRACT or size != _ROW.size:
        raise Broken(
            f"is written for contract {written if written != CONTRACT else here} of "
            f"switch programs, and this Loomnet has contract {CONTRACT}: "
            "`loomnet new --switch NAME` writes a program of this contract; change the "
            "file as that one is, and its LN_CONTRACT"
        )
    [(_, _, (payload_at, payload_bytes, *_))] = rows["payload"]
    [(_, _, (count, row_bytes, *_))] = rows["rows"]
    found = Facts(
        summary,
        tuple(name for name, _, _ in rows.get("counter", ())),
        tuple(Option(name, unit, *numbers[:3]) for name, unit, numbers in rows.get("option", ())),
        tuple(
            sorted(
                (
                    Field(name, numbers[0], numbers[1], kind == "number")
                    for kind in ("number", "bytes")
                    for name, _, numbers in rows.get(kind, ())
                ),
                key=lambda each: each.offset,
            )
        ),
        count,
        row_bytes,
        payload_at,
        payload_bytes,
    )
    _check(found)
    return found


def _text(value: bytes) -> str:
    if b"\0" not in value:
        raise Broken(
            f'says "{value[:40].decode(errors="replace")}…", which is longer than '
            f"{len(value) - 1} characters"
        )
    return value.split(b"\0", 1)[0].decode(errors="replace")


def _check(facts: Facts) -> None:
    """Raises Broken for what neither build could run."""
    for what, names in (
        ("LN_COUNTERS", facts.counters),
        ("LN_OPTIONS", tuple(each.name for each in facts.options)),
    ):
        for name in names:
            if not _NAME.fullmatch(name):
                raise Broken(f'{what}: "{name}" is not a name of lower-case letters, digits and _')
            if names.count(name) > 1:
                raise Broken(f'{what}: "{name}" is there twice')
    for option in facts.options:
        if not 0 <= option.least <= option.fallback <= option.most <= MOST_OPTION:
            raise Broken(
                f"LN_OPTIONS: {option.name}: 0 <= least {option.least} <= default "
                f"{option.fallback} <= greatest {option.most} <= 2^53 must hold"
            )
    for field in facts.fields:
        if field.number and field.bytes not in (1, 2, 4, 8):
            raise Broken(
                f"LN_ROW: {field.name} has {field.bytes} bytes, and a FIELD is a number "
                "of 1, 2, 4 or 8; give BYTES for others"
            )
    if facts.row_bytes > MOST_ROW:
        raise Broken(
            f"LN_ROW: a state row has {facts.row_bytes:,} bytes, {MOST_ROW:,} at most; "
            "split it into several rows"
        )
    if (
        facts.rows < 0
        or (facts.row_bytes and facts.rows == 0)
        or facts.rows * facts.row_bytes > MOST_STATE
    ):
        raise Broken(
            f"LN_ROWS: {facts.rows:,} state rows of {facts.row_bytes:,} bytes: a switch "
            f"has 1 row or more, and {MOST_STATE >> 20} MiB of state at most"
        )
    if not 14 <= facts.payload_at <= MOST_HEADER:
        raise Broken(
            f"LN_PAYLOAD_AT: {facts.payload_at} is not from 14, the Ethernet header, to "
            f"{MOST_HEADER}"
        )
    if not 0 <= facts.payload_bytes <= MOST_PAYLOAD:
        raise Broken(f"LN_PAYLOAD_BYTES: {facts.payload_bytes} is not from 0 to {MOST_PAYLOAD:,}")
