"""Recomputes the witness of every extra mark from captures alone: a reader of pcapng files that
knows the step header's layout and the program's tau and epoch, and nothing of the switch.

A mark's witness is another rank of the same ring and incarnation whose latest packet by the same
port came less than `stale` epochs before, was not the last of its step, and was more than `tau`
behind. The publication (Symphony, arXiv 2604.16880) states no such property; it is of our
completion."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from loomnet.base.errors import UsageError

STEP = 1 << 16  # progress is in units of 1/65,536 step
_PORT, _MAGIC = 18771, 0x5359
_OTHER, _LAST = 1, 2
_SECTION, _STATISTICS, _PACKET, _COMMENT, _FLAGS, _STARTED = 0x0A0D0D0A, 5, 6, 1, 2, 2
_OUTBOUND = 2
_MARKED = b"marked by symphony: "
_WORD, _BLOCK, _OPTION = struct.Struct("<I"), struct.Struct("<II"), struct.Struct("<HH")
_EPB = struct.Struct("<IIIII")  # interface, time (high, low), captured, original
_STEP = struct.Struct(">HBBHHHHI")
_IP, _UDP = 14, 14 + 40  # Ethernet, IPv6 without extension headers


class Departure(NamedTuple):
    """A packet of a ring that left the captured port. `note`: what the program says of its mark,
    None for a packet that it has not marked."""

    ns: int
    ce: bool
    last: bool
    gen: int
    job: int
    ring: int
    rank: int
    nranks: int
    prog: int
    note: dict[str, int] | None


@dataclass(frozen=True)
class SeenMark:
    """An extra mark, and what a reader of the capture finds of it. `epochs`: edges of epochs since
    the first packet of this incarnation of the ring left the port; `wrong`: why the mark has no
    witness, None where it has one."""

    departure: Departure
    epochs: int
    wrong: str | None


def departures(capture: str | Path) -> Iterator[Departure]:
    """Packets of rings in their order of departure. Raises UsageError for a file that is no
    capture of a run."""
    return _departures(capture, Path(capture).read_bytes())


def _departures(capture: str | Path, data: bytes) -> Iterator[Departure]:
    at = 0
    try:
        while at < len(data):
            kind, length = _BLOCK.unpack_from(data, at)
            if length < 12 or (at == 0 and kind != _SECTION):
                raise UsageError(f"{capture}: no pcapng block at byte {at}")
            if at + length > len(data):
                raise UsageError(f"{capture}: cut off at byte {at}")
            if kind == _PACKET and (found := _packet(data, at)) is not None:
                yield found
            at += length
    except struct.error:
        raise UsageError(f"{capture}: cut off at byte {at}") from None


def _packet(data: bytes, block: int) -> Departure | None:
    _, high, low, captured, _ = _EPB.unpack_from(data, block + 8)
    frame = block + 28
    if captured < _UDP + 24 or data[frame + _IP + 6] != 17:
        return None
    if int.from_bytes(data[frame + _UDP + 2 : frame + _UDP + 4], "big") != _PORT:
        return None
    magic, kind, gen, job, ring, rank, nranks, prog = _STEP.unpack_from(data, frame + _UDP + 8)
    if magic != _MAGIC or kind & _OTHER:
        return None
    outbound, note = False, None
    at = frame + (captured + 3) // 4 * 4
    while True:
        code, length = _OPTION.unpack_from(data, at)
        if code == 0:
            break
        if code == _FLAGS:
            outbound = data[at + 4] & 3 == _OUTBOUND
            if not outbound:
                return None
        elif code == _COMMENT and data.startswith(_MARKED, at + 4, at + 4 + length):
            words = data[at + 4 + len(_MARKED) : at + 4 + length].decode().split()
            note = {
                name: int(number) for name, _, number in (word.partition("=") for word in words)
            }
        at += 4 + (length + 3) // 4 * 4
    if not outbound:
        return None
    return Departure(
        high << 32 | low,
        data[frame + _IP + 1] >> 4 & 3 == 3,
        bool(kind & _LAST),
        gen,
        job,
        ring,
        rank,
        nranks,
        prog,
        note,
    )


def marks_seen(
    capture: str | Path, *, shift: int = 17, tau: int = STEP, stale: int = 2
) -> list[SeenMark]:
    """Every extra mark in the capture of one port, with its witness looked up among the packets
    before it. `shift`: an epoch is 2^shift ns of the engine's clock. Raises UsageError for a file
    that is no whole capture of a run."""
    data = Path(capture).read_bytes()
    latest: dict[tuple[int, int, int], dict[int, Departure]] = {}
    first: dict[tuple[int, int, int], int] = {}
    found: list[SeenMark] = []
    started: int | None = None
    for each in _departures(capture, data):
        if started is None:
            started = _started(capture, data)
        ring = each.job, each.ring, each.gen
        ranks = latest.setdefault(ring, {})
        begun = first.setdefault(ring, each.ns)
        if each.note is not None:
            found.append(
                SeenMark(
                    each,
                    _edges(begun, each.ns, started, shift),
                    _wrong(each, each.note, ranks, started, shift, tau, stale),
                )
            )
        ranks[each.rank] = each
    return found


def _started(capture: str | Path, data: bytes) -> int:
    """The engine's start in the file's time, which the statistics at the file's end say."""
    at = len(data) - _WORD.unpack_from(data, len(data) - 4)[0]
    if at >= 0 and _BLOCK.unpack_from(data, at)[0] == _STATISTICS:
        option = at + 20
        while (head := _OPTION.unpack_from(data, option))[0]:
            if head[0] == _STARTED:
                high, low = _BLOCK.unpack_from(data, option + 4)
                return high << 32 | low
            option += 4 + (head[1] + 3) // 4 * 4
    raise UsageError(
        f"{capture}: its end does not say when the capture started; the run was "
        f"broken off, or an earlier Loomnet wrote it: run it again"
    )


def _edges(since: int, until: int, started: int, shift: int) -> int:
    """Edges of epochs from one of the file's times to a later one, at least. The file counts whole
    ns from the job's start and the switch from the engine's, so the switch's number is the
    difference or 1 less."""
    return (until - started - 1 >> shift) - (since - started >> shift)


def _wrong(
    marked: Departure,
    note: dict[str, int],
    ranks: dict[int, Departure],
    started: int,
    shift: int,
    tau: int,
    stale: int,
) -> str | None:
    if not marked.ce:
        return "the packet left without CE"
    says = (note["job"], note["ring"], note["rank"], note["prog"])
    if says != (marked.job, marked.ring, marked.rank, marked.prog):
        return f"the note {note} is of another packet"
    if note["waiting"] < 1:
        return "no packet waited"
    witness = ranks.get(note["owner"])
    if witness is None or witness.rank == marked.rank:
        return f"rank {note['owner']} has sent nothing of this ring"
    if witness.prog != note["low"]:
        return f"rank {witness.rank} was at {witness.prog}, not at {note['low']}"
    if witness.last:
        return f"rank {witness.rank} had ended its step"
    if _edges(witness.ns, marked.ns, started, shift) >= stale:
        return f"rank {witness.rank} was silent since {witness.ns} ns"
    ahead = (marked.prog - witness.prog + (1 << 31)) % (1 << 32) - (1 << 31)
    if ahead != note["gap"] or ahead <= tau:
        return f"it was {ahead} ahead of rank {witness.rank}"
    return None
