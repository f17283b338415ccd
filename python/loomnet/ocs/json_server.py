"""SONiC's model of a panel as JSON on a UNIX socket. Each request is one line and has one line as
its answer."""

from __future__ import annotations

import json
import re
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import loomnet.ocs.names as names
from loomnet.base.errors import LoomnetError, UsageError
from loomnet.base.names import did_you_mean, quoted
from loomnet.base.reading import parse_json
from loomnet.ocs.access import Access
from loomnet.ocs.sonic import Sonic
from loomnet.ocs.stream_server import Client, StreamServer, TooLong

MOST_LINE = 128 << 10  # bytes of a request
IDLE_S = 300.0
MOST_TIMEOUT_S = 600.0
_DUPLEX = re.compile(r"([0-9]{1,9})-([0-9]{1,9})", re.ASCII)

Fields = dict[str, Any]


def _text(fields: Fields, name: str, default: str | None = None) -> str:
    found = fields.pop(name, default)
    if not isinstance(found, str):
        raise UsageError(
            f'Invalid request: "{name}" is a text that is missing'
            if found is None
            else f'Invalid request: "{name}"={quoted(found)} is not a text'
        )
    return found


def _wanted(fields: Fields) -> list[str | names.Pair]:
    """What a reconcile wants: a text as names.pairs takes it, in which 1-16 is a duplex pair; or a
    list of such names and of pairs of numbers."""
    found = fields.pop("list", None)
    items = found.split(",") if isinstance(found, str) and found.strip() else found
    if not isinstance(items, list) or len(items) > names.MOST_NAMED:
        raise UsageError(
            'Invalid request: "list" is a text as 1A-16B,2-17 or a list, of '
            f"{names.MOST_NAMED} at most"
        )
    wanted: list[str | names.Pair] = []
    for item in items:
        if isinstance(item, str):
            duplex = _DUPLEX.fullmatch(item.strip())
            wanted.append((int(duplex[1]), int(duplex[2])) if duplex else item)
        elif (
            isinstance(item, list)
            and len(item) == 2
            and all(type(each) is int and abs(each) < 10**9 for each in item)
        ):
            wanted.append((item[0], item[1]))
        else:
            raise names.NameMistake(
                f"Invalid cross-connect {quoted(item)}: write 1A-16B, or 1-16 for both directions"
            )
    return wanted


def _patience(fields: Fields) -> float:
    found = fields.pop("timeout_s", 60)
    if (
        isinstance(found, bool)
        or not isinstance(found, (int, float))
        or not 0 <= found <= MOST_TIMEOUT_S
    ):
        raise UsageError(
            f'Invalid request: "timeout_s"={quoted(found)} is not 0 to {MOST_TIMEOUT_S:g} seconds'
        )
    return float(found)


def _losses(sonic: Sonic, fields: Fields) -> Any:
    listed = _text(fields, "list") if "list" in fields else None
    return lambda: sonic.factory_insertion_loss(listed)


def _add(sonic: Sonic, fields: Fields) -> Any:
    listed, mode = _text(fields, "list"), _text(fields, "mode", "update")
    return lambda: sonic.add(listed, mode)


def _delete(sonic: Sonic, fields: Fields) -> Any:
    listed = _text(fields, "list")
    return lambda: sonic.delete(listed)


def _label(sonic: Sonic, fields: Fields) -> Any:
    port, text = _text(fields, "port"), _text(fields, "text")
    return lambda: sonic.label(port, text)


def _state(sonic: Sonic, fields: Fields) -> Any:
    port, state = _text(fields, "port"), _text(fields, "state")
    return lambda: sonic.state(port, state)


# Each function takes its fields out of the request and returns a function that carries it out. That
# function is called only if no unknown field is left.
_SHOW: dict[str, Callable[[Sonic, Fields], Any]] = {
    "show cross-connect config": lambda sonic, _: sonic.cross_connect_config,
    "show cross-connect status": lambda sonic, _: sonic.cross_connect_status,
    "show half-circuits": lambda sonic, _: sonic.half_circuits,
    "show port config": lambda sonic, _: sonic.port_config,
    "show port status": lambda sonic, _: sonic.port_status,
    "show port-mapping": lambda sonic, _: sonic.port_mapping,
    "show factory-insertion-loss": _losses,
    "tables": lambda sonic, _: sonic.tables,
}
_CONFIG: dict[str, Callable[[Sonic, Fields], Any]] = {
    "config cross-connect add": _add,
    "config cross-connect delete": _delete,
    "config port label": _label,
    "config port state": _state,
}
COMMANDS = (*_SHOW, *_CONFIG, "reconcile")


def answer(access: Access, line: bytes, ending: threading.Event) -> Fields:
    """The answer to one line: {"ok": …} or {"error": …}."""
    try:
        asked = parse_json(line, "Invalid request")
        if not isinstance(asked, dict):
            raise UsageError('Invalid request: write {"command": "show port status"}')
        command = _text(asked, "command")
        text = " ".join([command, *(str(value) for value in asked.values())])
        sonic = Sonic(access.operate if command in _SHOW else access.noted(text), access.settings)
        if command in _SHOW or command in _CONFIG:
            call = (_SHOW.get(command) or _CONFIG[command])(sonic, asked)
        elif command == "reconcile":
            wanted, patience = _wanted(asked), _patience(asked)

            def call() -> Fields:
                return asdict(sonic.reconcile(wanted, timeout_s=patience, ending=ending))
        else:
            raise UsageError(f"Invalid command {quoted(command)}{did_you_mean(command, COMMANDS)}")
        if asked:
            raise UsageError(f"Invalid request: {command} has no field {quoted(next(iter(asked)))}")
        return {"ok": call()}
    except LoomnetError as error:
        return {"error": str(error)}


def user_of(link: socket.socket) -> int:
    """The user id of the process at the other end of a UNIX socket."""
    size = struct.calcsize("3i")  # pid, user and group of struct ucred
    return struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))[1]


class JsonServer(StreamServer):
    """Serves one panel on a UNIX socket that is listening already."""

    def __init__(self, access: Access, listener: socket.socket) -> None:
        self._access = access
        super().__init__(
            listener,
            self._talk,
            name="loomnet-ocs",
            peer=user_of,
            idle_s=IDLE_S,
            busy=_line({"error": "Error: too many clients ask this panel already"}),
        )

    def _talk(self, client: Client) -> None:
        while True:
            try:
                line = client.message(b"\n", MOST_LINE)
            except TooLong:
                reply: Fields = {"error": f"Invalid request: it has more than {MOST_LINE} bytes"}
            else:
                if line is None:
                    return
                reply = answer(self._access, line, client.ending)
            if not client.send(_line(reply)):
                return


def _line(reply: Fields) -> bytes:
    return json.dumps(reply).encode() + b"\n"
