"""Scores of a control, a policy or a function on a benchmark, beside the baselines that the package
has."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import loomnet._core as _core
from loomnet.base.arguments import checked_call
from loomnet.base.errors import UsageError
from loomnet.base.names import did_you_mean
from loomnet.base.reading import read_bytes
from loomnet.base.table import Table
from loomnet.base.version import version
from loomnet.learning.cc_v1 import CC_V1
from loomnet.learning.grid import Point, Scored, score
from loomnet.learning.scores import Scores
from loomnet.learning.suite import Suite

KEPT = ("score", "utilisation", "contested_jain", "stretch", "loss")
PLACES = 6  # digits behind the point that are kept: sums of floats differ in the last ones
BASELINES = ("cubic", "reno", "bbr", "bbr3", "vegas", "copa", "vivace", "teacher")
FILE = "cc_v1.json"
MOST_POLICY = 1 << 26  # bytes of a file
RESAMPLES = 10_000
SURE = (0.025, 0.975)

Rows = Mapping[Point, Mapping[str, float]]


class Interval(NamedTuple):
    """A mean over points and its 95 % bootstrap interval (Efron, 1979): points are drawn again,
    with repetition, 10,000 times by one fixed seed."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Interval:
        """Raises ValueError for no values."""
        found = np.asarray(values, float)
        if not len(found):
            raise ValueError("Interval: no values")
        which = np.random.default_rng(0).integers(len(found), size=(RESAMPLES, len(found)))
        low, high = np.quantile(found[which].mean(1), SURE)
        return cls(float(found.mean()), float(low), float(high))


@dataclass(frozen=True)
class Evaluation:
    """What one control has on the points of a suite. Printed, it is a table with the baselines.

    Attributes:
        name: of the control.
        rows: by point, the values of KEPT, as Scores has them, rounded to six places.
    """

    name: str
    rows: Rows
    suite: Suite = field(default=CC_V1, repr=False)

    @property
    def whole(self) -> bool:
        """Whether all points are there: else its score is none of the suite's."""
        return set(self.suite.points) <= set(self.rows)

    @property
    def score(self) -> float:
        """The one score: the mean over the points within the ranges."""
        return self.interval.mean

    @property
    def interval(self) -> Interval:
        """The score with its interval. Raises UsageError where no point within the ranges was
        scored."""
        values = self._of(self.suite.scored)
        if not values:
            raise UsageError(
                f"{self.suite.name}: no point within the ranges was scored; give evaluate() one of "
                "Suite.scored"
            )
        return Interval.of(values)

    def part(self, name: str) -> float | None:
        """A mean of scores: of "still" or "changing" links within the ranges, or of those "beyond";
        None where none of them was scored."""
        parts = {
            "still": [each for each in self.suite.scored if not each.changing],
            "changing": [each for each in self.suite.scored if each.changing],
            "beyond": self.suite.beyond,
        }
        if name not in parts:
            raise UsageError(f"Evaluation.part: no part {name!r}; there are {', '.join(parts)}")
        values = self._of(parts[name])
        return float(np.mean(values)) if values else None

    def mean(self, name: str) -> float:
        """Of a value of KEPT, over the points within the ranges."""
        return float(np.mean(self._of(self.suite.scored, name)))

    def against(self, other: str | Evaluation) -> Interval:
        """This score less that of a baseline, or of another evaluation, over the points within the
        ranges that both have. The interval is of the differences, point by point: above 0 all of
        it, this control is better."""
        beside = baseline(other, self.suite) if isinstance(other, str) else other
        both = [each for each in self.suite.scored if each in self.rows and each in beside.rows]
        if not both:
            raise UsageError(f"Evaluation.against: {beside.name} has none of these points")
        return Interval.of([self.rows[p]["score"] - beside.rows[p]["score"] for p in both])

    def table(self) -> Table:
        """This control and the baselines on the same points, the best first."""
        others = [
            Evaluation(
                each.name, {p: each.rows[p] for p in self.rows if p in each.rows}, self.suite
            )
            for each in baselines(self.suite).values()
        ]
        listed = sorted([self, *others], key=lambda each: each.score, reverse=True)
        return Table(COLUMNS, [self._row(each) for each in listed])

    def __str__(self) -> str:
        table = self.table()
        count, beyond = (
            sum(point in self.rows for point in points)
            for points in (self.suite.scored, self.suite.beyond)
        )
        made = f"{count} points within the ranges, {beyond} beyond"
        if not self.whole:
            made += f"; the suite has {len(self.suite.points)}: this is no score of it"
        return f"{self.suite.name}: {made}\n{table!r}"

    def _of(self, points: Sequence[Point], name: str = "score") -> list[float]:
        return [self.rows[each][name] for each in points if each in self.rows]

    def _row(self, each: Evaluation) -> dict[str, str]:
        apart = None if each is self else self.against(each)
        return {
            "control": f"{each.name} *" if each is self else each.name,
            "score": f"{each.score:.3f}",
            "95 %": f"{each.interval.low:.3f} to {each.interval.high:.3f}",
            **{name: _text(each.part(name)) for name in ("still", "changing", "beyond")},
            "use": _text(each.mean("utilisation")),
            "jain": _text(each.mean("contested_jain")),
            "stretch": _text(each.mean("stretch"), 2),
            "loss %": _text(100 * each.mean("loss"), 2),
            "* less it": ""
            if apart is None
            else f"{apart.mean:+.3f} ({apart.low:+.3f} to {apart.high:+.3f})",
        }


