"""Controllers: classes that look at a run every so often and change its network. What a class of a
user's must have, what it is given, and the checks of what it answers."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from loomnet.base.arguments import checked_call
from loomnet.base.errors import LoomnetError, PluginError, UsageError
from loomnet.base.names import did_you_mean, in_quotes, quoted
from loomnet.base.units import Time
from loomnet.faults.timetable import Change
from loomnet.measures.switch_state import SwitchState
from loomnet.plans.model import Plan
from loomnet.plugins.change import Asked, Circuits, Link, Routes, Senders, Switch
from loomnet.plugins.failures import asked, defined_at, defined_in
from loomnet.plugins.registry import CONTROLLER, plugin_named

EVENTS = ("iteration", "phase", "link", "switch", "end")
LEAST_EVERY = Time("1 ns")
MOST_CHANGES = 100_000  # of one answer
FOREVER = 2**63 - 1
_CHANGES = (Link, Switch, Routes, Circuits, Senders)
Changes = Iterable[Asked] | None  # what a controller answers
_NONE = object()


@dataclass(frozen=True)
class Event:
    """What happened in a run, by `kind`:

    - "iteration": the job `where` has finished one; `value.number`, `value.length_ps`.
    - "phase": a fault with `phase=` has begun or ended; `value` is "begin" or "end".
    - "link": the run's faults took the direction `where` ("a->b") down, or gave it back; `value` is
      "down" or "up".
    - "switch": the same of a switch.
    - "end": the job `where` has ended; `value` is "finished", "stalled" or "failed".

    `at`: picoseconds since the first job's first iteration began.
    """

    kind: str
    at: int
    where: str
    value: Any


class JobView(Protocol):
    """A job of the run, as it is now."""

    @property
    def name(self) -> str: ...
    @property
    def iterations(self) -> int:
        """How many have ended."""
        ...

    @property
    def last_iteration_s(self) -> float | None:
        """Seconds that the last of them took."""
        ...

    @property
    def payload_bytes(self) -> int:
        """Payload that has arrived at the job's hosts so far."""
        ...

    @property
    def ended(self) -> str | None:
        """How the job has ended; None while it runs."""
        ...


class LinkView(Protocol):
    """One direction of a link, as it is now: "a->b"."""

    @property
    def name(self) -> str: ...
    @property
    def up(self) -> bool: ...
    @property
    def rate_bps(self) -> int:
        """Its rate now, faults and changes included."""
        ...

    @property
    def queued_bytes(self) -> int:
        """Bytes that wait in the port which sends into it."""
        ...

    @property
    def counters(self) -> Mapping[str, int]:
        """The direction's counters so far: packets, bytes, marked, drops by name."""
        ...


class View(Protocol):
    """What a controller sees of a run in a call. Values are read when asked for, so read them in
    the call."""

    @property
    def now(self) -> int:
        """Picoseconds since the first job's first iteration began."""
        ...

    @property
    def jobs(self) -> Mapping[str, JobView]:
        """By name; the only job of a run is "job" where it has none."""
        ...

    @property
    def links(self) -> list[str]:
        """Names of all directions of links."""
        ...

    def link(self, name: str) -> LinkView:
        """One direction, "a->b". Raises UsageError with the nearest names."""
        ...

    def circuits(self, panel: str) -> list[tuple[str, str]]:
        """Hosts that the circuits of a panel join. Raises UsageError with the nearest names."""
        ...

    def switch(self, name: str) -> SwitchState:
        """What a switch's program has counted and holds. Raises UsageError with the nearest."""
        ...

    def senders(self) -> np.ndarray:
        """A numpy structured array with a row for each sender under way, as ln.World.step() gives
        them. Of jobs other than flows each queue pair that has sent something: its `flow` is -1."""
        ...


class Controller:
    """Base of a controller; a class without it that has the same methods is as good.

    `advance(now, view)` is called at time 0, the beginning of the first job's first iteration, then
    every `every=` that `ln.controller` was given, and at the time that `next_time()` gives.
    `on_event(now, event)` is called for the kinds in `subscribes`. Both answer with a list of
    `ln.change.…`; None is an empty list. Times are picoseconds.
    """

    subscribes: ClassVar[tuple[str, ...]] = ()  # kinds of Event

    def next_time(self) -> int | None:
        """When advance() is to be called next, later than the last call; None: by `every` alone."""
        return None

    def advance(self, now: int, view: View) -> Changes:
        """The changes that the controller wants at time `now`."""
        return None

    def on_event(self, now: int, event: Event) -> Changes:
        """The changes that the controller wants because of the event."""
        return None


