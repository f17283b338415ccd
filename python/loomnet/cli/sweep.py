"""The command `sweep`: a scenario over many parameters and seeds."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loomnet.base.errors import UsageError
from loomnet.cli.arguments import MaxWall, Scenario, Seeds
from loomnet.cli.completion import settings

if TYPE_CHECKING:
    from loomnet.sweeps.sweep import Sweep

MOST_FAILED = 20  # listed; all of them are in the table


def sweep(
    target: Scenario,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=A,B,…",
            autocompletion=settings,
            help="Values of a parameter; may be repeated.",
        ),
    ] = None,
    seeds: Seeds = "1",
    scheduler: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="A Dask scheduler, instead of processes here."),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Processes here; by default one per CPU.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The sweep's directory; the same command finds its own."),
    ] = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Run the points that failed, and no others.")
    ] = False,
    ci: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE", help="Means with confidence intervals in the table, as 0.95."
        ),
    ] = None,
    max_wall: MaxWall = None,
) -> int:
    """Run a scenario at every combination of values and seeds, into one Parquet table.

    A sweep that was killed goes on where it was when the same command is typed again.
    """
    from loomnet.base.units import Time
    from loomnet.labs.scenario import load
    from loomnet.sweeps.student_t import check_confidence
    from loomnet.sweeps.sweep import sweep as swept

    wanted = _seeds(seeds)
    if ci is not None:
        check_confidence("--ci", ci)
        if wanted == 1 or (isinstance(wanted, list) and len(wanted) < 2):
            raise UsageError("--ci needs two seeds or more: --seeds 5")
    scenario = load(target)
    made = swept(
        scenario,
        seeds=wanted,
        scheduler=scheduler,
        jobs=jobs,
        out=out,
        retry_failed=retry_failed,
        max_wall_s=None if max_wall is None else Time.given("--max-wall", max_wall).seconds,
        axes=scenario.axes(setting or []),
    )
    _print(made, ci)
    return made.exit_code


def _seeds(text: str) -> int | list[int]:
    words = [each.strip() for each in text.split(",")]
    if not all(re.fullmatch("[0-9]{1,20}", word) for word in words):
        raise UsageError(f"--seeds {text}: write a number of seeds, or seeds: 3,5,8")
    return [int(word) for word in words] if "," in text else int(text)


def _print(made: Sweep, ci: float | None) -> None:
    from loomnet.base.errors import printable
    from loomnet.base.names import how_many
    from loomnet.sweeps.summary import summary

    for line in summary(made, ci):
        print(printable(line))
    failed = made.failed
    for point, error in failed[:MOST_FAILED]:
        print(f"failed: {point}: {error}")
    if len(failed) > MOST_FAILED:
        print(f"failed: and {len(failed) - MOST_FAILED} more")
    unmet = made.frame.filter(made.frame["ok"] == False)["point"].to_list()  # noqa: E712
    if unmet:
        shown = ", ".join(map(str, unmet[:MOST_FAILED])) + ("…" if unmet[MOST_FAILED:] else "")
        print(f"checks do not hold at {len(unmet)} of {len(made)} points: {shown}")
    for line in made.remarks:
        print(printable(f"note: {line}"))
    if made.kept:
        print(
            f"{made.kept} of {how_many(len(made), 'point')} "
            f"{'was' if made.kept == 1 else 'were'} there already"
        )
    print(f"{len(made)} points, {len(failed)} failed, {made.missing} missing: {made.path}")
    if made.interrupted:
        print("interrupted; the same command goes on from here")
    elif made.gone:
        print(
            f"loomnet: sweep: {made.gone}; the same command with another scheduler goes on from "
            "here",
            file=sys.stderr,
        )
    elif failed:
        print("the same command with --retry-failed runs these alone")
