"""Two results side by side: what changed, and whether it became worse."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from loomnet.base.arguments import checked_call
from loomnet.base.errors import EXIT_CHECK_FAILED, EXIT_FIDELITY, EXIT_OK, UsageError
from loomnet.base.names import how_many
from loomnet.base.notebook import image_html
from loomnet.base.number_text import number_text
from loomnet.base.table import Table
from loomnet.results.sides import (
    Figure,
    Side,
    side_of,
    told_apart,
    with_fabrics,
    with_no_timeouts,
    without_labels,
)
from loomnet.results.tolerance import Tolerance, tolerance

# Which way is worse, by a figure's own name; where the name says nothing, its unit may.
# By how the name begins: `goodput_ratio`, `slowdown_p99`.
LOWER_IS_WORSE = (
    "goodput",
    "algbw",
    "busbw",
    "throughput",
    "expected_capacity",
    "accuracy",
    "fairness",
)
HIGHER_IS_WORSE = (
    "lost",
    "retransmitted",
    "timeouts",
    "errors",
    "final_loss",
    "drop",
    "wrong",
    "trimmed",
    "slowdown",
    "fct",
    "unfinished",
    "iteration_slowdown",
    "slowest_slowdown",
)
RATES = frozenset(("b/s", "Kb/s", "Mb/s", "Gb/s", "B/s", "MB/s", "GB/s"))
TIMES = frozenset(("s", "ms", "us", "ns", "ps"))
Direction = Literal["lower", "higher", "any"]  # which change is a regression
Verdict = Literal[
    "same", "better", "worse", "changed", "missing", "new", "unsure", "unmeasured", "apart"
]
IN_WORDS: dict[Verdict, str] = {"unmeasured": "not measured", "apart": "not comparable"}
REGRESSIONS: tuple[Verdict, ...] = ("worse", "missing")
# How often packets are repeated and paths come back says how a transport works: MRC cuts and
# repeats single packets where RoCE stands still and repeats none.
OF_ITS_TRANSPORT = ("retransmitted", "timeouts", "readmitted", "trimmed")
OTHER_TRANSPORT = "the two runs have different transports, which repeat packets in their own ways"
# Reasons of nulls that are results: there was no recovery, or the job was broken off. A figure that
# is null for any other reason was not measured, which is neither better nor worse.
NEVER = re.compile(r"never |the (run|job) (failed|stalled)\b")
# Without rel=: changes below these are none. Live runs of one scenario differ by a few percent.
REL_VIRTUAL, REL_LIVE = 0.01, 0.05
MOST_PERCENT = 9.0  # of a change that is told in percent
LONGEST_HEAD = 16  # characters; longer names of results stand above a table, as A and B


def worse(name: str, unit: str | None) -> Direction:
    """Which change of a figure is a regression: of goodput a lower value, of times, silences and
    losses a higher one, of anything unknown every difference."""
    last = re.sub(r" \(\d+\)$", "", name).rpartition(".")[2]  # without what numbered() adds
    if last.startswith(LOWER_IS_WORSE) or unit in RATES:
        return "lower"
    if last.startswith(HIGHER_IS_WORSE) or last.endswith("_s") or unit in TIMES:
        return "higher"
    return "any"


@dataclass(frozen=True)
class Difference:
    """One figure in both results. `change`: (b - a) / |a|; None where that says nothing, as of a
    check, which holds or does not."""

    name: str
    unit: str | None
    a: float | None
    b: float | None
    verdict: Verdict
    reason: str | None = None
    is_check: bool = False

    @property
    def change(self) -> float | None:
        if self.a is None or self.b is None or not self.a or self.is_check:
            return None
        return (self.b - self.a) / math.fabs(self.a)

    def row(self, a: str, b: str) -> dict[str, Any]:
        change = None if self.change is None else change_text(self.change)
        note = None if self.verdict == "same" else IN_WORDS.get(self.verdict, self.verdict)
        return {
            "number": self.name,
            a: number_text(self.a, self.unit),
            b: number_text(self.b, self.unit),
            "change": change,
            "verdict": note,
            "reason": self.reason,
        }


def change_text(change: float) -> str:
    """ "+3.2%"; above tenfold as a factor, "x 12.5" or "x 38,600"."""
    if change < MOST_PERCENT:
        return f"{change:+.1%}"
    factor = f"{1 + change:.3g}"  # from 999.5 on with an exponent
    return f"x {float(factor):,.0f}" if "e" in factor and change < 1e9 else f"x {factor}"


class Comparison:
    """Iterates as Differences; shows itself as a table, in a notebook with a figure."""

    def __init__(self, a: Side, b: Side, rows: list[Difference], rel: Tolerance) -> None:
        self.a, self.b, self.rel, self._rows = a, b, rel, rows

    def __iter__(self) -> Iterator[Difference]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def regressions(self) -> list[Difference]:
        """Figures that became worse by more than `rel`, or are gone. What one of the two did not
        measure is none."""
        return [row for row in self._rows if row.verdict in REGRESSIONS]

    @property
    def unjudged(self) -> list[Difference]:
        """Figures that changed by more than `rel` where neither direction is known to be worse."""
        return [row for row in self._rows if row.verdict == "changed"]

    @property
    def ok(self) -> bool:
        """Whether nothing is worse, gone or changed."""
        return self.exit_code == EXIT_OK

    @property
    def behind(self) -> list[str]:
        """Why one of the two is no result to be compared with."""
        return [f"{side.name}: {line}" for side in (self.a, self.b) for line in side.behind]

    @property
    def exit_code(self) -> int:
        """3 where one of the two is no result, 1 on a regression, and where a figure has changed of
        which nobody knows which way is worse, 0."""
        if self.behind:
            return EXIT_FIDELITY
        return EXIT_CHECK_FAILED if self.regressions or self.unjudged else EXIT_OK

    @property
    def heads(self) -> tuple[str, str]:
        """What the results' columns are called: their names, or A and B where those are long."""
        names = (self.a.name, self.b.name)
        return names if max(map(len, names)) <= LONGEST_HEAD else ("A", "B")

    def setups(self, heads: tuple[str, str] | None = None) -> list[str]:
        """What the two runs do not have in common: scenario, clock, seed, parameters; `heads`: what
        the two are called."""
        a, b = self.a.facts, self.b.facts
        if not (a and b):
            return []
        here, there = heads or self.heads
        named = "" if heads else self.a.name
        return [
            f"{name}: {_fact(a, name)} in {here}, {_fact(b, name)} in {there}"
            for name in dict.fromkeys((*a, *b))
            if a.get(name, _fact) != b.get(name, _fact) and f"{name}=" not in named
        ]  # which says it

    @property
    def table(self) -> Table:
        """figure, the two values under the results' names (or A and B), change, verdict, reason;
        without figures that neither has measured."""
        return self._table(self._measured)

    @property
    def changes(self) -> Table:
        """The same rows without those that are equal in both."""
        return self._table([row for row in self._measured if row.verdict != "same"])

    @property
    def _measured(self) -> list[Difference]:
        return [row for row in self._rows if row.a is not None or row.b is not None]

    def _table(self, rows: list[Difference]) -> Table:
        heads = self.heads
        return Table(
            ("number", *heads, "change", "verdict", "reason"),
            [row.row(*heads) for row in rows],
            "nothing differs",
        )

    @property
    def summary(self) -> str:
        """One line: how many numbers, how many regressions, beyond which tolerance."""
        count, measured = len(self.regressions), self._measured
        text = f"{how_many(len(measured), 'number')}, {how_many(count, 'regression')}"
        text += f" beyond {self.rel}"
        if self.unjudged:
            text += f"; {len(self.unjudged)} changed, and which way is worse is not known"
        unmeasured = sum(row.verdict == "unmeasured" for row in self._rows)
        if unmeasured:
            text += f"; {unmeasured} not measured in one of the two"
        neither = len(self) - len(measured)
        return f"{text}; {neither} measured in neither" if neither else text

    @property
    def lines(self) -> list[str]:
        """The lines above the table: which result is A and which B, and what the runs differ in."""
        named = (
            []
            if self.heads == (self.a.name, self.b.name)
            else [f"A: {self.a.name}", f"B: {self.b.name}"]
        )
        return named + [f"note: the runs differ: {line}" for line in self.setups()]

    def figure(self) -> Any:
        """A matplotlib Figure: of flows the distributions of their slowdowns, of other jobs goodput
        over time, of both where they are at hand; else the relative change of every figure that
        both have. None where there is nothing to draw."""
        from loomnet.results.distributions import distribution_figure
        from loomnet.results.plots import change_figure, goodput_figure

        runs = {
            " ".join(filter(None, (side.name, label))): result
            for side in (self.a, self.b)
            for label, result in side.results.items()
        }
        if runs and len(runs) <= 8:
            flows = all(part.flow_records for result in runs.values() for part in result.parts)
            return distribution_figure(runs, "slowdown") if flows else goodput_figure(runs)
        changes = [(row.name, row.change, row.verdict) for row in self if row.change]
        return change_figure(changes, *self.heads) if changes else None

    def __repr__(self) -> str:
        return "\n".join((*self.lines, repr(self.table), self.summary))

    def _repr_html_(self) -> str:
        figure = self.figure()
        picture = "" if figure is None else image_html(figure, "comparison")
        above = "".join(f"<p>{html.escape(line)}</p>" for line in self.lines)
        return f"{above}{self.table._repr_html_()}<p>{html.escape(self.summary)}</p>{picture}"


