"""What MixNet's publication can be read to mean, where it and its authors' public simulator say
different things, and tables of what each reading gives."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

# The time to reconfigure. The publication has 25 ms; the page of the authors' simulator has 25
# microseconds in its text and milliseconds in a table. Each layer waits, or an iteration once.
DELAYS: dict[str, dict[str, Any]] = {
    "": {},
    "-25us": {"profile": "25 us"},
    "-iteration": {"name": "iteration"},
}
DELAY_TEXT = {
    "": "25 ms in every layer",
    "-25us": "25 us in every layer",
    "-iteration": "25 ms once in an iteration",
}
SPLITS = {"": "all_or_nothing", "-weighted": "weighted"}
# Which servers circuits join: by both directions together and ties by number, as we first read the
# publication, or by the busier direction and ties to free ports, as CircuitControl does by itself.
ASSIGNMENTS: dict[str, dict[str, str]] = {"": {}, "-max": {"demand": "max", "ties": "free"}}


@dataclass(frozen=True)
class Reading:
    """One of each, by its suffix. `name` is that of a figure, after the bar's."""

    delay: str
    split: str
    assignment: str

    @property
    def name(self) -> str:
        return self.delay + self.split + self.assignment

    @property
    def graded(self) -> bool:
        """Whether its bars are checks: those in the conditions of the publication's simulator."""
        return not self.split and not self.assignment

    def text(self) -> str:
        return (
            f"{DELAY_TEXT[self.delay]}, {SPLITS[self.split]}, "
            f"{'demand max, ties free' if self.assignment else 'demand sum, ties index'}"
        )

    def compared(self) -> dict[str, Any]:
        """Arguments of compared() beside the model, the rate and so on. Circuits for a whole
        iteration are those for the one before, so its second one is looked at."""
        given = {"name": "mixnet", "profile": "sim25", "iterations": 1} | DELAYS[self.delay]
        if given["name"] == "iteration":
            given["iterations"] = 2
        return given | {"control": {"split": SPLITS[self.split]} | ASSIGNMENTS[self.assignment]}


def readings() -> Iterator[Reading]:
    for delay, split, assignment in itertools.product(DELAYS, SPLITS, ASSIGNMENTS):
        yield Reading(delay, split, assignment)


def near(
    ours: Mapping[str, float], published: Mapping[str, float], tolerance: float
) -> tuple[int, float]:
    """Of points: how many ratios are within the tolerance of the published ones, and the mean
    deviation, as a ratio."""
    apart = [abs(ours[name] / published[name] - 1) for name in ours]
    return sum(each <= tolerance for each in apart), statistics.mean(apart)


def agreement_table(
    found: Mapping[str, Mapping[Reading, Mapping[str, float]]],
    published: Mapping[str, float],
    tolerance: float,
) -> str:
    """A line for each reading; for each count of bytes how many of its points are near what is
    published, and how far they are apart on average. `found`: by count, reading and point."""
    counts = list(found)
    lines = [
        f"MixNet's iteration time to the fat-tree's: points within {tolerance:.0%} of what is "
        "published, mean deviation",
        f"{'reading':<74}" + "".join(f"{count:>18}" for count in counts),
    ]
    for reading in found[counts[0]]:
        cells = []
        for count in counts:
            good, apart = near(found[count][reading], published, tolerance)
            cells.append(f"{good:>3} of {len(found[count][reading]):<2} {apart:>7.1%}")
        lines.append(f"{reading.text():<74}" + "".join(f"{cell:>18}" for cell in cells))
    return "\n".join(lines)


def ratio_table(
    found: Mapping[Reading, Mapping[str, float]],
    points: Iterable[Any],
    published: Mapping[str, float],
) -> str:
    """A line for each model: the ratios at its rates, published and by each reading."""
    lines = []
    for model, group in itertools.groupby(points, key=lambda point: point.model):
        own = list(group)
        lines.append(f"{model}, at {' / '.join(point.rate for point in own)}")
        rows = [("published", published), *((each.text(), found[each]) for each in found)]
        lines += [
            f"  {text:<74}"
            + " / ".join(f"{row[point.name]:.3f}" for point in own if point.name in row)
            for text, row in rows
        ]
    return "\n".join(lines)
