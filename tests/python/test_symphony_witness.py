"""The reader of witnesses on captures made by hand: each rule of a witness broken alone, and epochs
whose edges are counted from the engine's start."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from scenario_lib import lib

import loomnet as ln

rings = lib("symphony")

EPOCH = 1 << 17  # ns
STARTED = 5 * EPOCH + 1000  # the engine's start in the file's time; epochs' edges follow from it
STEP = rings.STEP


def block(kind: int, body: bytes) -> bytes:
    length = struct.pack("<I", 12 + len(body))
    return struct.pack("<I", kind) + length + body + length


def option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + value + bytes(-len(value) % 4)


def stamp(ns: int) -> bytes:
    return struct.pack("<II", ns >> 32, ns & 0xFFFFFFFF)


def packet(
    ns: int,
    rank: int,
    prog: int,
    *,
    last: bool = False,
    note: str | None = None,
    ce: bool = False,
    out: bool = True,
) -> bytes:
    ip = struct.pack(">IHBB", 6 << 28 | (3 if ce else 2) << 20, 32, 17, 64) + bytes(32)
    udp = struct.pack(">HHHH", 50_000, 18_771, 32, 0)
    header = struct.pack(">HBBHHHHI", 0x5359, 0x12 if last else 0x10, 0, 7, 1, rank, 8, prog)
    frame = bytes(12) + b"\x86\xdd" + ip + udp + header + bytes(8)
    comment = b"" if note is None else option(1, f"marked by symphony: {note}".encode())
    return block(
        6,
        struct.pack("<I", 0)
        + stamp(STARTED + ns)
        + struct.pack("<II", len(frame), len(frame))
        + frame
        + bytes(-len(frame) % 4)
        + comment
        + option(2, struct.pack("<I", 2 if out else 1))
        + option(0, b""),
    )


def capture(path: Path, *packets: bytes, started: int | None = STARTED) -> Path:
    section = block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))
    interface = block(1, struct.pack("<HHI", 1, 0, 0) + option(0, b""))
    statistics = block(
        5,
        struct.pack("<I", 0)
        + stamp(0)
        + (b"" if started is None else option(2, stamp(started)))
        + option(4, bytes(8))
        + option(0, b""),
    )
    path.write_bytes(section + interface + b"".join(packets) + statistics)
    return path


def note(**other: int) -> str:
    says = {
        "job": 7,
        "ring": 1,
        "rank": 3,
        "prog": 5 * STEP,
        "owner": 2,
        "low": 3 * STEP,
        "gap": 2 * STEP,
        "waiting": 1,
    } | other
    return " ".join(f"{name}={value}" for name, value in says.items())


def seen(tmp_path: Path, *packets: bytes, started: int | None = STARTED) -> rings.SeenMark:
    """The one mark among these packets."""
    [mark] = rings.marks_seen(capture(tmp_path / "made.pcapng", *packets, started=started))
    return mark


def test_a_mark_with_a_witness(tmp_path: Path) -> None:
    first, behind = packet(0, 3, 4 * STEP), packet(2 * EPOCH, 2, 3 * STEP)
    mark = seen(tmp_path, first, behind, packet(3 * EPOCH + 1, 3, 5 * STEP, note=note(), ce=True))
    assert mark.wrong is None and mark.epochs == 3
    assert mark.departure.rank == 3 and mark.departure.ce and not mark.departure.last
    low = 2**32 - STEP  # progress goes on across its wrap
    across = seen(
        tmp_path,
        first,
        packet(2 * EPOCH, 2, low),
        packet(3 * EPOCH + 1, 3, STEP, note=note(prog=STEP, low=low), ce=True),
    )
    assert across.wrong is None


@pytest.mark.parametrize(
    "broken, says",
    [
        ({"ce": False}, "the packet left without CE"),
        ({"says": {"ring": 2}}, "is of another packet"),
        ({"says": {"rank": 4}}, "is of another packet"),
        ({"says": {"job": 8}}, "is of another packet"),
        ({"says": {"prog": 6 * STEP}}, "is of another packet"),
        ({"says": {"waiting": 0}}, "no packet waited"),
        ({"says": {"owner": 5}}, "rank 5 has sent nothing of this ring"),
        (
            {"says": {"owner": 3, "low": 4 * STEP, "gap": STEP}},
            "rank 3 has sent nothing of this ring",
        ),
        ({"says": {"low": 3 * STEP + 1}}, "rank 2 was at 196608, not at 196609"),
        ({"behind": {"last": True}}, "rank 2 had ended its step"),
        ({"behind": {"out": False}}, "rank 2 has sent nothing of this ring"),
        ({"says": {"gap": STEP}}, "it was 131072 ahead of rank 2"),
        (
            {"behind": {"prog": 4 * STEP}, "says": {"low": 4 * STEP, "gap": STEP}},
            "it was 65536 ahead",
        ),
    ],
)
def test_each_rule_of_a_witness(tmp_path: Path, broken: dict[str, Any], says: str) -> None:
    behind = {"prog": 3 * STEP} | broken.get("behind", {})
    found = seen(
        tmp_path,
        packet(0, 3, 4 * STEP),
        packet(2 * EPOCH, 2, **behind),
        packet(
            3 * EPOCH + 1,
            3,
            5 * STEP,
            note=note(**broken.get("says", {})),
            ce=broken.get("ce", True),
        ),
    )
    assert found.wrong is not None and says in found.wrong


def test_epochs_have_their_edges_in_the_engines_clock(tmp_path: Path) -> None:
    """By the packets alone less than two epochs lie between the two: it depends on the edges."""
    first, behind = packet(0, 3, 4 * STEP), packet(2 * EPOCH - 10, 2, 3 * STEP)

    def mark(at: int, started: int = STARTED) -> rings.SeenMark:
        return seen(
            tmp_path, first, behind, packet(at, 3, 5 * STEP, note=note(), ce=True), started=started
        )

    # 1, 2 and 3 edges follow the witness; the switch counts whole ns too, so 1 ns is left open.
    assert mark(3 * EPOCH).wrong is None and mark(3 * EPOCH).epochs == 2
    late = mark(3 * EPOCH + 1)
    assert late.wrong is not None and "rank 2 was silent since" in late.wrong
    assert late.epochs == 3
    # The same packets with the engine's start 20 ns later: the witness is an epoch younger.
    assert mark(3 * EPOCH + 1, STARTED - 20).wrong is None
    assert mark(4 * EPOCH - 19, STARTED - 20).wrong is not None


def test_marks_of_a_capture_that_was_not_ended_are_refused(tmp_path: Path) -> None:
    one = packet(0, 3, 4 * STEP)
    for file in (
        capture(tmp_path / "old.pcapng", one, started=None),
        tmp_path / "broken_off.pcapng",
    ):
        if not file.exists():
            file.write_bytes(capture(tmp_path / "whole.pcapng", one).read_bytes()[:-52])
        assert len(list(rings.departures(file))) == 1
        with pytest.raises(ln.UsageError, match="does not say when the capture started") as refused:
            rings.marks_seen(file)
        assert "\n" not in str(refused.value)
    assert rings.marks_seen(capture(tmp_path / "empty.pcapng")) == []
