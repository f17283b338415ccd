"""The command `bench`: nccl-tests' table for a fabric and a transport."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loomnet.base.errors import EXIT_CHECK_FAILED, EXIT_OK, UsageError
from loomnet.cli.arguments import Seed
from loomnet.cli.completion import COLLECTIVES, bench_transports, collectives

if TYPE_CHECKING:
    from loomnet.fabrics.model import Fabric


def bench(
    collective: Annotated[
        str,
        typer.Argument(
            metavar="COLLECTIVE",
            autocompletion=collectives,
            help=f"{', '.join(COLLECTIVES)}.",
        ),
    ],
    first: Annotated[str, typer.Option("-b", metavar="SIZE", help="First size.")] = "8",
    last: Annotated[
        str, typer.Option("-e", metavar="SIZE", help='Last size: 64M (= 64 MiB), or "64 MB".')
    ] = "64M",
    factor: Annotated[
        int, typer.Option("-f", metavar="N", help="Each size is so many times the last.")
    ] = 2,
    step: Annotated[
        str | None, typer.Option("-i", metavar="SIZE", help="Or so many bytes more.")
    ] = None,
    repeat: Annotated[int, typer.Option("-n", metavar="N", help="Rounds measured.")] = 5,
    warm_up: Annotated[int, typer.Option("-w", metavar="N", help="Rounds before that.")] = 1,
    check: Annotated[
        int, typer.Option("-c", metavar="0|1", help="1: compare every byte; 0: lengths only.")
    ] = 1,
    transport: Annotated[
        str,
        typer.Option(
            metavar="TRANSPORT",
            autocompletion=bench_transports,
            help="mrc, roce or tcp (gloo is tcp here).",
        ),
    ] = "mrc",
    ranks: Annotated[
        int, typer.Option(min=2, metavar="N", help="Ranks; one per host without --fabric.")
    ] = 4,
    fabric: Annotated[
        str | None,
        typer.Option(metavar="FILE[::NAME]", help="A Python file whose `fabric` is used."),
    ] = None,
    planes: Annotated[
        int, typer.Option(metavar="N", help="Planes of the two-tier Clos used without --fabric.")
    ] = 4,
    leaves: Annotated[int, typer.Option(metavar="N", help="Leaves per plane.")] = 2,
    spines: Annotated[int, typer.Option(metavar="N", help="Spines per plane.")] = 2,
    rate: Annotated[str, typer.Option(metavar="RATE", help="Rate of every link.")] = "400 Gb/s",
    delay: Annotated[str, typer.Option(metavar="TIME", help="Delay of every link.")] = "1 us",
    seed: Seed = 0,
    json_out: Annotated[
        Path | None, typer.Option("--json", metavar="OUT", help="Also write the rows here.")
    ] = None,
) -> int:
    """Measure a collective over growing sizes on the virtual clock, in the columns of nccl-tests.

    Rounds are few by default: the virtual clock repeats itself to the picosecond.
    """
    from loomnet.base.version import version
    from loomnet.fabrics import clos
    from loomnet.labs.bench import COLUMNS, HEAD, benchmark_named, measured, sizes
    from loomnet.processes.folder import Output

    benchmark = benchmark_named(collective)
    wanted = sizes(first, last, factor, step)
    if fabric is not None:
        built = fabric_in(fabric)
    else:
        built = clos.two_tier(
            planes=planes,
            leaves=leaves,
            spines=spines,
            rate=rate,
            delay=delay,
            hosts_per_leaf=-(-ranks // leaves) if leaves > 0 else 1,
        )
    with Output(json_out, "--json") if json_out else contextlib.nullcontext() as out:
        rows = []
        for row in measured(
            benchmark,
            built,
            wanted,
            transport=transport,
            ranks=ranks,
            repeat=repeat,
            warm_up=warm_up,
            compare_bytes=bool(check),
            seed=seed,
        ):
            if not rows:  # nothing before it is known that the input is good
                print(
                    f"# loomnet {version()}: {benchmark.name}, {ranks} ranks, {transport}, "
                    f"virtual clock, seed {seed}\n# {built!r}"
                )
                print(
                    f"# {repeat} rounds after {warm_up}, out of place, bytes "
                    f"{'compared' if check else 'not moved'}\n#\n{HEAD}",
                    flush=True,
                )
            rows.append(row)
            print(row.text(), flush=True)
            if row.reason:
                print(f"# did not finish: {row.reason}")
        if not rows:
            raise UsageError(f"-e {last}: no size has an element for each of {ranks} ranks")
        buses = [row.busbw for row in rows if row.busbw is not None]
        wrong = sum(row.wrong or 0 for row in rows)
        failed = wrong > 0 or len(buses) < len(rows)
        print(f"# Out of bounds values : {wrong} {'FAILED' if failed else 'OK'}")
        mean = f"Avg bus bandwidth    : {sum(buses) / len(buses):.4f}" if buses else "no bandwidth"
        print(f"# {mean}")
        if out is not None:
            table = [{name: getattr(row, name) for name in (*COLUMNS, "reason")} for row in rows]
            out.fill((json.dumps(table, indent=2) + "\n").encode())
    return EXIT_CHECK_FAILED if failed else EXIT_OK


def fabric_in(target: str) -> Fabric:
    """The Fabric that a Python file holds under a name (`fabric` without one), or that the function
    of that name returns. Raises UsageError."""
    from loomnet.base.names import did_you_mean
    from loomnet.fabrics.model import Fabric
    from loomnet.labs.own_modules import modules_beside
    from loomnet.labs.scenario_file import check_file, import_file

    file, _, name = target.partition("::")
    check_file(Path(file), "--fabric: ")
    module = import_file(Path(file).resolve())
    found = getattr(module, name or "fabric", None)
    with modules_beside(vars(module)):
        made = found() if callable(found) and not isinstance(found, Fabric) else found
    if not isinstance(made, Fabric):
        known = [key for key, value in vars(module).items() if isinstance(value, Fabric)]
        raise UsageError(
            f'--fabric {target}: {file} has no fabric named "{name or "fabric"}"'
            f"{did_you_mean(name or 'fabric', known)}"
        )
    return made
