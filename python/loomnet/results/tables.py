"""The tables a run ends with. No number in them is ever cut: a table that is too wide for the
terminal folds its headings, then goes on in another table below."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from loomnet.base.number_text import number_text
from loomnet.measures.drops import drops
from loomnet.measures.flow_completion import SHOWN
from loomnet.measures.rows import RATE_WINDOWS, TIME_MULTIPLE, Metric, dotted_name
from loomnet.results.report import Report
from loomnet.results.run_directory import COUNTERS

MOST_DROPS = 12  # reasons shown; all of them are in counters.json
NARROW_HEADINGS = (12, 10, 8)  # characters that headings are folded to, as few as it takes
WHOLE = "run"  # the heading of what is of a whole run
IN_TABLE = frozenset(SHOWN)  # figures of a whole run that are in its table
EXPECTED = "expected_capacity"  # known of a phase that never began, too
BEHIND = "≠ the engine fell behind or lost packets: these numbers are no result"
UNRESOLVED = (
    f"? too close to the engine's lateness: a rate needs {RATE_WINDOWS} times its p99, "
    f"a time {TIME_MULTIPLE} times"
)


@dataclass(frozen=True)
class Column:
    """One column: its heading and a text per line."""

    heading: str
    cells: list[str]

    @property
    def width(self) -> int:
        """Of the widest cell; the heading may be folded, a cell may not."""
        return max(map(len, self.cells), default=0)


def figure_tables(report: Report, width: int) -> list[Table]:
    """Figures by phase, one table or more per run, and per job where a run has several: a line per
    figure, a column per phase. Lines and columns in which nothing was measured are left out."""
    tables: list[Table] = []
    behind = {run.label for run in report.fidelity if not run.kept_up}
    for (label, job), rows in shown_rows(report).items():
        mark = "≠ " if label in behind else ""
        title = dotted_name(label, job)
        name = f"{report.scenario}: {title}" if title else report.scenario
        made = _fitted(*columns_of(rows), width)
        made[0].title = Text(f"{mark}{name}, {report.clock} clock, seed {report.seed}")
        captions = [BEHIND] * bool(mark) + [UNRESOLVED] * any(not row.stands for row in rows)
        if captions:
            made[-1].caption = Text("\n".join(captions))
        tables += made
    return tables


def shown_rows(report: Report) -> dict[tuple[str, str | None], list[Metric]]:
    """The rows of the tables, by label and job, of those that have measured something."""
    runs: dict[tuple[str, str | None], list[Metric]] = {}
    for row in report.rows:
        if row.phase or row.name in IN_TABLE:
            runs.setdefault((row.label or "", row.job), []).append(row)
    return {
        run: rows
        for run, rows in runs.items()
        if any(row.value is not None and row.name != EXPECTED for row in rows)
    }


def columns_of(rows: Sequence[Metric]) -> tuple[Column, list[Column]]:
    """The names of the figures of one job of one run, and a column for each phase."""
    rows = [row if row.phase else replace(row, phase=WHOLE) for row in rows]
    measured = [row for row in rows if row.value is not None]
    begun = {row.phase for row in measured if row.name != EXPECTED}
    measured = [row for row in measured if row.phase in begun]
    # In the order of the phase that has most figures: of `before` some mean nothing.
    of_phase: dict[str | None, list[str]] = {}
    for row in rows:
        of_phase.setdefault(row.phase, []).append(row.name)
    ordered = itertools.chain(*sorted(of_phase.values(), key=len, reverse=True))
    figures = [name for name in dict.fromkeys(ordered) if any(row.name == name for row in measured)]
    phases = [
        phase
        for phase in sorted(
            dict.fromkeys(row.phase or "" for row in rows), key=lambda phase: phase != WHOLE
        )
        if any(row.phase == phase for row in measured)
    ]
    texts = {
        (row.name, row.phase): number_text(row.value, row.unit) + ("" if row.stands else " ?")
        for row in rows
    }
    return Column("number", figures), [
        Column(phase, [texts.get((name, phase), "") for name in figures]) for phase in phases
    ]


def _fitted(names: Column, columns: list[Column], width: int) -> list[Table]:
    """One table if it fits as it is or with folded headings, else as many as it takes."""
    names = Column(names.heading, [_folded(name, max(width // 2, 1)) for name in names.cells])
    for longest in (max(len(c.heading) for c in columns), *NARROW_HEADINGS):
        headed = [Column(_folded(c.heading, max(longest, c.width)), c.cells) for c in columns]
        whole = _table(names, headed)
        if _width(whole) <= width:
            return [whole]
    tables, begin = [], 0
    while begin < len(headed):
        end = begin + 1
        while end < len(headed) and _width(_table(names, headed[begin : end + 1])) <= width:
            end += 1
        part = _table(names, headed[begin:end])
        if _width(part) > width:
            part.width = _width(part)  # wider than the terminal, and whole
        tables.append(part)
        begin = end
    return tables


def _empty_table() -> Table:
    """Two blanks between columns, a rule below the headings."""
    return Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        title_justify="left",
        caption_justify="left",
    )


def _table(names: Column, columns: Sequence[Column]) -> Table:
    table = _empty_table()
    table.add_column(Text(names.heading), no_wrap=True)
    for column in columns:
        table.add_column(Text(column.heading), justify="right", no_wrap=True)
    for line, name in enumerate(names.cells):
        table.add_row(Text(name), *(Text(column.cells[line]) for column in columns))
    return table


def _width(table: Table) -> int:
    """Without title and caption, which may be folded."""
    unbounded = Console(width=1_000_000)
    return Measurement.get(unbounded, unbounded.options, table).maximum


def _folded(name: str, longest: int) -> str:
    """In lines of at most `longest` characters, broken behind underscores and dots if need be."""
    lines = [""]
    for part in _parts(name):
        if lines[-1] and len(lines[-1]) + len(part) > longest:
            lines.append("")
        while len(part) > longest:
            lines[-1], part = part[:longest], part[longest:]
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def _parts(name: str) -> list[str]:
    """Cut behind every underscore, dot and blank."""
    parts = [""]
    for letter in name:
        parts[-1] += letter
        if letter in "_. -":
            parts.append("")
    return [part for part in parts if part]


def dropped_table(report: Report) -> Table | None:
    """Packets dropped, by run, kind of object and reason; None where none was."""
    found = [
        (label or "", drop) for label, r in report.results.items() for drop in drops(r.data.totals)
    ]
    if not found:
        return None
    several = any(label for label, _ in found)
    table = _empty_table()
    table.title = "dropped packets"
    for name in ("run",) * several + ("at", "reason", "packets", "most at"):
        table.add_column(
            name,
            justify="right" if name == "packets" else "left",
            no_wrap=name == "packets",
            overflow="fold",
        )
    for label, drop in found[:MOST_DROPS]:
        most = drop.most if drop.objects == 1 else f"{drop.most} (of {drop.objects})"
        cells = (label,) * several + (drop.where, drop.reason, str(drop.packets), most)
        table.add_row(*map(Text, cells))
    if len(found) > MOST_DROPS:
        table.caption = f"and {len(found) - MOST_DROPS} more reasons in {COUNTERS}"
    return table