@dataclass(frozen=True)
class ControllerChoice:
    """Made by controller(): which controller a run has, how often it is called, its options."""

    name: str
    every: Time | None
    options: Mapping[str, Any]

    def made(self, plan: Plan) -> Seat:
        """A fresh controller for one run. Raises UsageError, PluginError."""
        kind = plugin_named(CONTROLLER, "controller", self.name)
        where = f'controller "{self.name}"'
        try:
            inspect.signature(kind).bind(**self.options)
        except TypeError as error:
            known = [name for name in inspect.signature(kind).parameters]
            unknown = [name for name in self.options if name not in known]
            if unknown:
                raise UsageError(
                    f"{where} has no option {unknown[0]}{did_you_mean(unknown[0], known)}"
                ) from None
            raise UsageError(f"{where}: {error}; give it to ln.controller") from None
        refused: LoomnetError | None = None
        with asked(where, "__init__"):
            try:
                plugin = kind(**self.options)
            except LoomnetError as error:  # its own words about its options
                refused = error
        if refused is not None:
            raise refused
        return Seat(self, plugin, plan)

    def describe(self) -> str:
        """For the report's fidelity."""
        words = [self.name, *([f"every {self.every}"] if self.every is not None else [])]
        return " ".join(
            [*words, *(f"{name}={_shown(value)}" for name, value in self.options.items())]
        )


@checked_call
def controller(
    name: str, /, *, every: Time | str | None = None, **options: Any
) -> ControllerChoice:
    """A registered controller for `lab.run(…, controllers=[…])`. `every`: emulated time between two
    calls of its advance(); live, 5 ms of wall time or more. `options` go to its class."""
    kind = plugin_named(CONTROLLER, "controller", name)
    if "every" in inspect.signature(kind).parameters:
        raise UsageError(
            f'controller "{name}": its class has an option every, which ln.controller '
            "takes for itself; give the option another name"
        )
    step = None if every is None else Time.given("controller: every", every)
    if step is not None and step < LEAST_EVERY:
        raise UsageError(f"controller: every={step} must be {LEAST_EVERY} or more")
    return ControllerChoice(name, step, options)


def controllers_of(found: Any) -> list[ControllerChoice]:
    """What `controllers=` of a run says. Raises UsageError."""
    given = [found] if isinstance(found, ControllerChoice) else found
    if not isinstance(given, Iterable) or isinstance(given, (str, bytes)):
        raise UsageError(
            f"run: controllers={quoted(found)} is not a list; write "
            '[ln.controller("mine", every="30 ms")]'
        )
    choices = list(given)
    for each in choices:
        if not isinstance(each, ControllerChoice):
            raise UsageError(
                f"run: controllers: {quoted(each)} is not a controller; write "
                'ln.controller("mine", every="30 ms")'
            )
    return choices


def _shown(value: Any) -> str:
    try:
        return repr(value)
    except Exception:  # of a class of the user's own
        return quoted(value)


