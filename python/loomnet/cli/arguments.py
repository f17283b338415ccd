"""Arguments and options that several commands share: one name, one help line and one completion for
the same thing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from loomnet.cli.completion import clocks, runs, settings

Scenario = Annotated[
    str,
    typer.Argument(
        metavar="FILE[::NAME]",
        help="A Python file with a scenario, and its name if the file has several.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        autocompletion=settings,
        help="A parameter of the scenario; may be repeated.",
    ),
]
Seed = Annotated[int, typer.Option(min=0, metavar="N", help="Seed of every random stream.")]
Seeds = Annotated[
    str, typer.Option("--seeds", metavar="N", help="Seeds 0 … N-1, or a list of them: 3,5,8.")
]
Clock = Annotated[
    str,
    typer.Option(
        metavar="CLOCK",
        autocompletion=clocks,
        help="virtual: emulated time, needs no root; live: real packets through the "
        "kernel, needs root.",
    ),
]
MaxWall = Annotated[
    str | None,
    typer.Option(metavar="TIME", help='Wall time after which a run is ended, for example "10min".'),
]
Run = Annotated[
    str,
    typer.Argument(
        metavar="RUN", autocompletion=runs, help="A run's directory, or its report.json."
    ),
]
JsonOut = Annotated[
    Path | None,
    typer.Option(
        "--json", metavar="OUT", help="Also write report.json here; - is standard output."
    ),
]
MarkdownOut = Annotated[
    Path | None,
    typer.Option(
        "--markdown",
        metavar="OUT",
        help="Also write a summary in Markdown here, as into $GITHUB_STEP_SUMMARY.",
    ),
]
Node = Annotated[
    str, typer.Argument(metavar="NODE", help="A host, or a switch in the kernel, of a live run.")
]
