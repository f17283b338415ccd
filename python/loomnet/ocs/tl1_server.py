"""A panel's TL1 over TCP: a thread for each client, few of them, none of which can make the panel
wait."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
import time
from typing import Any

from loomnet.ocs.settings import Settings
from loomnet.ocs.switch import Operate
from loomnet.ocs.tl1 import Session
from loomnet.ocs.tl1_grammar import MOST_COMMAND, Denied, completed, denied

PORT = 3082
MOST_CLIENTS = 16
_LOOK_S = 0.02  # at scripts that flap ports, and for the end
_SEND_S = 5.0  # a client that takes nothing for so long is left


class Tl1Server:
    """Serves one panel until close(). Raises OSError where the address is taken.

    Args:
        operate: runs fn(device, now_ps) where the panel's owner lets it.
        host, port: where it listens; port 0: one that is free.
        settings: what the panel's control interfaces share.
        users: names and words that may log in; None: admin, root.
    """

    def __init__(self, operate: Operate, *, host: str = "127.0.0.1", port: int = PORT,
                 settings: Settings | None = None, users: dict[str, str] | None = None) -> None:
        self.settings = settings or Settings()
        self._operate, self._users = operate, users
        self._ending = threading.Event()
        self._clients = threading.BoundedSemaphore(MOST_CLIENTS)
        outer = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                outer._serve(self.request)

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address = True
            daemon_threads = True
            address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

        self._server = Server((host, port), Handler)
        self._threads = [threading.Thread(target=self._server.serve_forever,
                                          kwargs={"poll_interval": _LOOK_S}, daemon=True),
                         threading.Thread(target=self._flap, daemon=True)]
        for thread in self._threads:
            thread.start()

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._server.server_address[:2]
        return str(host), int(port)

    def close(self) -> None:
        """Ends all dialogues. Idempotent."""
        if self._ending.is_set():
            return
        self._ending.set()
        self._server.shutdown()
        self._server.server_close()
        for thread in self._threads:
            thread.join(2.0)

    def __enter__(self) -> Tl1Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- a client ---------------------------------------------------------------------------------
    def _serve(self, client: socket.socket) -> None:
        if not self._clients.acquire(blocking=False):
            return  # one too many is closed at once
        try:
            client.settimeout(0.2)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with contextlib.suppress(OSError):
                self._talk(client)
        finally:
            self._clients.release()

    def _talk(self, client: socket.socket) -> None:
        session = Session(self._operate, self.settings, ending=self._ending, users=self._users)
        read, last = b"", time.monotonic()
        while not self._ending.is_set():
            if session.timeout_min and time.monotonic() - last > 60 * session.timeout_min:
                return
            try:
                came = client.recv(4096)
            except TimeoutError:
                continue
            if not came:
                return
            last, read = time.monotonic(), read + came
            *commands, read = read.split(b";")
            for command in commands:
                client.settimeout(_SEND_S)
                client.sendall(self.reply(session, command))
                client.settimeout(0.2)
            if len(read) > MOST_COMMAND:
                client.sendall(self._denied("0", Denied("IICT", "Command too long")))
                return

    def reply(self, session: Session, command: bytes) -> bytes:
        """The frame that answers a command, whatever its bytes are."""
        text = command.decode("ascii", "replace").strip()
        try:
            if len(text) > MOST_COMMAND:
                raise Denied("IICT", "Command too long")
            tag, lines = session.answer(text)
        except Denied as refused:
            return self._denied(refused.args[2] if len(refused.args) > 2 else "0", refused)
        return completed(self.settings.name, tag, _now(), lines)

    def _denied(self, tag: str, refused: Denied) -> bytes:
        return denied(self.settings.name, tag, _now(), refused.code, refused.text)

    # --- scripts that flap ports ------------------------------------------------------------------
    def _flap(self) -> None:
        def move(device: Any, now: int) -> None:
            for port, script in self.settings.flaps.items():
                if script.begun_ps is None:
                    continue
                shut, following = script.phase(now)
                if device.shutter_closed(port, False) != shut:
                    device.set_shutter(port, False, shut, now)
                if following is None:
                    script.begun_ps = None

        while not self._ending.wait(_LOOK_S):
            if any(script.begun_ps is not None for script in list(self.settings.flaps.values())):
                self._operate(move)


def _now() -> str:
    return time.strftime("%y-%m-%d %H:%M:%S", time.gmtime())
