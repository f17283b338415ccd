"""Captures of a live run's ports for root's other processes while it runs: an abstract socket,
which the kernel takes away with the run, and a thread per asker. Any user may connect to the
socket, so the askers' threads, bytes and time are bounded."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

from loomnet.base.errors import UnavailableError, UsageError
from loomnet.base.reading import parse_json
from loomnet.plans.model import Plan
from loomnet.plans.port_search import find_port

PERIOD_S = 0.05  # between two looks at what a capture holds
MOST_ASKERS = 8  # at once, of root; and of all other users together
_MOST_REQUEST = 4096
_REQUEST_S = 2.0  # for a whole request to come
_SLOW_S = 2.0  # an asker that takes no byte for so long has lost its capture
_LAST_S = 0.3  # the same once the run ends, which does not wait for a slow reader


def address(name: str) -> bytes:
    """Of the socket of this name, in the abstract namespace of the network namespace that the run
    was started in."""
    return b"\0loomnet-" + name.encode()


class CaptureServer:
    """Serves captures of one live run, to root alone. Use as a context manager, or call close();
    the run's loop must still be there then.

    `name`: of its socket. Of a run it begins with the run's id and goes on with what no other user
    can guess, or another user's socket could have the name first.
    """

    def __init__(self, name: str, plan: Plan, live: Any, recorder: Any) -> None:
        self._plan, self._live, self._recorder = plan, live, recorder
        self._ending = threading.Event()
        self._askers: dict[bool, list[threading.Thread]] = {True: [], False: []}  # root's; others'
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(address(name))
        self._socket.listen(128)
        self._socket.settimeout(PERIOD_S)
        self._thread = threading.Thread(target=self._accept, name="loomnet-capture", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends all captures properly. Idempotent."""
        self._ending.set()
        self._thread.join()
        for asker in [*self._askers[True], *self._askers[False]]:
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
            except OSError:  # no descriptor is free
                self._ending.wait(PERIOD_S)
                continue
            root = _user(asker) == 0
            alive = self._askers[root] = [each for each in self._askers[root] if each.is_alive()]
            if len(alive) >= MOST_ASKERS:
                with asker:
                    asker.setblocking(False)
                    _answer(asker, f"{MOST_ASKERS} others ask this run already")
                continue
            thread = threading.Thread(target=self._serve, args=(asker, root), daemon=True)
            alive.append(thread)
            thread.start()

    def _serve(self, asker: socket.socket, root: bool) -> None:
        with asker:
            asker.settimeout(PERIOD_S)
            try:
                # The request of a user that is refused is read too: a socket closed with unread
                # bytes resets the asker, which would not see the answer.
                request = self._request(asker)
                if not root:
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
            lost = True
            try:
                _answer(asker, None)
                while not self._ending.wait(PERIOD_S) and not _gone(asker):
                    self._send(asker, self._live.take_capture(self._recorder, number))
                lost = False
            except OSError:
                pass  # the asker has left, or reads too slowly
            finally:
                rest = self._live.take_capture(self._recorder, number, last=True)
            if not lost:
                with contextlib.suppress(OSError):
                    self._send(asker, rest)

    def _request(self, asker: socket.socket) -> bytes:
        """One line. Raises UsageError for a longer one than a request can be, ValueError where none
        comes in time."""
        data, whole, end = b"", True, time.monotonic() + _REQUEST_S
        while not data.endswith(b"\n"):
            if self._ending.is_set() or time.monotonic() > end:
                break
            try:
                more = asker.recv(_MOST_REQUEST)
            except TimeoutError:
                continue
            if not more:
                break
            data += more
            if len(data) > _MOST_REQUEST:
                data, whole = data[-1:], False
        if not whole:
            raise UsageError(f"a request has {_MOST_REQUEST} bytes at most")
        if not data.endswith(b"\n"):
            raise ValueError("no request")
        return data

    def _send(self, asker: socket.socket, data: bytes) -> None:
        """Raises OSError where the asker has left, or takes nothing for a while."""
        left, moved = memoryview(data), time.monotonic()
        while left:
            try:
                left = left[asker.send(left) :]
                moved = time.monotonic()
            except TimeoutError:
                if time.monotonic() - moved > (_LAST_S if self._ending.is_set() else _SLOW_S):
                    raise


def _user(asker: socket.socket) -> int:
    size = struct.calcsize("3i")  # pid, user and group of struct ucred
    option = asker.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    return struct.unpack("3i", option)[1]


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
    look = select.poll()
    look.register(asker, select.POLLIN)
    return bool(look.poll(0)) and not asker.recv(1)


def stream(name: str, port: str) -> Iterator[bytes]:
    """pcapng bytes of `NODE:PORT` of the live run whose socket has this name, until it ends. Raises
    UnavailableError where it does not answer, UsageError for an unknown port."""
    run_id = name.partition("-")[0]
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        try:
            link.settimeout(5)
            link.connect(address(name))
            if _user(link) != 0:
                raise UnavailableError(f"capture: run {run_id} does not answer, another user does")
            with contextlib.suppress(BrokenPipeError):  # refused already: the answer says why
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
