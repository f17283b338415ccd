"""What a run prints: a line before traffic, a live progress line, the closing tables."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.table import Table

from loomnet.counters import drops
from loomnet.metrics import Metric
from loomnet.report import Report
from loomnet.rundir import COUNTERS
from loomnet.runner import Progress

MOST_ERRORS = 8  # of a run
MOST_DROPS = 12  # reasons shown; all of them are in counters.json


def figure_text(value: float | None) -> str:
    """A number as a reader wants it: four significant digits, a dash for null."""
    if value is None:
        return "–"
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e9 else f"{value:.4g}"


def progress_text(label: str, progress: Progress) -> str:
    """`mrc  12.3 s  step 41  loss 0.81  iteration 0.42 s  paths 31/32  [nic_link_down]`."""
    parts = [label, f"{progress.now.seconds:.1f} s"]
    if progress.step is not None:
        parts.append(f"step {progress.step}")
    if progress.loss is not None:
        parts.append(f"loss {progress.loss:.4g}")
    if progress.iteration is not None:
        parts.append(f"iteration {progress.iteration.seconds:.3g} s")
    if progress.paths_good is not None:
        parts.append(f"paths {progress.paths_good}/{progress.paths_total}")
    if progress.phase:
        parts.append(f"[{progress.phase}]")
    return "  ".join(parts)


@contextmanager
def progress_line(console: Console) -> Iterator[Any]:
    """A callback for Lab.on_progress that keeps one line up to date on a terminal, and prints one
    line per change of phase elsewhere."""
    last: dict[str, str | None] = {}
    if not console.is_terminal:

        def each(label: str, progress: Progress) -> None:
            if last.get(label, "") != progress.phase:
                last[label] = progress.phase
                console.print(progress_text(label, progress), markup=False, highlight=False)

        yield each
        return
    with console.status("") as status:

        def update(label: str, progress: Progress) -> None:
            status.update(progress_text(label, progress).replace("[", r"\["))

        yield update


@contextmanager
def progress_bar(title: str, console: Console | None = None) -> Iterator[Callable[..., None]]:
    """A callback (ended, all, failed) that keeps a bar with the time left up to date: on a terminal
    and in a notebook; elsewhere it prints a line per tenth."""
    console = console or Console()
    if console.is_jupyter and not _widgets():
        yield lambda *counts: None
        return
    if not (console.is_terminal or console.is_jupyter):
        tenths = -1

        def each(ended: int, total: int, failed: int = 0) -> None:
            nonlocal tenths
            if (now := 10 * ended // max(total, 1)) > tenths:
                tenths = now
                _plain(console, f"{title}: {ended} of {total}, {failed} failed")

        yield each
        return
    from rich import progress

    columns = (
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TextColumn("{task.fields[failed]} failed"),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=console) as bar:
        task = bar.add_task(title, failed=0)

        def update(ended: int, total: int, failed: int = 0) -> None:
            bar.update(task, completed=ended, total=total, failed=failed)

        yield update


def _widgets() -> bool:
    """Whether a bar can be drawn in a notebook: rich does it by ipywidgets."""
    return importlib.util.find_spec("ipywidgets") is not None


@contextmanager
def notebook_bar(title: str, iterations: int | None) -> Iterator[Any]:
    """In a notebook, a callback for Lab's on_progress that keeps a bar up to date; else None."""
    console = Console()
    if not (console.is_jupyter and _widgets()):
        yield None
        return
    from rich import progress

    columns = (
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(title, total=iterations)

        def update(label: str, at: Progress) -> None:
            text = progress_text("", at).strip()
            bar.update(task, completed=at.step or 0, description=f"{title}: {text}")

        yield update


def figure_table(report: Report) -> Table | None:
    """Figures side by side: a row per label and phase, a column per figure."""
    phased = [row for row in report.rows if row.phase]
    if not phased:
        return None
    columns = list(dict.fromkeys(row.name for row in phased))
    table = Table(title=f"{report.scenario}, {report.clock} clock, seed {report.seed}")
    for name in ("", "phase", *columns):
        table.add_column(name, justify="left" if name in ("", "phase") else "right")
    lines: dict[tuple[str, str], dict[str, Metric]] = {}
    for row in phased:
        lines.setdefault((row.label or "", row.phase or ""), {})[row.name] = row
    previous = None
    behind = {run.label for run in report.fidelity if not run.kept_up}
    if behind:
        table.caption = "≠ the engine fell behind or lost packets: these figures are no result"
    for (label, phase), cells in lines.items():
        texts = []
        for name in columns:
            row = cells.get(name)
            mark = "" if row is None or row.stands else " ?"
            texts.append("" if row is None else figure_text(row.value) + mark)
        name = f"≠ {label}".rstrip() if label in behind else label
        table.add_row(name if label != previous else "", phase, *texts)
        previous = label
    return table


def dropped_table(report: Report) -> Table | None:
    """Packets dropped, by run, kind of object and reason; None where none was."""
    found = [
        (label or "", drop) for label, r in report.results.items() for drop in drops(r.data.totals)
    ]
    if not found:
        return None
    table = Table(title="dropped packets")
    for name in ("run", "at", "reason", "packets", "most at"):
        table.add_column(name, justify="right" if name == "packets" else "left")
    for label, drop in found[:MOST_DROPS]:
        most = drop.most if drop.objects == 1 else f"{drop.most} (of {drop.objects})"
        table.add_row(label, drop.where, drop.reason, str(drop.packets), most)
    if len(found) > MOST_DROPS:
        table.caption = f"and {len(found) - MOST_DROPS} more reasons in {COUNTERS}"
    return table


def print_report(report: Report, console: Console) -> None:
    """The tables, why figures are null, the checks, the fidelity, and where it all lies."""
    if (table := figure_table(report)) is not None:
        console.print(table)
    for label, result in report.results.items():
        for fault in result.data.errors[:MOST_ERRORS]:
            at = f"{fault.at_ps / 1e12:.3g} s"
            who = f"{label or report.scenario} at {at}: {fault.who}"
            _plain(console, f"error {who}: {fault.message}")
        if (more := len(result.data.errors) - MOST_ERRORS) > 0:
            _plain(console, f"error {label or report.scenario}: and {more} more")
    for row in report.rows:
        if not row.phase:
            reason = f" ({row.reason})" if row.value is None else f" {row.unit or ''}"
            _plain(console, f"{row.dotted}: {figure_text(row.value)}{reason}")
    reasons: dict[str, list[str]] = {}
    for row in report.rows:
        if row.value is None and row.phase and row.reason != "there is no fault to recover from":
            reasons.setdefault(row.reason or "", []).append(row.dotted)
    for reason, names in reasons.items():
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        _plain(console, f"null: {shown}: {reason}")
    if (table := dropped_table(report)) is not None:
        console.print(table)
    for check in report.checks:
        word = "ok  " if check.ok else "FAIL"
        why = f"  ({check.reason})" if check.reason and not check.ok else ""
        _plain(
            console, f"{word} {check.name}: {figure_text(check.value)}  [{check.bound_text}]{why}"
        )
    print_fidelity(report, console)
    if report.directory is not None:
        _plain(console, f"report: {report.directory}/report.json")


def print_fidelity(report: Report, console: Console) -> None:
    """One line per run: how late the engine was, what went missing, why that is no result."""
    for run in report.fidelity:
        f = run.fidelity
        late = (
            ""
            if f.lateness_p99_ps is None
            else (
                f"; lateness p50 {(f.lateness_p50_ps or 0) / 1e6:.3g} us, p99 "
                f"{f.lateness_p99_ps / 1e6:.3g} us, most {(f.lateness_max_ps or 0) / 1e6:.3g} us"
            )
        )
        _plain(
            console,
            f"fidelity {run.label or report.scenario}: {run.verdict}{late}; "
            f"{f.packets} packets, {f.unexplained} unexplained",
        )
    for line in report.behind:
        _plain(console, f"not a result: {line}")


def _plain(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)
