"""Flow-size distributions: the published ones by name, a list of sizes, or a CSV of one's own.

A distribution is a cumulative table, straight lines between its points. The published tables are
those that pFabric made of measured traces, in packets of 1,460 B (Alizadeh et al., "pFabric:
Minimal Near-Optimal Datacenter Transport", SIGCOMM 2013, 5.1): `websearch` from Alizadeh et al.,
"Data Center TCP (DCTCP)", SIGCOMM 2010, figure 4; `datamining` from Greenberg et al., "VL2: A
Scalable and Flexible Data Center Network", SIGCOMM 2009, figure 2."""

from __future__ import annotations

import bisect
import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from loomnet.base.errors import UsageError
from loomnet.base.names import did_you_mean
from loomnet.base.reading import is_file, read_text
from loomnet.base.units import Size

_PACKET = 1460
_PUBLISHED = {
    "websearch": (
        (1, 0.0),
        (6, 0.15),
        (13, 0.2),
        (19, 0.3),
        (33, 0.4),
        (53, 0.53),
        (133, 0.6),
        (667, 0.7),
        (1333, 0.8),
        (3333, 0.9),
        (6667, 0.97),
        (20000, 1.0),
    ),
    "datamining": (
        (1, 0.5),
        (2, 0.6),
        (3, 0.7),
        (7, 0.8),
        (267, 0.9),
        (2107, 0.95),
        (66667, 0.99),
        (666667, 1.0),
    ),
}
MOST_BYTES = 10**15


@dataclass(frozen=True)
class FlowSizes:
    """`points`: (bytes, share of flows of at most this size), both rising, the last share 1."""

    name: str
    points: tuple[tuple[int, float], ...]

    @property
    def mean(self) -> float:
        """Mean size in bytes."""
        total = self.points[0][0] * self.points[0][1]
        for (low, below), (high, share) in zip(self.points, self.points[1:], strict=False):
            total += (share - below) * (low + high) / 2
        return total

    def at(self, share: float) -> int:
        """The size that this share of flows do not exceed; `share` from 0 to 1."""
        shares = [point[1] for point in self.points]
        i = bisect.bisect_left(shares, share)
        if i == 0:
            return max(1, self.points[0][0])
        i = min(i, len(self.points) - 1)
        (low, below), (high, above) = self.points[i - 1], self.points[i]
        if above == below:
            return high
        return max(1, round(low + (high - low) * (share - below) / (above - below)))

    def __str__(self) -> str:
        return self.name


def of_list(sizes: Sequence[Size]) -> FlowSizes:
    """The sizes given, with equal weight."""
    ordered = sorted(size.bytes for size in sizes)
    shares = [(size, i / len(ordered)) for i, size in enumerate(ordered, 1)]
    return FlowSizes("list", _steps(shares))


def named(text: str) -> FlowSizes | None:
    """A published distribution, or the one in a file; None if the text is neither."""
    if text in _PUBLISHED:
        table = _PUBLISHED[text]
        return FlowSizes(text, tuple((packets * _PACKET, share) for packets, share in table))
    if text.endswith((".csv", ".txt")):
        return from_csv(Path(text))
    if not text[:1].isdigit():
        if is_file(text):
            return from_csv(Path(text))
        raise UsageError(
            f'"{text}" is no size, no file, and no known distribution'
            f"{did_you_mean(text, _PUBLISHED)}"
        )
    return None


