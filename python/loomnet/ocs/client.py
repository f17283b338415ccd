"""Sends requests to a panel of a live run from another process, over its UNIX socket."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loomnet.base.errors import PrivilegeError, UnavailableError, UsageError, printable
from loomnet.base.names import did_you_mean, in_quotes
from loomnet.base.reading import parse_json
from loomnet.ocs.sockets import FOLDER, STATE

MOST_ANSWER = 64 << 20  # bytes
_ANSWER_S = 700.0  # longer than the longest patience of a reconcile
_NO_RUN = "ocs: nothing with a panel runs live; start it with `loomnet run FILE --clock live`"


@dataclass(frozen=True)
class PanelSocket:
    run: str
    panel: str
    path: Path

    def connect(self) -> socket.socket | None:
        """The connected socket, or None where the run has died. Raises PrivilegeError,
        UnavailableError."""
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            link.settimeout(5)
            link.connect(str(self.path))
            return link
        except (ConnectionRefusedError, FileNotFoundError):
            link.close()
            return None
        except PermissionError:
            link.close()
            raise PrivilegeError(
                f"ocs: run {self.run} is another user's; ask as that user, or with sudo"
            ) from None
        except OSError as error:
            link.close()
            raise UnavailableError(
                f"ocs: run {self.run} does not answer: {error.strerror or error}"
            ) from None


def sockets() -> list[PanelSocket]:
    """The sockets of all runs, including runs that have died and are not cleaned up yet."""
    found: list[PanelSocket] = []
    try:
        runs = sorted(os.listdir(STATE / FOLDER))
    except OSError:
        return []
    for run in runs:
        folder = STATE / FOLDER / run
        try:
            found += [
                PanelSocket(run, panel, folder / panel) for panel in sorted(os.listdir(folder))
            ]
        except OSError:  # the run is ending, or has only begun
            continue
    return found


def connected(panel: str | None, run: str | None) -> tuple[PanelSocket, socket.socket]:
    """A connection to the panel that the arguments name. Raises UsageError where they fit several
    panels, UnavailableError where they fit none."""
    every = sockets()
    runs = sorted({each.run for each in every})
    if run is not None and run not in runs:
        raise UsageError(
            f"ocs: --run: no run {in_quotes(run)} with a panel{did_you_mean(run, runs)}"
        )
    alive: list[tuple[PanelSocket, socket.socket]] = []
    try:
        refused: PrivilegeError | None = None
        for each in every:
            if run in (None, each.run) and panel in (None, each.panel):
                try:
                    link = each.connect()
                except PrivilegeError as error:
                    refused = error
                    continue
                if link is not None:
                    alive.append((each, link))
        if not alive and refused is not None:
            raise refused
        if not alive:
            if panel is not None and any(run in (None, each.run) for each in every):
                known = [each.panel for each in every if run in (None, each.run)]
                if panel not in known:
                    raise UsageError(
                        f"ocs: --panel: no panel {in_quotes(panel)}{did_you_mean(panel, known)}"
                    )
            raise UnavailableError(_NO_RUN)
        among = sorted({each.run for each, _ in alive})
        if len(among) > 1:
            raise UsageError(f"ocs: several runs have panels: add --run {' or --run '.join(among)}")
        if len(alive) > 1:
            names = [each.panel for each, _ in alive]
            raise UsageError(
                f"ocs: run {among[0]} has {len(names)} panels: add --panel {names[0]} … {names[-1]}"
            )
        return alive.pop()
    finally:
        for _, link in alive:
            link.close()


def ask(link: socket.socket, **request: Any) -> Any:
    """Sends a request and returns the value of "ok" in the answer. Raises UsageError with the
    panel's message, UnavailableError where no answer comes."""
    try:
        link.settimeout(_ANSWER_S)
        link.sendall(json.dumps(request).encode() + b"\n")
        answer = bytearray()
        while not answer.endswith(b"\n"):
            more = link.recv(1 << 16)
            if not more or len(answer) > MOST_ANSWER:
                raise UnavailableError("ocs: the run has ended before its answer")
            answer += more
    except OSError as error:
        raise UnavailableError(f"ocs: no answer: {error.strerror or error}") from None
    found = parse_json(bytes(answer), "ocs: the answer")
    if not isinstance(found, dict) or not found.keys() & {"ok", "error"}:
        raise UnavailableError("ocs: the answer is not one that a panel gives")
    if "error" in found:
        raise UsageError(printable(str(found["error"])))
    return found["ok"]
