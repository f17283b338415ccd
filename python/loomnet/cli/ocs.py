"""The command `ocs`: panels of a live run, by the grammar of SONiC's optical circuit switches."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from loomnet.base.errors import EXIT_CHECK_FAILED, EXIT_OK, printable
from loomnet.cli.help import App, examples

WIDTH = 80
Panel = Annotated[
    str | None, typer.Option("--panel", metavar="NAME", help="By default the run's only one.")
]
Run = Annotated[
    str | None, typer.Option("--run", metavar="ID", help="Where several runs have panels.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]
Listed = Annotated[str, typer.Argument(metavar="LIST", help="Cross-connects: 1A-16B,2A..4A-5B..7B")]

ocs = App(
    help="See and patch the panels of a live run.",
    epilog=examples(
        "sudo loomnet ocs show cross-connect status",
        "sudo loomnet ocs config cross-connect add 1A-16B,2A..4A-5B..7B",
        "sudo loomnet ocs reconcile 1-16",
    ),
)
show = App(help="Show what a panel was told to do, and its state.")
config = App(help="Tell a panel to join ports, or to change one.")
show_cross = App(help="Cross-connects.")
show_port = App(help="Simplex ports.")
config_cross = App(help="Cross-connects; a request is carried out whole or not at all.")
config_port = App(help="Simplex ports.")
ocs.add_typer(show, name="show")
ocs.add_typer(config, name="config")
show.add_typer(show_cross, name="cross-connect")
show.add_typer(show_port, name="port")
config.add_typer(config_cross, name="cross-connect")
config.add_typer(config_port, name="port")


def _asked(panel: str | None, run: str | None, *requests: dict[str, Any]) -> list[Any]:
    from loomnet.ocs.client import ask, connected

    _, link = connected(panel, run)
    with link:
        return [ask(link, **request) for request in requests]


def _say(found: Any, as_json: bool) -> int:
    print(json.dumps(found) if as_json else printable(str(found)))
    return EXIT_OK


def table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    """Lines of at most 80 characters: the widest column gives way."""
    cells = [[printable(str(row.get(name, ""))) for name in columns] for row in rows]
    widths = [max([len(name), *(len(row[at]) for row in cells)]) for at, name in enumerate(columns)]
    over = sum(widths) + 2 * (len(widths) - 1) - WIDTH
    if over > 0:
        at = widths.index(max(widths))
        widths[at] = max(widths[at] - over, len(columns[at]))
    lines = []
    for row in [list(columns), *cells]:
        cut = [
            text if len(text) <= width else f"{text[: width - 1]}…"
            for text, width in zip(row, widths, strict=True)
        ]
        lines.append(
            "  ".join(text.ljust(width) for text, width in zip(cut, widths, strict=True)).rstrip()
        )
    return "\n".join(lines)


def _show(
    what: str,
    panel: str | None,
    run: str | None,
    as_json: bool,
    columns: Sequence[str],
    **fields: Any,
) -> int:
    [rows] = _asked(panel, run, {"command": f"show {what}", **fields})
    if as_json:
        return _say(rows, True)
    print(table(columns, rows))
    return EXIT_OK


@show_cross.command("config")
def show_cross_config(panel: Panel = None, run: Run = None, json_out: Json = False) -> int:
    """Cross-connects that the panel was told to have."""
    from loomnet.ocs.translation import CROSS_CONFIG

    return _show("cross-connect config", panel, run, json_out, CROSS_CONFIG)


@show_cross.command("status")
def show_cross_status(panel: Panel = None, run: Run = None, json_out: Json = False) -> int:
    """Cross-connects that there are, or shall be, and half-circuits among them."""
    from loomnet.ocs.translation import CROSS_STATUS

    rows, half = _asked(
        panel, run, {"command": "show cross-connect status"}, {"command": "show half-circuits"}
    )
    if json_out:
        return _say(rows, True)
    print(table(CROSS_STATUS, rows))
    if half:
        more = f" and {len(half) - 6} more" if len(half) > 6 else ""
        print(printable(f"one direction alone: {', '.join(map(str, half[:6]))}{more}"))
    return EXIT_OK


@show_port.command("config")
def show_port_config(panel: Panel = None, run: Run = None, json_out: Json = False) -> int:
    """Labels of ports, and the states that they were told to have."""
    from loomnet.ocs.translation import PORT_CONFIG

    return _show("port config", panel, run, json_out, PORT_CONFIG)


@show_port.command("status")
def show_port_status(panel: Panel = None, run: Run = None, json_out: Json = False) -> int:
    """Ports: blocked, tuning, tuned or failed, and what they are joined to."""
    from loomnet.ocs.translation import PORT_STATUS

    return _show("port status", panel, run, json_out, PORT_STATUS)


@show.command("port-mapping")
def show_port_mapping(panel: Panel = None, run: Run = None, json_out: Json = False) -> int:
    """Connectors and pins of ports."""
    from loomnet.ocs.translation import PORT_MAPPING

    return _show("port-mapping", panel, run, json_out, PORT_MAPPING)


@show.command("factory-insertion-loss")
def show_factory_insertion_loss(
    listed: Annotated[str | None, typer.Argument(metavar="LIST", help="By default all.")] = None,
    panel: Panel = None,
    run: Run = None,
    json_out: Json = False,
) -> int:
    """Losses of light, as measured when the panel was made."""
    from loomnet.ocs.translation import LOSS

    return _show(
        "factory-insertion-loss",
        panel,
        run,
        json_out,
        LOSS,
        **({} if listed is None else {"list": listed}),
    )


@config_cross.command("add")
def config_cross_add(
    listed: Listed,
    mode: Annotated[
        str,
        typer.Argument(
            metavar="MODE",
            help="update: takes the ports from "
            "what uses them; safe: refused if anything does; overwrite: these "
            "and no others.",
        ),
    ] = "update",
    panel: Panel = None,
    run: Run = None,
    json_out: Json = False,
) -> int:
    """Add cross-connects."""
    return _say(
        _asked(panel, run, {"command": "config cross-connect add", "list": listed, "mode": mode})[
            0
        ],
        json_out,
    )


@config_cross.command("delete")
def config_cross_delete(
    listed: Listed, panel: Panel = None, run: Run = None, json_out: Json = False
) -> int:
    """Remove cross-connects."""
    return _say(
        _asked(panel, run, {"command": "config cross-connect delete", "list": listed})[0], json_out
    )


@config_port.command("label")
def config_port_label(
    port: Annotated[str, typer.Argument(metavar="PORT")],
    text: Annotated[str, typer.Argument(metavar="TEXT")],
    panel: Panel = None,
    run: Run = None,
    json_out: Json = False,
) -> int:
    """Name a simplex port; "" takes the name away."""
    return _say(
        _asked(panel, run, {"command": "config port label", "port": port, "text": text})[0],
        json_out,
    )


@config_port.command("state")
def config_port_state(
    port: Annotated[str, typer.Argument(metavar="PORT")],
    state: Annotated[str, typer.Argument(metavar="normal|force_blocked|powered_off")],
    panel: Panel = None,
    run: Run = None,
    json_out: Json = False,
) -> int:
    """Block a simplex port, or give it back."""
    return _say(
        _asked(panel, run, {"command": "config port state", "port": port, "state": state})[0],
        json_out,
    )


@ocs.command("reconcile")
def reconcile(
    listed: Annotated[
        str,
        typer.Argument(
            metavar="LIST", help="Cross-connects as 1A-16B, or both directions as 1-16."
        ),
    ],
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, max=600, help="Patience until all are tuned.")
    ] = 60,
    panel: Panel = None,
    run: Run = None,
    json_out: Json = False,
) -> int:
    """Give the panel these cross-connects and no others, and wait until they are tuned. Those that
    it has already are not touched. Exit 1 where they are not tuned in time."""
    [found] = _asked(panel, run, {"command": "reconcile", "list": listed, "timeout_s": timeout})
    if json_out:
        print(json.dumps(found))
    else:
        for name in ("removed", "added"):
            if found[name]:
                print(printable(f"{name} {', '.join(map(str, found[name]))}"))
        if not found["removed"] and not found["added"]:
            print("nothing to do")
        print("tuned" if found["tuned"] else "not tuned in time")
    return EXIT_OK if found["tuned"] else EXIT_CHECK_FAILED