def from_csv(path: Path) -> FlowSizes:
    """Rows of `bytes,share` or `bytes share`, the last share 1; or with shares in percent, the last
    100, as HPCC's traffic generator has them. A first row of size 0 and share 0 begins the line to
    the first size. A first row without numbers is a heading. A first row of one number is the mean,
    as Homa's simulator has it, which draws the sizes of the rows and none between them. Raises
    UsageError naming the row at fault."""
    try:
        rows = list(csv.reader(read_text(path).removeprefix("\ufeff").splitlines()))
    except csv.Error as error:
        raise UsageError(f"{path}: {error}") from None
    points: list[tuple[int, float]] = []
    percent, mean = False, None
    for number, row in enumerate(rows, 1):
        words = row[0].split() if len(row) == 1 else [word.strip() for word in row]
        while words and not words[-1]:  # a spreadsheet's empty cells
            words.pop()
        if not words or words[0].lstrip().startswith("#"):
            continue
        if len(words) == 1 and not points and mean is None and (mean := _mean(words[0])):
            continue
        try:
            if len(words) != 2:
                raise ValueError
            percent |= words[1].endswith("%")
            size, share = round(float(words[0])), float(words[1].removesuffix("%"))
        except (ValueError, OverflowError):
            if number == 1 and not any(character.isdigit() for character in "".join(row)):
                continue
            raise UsageError(
                f"{path}:{number}: a row is two numbers, bytes,share: 1460,0.5"
            ) from None
        _check_point(f"{path}:{number}", size, share, points)
        points.append((size, share))
    if not points:
        raise UsageError(f"{path}: no row; a row is bytes,share: 1460,0.5")
    last = points[-1][1]
    whole = 100.0 if percent or last > 1 + _ROUNDED else 1.0
    if abs(last / whole - 1) > _ROUNDED:
        raise UsageError(f"{path}: the last row's share is {last}; it must be 1, or 100 in percent")
    # Of shares that add up, the last one is often not quite the whole.
    shares = [*(min(share / whole, 1.0) for _, share in points[:-1]), 1.0]
    found = FlowSizes(str(path), tuple(zip((size for size, _ in points), shares, strict=True)))
    return found if mean is None else _of_homa(path, found, mean)


def _of_homa(path: Path, table: FlowSizes, mean: float) -> FlowSizes:
    """The sizes of the rows and none between them, whose mean is stated. Raises UsageError."""
    if path.name.startswith(_IN_PACKETS):
        raise UsageError(
            f"{path}: its sizes are packets, as of all files of Homa's simulator of "
            'this name; give "websearch", or a table in bytes under another name'
        )
    found = FlowSizes(table.name, _steps(table.points))
    if abs(found.mean / mean - 1) > _STATED:
        raise UsageError(
            f"{path}: its first row is one number, {mean:g}, and so the mean of the "
            f"sizes, as in Homa's simulator; but that is {found.mean:.6g}; a row is "
            "two numbers, bytes,share: 1460,0.5"
        )
    return found


def _mean(word: str) -> float | None:
    """The number of a row that has one; None for any other word."""
    try:
        value = float(word)
    except ValueError:
        return None
    return value if 0 < value <= MOST_BYTES else None


def _steps(points: Sequence[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    """Two points a size, so that nothing lies between it and the next."""
    found: list[tuple[int, float]] = []
    below = 0.0
    for size, share in points:
        found += [(size, below), (size, share)]
        below = share
    return tuple(found)


_ROUNDED = 1e-6
_STATED = 0.01  # by which the mean that Homa's files state may be off: of all of them 0.002
_IN_PACKETS = "DCTCP"


def _check_point(where: str, size: int, share: float, points: Sequence[tuple[int, float]]) -> None:
    """Raises UsageError for a point that cannot follow these."""
    if not 0 <= size <= MOST_BYTES or (size == 0 and (points or share != 0)):
        zero = ", and 0 with share 0 in the first row alone" if size == 0 else ""
        raise UsageError(f"{where}: a size is 1 B to 10^15 B{zero}, not {size}")
    if not 0 <= share <= 100 + _ROUNDED:
        raise UsageError(f"{where}: a share is 0 to 1, or to 100 in percent, not {share}")
    for what, new, old in (
        ("size", size, points[-1][0] if points else 0),
        ("share", share, points[-1][1] if points else 0),
    ):
        if new < old:
            raise UsageError(
                f"{where}: {what} {new} is below {old}, that of the row before; "
                "sizes and shares never fall"
            )