COLUMNS = (
    "control",
    "score",
    "95 %",
    "still",
    "changing",
    "beyond",
    "use",
    "jain",
    "stretch",
    "loss %",
    "* less it",
)


@checked_call
def evaluate(
    control: Scored | Path,
    *,
    name: str | None = None,
    options: Mapping[str, Any] | None = None,
    jobs: int | None = None,
    points: Sequence[Point] | None = None,
    suite: Suite = CC_V1,
    watch: Callable[[int, int], None] = lambda done, of: None,
) -> Evaluation:
    """Scores of a control on the points of a suite, where all flows follow it.

        print(evaluate("mine.astp"))

    Args:
        control: the name of a congestion control, or a mapping with its options, as a job's `cc=`;
            "teacher"; a policy, as its file (`*.astp`) or the bytes of it; or a function that gets
            float32[flows, inputs], of the flows that are due, and returns their actions, -1 to 1.
        name: what the table calls it; None: its own name.
        options: of Astraea's control, where it is a policy, the teacher or a function: the
            `Bottleneck.tcp` that it was trained with.
        jobs: processes; None: one for each processor. The scores are the same ones.
        points: of the suite; None: all, without which it is no score of the suite.
        watch: is told after each point how many are done, and of how many.

    Raises UsageError for a control that is none.
    """
    listed = list(suite.points if points is None else points)
    if unknown := [each for each in listed if each not in suite.points]:
        raise UsageError(f"evaluate: points: {unknown[0]} is no point of {suite.name}")
    if not listed:
        raise UsageError("evaluate: points: give one or more, or leave it out")
    asked, own = _control(control)
    processes = len(os.sched_getaffinity(0)) if jobs is None else jobs
    if processes < 1:
        raise UsageError(f"evaluate: jobs: {processes} is not above 0")
    rows: dict[Point, Mapping[str, float]] = {}
    for point, found in score(listed, asked, options, processes):
        rows[point] = kept(found)
        watch(len(rows), len(listed))
    return Evaluation(name or own, {each: rows[each] for each in listed}, suite)


def kept(found: Scores) -> dict[str, float]:
    row = found.row()
    return {name: round(float(row[name] or 0), PLACES) for name in KEPT}


def _control(given: Any) -> tuple[Scored, str]:
    """What score() takes, and its name."""
    if isinstance(given, Path) or (isinstance(given, str) and given.endswith(".astp")):
        given, name = read_bytes(Path(given), MOST_POLICY), Path(given).name
    else:
        name = "policy"
    if isinstance(given, bytes):
        try:
            _core.astraea.Policy.from_bytes(given)
        except ValueError as error:
            raise UsageError(f"evaluate: {name}: {error}") from None
        return given, name
    if isinstance(given, Mapping):
        return given, str(given.get("cc", "control"))
    if isinstance(given, str):
        return given, given
    if callable(given):
        own = getattr(given, "__name__", type(given).__name__)
        return given, "function" if own == "<lambda>" else own
    raise UsageError(
        f"evaluate: a {type(given).__name__} is no control; give the name of one, a policy's file "
        "or bytes, or a function from inputs to actions"
    )


def _text(value: float | None, places: int = 3) -> str:
    return "" if value is None else f"{value:.{places}f}"


# --- baselines ------------------------------------------------------------------------------------
@cache
def _content() -> Mapping[str, Any]:
    return json.loads(resources.files("loomnet.learning").joinpath(FILE).read_text())


def baselines(suite: Suite = CC_V1) -> dict[str, Evaluation]:
    """Those that the package has of the suite, by name: without any where they are of others."""
    content = _content()
    if content["suite"] != suite.name or content["points"] != suite.digest_of_points():
        return {}
    return {
        name: Evaluation(
            name,
            {
                point: {each: columns[each][number] for each in KEPT}
                for number, point in enumerate(suite.points)
            },
            suite,
        )
        for name, columns in content["controls"].items()
    }


def baseline(name: str, suite: Suite = CC_V1) -> Evaluation:
    """Raises UsageError naming those that there are."""
    known = baselines(suite)
    if name not in known:
        raise UsageError(
            f"{suite.name}: no baseline {name!r}{did_you_mean(name, known)}; there are "
            f"{', '.join(known) or 'none'}"
        )
    return known[name]


def baseline_file(found: Sequence[Evaluation], suite: Suite = CC_V1) -> str:
    """The text of the file that baselines() reads, with what made it."""
    controls = {
        each.name: {name: [each.rows[p][name] for p in suite.points] for name in KEPT}
        for each in found
    }
    head = {
        "suite": suite.name,
        "points": suite.digest_of_points(),
        "loomnet": version(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
    lines = [f" {json.dumps(name)}: {json.dumps(value)}," for name, value in head.items()]
    blocks = []
    for name, columns in controls.items():
        rows = ",\n".join(
            f"   {json.dumps(key)}: {json.dumps(row)}" for key, row in columns.items()
        )
        blocks.append(f"  {json.dumps(name)}: {{\n{rows}\n  }}")
    listed = ",\n".join(blocks)
    return "{\n" + "\n".join(lines) + f'\n "controls": {{\n{listed}\n }}\n}}\n'
