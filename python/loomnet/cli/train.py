"""The command `train`: a policy from nothing, by a training file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from loomnet.base.errors import EXIT_CHECK_FAILED, EXIT_INTERRUPTED, EXIT_OK, UnavailableError
from loomnet.cli.arguments import Seeds
from loomnet.cli.completion import settings

Training = Annotated[
    str,
    typer.Argument(
        metavar="FILE[::NAME]",
        help="A Python file with a training, and its name if the file has several.",
    ),
]


def train(
    target: Training,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            autocompletion=settings,
            help="A parameter of the training; may be repeated.",
        ),
    ] = None,
    seeds: Seeds = "1",
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Processes, of seeds and then of points; by default one per CPU.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The training's folder; the same command finds its own."),
    ] = None,
) -> int:
    """Train a policy of congestion control from nothing, and score it beside rules.

    A training that was ended, by Ctrl-C or otherwise, goes on where it was when the same command is
    typed again. Its folder has for each seed policy.astp and policy.json, and chosen.astp.
    """
    import importlib.util

    from loomnet.base.installing import install_line
    from loomnet.learning.training_file import load_training

    if importlib.util.find_spec("torch") is None:
        raise UnavailableError(f"train needs PyTorch: {install_line('torch')}")
    file = load_training(target)
    values = file.settings(setting or [])
    from loomnet.learning.side_by_side import seeds_of

    wanted = seeds_of(seeds)
    return _trained(file, values, wanted, jobs, out)


def _trained(file: Any, values: dict[str, Any], seeds: Any, jobs: int | None, out: Any) -> int:
    from rich.console import Console

    from loomnet.base.printing import print_line
    from loomnet.cli.console import PIPED_WIDTH
    from loomnet.learning.course import Course, judge, table
    from loomnet.learning.seed_training import Stopped
    from loomnet.learning.side_by_side import train_all
    from loomnet.processes.interrupts import Interrupts
    from loomnet.sweeps.cluster import cpus

    console = Console(width=None if sys.stdout.isatty() else PIPED_WIDTH)
    processes = min(jobs or cpus(), 64)
    course, plan = Course.of(file, values, seeds, out), file.made(values)

    def say(line: str) -> None:
        print_line(console, line)
        sys.stdout.flush()

    with Interrupts() as interrupts, course.held() as folder:
        say(f"{file.name}: {len(seeds)} x at most {plan.updates:,} updates, in {course.folder}")

        def watch(done: int) -> None:
            if interrupts.pending is not None:
                raise Stopped

        try:
            found = train_all(
                course,
                folder,
                processes,
                lambda seed, line: say(f"seed {seed}: {line}"),
                interrupts,
            )
            result = judge(course, plan, folder, found, jobs=processes, say=say, watch=watch)
        except Stopped:
            say(f"interrupted; the same command goes on from here: {course.folder}")
            return EXIT_INTERRUPTED
    print(table(course, found))
    for line in _lines(result):
        print_line(console, line)
    return EXIT_OK if result["chosen"] is not None else EXIT_CHECK_FAILED


def _lines(result: dict[str, Any]) -> list[str]:
    lines = []
    if result["median"] is not None:
        low, high = result["spread"]
        lines.append(
            f"selection grid: median {result['median']:.3f}, seeds {low:.3f} to {high:.3f}"
        )
    lines += [
        f"selection grid: {name} {found['score']:.3f}" for name, found in result["beside"].items()
    ]
    for name, parts in result["sealed"].items():
        if name == "policies_before":
            if parts:
                lines.append(f"note: the sealed grid has judged {len(parts)} policies before")
            continue
        shown = ", ".join(f"{part} ranges {each['score']:.3f}" for part, each in parts.items())
        lines.append(f"sealed grid: {name} {shown}")
    if result["chosen"] is None:
        lines.append("no seed has a policy")
    return lines
