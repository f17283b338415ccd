"""A panel's configuration and state as JSON on a UNIX socket: a request and its answer are a line
each."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import socketserver
import threading
from pathlib import Path
from typing import Any

from loomnet.base.errors import LoomnetError, UnavailableError, UsageError
from loomnet.base.names import did_you_mean, quoted
from loomnet.ocs.sonic import Sonic

MOST_LINE = 128 << 10
MOST_CLIENTS = 16
_TIMEOUT_S = 10.0  # of a client that sends half a line or takes no answer
# What may be asked, and the names of its arguments; those behind a colon may be left out.
COMMANDS = {
    "add": ("listed", ":mode"), "delete": ("listed",), "reconcile": ("wanted",),
    "label": ("port", "text"), "state": ("port", "state"), "cross_connect_config": (),
    "cross_connect_status": (), "half_circuits": (), "port_config": (), "port_status": (),
    "port_mapping": (), "factory_insertion_loss": (":listed",), "tables": (),
}


def answered(sonic: Sonic, line: bytes, ending: threading.Event) -> dict[str, Any]:
    """The answer to one request: {"ok": …} or {"error": …}."""
    try:
        return {"ok": _asked(sonic, line, ending)}
    except LoomnetError as error:
        return {"error": str(error)}


def _asked(sonic: Sonic, line: bytes, ending: threading.Event) -> Any:
    try:
        given = json.loads(line)
    except (ValueError, RecursionError):
        raise UsageError("Invalid request: no JSON object in a line") from None
    if not isinstance(given, dict) or not isinstance(command := given.pop("command", None), str):
        raise UsageError('Invalid request: an object {"command": …} is needed')
    if command not in COMMANDS:
        raise UsageError(f"Invalid command {quoted(command)}{did_you_mean(command, COMMANDS)}; "
                         f"there are {', '.join(COMMANDS)}")
    needed = [name for name in COMMANDS[command] if not name.startswith(":")]
    known = [name.removeprefix(":") for name in COMMANDS[command]]
    for name, value in given.items():
        if name not in known or not isinstance(value, str):
            raise UsageError(f"Invalid argument {quoted(name)} of {command}: it takes "
                             f"{', '.join(known) or 'none'}, each a string")
    if missing := [name for name in needed if name not in given]:
        raise UsageError(f"Invalid request: {command} needs {', '.join(missing)}")
    if command == "reconcile":
        done = sonic.reconcile(filter(None, given["wanted"].split(",")), ending=ending)
        return {"removed": done.removed, "added": done.added, "generation": done.generation,
                "tuned": done.tuned}
    return getattr(sonic, command)(*(given[name] for name in known if name in given))


class JsonSocket:
    """Serves one panel until close(). `path` lies in a folder that only its owner can write;
    `owner` is who may use it, uid and gid. Raises OSError."""

    def __init__(self, path: Path, sonic: Sonic, owner: tuple[int, int] | None = None) -> None:
        self.path, self._sonic = path, sonic
        self._ending = threading.Event()
        self._clients = threading.BoundedSemaphore(MOST_CLIENTS)
        outer = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                outer._serve(self.request)

        class Server(socketserver.ThreadingUnixStreamServer):
            daemon_threads = True

        mask = os.umask(0o177)
        try:
            self._server = Server(str(path), Handler)
        finally:
            os.umask(mask)
        if owner is not None and owner[0] != os.geteuid():
            os.chown(path, *owner, follow_symlinks=False)
        self._thread = threading.Thread(target=self._server.serve_forever,
                                        kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Idempotent."""
        if self._ending.is_set():
            return
        self._ending.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(2.0)
        self.path.unlink(missing_ok=True)

    def _serve(self, client: socket.socket) -> None:
        if not self._clients.acquire(blocking=False):
            return
        try:
            client.settimeout(_TIMEOUT_S)
            with contextlib.suppress(OSError), client.makefile("rb") as lines:
                while not self._ending.is_set() and (line := lines.readline(MOST_LINE)):
                    if not line.endswith(b"\n"):
                        self._say(client, {"error": "Invalid request: a line that is too long, or "
                                                    "has no end"})
                        return
                    self._say(client, answered(self._sonic, line, self._ending))
        finally:
            self._clients.release()

    @staticmethod
    def _say(client: socket.socket, answer: dict[str, Any]) -> None:
        client.sendall(json.dumps(answer).encode() + b"\n")


def ask(path: Path, command: str, **arguments: str) -> Any:
    """What a panel answers at this socket. Raises UsageError for what it refuses,
    UnavailableError where nobody answers."""
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(120.0)
            client.connect(str(path))
            client.sendall(json.dumps({"command": command, **arguments}).encode() + b"\n")
            with client.makefile("rb") as lines:
                line = lines.readline(256 << 20)
            answer = json.loads(line)
    except PermissionError:
        raise UnavailableError(f"ocs: {path} is another user's; ask as the run's user, or as "
                               "root") from None
    except (OSError, ValueError) as error:
        raise UnavailableError(f"ocs: no answer at {path}: {error or 'it has ended'}") from None
    if "error" in answer:
        raise UsageError(answer["error"])
    return answer["ok"]
