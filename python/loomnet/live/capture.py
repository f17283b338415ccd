"""Captures of a live run's ports for whoever asks while it runs: an abstract socket, which the
kernel takes away with the run, and one thread per asker."""

from __future__ import annotations

import json
import select
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

from loomnet.errors import UnavailableError, UsageError
from loomnet.plan import Plan
from loomnet.reading import parse_json
from loomnet.recording import find_port

PERIOD_S = 0.05  # between two looks at what a capture holds
_MOST_REQUEST = 4096


def address(run_id: str) -> bytes:
    """Of a run's socket, in the abstract namespace of the network namespace it was started in."""
    return b"\0loomnet-" + run_id.encode()


class CaptureServer:
    """Serves captures of one live run, to root alone. Use as a context manager, or call close();
    the run's loop must still be there then."""

    def __init__(self, run_id: str, plan: Plan, live: Any, recorder: Any) -> None:
        self._plan, self._live, self._recorder = plan, live, recorder
        self._ending = threading.Event()
        self._askers: list[threading.Thread] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(address(run_id))
        self._socket.listen(8)
        self._socket.settimeout(PERIOD_S)
        self._thread = threading.Thread(target=self._accept, name="loomnet-capture", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends all captures properly. Idempotent."""
        self._ending.set()
        self._thread.join()
        for asker in self._askers:
            asker.join()
        self._socket.close()

    def __enter__(self) -> CaptureServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while not self._ending.is_set():
            try:
                asker, _ = self._socket.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(asker,), daemon=True)
            self._askers = [each for each in self._askers if each.is_alive()] + [thread]
            thread.start()

    def _serve(self, asker: socket.socket) -> None:
        with asker:
            asker.settimeout(2)
            try:
                # Read whoever asks: a socket closed with unread bytes resets the asker, who would
                # not see the answer.
                request = _request(asker)
                if _user(asker) != 0:
                    raise UsageError("only root may capture a live run's ports")
                half = find_port(self._plan, _port(request))
            except UsageError as error:
                _answer(asker, str(error))
                return
            except (OSError, ValueError):
                return
            number = self._live.capture(
                self._recorder,
                half.number,
                f"{half.name.partition('->')[0]}:{half.source_port}",
                half.name,
            )
            try:
                _answer(asker, None)
                while not self._ending.wait(PERIOD_S) and not _gone(asker):
                    asker.sendall(self._live.take_capture(self._recorder, number))
            except OSError:
                pass  # whoever asked has left, or reads too slowly
            finally:
                rest = self._live.take_capture(self._recorder, number, last=True)
            try:
                asker.sendall(rest)
            except OSError:
                pass


def _user(asker: socket.socket) -> int:
    size = struct.calcsize("3i")  # pid, user and group of struct ucred
    option = asker.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    return struct.unpack("3i", option)[1]


def _request(asker: socket.socket) -> bytes:
    data = b""
    while not data.endswith(b"\n"):
        more = asker.recv(_MOST_REQUEST - len(data))
        if not more:
            raise ValueError("no request")
        data += more
    return data


def _port(request: bytes) -> str:
    asked = parse_json(request, "request")
    port = asked.get("capture") if isinstance(asked, dict) else None
    if not isinstance(port, str):
        raise UsageError('write {"capture": "NODE:PORT"} and a line end')
    return port


def _answer(asker: socket.socket, error: str | None) -> None:
    try:
        asker.sendall(json.dumps({"error": error}).encode() + b"\n")
    except OSError:
        pass


def _gone(asker: socket.socket) -> bool:
    readable, _, _ = select.select([asker], [], [], 0)
    return bool(readable) and not asker.recv(1)


def stream(run_id: str, port: str) -> Iterator[bytes]:
    """pcapng bytes of `NODE:PORT` of a live run, until it ends. Raises UnavailableError where it
    does not answer, UsageError for an unknown port."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        try:
            link.settimeout(5)
            link.connect(address(run_id))
            link.sendall(json.dumps({"capture": port}).encode() + b"\n")
            answer = b""
            while not answer.endswith(b"\n"):
                one = link.recv(1)
                if not one or len(answer) > _MOST_REQUEST:
                    raise UnavailableError(f"capture: run {run_id} gives no answer")
                answer += one
        except OSError as error:
            raise UnavailableError(f"capture: run {run_id} does not answer: {error}") from None
        said = parse_json(answer, f"capture: the answer of run {run_id}")
        if not isinstance(said, dict) or said.get("error") is not None:
            message = said.get("error") if isinstance(said, dict) else "an answer of no such run"
            raise UsageError(f"capture: {message}")
        link.settimeout(None)
        while data := link.recv(1 << 16):
            yield data
