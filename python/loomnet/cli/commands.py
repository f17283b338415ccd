"""The command line's commands. What is heavy is imported by the command that needs it."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from loomnet.base.errors import EXIT_OK, EXIT_USAGE, LoomnetError, UsageError
from loomnet.cli.bench import bench
from loomnet.cli.cost import cost
from loomnet.cli.explain import explain
from loomnet.cli.ocs import ocs
from loomnet.cli.results import compare, replay
from loomnet.cli.sweep import sweep

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Emulates the fabrics that AI training runs on.",
    epilog="Exit status: 0 all checks hold and every job ended well; 1 a check failed, or a rank, "
    "a job, a stall, a deadlock or --max-wall ended the run; 2 bad input, missing privilege, or a "
    "scenario without lab.run; 3 the engine fell behind or lost packets of its own; 4 the "
    "scenario's own code raised; 130 interrupted. Of several, the first of 130, 4, 3, 2, 1.",
)


def _version(asked: bool) -> None:
    if asked:
        from loomnet.base.version import version

        print(f"loomnet {version()}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Print the version and leave."
        ),
    ] = False,
) -> None:
    pass


@app.command()
def run(
    target: Annotated[str, typer.Argument(metavar="FILE[::NAME]", help="The scenario to run.")],
    clock: Annotated[str, typer.Option(help="virtual (no root needed) or live")] = "virtual",
    seed: Annotated[int, typer.Option(min=0, help="Seed of every random stream.")] = 0,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="A parameter of the scenario; may be repeated."
        ),
    ] = None,
    json_out: Annotated[
        Path | None,
        typer.Option(
            "--json", metavar="OUT", help="Also write report.json here; - is standard output."
        ),
    ] = None,
    max_wall: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help='Wall time after which the run is ended, for example "10min".'
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a Perfetto trace, for ui.perfetto.dev."),
    ] = None,
    pcap: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NODE:PORT=FILE",
            help="Write what passes a port as pcapng, for Wireshark; may be repeated.",
        ),
    ] = None,
) -> int:
    """Run a scenario, print its figures and checks, write its report under runs/."""
    from rich.console import Console

    from loomnet.base.units import Time
    from loomnet.cli.console import PIPED_WIDTH, print_report
    from loomnet.labs.progress import progress_line
    from loomnet.labs.scenario import load
    from loomnet.processes.folder import Output
    from loomnet.running.record import Record, parse_pcap

    stderr = json_out == Path("-")
    shown_on = sys.stderr if stderr else sys.stdout
    console = Console(stderr=stderr, width=None if shown_on.isatty() else PIPED_WIDTH)
    limit = None if max_wall is None else Time.given("--max-wall", max_wall).seconds
    scenario = load(target, max_wall_s=limit)
    values = scenario.settings(setting or [])
    scenario.validate(values)
    record = Record.of(trace, parse_pcap(pcap or []))
    with contextlib.ExitStack() as stack:
        out = None
        if json_out not in (None, Path("-")):
            out = stack.enter_context(Output(json_out, "--json"))
        with progress_line(console) as on_progress:
            report = scenario.run(
                seed=seed,
                clock=clock,
                max_wall_s=limit,
                record=record,
                on_progress=on_progress,
                say=lambda line: console.print(line, markup=False, highlight=False, soft_wrap=True),
                **values,
            )
        print_report(report, console)
        if out is not None:
            out.fill(report.to_json().encode())
        elif json_out is not None:
            sys.stdout.write(report.to_json())
    return report.exit_code or (EXIT_OK if report.unwritten is None else EXIT_USAGE)


@app.command()
def crosscheck(
    target: Annotated[str, typer.Argument(metavar="FILE[::NAME]", help="A scenario.")],
    seed: Annotated[int, typer.Option(min=0, help="Seed of every random stream.")] = 0,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A parameter; may be repeated."),
    ] = None,
) -> int:
    """Run a scenario live, then virtual with its compute gaps and faults, and compare figures. Exit
    1 where they disagree by more than the printed rules allow, 3 where the live run is no result.
    """
    from rich.console import Console

    from loomnet.base.errors import EXIT_CHECK_FAILED, EXIT_FIDELITY
    from loomnet.cli.console import PIPED_WIDTH, print_fidelity
    from loomnet.labs import crosscheck as twin
    from loomnet.labs.scenario import load

    scenario = load(target)
    values = scenario.settings(setting or [])
    live = scenario.run(seed=seed, clock="live", for_twin=True, say=print, **values)
    if live.interrupted:
        return live.exit_code
    virtual = scenario.run(seed=seed, say=print, **twin.replay_of(live), **values)
    if virtual.interrupted:
        return virtual.exit_code
    found = twin.crosscheck(live, virtual)
    print(twin.table(found))
    for line in twin.legend(found):
        print(line)
    print_fidelity(live, Console(width=None if sys.stdout.isatty() else PIPED_WIDTH))
    late = twin.kept_from_computing(live)
    for line in late:
        print(f"not a result: {line}")
    if live.behind or late:
        return EXIT_FIDELITY
    return EXIT_OK if all(each.ok for each in found) else EXIT_CHECK_FAILED


app.command()(compare)
app.command()(replay)
app.command()(bench)
app.command()(cost)
app.command()(explain)
app.command()(sweep)
app.add_typer(ocs, name="ocs")


@app.command("list")
def list_(
    paths: Annotated[
        list[Path] | None, typer.Argument(help="Files or folders; by default scenarios/ or here.")
    ] = None,
) -> int:
    """List scenarios with the first line of what they say."""
    from loomnet.base.reading import MOST_SOURCE, is_file, read_bytes
    from loomnet.labs.scenario import scenarios_in

    roots = paths or [Path("scenarios") if Path("scenarios").is_dir() else Path(".")]
    found = broken = 0
    for root in roots:
        if not os.path.exists(root):
            raise UsageError(f"list: no file or folder {root}")
        inside = sorted(root.glob("*.py")) if os.path.isdir(root) else None
        files = [root] if inside is None else [file for file in inside if is_file(file)]
        for file in files:
            try:
                text = read_bytes(file, MOST_SOURCE)
                if b"@ln.scenario" not in text and b"@scenario" not in text:
                    continue
                scenarios = scenarios_in(file)
            except LoomnetError as error:  # the other files' scenarios are listed all the same
                broken += 1
                print(f"loomnet: {error}", file=sys.stderr)
                continue
            for scenario in scenarios:
                found += 1
                print(f"{file}::{scenario.name}  {scenario.doc.partition(chr(10))[0]}")
    if broken:
        return EXIT_USAGE
    if not found:
        raise UsageError(
            f"list: no scenario in {', '.join(map(str, roots))}; decorate a function "
            "with @ln.scenario"
        )
    return EXIT_OK


@app.command()
def describe(
    target: Annotated[
        str,
        typer.Argument(
            metavar="FILE[::NAME]|FABRIC",
            help="A scenario, or two_tier, three_tier, fat_tree, star, dumbbell.",
        ),
    ],
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A parameter; may be repeated."),
    ] = None,
) -> int:
    """Show a scenario, its parameters and its fabric: counts, bisection, optics, failures."""
    from loomnet.cli.description import built
    from loomnet.fabrics.description import table_text

    fabric = built(target, setting or [])
    if fabric is None:
        from loomnet.labs.first_fabric import fabric_of
        from loomnet.labs.scenario import load

        scenario = load(target)
        print(f"{scenario.name}\n\n{scenario.doc}\n\nparameters:")
        for parameter in scenario.parameters:
            default = "required" if parameter.default is None else f"= {parameter.default}"
            print(f"  {parameter.name}: {parameter.type} {default}")
        fabric = fabric_of(scenario, scenario.settings(setting or []))
        if fabric is None:
            return EXIT_OK
        print()
    print(table_text(fabric))
    return EXIT_OK


@app.command()
def doctor() -> int:
    """List what each clock needs: kernel features, tools, packages, each with its remedy."""
    from loomnet.live.doctor import checks, lines

    found = checks()
    for line in lines(found):
        print(line)
    missing = any(check.required and check.found is False for check in found)
    return EXIT_USAGE if missing else EXIT_OK


@app.command()
def clean() -> int:
    """Remove what dead runs left behind, and nothing else."""
    from loomnet.live.kernel_objects import clean as clean_dead_runs

    removed = clean_dead_runs()
    for line in removed:
        print(f"removed {line}")
    if not removed:
        print("nothing to remove")
    return EXIT_OK


@app.command("exec", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def exec_(
    context: typer.Context,
    host: Annotated[str, typer.Argument(help="A host or kernel switch of a live run.")],
) -> int:
    """Run a command inside a node of a live run: loomnet exec HOST -- CMD."""
    from loomnet.live.attach import command_in

    command = command_in(host, context.args)
    sys.stdout.flush()
    os.execvp(command[0], command)


@app.command()
def capture(
    port: Annotated[
        str, typer.Argument(metavar="HOST:PORT", help="A port of a live run: number or peer.")
    ],
) -> int:
    """Write what passes a port of a live run to standard output as pcapng, for Wireshark."""
    from loomnet.live.attach import capture_of

    if sys.stdout.isatty():
        raise UsageError(f"capture writes pcapng: loomnet capture {port} | wireshark -k -i -")
    try:
        for piece in capture_of(port):
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
    except BrokenPipeError:
        # Whoever read has enough; Python must not try to flush what is left.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        pass
    return EXIT_OK


@app.command()
def shell(
    host: Annotated[str, typer.Argument(help="A host or kernel switch of a live run.")],
) -> int:
    """Open an interactive shell inside a node of a live run."""
    from loomnet.live.attach import shell_in

    command = shell_in(host)
    sys.stdout.flush()
    os.environ["LOOMNET_NODE"] = host  # for a prompt that says where one is
    os.execvp(command[0], command)
