"""TL1 over TCP, as the controllers of MixNet's prototype drove its panel (SIGCOMM 2025,
doi 10.1145/3718958.3750465): sessions, logins, and the answer to each command."""

from __future__ import annotations

import hmac
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from loomnet.base.errors import LoomnetError, printable
from loomnet.ocs.access import Access, Note
from loomnet.ocs.flapping import Flapper
from loomnet.ocs.requests import RunEnded
from loomnet.ocs.settings import Settings
from loomnet.ocs.stream_server import Client, StreamServer, TooLong
from loomnet.ocs.switch import Operate
from loomnet.ocs.tl1_commands import VERBS, Ask, State, Verb, check_parameters, run
from loomnet.ocs.tl1_syntax import (
    MOST_COMMAND,
    Command,
    Denied,
    completed,
    ctag_of,
    denied,
    echoed,
    parse,
)
from loomnet.ocs.waiting import wait_until

PORT = 3082
IDLE_S = 3600.0
_MOST_FAILED = 5  # failed logins that end a connection
_LOGIN, _LOGOUT = Verb(lambda ask: [], positional=(1, 1)), Verb(lambda ask: [])


@dataclass(frozen=True)
class User:
    password: str
    admin: bool = False


# Passwords of an emulated device on a network of its own. They protect nothing.
# "root" is who published clients log in as where their user names nobody.
USERS = {"admin": User("root", admin=True), "root": User("root", admin=True), "user": User("user")}


class Session:
    """One connection, without its socket. `wait(at_ps)` returns when the device's time is at_ps."""

    def __init__(
        self,
        access: Access,
        state: State,
        wait: Callable[[int], object],
        *,
        users: Mapping[str, User] = USERS,
        on_flap: Callable[[], None] = lambda: None,
    ) -> None:
        self._access, self._state, self._wait = access, state, wait
        self._users, self._on_flap = users, on_flap
        self._user: User | None = None
        self._name, self._heard, self._failed = "", time.monotonic(), 0

    @property
    def open(self) -> bool:
        """Whether the connection stays open; False after too many failed logins."""
        return self._failed < _MOST_FAILED

    def answer(self, text: str) -> bytes:
        """The answer to a command, which is given without its `;`. Raises RunEnded."""
        text, sid = text.strip(), self._access.settings.name
        ctag = ctag_of(text)
        try:
            command = parse(text, sid)
            return completed(
                self._access.settings.name, ctag, self._lines(command, text), time.time()
            )
        except Denied as why:
            return denied(sid, ctag, why, time.time())

    def _lines(self, command: Command, text: str) -> list[str]:
        if command.verb in ("ACT-USER", "CANC-USER"):
            return self._log_in(command) if command.verb == "ACT-USER" else self._log_out(command)
        verb = VERBS.get(command.verb)
        if verb is None:
            raise Denied("ICNV", f"Command not valid: {echoed(command.verb)}")
        user = self._logged_in()
        if verb.admin and not user.admin:
            raise Denied("SRCN", "Not an administrator")
        check_parameters(command, verb)
        ask = Ask(command, self._access, self._state)
        try:
            lines = run(ask, verb, f"tl1 {text}")
            if ask.flaps:
                self._on_flap()
            self._await_light(ask)
            return lines
        except RunEnded:
            raise
        except LoomnetError as error:
            raise Denied("SSTP", echoed(printable(str(error)))) from None

    def _await_light(self, ask: Ask) -> None:
        """Waits until the patched ports are tuned. Raises Denied where another client has patched
        one of them elsewhere meanwhile."""

        def look(device: Any, now_ps: int) -> tuple[bool, int]:
            there = all(device.target(a, False) == b for a, b in ask.patched)
            return there, max(device.dark_until(a) for a, _ in ask.patched) - now_ps

        while ask.patched:
            there, left_ps = self._access.operate(look)
            if not there:
                raise Denied("SSTP", "Another request has taken a port of the patch")
            if left_ps <= 0:
                return
            self._wait(self._access.operate(lambda _device, now_ps: now_ps) + left_ps)

    def _log_in(self, command: Command) -> list[str]:
        if not command.aid:
            raise Denied("IIAC", "Too few parameters (0/1)")
        check_parameters(command, _LOGIN)
        found = self._users.get(command.aid)
        expected = "" if found is None else found.password
        given = command.positional[0]
        if not hmac.compare_digest(expected.encode(), given.encode()) or found is None:
            self._failed += 1
            raise Denied("PICC", "Login failed")
        self._user, self._name, self._failed = found, command.aid, 0
        self._heard = time.monotonic()
        return []

    def _log_out(self, command: Command) -> list[str]:
        self._logged_in()
        if not command.aid:
            raise Denied("IIAC", "Too few parameters (0/1)")
        check_parameters(command, _LOGOUT)
        if command.aid != self._name:
            raise Denied("PICC", "Not the user who is logged in")
        self._user = None
        return []

    def _logged_in(self) -> User:
        now, user = time.monotonic(), self._user
        if user is not None:
            minutes = self._state.timeouts["ADMIN" if user.admin else "USER"]
            if minutes and now - self._heard > minutes * 60:
                user = self._user = None
        if user is None:
            raise Denied("PICC", "Not logged in")
        self._heard = now
        return user


class Tl1Server:
    """Serves one panel to TCP clients. `operate` has the signature of
    StandaloneSwitch.operate. `address`: port 0 means any free port. `listener`: a listening socket
    to use in place of `address`. Use it as a context manager, or call close(). Raises OSError
    where the address cannot be used."""

    def __init__(
        self,
        operate: Operate,
        settings: Settings | None = None,
        *,
        address: tuple[str, int] = ("127.0.0.1", PORT),
        listener: socket.socket | None = None,
        users: Mapping[str, User] = USERS,
        note: Note | None = None,
        access: Access | None = None,
    ) -> None:
        self._access = access or Access(operate, settings, note)
        self._users, self._state = users, State()
        self._flapper = Flapper(self._access)
        if listener is None:
            listener = socket.create_server(address, backlog=64)
        self.address: tuple[str, int] = listener.getsockname()[:2]
        self._server = StreamServer(
            listener,
            self._talk,
            name="loomnet-tl1",
            idle_s=IDLE_S,
            busy=b"\r\nbusy\r\n",
            peer=lambda link: link.getpeername()[0],
        )

    def close(self) -> None:
        """Ends all sessions and scripts. May be called more than once."""
        self._flapper.close()
        self._server.close()

    def __enter__(self) -> Tl1Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _talk(self, client: Client) -> None:
        def wait(at_ps: int) -> None:
            if not wait_until(self._access.operate, at_ps, client.ending):
                raise RunEnded("the run has ended")

        session = Session(
            self._access, self._state, wait, users=self._users, on_flap=self._flapper.wake
        )
        while session.open:
            try:
                command = client.message(b";", MOST_COMMAND, quotes=True)
                if command is None:
                    return
                reply = session.answer(command.decode("latin-1"))
            except TooLong:
                reply = denied(
                    self._access.settings.name,
                    "0",
                    Denied("IICT", f"Parse error at offset {MOST_COMMAND + 1} in command"),
                    time.time(),
                )
            except RunEnded:
                return
            if not client.send(reply):
                return