def _fact(facts: Mapping[str, Any], name: str) -> str:
    return str(facts[name]) if name in facts else "not given"


@checked_call
def compare(a: Any, b: Any, *, rel: float | Mapping[str, float] | None = None) -> Comparison:
    """Compares two results: what ln.run or lab.run returned, reports, or run directories and their
    report.json. `a` is the one to compare with; a change up to `rel` times |a| is none.

    `rel`: one share, or shares by figure, as {"*": 0.01, "blip_s": 0.15}: a name, the end of a
    dotted name or a glob; of several that fit a figure the last holds. None: 1 %, and 5 % where one
    of the two ran live. Raises UsageError where a result cannot be read, or where the two have no
    number in common.
    """
    allowed = None if rel is None else tolerance("compare: rel", rel)
    left, right = told_apart(*with_fabrics(side_of(a, "a"), side_of(b, "b")))
    if allowed is None:
        allowed = Tolerance.flat(REL_LIVE if left.live or right.live else REL_VIRTUAL)
    left, right = with_no_timeouts(*without_labels(left, right))
    common = [name for name in left.figures if name in right.figures]
    if not common:
        raise UsageError(
            f"compare: {left.name} and {right.name} have no number in common; "
            "labels and jobs are part of a number's name"
        )
    allowed.check("compare: rel", common)
    transports = {side.facts.get("transport") for side in (left, right)}
    repeats_alike = len(transports) == 1 or None in transports
    rows = [
        _difference(name, figure, right.figures.get(name), allowed.of(name), repeats_alike)
        for name, figure in left.figures.items()
    ]
    rows += [
        Difference(name, figure.unit, None, figure.value, "new", is_check=figure.is_check)
        for name, figure in right.figures.items()
        if name not in left.figures
    ]
    return Comparison(left, right, rows, allowed)


