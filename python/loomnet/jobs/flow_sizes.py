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
from loomnet.base.reading import read_text
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
            return self.points[0][0]
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
    points: list[tuple[int, float]] = []
    for i, size in enumerate(ordered, 1):
        # Two points a size, so that nothing lies between it and the next.
        points += [(size, (i - 1) / len(ordered)), (size, i / len(ordered))]
    return FlowSizes("list", tuple(points))


def named(text: str) -> FlowSizes | None:
    """A published distribution, or the one in a CSV file; None if the text is neither."""
    if text in _PUBLISHED:
        table = _PUBLISHED[text]
        return FlowSizes(text, tuple((packets * _PACKET, share) for packets, share in table))
    if text.endswith(".csv"):
        return from_csv(Path(text))
    if not text[:1].isdigit():
        raise UsageError(
            f'"{text}" is no size, CSV file or known distribution{did_you_mean(text, _PUBLISHED)}'
        )
    return None


def from_csv(path: Path) -> FlowSizes:
    """Rows of `bytes,share`; a first row without numbers is a heading. Raises UsageError naming the
    row at fault."""
    try:
        rows = list(csv.reader(read_text(path).splitlines()))
    except csv.Error as error:
        raise UsageError(f"{path}: {error}") from None
    points: list[tuple[int, float]] = []
    for number, row in enumerate(rows, 1):
        if not row or row[0].lstrip().startswith("#"):
            continue
        try:
            size, share = int(float(row[0])), float(row[1])
        except (ValueError, IndexError, OverflowError):
            if number == 1 and not any(character.isdigit() for character in "".join(row)):
                continue
            raise UsageError(f"{path}:{number}: a row is bytes,share: 1460,0.5") from None
        last = points[-1] if points else (0, 0.0)
        if not (last[0] <= size <= MOST_BYTES and last[1] <= share <= 1 and size >= 1):
            raise UsageError(f"{path}:{number}: sizes and shares must rise, shares from 0 to 1")
        points.append((size, share))
    if not points or points[-1][1] != 1:
        raise UsageError(f"{path}: the last row's share must be 1")
    return FlowSizes(str(path), tuple(points))
