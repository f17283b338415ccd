"""Commands on results that are there: compare two runs, play one again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loomnet.base.errors import EXIT_CHECK_FAILED, EXIT_OK, UsageError
from loomnet.cli.arguments import Run
from loomnet.cli.completion import runs

if TYPE_CHECKING:
    from loomnet.results.comparison import Difference


def share(text: str) -> float:
    """ "5%" or "0.05" as 0.05. Raises UsageError for anything else."""
    number = text.strip()
    percent = number.endswith("%")
    try:
        value = float(number.removesuffix("%")) / (100 if percent else 1)
    except ValueError:
        raise UsageError(f'--rel "{text}" is no share: write 5% or 0.05') from None
    if not 0 <= value < float("inf"):
        raise UsageError(f'--rel "{text}" must be 0 or more')
    return value


def compare(
    a: Run,
    b: Annotated[
        str, typer.Argument(metavar="RUN", autocompletion=runs, help="The run to judge against it.")
    ],
    rel: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE",
            help="Changes up to this are none: 5% or 0.05. By default "
            "1%, and 5% where one of the runs was live.",
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Show equal numbers too.")] = False,
) -> int:
    """Compare two runs number by number; exit status 1 if the second is worse."""
    from loomnet.results.comparison import compare as compared

    found = compared(a, b, rel=None if rel is None else share(rel))
    shown = [row for row in found if everything or row.verdict != "same"]
    print(f"A: {found.a.name}\nB: {found.b.name}")
    for line in found.setups():
        print(f"note: the runs differ: {line}")
    if shown:
        _print_differences(shown)
    print(found.summary)
    for line in found.behind:
        print(f"not a result: {line}")
    return found.exit_code


def _print_differences(rows: list[Difference]) -> None:
    """A line per figure, under A and B, then the reasons of nulls."""
    from loomnet.base.table import Table

    print(Table(("number", "A", "B", "change", "verdict"), [row.row("A", "B") for row in rows]))
    for row in rows:
        if row.reason:
            print(f"{row.name}: {row.reason}")


def replay(
    run: Run,
) -> int:
    """Run a run's own copy of its scenario again, and compare the two reports byte by byte.

    Exit status 1 where report.json is not the same to the byte.
    """
    from rich.console import Console

    from loomnet.cli.console import PIPED_WIDTH, print_report
    from loomnet.labs.progress import progress_line
    from loomnet.labs.replay import replayed

    console = Console(width=None if sys.stdout.isatty() else PIPED_WIDTH)
    with progress_line(console) as on_progress:
        again = replayed(Path(run), say=print, on_progress=on_progress)
    if again.report.interrupted:
        return again.report.exit_code
    print_report(again.report, console)
    for line in again.remarks:
        print(line)
    if again.identical:
        print(
            f"identical: {again.report.directory}/report.json equals {again.original} to the "
            f"byte ({again.size} bytes)"
        )
        return EXIT_OK
    for line in again.differences:
        print(line)
    print(f"different: {again.report.directory}/report.json is not {again.original}")
    return EXIT_CHECK_FAILED
