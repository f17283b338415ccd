"""The command line's commands. What is heavy is imported by the command that needs it."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loomnet.base.errors import EXIT_OK, EXIT_USAGE, UsageError
from loomnet.cli.arguments import (
    Clock,
    JsonOut,
    MarkdownOut,
    MaxWall,
    Node,
    Scenario,
    Seed,
    Settings,
)
from loomnet.cli.bench import bench
from loomnet.cli.cost import cost
from loomnet.cli.examples import examples as examples_
from loomnet.cli.explain import explain
from loomnet.cli.help import BEGIN, LIVE, RESULTS, RUN, App, examples
from loomnet.cli.look import describe, list_
from loomnet.cli.new import new
from loomnet.cli.ocs import ocs
from loomnet.cli.results import compare, replay
from loomnet.cli.sweep import sweep
from loomnet.cli.train import train

if TYPE_CHECKING:
    from loomnet.results.report import Report

app = App(
    pretty_exceptions_enable=False,
    help="Emulates the networks that AI training runs on, and runs real PyTorch jobs over them. "
    "`loomnet COMMAND --help` says what a command takes, with examples.",
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
            "--version", callback=_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    pass


@app.command(
    rich_help_panel=RUN,
    epilog=examples(
        "loomnet run flap.py",
        "loomnet run flap.py --set planes=8 --seed 7",
        "loomnet run flap.py --trace flap.pftrace --pcap h0:0=h0.pcapng",
        "sudo loomnet run flap.py --clock live --set rate=20Mb/s \\",
        "    --set delay=0.5ms --set size=1MB",
    ),
)
def run(
    target: Scenario,
    clock: Clock = "virtual",
    seed: Seed = 0,
    setting: Settings = None,
    json_out: JsonOut = None,
    markdown: MarkdownOut = None,
    max_wall: MaxWall = None,
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
    """Run a scenario, print its numbers and checks, and write its report under runs/."""
    from rich.console import Console

    from loomnet.base.printing import print_line
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
    # Modules last as long as the process: collections, of which Python makes several at its end,
    # pass over them from here on.
    gc.freeze()
    scenario = load(target, max_wall_s=limit)
    values = scenario.settings(setting or [])
    scenario.validate(values)
    record = Record.of(trace, parse_pcap(pcap or []))
    with contextlib.ExitStack() as stack:
        out = None
        if json_out not in (None, Path("-")):
            out = stack.enter_context(Output(json_out, "--json"))
        page = None if markdown is None else stack.enter_context(Output(markdown, "--markdown"))
        with progress_line(console) as on_progress:
            report = scenario.run(
                seed=seed,
                clock=clock,
                max_wall_s=limit,
                record=record,
                on_progress=on_progress,
                say=lambda line: print_line(console, line),
                **values,
            )
        print_report(report, console)
        if page is not None:
            from loomnet.results.markdown import to_markdown

            page.fill(to_markdown(report).encode())
        if out is not None:
            out.fill(report.to_json().encode())
        elif json_out is not None:
            sys.stdout.write(report.to_json())
    return report.exit_code or (EXIT_OK if report.unwritten is None else EXIT_USAGE)


@app.command(
    rich_help_panel=RUN,
    epilog=examples(
        "sudo loomnet crosscheck flap.py --set rate=20Mb/s \\",
        "    --set delay=0.5ms --set size=1MB",
    ),
)
def crosscheck(target: Scenario, seed: Seed = 0, setting: Settings = None) -> int:
    """Run a scenario on the live clock, then on the virtual one, and compare their numbers.

    The virtual run replays how long the live run's ranks computed and when its faults fell. Where a
    silence or recovery disagrees, four more begin the faults a little earlier or later. Exit
    status 1 where numbers disagree by more than the printed rules allow, 3 where the live run is no
    result.
    """
    from rich.console import Console

    from loomnet.base.errors import EXIT_CHECK_FAILED, EXIT_FIDELITY
    from loomnet.base.printing import print_line
    from loomnet.cli.console import PIPED_WIDTH, print_fidelity
    from loomnet.labs import crosscheck as twin
    from loomnet.labs.progress import progress_line
    from loomnet.labs.scenario import load

    scenario = load(target)
    values = scenario.settings(setting or [])
    console = Console(width=None if sys.stdout.isatty() else PIPED_WIDTH)

    def played(**more: Any) -> Report:
        with progress_line(console) as on_progress:
            return scenario.run(
                seed=seed,
                say=lambda line: print_line(console, line),
                on_progress=on_progress,
                **more,
                **values,
            )

    live = played(clock="live", for_twin=True)
    if live.interrupted:
        return live.exit_code
    virtual = played(**twin.replay_of(live))
    if virtual.interrupted:
        return virtual.exit_code
    found = twin.crosscheck(live, virtual)
    if twin.needs_nearby(found):
        nearby = []
        for replay in twin.replays_nearby(live):
            nearby.append(played(**replay))
            if nearby[-1].interrupted:
                return nearby[-1].exit_code
        found = twin.crosscheck(live, virtual, nearby)
    print(twin.table(found))
    for line in twin.legend(found):
        print_line(console, line)
    print_fidelity(live, console)
    late = twin.kept_from_computing(live)
    for line in late:
        print_line(console, f"not a result: {line}")
    if live.behind or late:
        return EXIT_FIDELITY
    return EXIT_OK if all(each.ok for each in found) else EXIT_CHECK_FAILED


app.command(
    rich_help_panel=BEGIN,
    epilog=examples("loomnet new", "loomnet new first", "loomnet new --switch heavy"),
)(new)
app.command(
    "examples",
    rich_help_panel=BEGIN,
    epilog=examples("loomnet examples", "loomnet examples my-scenarios"),
)(examples_)
app.command("list", rich_help_panel=BEGIN, epilog=examples("loomnet list", "loomnet list flap.py"))(
    list_
)
app.command(
    rich_help_panel=BEGIN,
    epilog=examples(
        "loomnet describe flap.py --set planes=8", "loomnet describe fat_tree --set k=16"
    ),
)(describe)
app.command(
    rich_help_panel=RESULTS, epilog=examples("loomnet compare runs/RUN-1 runs/RUN-2 --rel 5%")
)(compare)
app.command(rich_help_panel=RESULTS, epilog=examples("loomnet replay runs/RUN"))(replay)
app.command(
    rich_help_panel=RUN,
    epilog=examples(
        "loomnet bench all_reduce -b 8 -e 16M -f 2",
        "loomnet bench alltoall -b 1M -e 1M --transport roce --planes 1 --ranks 8",
    ),
)(bench)
app.command(
    rich_help_panel=RESULTS,
    epilog=examples("loomnet cost fattree mixnet --gpus 1024 --alpha 6 --rate 400G"),
)(cost)
app.command(
    rich_help_panel=RUN, epilog=examples("loomnet sweep flap.py --set planes=2,4,8 --seeds 3")
)(sweep)
app.command(
    rich_help_panel=RUN,
    epilog=examples("loomnet train train.py --set profile=ours --seeds 3"),
)(train)
app.command(rich_help_panel=BEGIN, epilog=examples("loomnet explain blip_s"))(explain)
app.add_typer(ocs, name="ocs", rich_help_panel=LIVE)


@app.command(
    rich_help_panel=BEGIN, epilog=examples("loomnet doctor", "sudo loomnet doctor --measure")
)
def doctor(
    measure: Annotated[
        bool,
        typer.Option(
            "--measure",
            help="Measure anew how many frames a second this machine carries live. Needs "
            "root and 3 s.",
        ),
    ] = False,
) -> int:
    """List what each clock needs: kernel features, tools, packages, each with its remedy."""
    from loomnet.live.doctor import checks, lines

    found = checks()
    for line in lines(found):
        print(line)
    if measure or importlib.util.find_spec("loomnet._core") is not None:
        from loomnet.live.machine_budget import line

        print(line(anew=measure))
    missing = any(check.required and check.found is False for check in found)
    return EXIT_USAGE if missing else EXIT_OK


@app.command(rich_help_panel=LIVE, epilog=examples("sudo loomnet clean"))
def clean() -> int:
    """Remove what dead runs left behind, and nothing else."""
    from loomnet.live.kernel_objects import clean as clean_dead_runs

    removed = clean_dead_runs()
    for line in removed:
        print(f"removed {line}")
    if not removed:
        print("nothing to remove")
    return EXIT_OK


@app.command(
    "exec",
    rich_help_panel=LIVE,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    options_metavar="",
    epilog=examples("sudo loomnet exec h0 -- ip addr"),
)
def exec_(context: typer.Context, host: Node) -> int:
    """Run a command inside a node of a live run: loomnet exec NODE -- COMMAND."""
    from loomnet.live.attach import command_in

    command = command_in(host, context.args)
    sys.stdout.flush()
    os.execvp(command[0], command)


@app.command(
    rich_help_panel=LIVE,
    epilog=examples("sudo loomnet capture h0:0 | wireshark -k -i -", "loomnet capture --dissector"),
)
def capture(
    port: Annotated[
        str | None,
        typer.Argument(
            metavar="NODE:PORT",
            show_default=False,
            help="A port of a live run, by its number or by "
            "the node at its other end, for example h0:0.",
        ),
    ] = None,
    dissector: Annotated[
        bool,
        typer.Option(
            "--dissector",
            help="Print the place of the Lua file by which Wireshark reads MRC and "
            "Loomnet's own headers, and exit.",
        ),
    ] = False,
) -> int:
    """Write what passes a port of a live run to standard output as pcapng, for Wireshark."""
    if dissector:
        if port is not None:
            raise UsageError(f"--dissector prints a place and captures nothing; leave out {port}")
        print(Path(__file__).with_name("wireshark") / "loomnet.lua")
        return EXIT_OK
    if port is None:
        raise UsageError("capture: give NODE:PORT, for example h0:0, or --dissector")
    from loomnet.live.attach import capture_of

    if sys.stdout.isatty():
        raise UsageError(f"capture writes pcapng: loomnet capture {port} | wireshark -k -i -")
    try:
        for piece in capture_of(port):
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
    except BrokenPipeError:
        # The reader has closed the pipe, and Python would fail again at exit when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        pass
    return EXIT_OK


@app.command(rich_help_panel=LIVE, epilog=examples("sudo loomnet shell h0"))
def shell(host: Node) -> int:
    """Open an interactive shell inside a node of a live run."""
    from loomnet.live.attach import shell_in

    command = shell_in(host)
    sys.stdout.flush()
    os.environ["LOOMNET_NODE"] = host  # for a prompt that says where one is
    os.execvp(command[0], command)