def _difference(
    name: str, a: Figure, b: Figure | None, rel: float, repeats_alike: bool = True
) -> Difference:
    def verdict(which: Verdict, reason: str | None = None) -> Difference:
        value = None if b is None else b.value
        return Difference(name, a.unit, a.value, value, which, reason, a.is_check)

    def none(which: str, figure: Figure) -> str:
        return f"none in the {which} run: {figure.reason}"

    if b is None:
        return verdict("missing", "not in the second result")
    if a.ok is not None:  # a check: whether it holds is all that counts
        if a.ok == b.ok:
            return verdict("same")
        return verdict("better" if b.ok else "worse", "holds now" if b.ok else "fails now")
    if not (a.stands and b.stands):
        return verdict("unsure", "below the resolution of its run")
    if a.value is None and b.value is None:
        return verdict("same")
    if b.value is None:
        return verdict("worse" if _never(b) else "unmeasured", none("second", b))
    if a.value is None:
        return verdict("better" if _never(a) else "unmeasured", none("first", a))
    # A bound as written, 5% of 1, is met by 1.05 in spite of binary fractions.
    if math.fabs(b.value - a.value) <= rel * math.fabs(a.value) * (1 + 1e-9):
        return verdict("same")
    bad = worse(name, a.unit)
    if not repeats_alike and name.rpartition(".")[2] in OF_ITS_TRANSPORT:
        return verdict("apart", OTHER_TRANSPORT)
    if bad == "any":
        return verdict("changed", "which way is worse is not known")
    return verdict("worse" if (b.value < a.value) == (bad == "lower") else "better")


def _never(figure: Figure) -> bool:
    return NEVER.match(figure.reason or "") is not None
