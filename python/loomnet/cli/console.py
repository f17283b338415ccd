"""What a run prints when it has ended."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from loomnet.base.names import how_many
from loomnet.base.number_text import number_text
from loomnet.base.printing import print_line
from loomnet.jobs.task_graph import PASSED_OVER
from loomnet.measures.rows import Check, Metric
from loomnet.measures.run_data import NEVER_CAME
from loomnet.results.report import Report
from loomnet.results.run_directory import written
from loomnet.results.tables import IN_TABLE, dropped_table, figure_tables
from loomnet.systems.transport import LIMITED_BY

MOST_ERRORS = 8  # of a run
MOST_WRITTEN = 8  # files and folders of a run's directory that are named
MOST_RUNS = 12  # whose own figures are printed; of more runs, only those of the scenario
PIPED_WIDTH = 80  # of output that goes to no terminal: files and logs are read in any window


def print_report(report: Report, console: Console) -> None:
    """The tables, why figures are null, the checks, the fidelity, and where it all lies."""
    many = len(report.fidelity) > MOST_RUNS
    for label, said in report.sentences.items() if not many else ():
        print_line(console, f"{label}: {said}" if label else said)
    if not many:
        _tables(console, figure_tables(report, console.width))
    for result in (part for run in report.results.values() for part in run.parts):
        title = result.title or report.scenario
        for fault in result.data.errors[:MOST_ERRORS]:
            at = _time_text(fault.at_ps)
            print_line(console, f"error {title} at {at}: {fault.who}: {fault.message}")
        if (more := len(result.data.errors) - MOST_ERRORS) > 0:
            print_line(console, f"error {title}: and {more} more")
    for row in report.rows:
        of_run = row.name in IN_TABLE or (many and row.label in report.results)
        if not row.phase and not of_run:
            print_line(console, f"{row.dotted}: {_metric_text(row)}")
    reasons: dict[str, list[str]] = {}
    for row in report.rows:
        if row.value is None and row.phase and not many:
            reasons.setdefault(row.reason or "", []).append(row.dotted)
    for reason, names in reasons.items():
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        print_line(console, f"null: {shown}: {reason}")
    if (table := dropped_table(report)) is not None:
        _tables(console, [table])
    for check in report.checks:
        word = "ok  " if check.ok else "FAIL"
        why = f"  ({check.reason})" if check.reason and not check.ok else ""
        print_line(console, f"{word} {check.name}: {_check_text(check)}{why}")
    print_fidelity(report, console)
    for line in report.unrepeatable:
        print_line(console, f"not repeatable (deterministic: false): {line}")
    if many:
        print_line(console, f"numbers of each of the {len(report.fidelity)} runs: in report.json")
    for line in report.broken_off:
        print_line(console, f"not finished: {line}")
    for line in report.interrupted_in:
        print_line(console, f"not finished: {line}")
    if report.unwritten is not None:
        print_line(console, f"not written: {report.unwritten}")
    if report.directory is not None:
        print_line(console, f"report: {report.directory}/report.json")
        print_line(console, f"wrote: {_written_text(report.directory)}")


def _written_text(directory: Path) -> str:
    """`report.json 6 kB, …, ranks/ 12 kB in 4 files`."""
    found = written(directory)
    parts = [
        f"{name} {_bytes_text(size)}"
        + (f" in {how_many(files, 'file')}" if name.endswith("/") else "")
        for name, files, size in found[:MOST_WRITTEN]
    ]
    rest = found[MOST_WRITTEN:]
    if rest:
        parts.append(f"{len(rest)} more: {_bytes_text(sum(size for *_, size in rest))}")
    return ", ".join(parts)


def _bytes_text(size: int) -> str:
    """Whole kilobytes, rounded up; larger files in three digits."""
    if size < 1_000_000:
        return f"{-(-size // 1000)} kB"
    return number_text(float(f"{size:.3g}"), "B")


def _metric_text(row: Metric) -> str:
    """`34.3 us`, `12.5 GB/s`, `– (why)`; a unit that only repeats the name is left out."""
    text = number_text(row.value, row.unit)
    if row.value is None:
        return f"{text} ({row.reason})"
    named = (
        row.unit in (None, "ratio", "GB/s")
        or row.name.endswith(row.unit)
        or text.endswith(row.unit)
    )
    return text if named else f"{text} {row.unit}"


def _check_text(check: Check) -> str:
    """`0.7568  [0.75 ± 0.05]`: the value, and the bound it was held against, in the same unit. A
    value that misses its bound by less than is shown is printed whole."""
    text = number_text(check.value, check.unit)
    if not check.ok and check.value is not None and text in check.bound_text:
        text = f"{check.value!r} {check.unit or ''}".rstrip()
    return f"{text}  [{check.bound_text}]"


def print_fidelity(report: Report, console: Console) -> None:
    """One line per run: how late the engine was, what went missing, why that is no result. Of many
    runs those that kept up and miss nothing are one line together."""
    shown = report.fidelity
    if len(shown) > MOST_RUNS:
        whole = [run for run in shown if run.kept_up]
        shown = [run for run in shown if not run.kept_up]
        if whole:
            packets = sum(run.fidelity.packets for run in whole)
            print_line(
                console, f"fidelity: {len(whole)} runs kept up; {packets} packets, 0 unexplained"
            )
    for run in shown:
        f = run.fidelity
        late = (
            ""
            if f.lateness_p99_ps is None
            else (
                f"; lateness p50 {_time_text(f.lateness_p50_ps)}, "
                f"p99 {_time_text(f.lateness_p99_ps)}, most {_time_text(f.lateness_max_ps)}"
            )
        )
        print_line(
            console,
            f"fidelity {run.label or report.scenario}: {run.verdict}{late}; "
            f"{f.packets} packets, {f.unexplained} unexplained",
        )
        for name, text in f.notes.items():
            if name.startswith((LIMITED_BY, PASSED_OVER, NEVER_CAME)):
                print_line(console, f"note {run.label or report.scenario}: {name}: {text}")
    for line in report.behind:
        print_line(console, f"not a result: {line}")


def _time_text(ps: int | None) -> str:
    return number_text(float(f"{(ps or 0) / 1e12:.3g}"), "s")


def _tables(console: Console, tables: list[Table]) -> None:
    """Between empty lines, and whole where a table is wider than the terminal. Title and caption
    are lines of their own, which a narrow table would fold."""
    for table in tables:
        title, caption = table.title, table.caption
        table.title = table.caption = None
        console.print()
        if title:
            print_line(console, str(title))
        console.print(table, crop=False)
        if caption:
            print_line(console, str(caption))
    if tables:
        console.print()
