"""`loomnet ocs`: the panels of a live run from another terminal, in the words of SONiC's OCS
design."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import unquote

import typer

from loomnet.base.errors import UnavailableError, UsageError
from loomnet.base.names import did_you_mean, quoted
from loomnet.base.table import Table

app = typer.Typer(no_args_is_help=True, help="Show and patch the panels of a live run.")
config = typer.Typer(no_args_is_help=True, help="Change cross-connects and ports.")
app.add_typer(config, name="config")
Panel = Annotated[str | None, typer.Option(help="A panel; needed where a run has several.")]
Run = Annotated[str | None, typer.Option(help="A run's four characters, where several last.")]
Json = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]
_SHOWN = {
    ("cross-connect", "config"): "cross_connect_config",
    ("cross-connect", "status"): "cross_connect_status",
    ("port", "config"): "port_config",
    ("port", "status"): "port_status",
    ("port-mapping",): "port_mapping",
    ("factory-insertion-loss",): "factory_insertion_loss",
}


def socket_of(panel: str | None, run: str | None) -> Path:
    """The socket of a panel of a run that lasts. Raises UsageError, UnavailableError."""
    from loomnet.live.panel_control import sockets_folder

    found = {}
    for path in [*sockets_folder().glob("*.sock"), *Path("/run/loomnet/panels").glob("*.sock")]:
        run_id, _, name = path.stem.partition("-")
        if run in (None, run_id):
            found[run_id, unquote(name)] = path
    if not found:
        raise UnavailableError("ocs: no run with a panel lasts; start one with `loomnet run FILE "
                               "--clock live`")
    named = {which: path for which, path in found.items() if panel in (None, which[1])}
    if not named:
        names = sorted({name for _, name in found})
        raise UsageError(f"ocs: no panel {quoted(panel)}{did_you_mean(panel or '', names)}; there "
                         f"are {', '.join(names)}")
    if len(named) > 1:
        several = "runs, give --run" if len({each for each, _ in named}) > 1 else "give --panel"
        raise UsageError("ocs: which? " + ", ".join(f"{name} of run {each}"
                                                    for each, name in sorted(named))
                         + f": {several}")
    return next(iter(named.values()))


def _ask(panel: str | None, run: str | None, command: str, **arguments: str) -> Any:
    from loomnet.ocs.json_socket import ask

    return ask(socket_of(panel, run), command, **arguments)


@app.command()
def show(
    what: Annotated[list[str], typer.Argument(metavar="WHAT", help="cross-connect config|status, "
                                              "port config|status, port-mapping or "
                                              "factory-insertion-loss [LIST].")],
    panel: Panel = None, run: Run = None, as_json: Json = False,
) -> int:
    """Print a table of a panel: loomnet ocs show cross-connect status --panel ocs0."""
    words, arguments = tuple(what), {}
    if words[0] == "factory-insertion-loss" and len(words) == 2:
        words, arguments = words[:1], {"listed": words[1]}
    if words not in _SHOWN:
        known = ", ".join(" ".join(each) for each in _SHOWN)
        raise UsageError(f"ocs show: {quoted(' '.join(words))} is none of {known}")
    rows = _ask(panel, run, _SHOWN[words], **arguments)
    if as_json:
        print(json.dumps(rows, indent=1))
    elif rows:
        print(Table(rows[0], rows))
    else:
        print("none")
    return 0


@config.command("cross-connect")
def cross_connect(
    action: Annotated[str, typer.Argument(help="add or delete.")],
    listed: Annotated[str, typer.Argument(metavar="LIST", help="1A-1B,2A..4A-5B..7B")],
    mode: Annotated[str, typer.Argument(help="update, safe or overwrite.")] = "update",
    panel: Panel = None, run: Run = None,
) -> int:
    """Add or delete cross-connects, all of a list at once."""
    if action not in ("add", "delete"):
        raise UsageError(f"ocs config cross-connect: {quoted(action)} is neither add nor delete")
    arguments = {"listed": listed} | ({"mode": mode} if action == "add" else {})
    print(_ask(panel, run, action, **arguments))
    return 0


@config.command()
def port(
    what: Annotated[str, typer.Argument(help="label or state.")],
    name: Annotated[str, typer.Argument(metavar="PORT", help="1A")],
    value: Annotated[str, typer.Argument(help="A text; normal, force_blocked or powered_off.")],
    panel: Panel = None, run: Run = None,
) -> int:
    """Label a simplex port, or set its state."""
    if what not in ("label", "state"):
        raise UsageError(f"ocs config port: {quoted(what)} is neither label nor state")
    arguments = {"port": name, "text" if what == "label" else "state": value}
    print(_ask(panel, run, what, **arguments))
    return 0


@app.command()
def reconcile(
    wanted: Annotated[str, typer.Argument(metavar="LIST", help="Cross-connects, 1A-2B,2A-1B.")],
    panel: Panel = None, run: Run = None,
) -> int:
    """Make a panel have these cross-connects, and wait until they are tuned."""
    done = _ask(panel, run, "reconcile", wanted=wanted)
    changed = [f"{word} {', '.join(done[word])}" for word in ("removed", "added") if done[word]]
    print("; ".join(changed) or "nothing to do", "" if done["tuned"] else "(not tuned)")
    return 0 if done["tuned"] else 1
