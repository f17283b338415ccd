"""A listening socket and a thread for each of its clients. Clients are not trusted: their number,
the length of a message, and the time that one takes are bounded."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Hashable

MOST_CLIENTS = 16
MOST_OF_ONE = 8  # clients of one peer, so that one peer cannot use up all places
MESSAGE_S = 30.0  # from the first byte of a message to its last
SEND_S = 5.0  # for a client to take an answer
_LOOK_S = 0.2
_PIECE = 1 << 16


class TooLong(Exception):
    """A message was longer than `most`. All of it has been read and discarded."""


class Client:
    """One connection. `ending` is set when the server ends."""

    def __init__(self, link: socket.socket, ending: threading.Event, idle_s: float) -> None:
        self._link, self.ending, self._idle_s = link, ending, idle_s
        self._rest = b""

    def message(self, end: bytes, most: int, *, quotes: bool = False) -> bytes | None:
        """The next message, without the byte that ends it. `quotes`: between double quotes on one
        line that byte ends nothing; in what is discarded it does. None where the client is gone, or
        has been silent or slow for too long. Raises TooLong."""
        data, whole, began = bytearray(), True, None
        inside = False  # of double quotes
        while True:
            at, inside = (
                _end(self._rest, end, inside) if quotes and whole else (self._rest.find(end), False)
            )
            found = at >= 0
            piece, rest = (self._rest[:at], self._rest[at + 1 :]) if found else (self._rest, b"")
            if whole and len(data) + len(piece) <= most:
                data += piece
            else:
                data.clear()
                whole = False
            self._rest = rest
            if found:
                if not whole:
                    raise TooLong
                return bytes(data)
            now = time.monotonic()
            began = now if began is None and (piece or not whole) else began
            left = self._idle_s if began is None else began + MESSAGE_S - now
            if left <= 0 or self.ending.is_set():
                return None
            try:
                self._link.settimeout(left)
                self._rest = self._link.recv(_PIECE)
            except OSError:
                return None
            if not self._rest:
                return None

    def send(self, data: bytes) -> bool:
        """Sends bytes, and returns whether the client has taken them."""
        try:
            self._link.settimeout(SEND_S)
            self._link.sendall(data)
        except OSError:
            return False
        return True


def _end(data: bytes, end: bytes, inside: bool) -> tuple[int, bool]:
    """Where `end` is in the data outside of double quotes, -1 where it is not, and whether the data
    end inside of quotes. A line ends its quotes."""
    for at, byte in enumerate(data):
        if byte in b"\r\n":
            inside = False
        elif byte in b'"':
            inside = not inside
        elif byte == end[0] and not inside:
            return at, False
    return -1, inside


class StreamServer:
    """Serves the clients of a listening socket, which it owns. `serve(client)` runs in a thread for
    each client and returns when the client is gone. `peer` names the other end of a connection.
    `busy` is sent to a client that cannot be served because there are too many. Use it as a
    context manager, or call close()."""

    def __init__(
        self,
        listener: socket.socket,
        serve: Callable[[Client], None],
        *,
        name: str,
        peer: Callable[[socket.socket], Hashable],
        busy: bytes,
        idle_s: float,
    ) -> None:
        self._listener, self._serve, self._name = listener, serve, name
        self._peer, self._busy, self._idle_s = peer, busy, idle_s
        self.ending = threading.Event()
        self._guard = threading.Lock()
        self._clients: dict[socket.socket, tuple[Hashable, threading.Thread]] = {}
        listener.settimeout(_LOOK_S)
        self._thread = threading.Thread(target=self._accept, name=name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends all connections. May be called more than once."""
        self.ending.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        with self._guard:
            left = list(self._clients.items())
            for link, _ in left:
                with contextlib.suppress(OSError):
                    link.shutdown(socket.SHUT_RDWR)
        for _, (_, thread) in left:
            thread.join()

    def __enter__(self) -> StreamServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while not self.ending.is_set():
            try:
                link, _ = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:  # no file descriptor is free, or the server is closing
                self.ending.wait(_LOOK_S)
                continue
            try:
                peer = self._peer(link)
            except OSError:  # closed already
                link.close()
                continue
            with self._guard:
                of_one = sum(each == peer for each, _ in self._clients.values())
                room = len(self._clients) < MOST_CLIENTS and of_one < MOST_OF_ONE
                if room:
                    thread = threading.Thread(
                        target=self._one, args=(link,), name=self._name, daemon=True
                    )
                    self._clients[link] = peer, thread
                    thread.start()
            if not room:
                with link, contextlib.suppress(OSError):
                    link.setblocking(False)
                    link.send(self._busy)

    def _one(self, link: socket.socket) -> None:
        try:
            self._serve(Client(link, self.ending, self._idle_s))
        finally:
            with self._guard:
                del self._clients[link]
                # with the lock held: close() must not shut down a descriptor that has been reused
                link.close()