class Seat:
    """One controller in one run: asks it when it is due, and takes only answers that its contract
    allows. Times are picoseconds since the first job's first iteration began."""

    def __init__(self, choice: ControllerChoice, plugin: Any, plan: Plan) -> None:
        name, every = choice.name, choice.every
        self.choice, self.name, self.plugin, self.plan = choice, name, plugin, plan
        self._where = f'controller "{name}"'
        self.every_ps = None if every is None else every.count
        self.least_ps = 0  # between two calls of advance(); the live clock sets it
        # Around its code: Ctrl-C breaks it off. On the virtual clock it does so all the time.
        self.listening: Callable[[], AbstractContextManager[object]] = nullcontext
        self._on_grid: int | None = 0 if every is not None else None  # when `every` is due
        self._asked: int | None = None  # what next_time() gave
        self._last: int | None = None  # time of the last call of advance()
        has = {method for method in ("advance", "next_time", "on_event") if self._has(method)}
        self.subscribes = self._kinds(self._read("subscribes", ()))
        if self.subscribes and "on_event" not in has:
            raise self._of_class("it subscribes to events but has no method on_event")
        self._asks = "next_time" in has
        if "advance" not in has and (self._asks or every is not None):
            raise self._of_class("there is no method advance(now, view)")
        if self._asks:
            self._ask()
        if every is None and self._asked is None and not self.subscribes:
            raise UsageError(
                f'controller "{name}": nothing calls it: give every="30 ms" to '
                "ln.controller, or the class next_time() or subscribes"
            )

    def breach(self, what: str) -> PluginError:
        """The error that ends the run."""
        return PluginError(f"{self._where}: {what}")

    def _of_class(self, what: str) -> PluginError:
        """The same for what no method gave, with the line of the class's own code."""
        return self.breach(f"{what}{defined_in(type(self.plugin), '__init__')}")

    def next_time(self) -> int | None:
        """When advance() is due; None: no time is known."""
        dues = [due for due in (self._on_grid, self._asked) if due is not None]
        if not dues:
            return None
        least = 0 if self._last is None else self._last + self.least_ps
        return max(min(dues), least)

    def advance(self, now: int, view: View) -> list[Change]:
        """The changes that the plug-in asks for at `now`; none before next_time()."""
        due = self.next_time()
        if due is None or due > now:
            return []
        self._last = now
        if self.every_ps is not None:
            self._on_grid = (now // self.every_ps + 1) * self.every_ps
        answer = self._call("advance", now, view)
        if self._asks:
            self._ask()
        return self._changes("advance", answer)

    def on_event(self, now: int, event: Event) -> list[Change]:
        """The changes that the plug-in asks for because of an event; none of a kind that it did not
        subscribe to."""
        if event.kind not in self.subscribes:
            return []
        answer = self._call("on_event", now, event)
        if self._asks:
            self._ask()
        return self._changes("on_event", answer)

    # --- what it answers --------------------------------------------------------------------------
    def _read(self, name: str, default: Any) -> Any:
        """An attribute, which may be a property with code of its own."""
        with asked(self._where, name), self.listening():
            return getattr(self.plugin, name, default)

    def _has(self, method: str) -> bool:
        found = self._read(method, _NONE)
        if found is not _NONE and not callable(found):
            raise self._of_class(f"{method} is not a method")
        return found is not _NONE

    def _gave(self, method: str, found: Any, what: str) -> PluginError:
        """`advance gave 5, which is … (policy.py:12)`, where the method begins."""
        return self.breach(
            f"{method} gave {quoted(found)}, which is {what}"
            f"{defined_at(getattr(self.plugin, method, None))}"
        )

    def _call(self, method: str, *arguments: Any) -> Any:
        with asked(self._where, method), self.listening():
            return getattr(self.plugin, method)(*arguments)

    def _kinds(self, given: Any) -> tuple[str, ...]:
        kinds = (given,) if isinstance(given, str) else given
        if not isinstance(kinds, (tuple, list, set, frozenset)):
            raise self._of_class(f"subscribes={quoted(given)} is not a tuple of kinds of events")
        for kind in kinds:
            if kind not in EVENTS:
                raise self._of_class(
                    f"subscribes: no event {in_quotes(kind)}{did_you_mean(kind, EVENTS)}"
                )
        return tuple(kinds)

    def _ask(self) -> None:
        found = self._call("next_time")
        if isinstance(found, Time):
            found = found.count
        if found is not None and (isinstance(found, bool) or not isinstance(found, int)):
            raise self._gave("next_time", found, "no whole number of picoseconds and not None")
        if found is not None and (found < 0 or (self._last is not None and found <= self._last)):
            last = (
                "before 0"
                if self._last is None
                else f"not after {self._last}, the time of its last call"
            )
            raise self._gave("next_time", found, last)
        if found is not None and found >= FOREVER:
            raise self._gave("next_time", found, "beyond the end of time; None says never")
        self._asked = found

    def _changes(self, method: str, answer: Any) -> list[Change]:
        if answer is None:
            return []
        kind = type(answer)  # not isinstance(): an object's own __class__ may say anything
        if kind in _CHANGES:
            answer = [answer]
        elif not issubclass(kind, Iterable) or issubclass(kind, (str, bytes, Mapping)):
            raise self._gave(
                method, answer, 'no list of changes; return [ln.change.link("a--b", up=False)]'
            )
        found: list[Change] = []
        with asked(self._where, method), self.listening():
            changes = list(itertools.islice(answer, MOST_CHANGES + 1))  # perhaps of a generator
        if len(changes) > MOST_CHANGES:
            raise self.breach(
                f"{method} gave more than {MOST_CHANGES:,} changes"
                f"{defined_at(getattr(self.plugin, method, None))}"
            )
        for each in changes:
            if type(each) not in _CHANGES:
                raise self._gave(
                    method,
                    each,
                    "no change; write ln.change.link, ln.change.switch, "
                    "ln.change.routes, ln.change.circuits or "
                    "ln.change.senders",
                )
            try:
                found += each.resolved(self.plan)
            except UsageError as error:
                raise self.breach(f"{method}: {error}{each.place}") from None
        return found
