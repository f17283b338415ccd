"""`ln.check_plugin`: tries a plug-in's class against its contract, in small runs of its own on the
virtual clock, and says all that it breaks."""

from __future__ import annotations

import inspect
import itertools
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

import loomnet._core as _core
from loomnet.base.arguments import checked_call
from loomnet.base.errors import ContractError, LoomnetError, PluginError, UsageError
from loomnet.base.names import quoted
from loomnet.base.units import Time
from loomnet.fabrics.clos import star, two_tier
from loomnet.fabrics.ecn import Ecn
from loomnet.fabrics.model import Fabric
from loomnet.faults import model as faults
from loomnet.jobs.collectives import AllReduce
from loomnet.jobs.flows import Flows
from loomnet.labs.lab import Lab
from loomnet.plugins.assignments import Assigner, circuits_of
from loomnet.plugins.capped import CUTS, capped, kept
from loomnet.plugins.congestions import METHODS, READ, REQUIRED
from loomnet.plugins.controllers import Controller, controller
from loomnet.plugins.failures import raised
from loomnet.plugins.priorities import Message, Priority, priority_of
from loomnet.plugins.registry import ASSIGNMENT, CONGESTION, CONTROLLER, names_of
from loomnet.plugins.spelling import slips, unknown_methods
from loomnet.results.result import Result
from loomnet.systems.registry import transports

MS = 10**9


@checked_call
def check_plugin(
    plugin: type,
    /,
    *,
    fabric: Fabric | None = None,
    every: Time | str | None = None,
    **options: Any,
) -> list[str]:
    """Tries a registered class against its contract, and returns where it keeps it: a list of
    notes, which it prints too, of what is no breach but may not be meant.

    A congestion control carries flows over every transport that gives what it needs, without and
    with loss, marks, a link that dies and flows that pause; and with its window cut from outside,
    to a few packets now and then and to one, where no flow may stand still. A controller drives a
    short run with faults, twice, which must be alike: on `fabric`, by default two leaves and two
    spines of one plane, called every `every`. A priority is asked about messages of many kinds, an
    assigner about regions of 2 to 16 servers, some of which have failed. `options` are the class's
    own.

    Raises ContractError (a UsageError; exit status 2) with a line for each breach, and UsageError
    for what is no registered class.
    """
    if isinstance(plugin, str):
        raise UsageError(
            f"check_plugin: {quoted(plugin)} is a name; give the class itself: "
            "ln.check_plugin(Mine)"
        )
    known = names_of(plugin) if isinstance(plugin, type) else []
    if not known:
        raise UsageError(
            f"check_plugin: {quoted(plugin)} is not registered; write "
            '@ln.plugin.congestion("mine"), .controller, .priority or .assignment '
            "above the class"
        )
    notes: list[str] = []
    for kind, name in known:
        if kind == CONGESTION:
            found = _congestion_breaches(name, plugin, options, notes)
        elif kind == CONTROLLER:
            found = _controller_breaches(name, plugin, fabric, every, options)
        elif kind == ASSIGNMENT:
            found = _assignment_breaches(name, plugin, options)
        else:
            found = _priority_breaches(name, plugin, options)
        # The errors of runs begin with the plug-in's name too.
        where = f'{"congestion control" if kind == CONGESTION else kind} "{name}"'
        lines = list(dict.fromkeys(line.removeprefix(f"{where}: ") for line in found))
        if lines:
            raise ContractError(where, lines)
    for note in notes:
        print(f"check_plugin: {note}", file=sys.stderr)
    return notes


def _signature_breaches(
    plugin: type, methods: Mapping[str, tuple[str, ...]], required: tuple[str, ...]
) -> Iterator[str]:
    """Methods that are missing, or cannot be called with what they will be called with."""
    for method, arguments in methods.items():
        found = getattr(plugin, method, None)
        if found is None:
            if method in required:
                yield f"there is no method {method}({', '.join(arguments)})"
            continue
        if not callable(found):
            yield f"{method} is not a method"
            continue
        with suppress(ValueError):  # a built-in one, of which nothing is known
            try:
                inspect.signature(found).bind(None, *arguments)
            except TypeError as error:
                yield f"{method}: {error}: it is called as {method}({', '.join(arguments)})"


# --- congestion controls --------------------------------------------------------------------------
# What befalls the flows of a trial: options of the links, and faults.
SITUATIONS: dict[str, tuple[dict[str, Any], list[faults.Fault]]] = {
    "nothing goes wrong": ({}, []),
    "packets are lost": ({}, [faults.loss("*--*", 0.02, burst=3, at="0 s")]),
    "packets are marked": ({"ecn": Ecn("5 kB", "20 kB")}, []),
    "the link dies": ({}, [faults.down("h0--p0.leaf0", at="3 ms", duration="300 ms")]),
}


ONE_PACKET = (
    "over tcp it asked for a window of less than two packets, where each packet waits "
    "for a delayed acknowledgement of 40 ms, which rtt_ps holds: let the window be two "
    "packets or more"
)
_CONTROL = 'congestion control "'  # errors of one begin so


def _congestion_breaches(
    name: str, plugin: type, options: Mapping[str, Any], notes: list[str]
) -> Iterator[str]:
    signatures = [
        *_signature_breaches(plugin, METHODS, REQUIRED),
        *unknown_methods(plugin, METHODS),
    ]
    yield from signatures
    if signatures:
        return
    needs = _core.congestion_controls()[name]["needs"]
    models = _core.transports()
    carried: list[str] = []
    seen: set[str] = set()  # attributes of its objects
    one_packet = False  # whether it asked for less than two over TCP
    broken: dict[str, dict[str, list[str]]] = {}  # by error and transport: the situations
    for each in transports().values():
        if each.name != each.model or each.control_option is None:
            continue
        if name not in models[each.model]["congestion_controls"]:
            continue
        carried.append(each.model)
        for what in SITUATIONS:
            try:
                with kept(name, plugin) as objects:
                    r = flows(each.model, {each.control_option: name, **options}, what)
                for made, _ in objects:
                    seen.update(getattr(made, "__dict__", ()))
                if each.delays_acks and objects:
                    least = min(row["value"] for row in r.series("cwnd"))
                    one_packet |= least < 2 * objects[0][1]
            except UsageError as error:
                said = str(error).removeprefix("run: ")
                if not (isinstance(error, PluginError) or said.startswith(_CONTROL)):
                    raise UsageError(f"check_plugin: {said}") from None
                broken.setdefault(said, {}).setdefault(each.model, []).append(what)
        if any(each.model in over for over in broken.values()):
            continue
        for what in CUTS:
            with capped(name, plugin, what):
                if standing := _stands(each.model, {each.control_option: name, **options}):
                    broken.setdefault(standing, {}).setdefault(each.model, []).append(what)
    for failure, over in broken.items():
        alike: dict[str, list[str]] = {}
        for model, situations in over.items():
            alike.setdefault(
                ""
                if len(situations) == len(SITUATIONS)
                else f" where {' and where '.join(situations)}",
                [],
            ).append(model)
        yield f"{failure}, over " + "; over ".join(
            f"{', '.join(models)}{where}" for where, models in sorted(alike.items())
        )
    if not carried:
        yield f"needs={quoted(needs)}: no transport gives all of that"
    notes += slips([*seen, *vars(plugin)], READ)
    if one_packet:
        notes.append(ONE_PACKET)


def _stands(transport: str, options: dict[str, Any]) -> str | None:
    """What breaks the contract where packets are neither lost nor marked: a sender that repeats
    one has stood until its timeout."""
    made = star(hosts=2, rate="10 Gb/s", delay="10 us")
    job = Flows("1 MB", count=2, pairs=((0, 1),), transport=transport, starts=["1 ms", "2 ms"])
    try:
        r = _run(made, job, [], {transport: options})
    except PluginError as error:
        return str(error)
    if not (r["errors"] or r["before.retransmitted"]):
        return None
    longest = max((each.completion_ps or 0) for each in r.flow_records) / 1e12
    return f"a flow stands still until the transport's timeout; one took {longest:.3g} s"


def flows(transport: str, options: dict[str, Any], situation: str) -> Result:
    """Six flows of 200 kB from two hosts to one, the last of them after a pause."""
    links, befalls = SITUATIONS[situation]
    made = star(hosts=3, rate="1 Gb/s", delay="10 us")
    made.override("*--*", data_limit="60 kB", **links)
    job = Flows(
        "200 kB",
        count=6,
        pairs=((0, 2), (1, 2)),
        transport=transport,
        starts=["1 ms", "1 ms", "6 ms", "9 ms", "21 ms", "501 ms"],
    )
    if any(row["name"] == "ecn" for row in _core.transports()[transport]["options"]):
        options = {"ecn": True, **options}
    return _run(made, job, befalls, {"sample": "10 ms", "observe": ["cwnd"], transport: options})


def _run(made: Fabric, job: Flows, befalls: list[faults.Fault], more: dict[str, Any]) -> Result:
    with tempfile.TemporaryDirectory() as directory:
        return Lab("check", seed=1, directory=Path(directory)).run(made, job, befalls, **more)


# --- controllers ----------------------------------------------------------------------------------
def _controller_breaches(
    name: str,
    plugin: type,
    fabric: Fabric | None,
    every: Time | str | None,
    options: Mapping[str, Any],
) -> Iterator[str]:
    methods = {"advance": ("now", "view"), "on_event": ("now", "event"), "next_time": ()}
    signatures = list(_signature_breaches(plugin, methods, ()))
    yield from signatures
    if signatures:
        return
    if (
        every is None
        and "next_time" not in plugin.__dict__
        and (getattr(plugin, "next_time", None) in (None, Controller.next_time))
    ):
        every = None if getattr(plugin, "subscribes", ()) else "0.5 ms"
    made = fabric or two_tier(
        planes=1, leaves=2, spines=2, hosts_per_leaf=2, rate="10 Gb/s", delay="5 us"
    )
    name_of_link, switch = made.link_names()[-1], next(reversed(made.switches))
    rows = [
        faults.down(name_of_link, at="2 ms", duration="2 ms", phase="down"),
        faults.kill(switch, at="6 ms", duration="1 ms", reboot="1 ms", phase="killed"),
        faults.loss(name_of_link, 0.01, at=faults.step(4), duration="2 ms"),
    ]
    jobs = [AllReduce("500 kB", 12, name="long", compute="1 ms", ranks=2)]
    if len(made.ranks) >= 4:
        jobs.append(AllReduce("200 kB", 2, name="short", ranks=2))
    outcomes = []
    for _ in range(2):
        with tempfile.TemporaryDirectory() as directory:
            try:
                r = Lab("check", seed=1, directory=Path(directory)).run(
                    made, jobs, rows, controllers=[controller(name, every=every, **options)]
                )
            except PluginError as error:
                yield str(error)
                return
            outcomes.append((str(r.metrics), r.data.totals))
    if outcomes[0] != outcomes[1]:
        yield (
            "two runs alike went differently: use neither the machine's clock nor a random "
            "generator without a seed"
        )


# --- priorities -----------------------------------------------------------------------------------
def _priority_breaches(name: str, plugin: type, options: Mapping[str, Any]) -> Iterator[str]:
    yield from (
        signatures := list(_signature_breaches(plugin, {"priority": ("message",)}, ("priority",)))
    )
    if signatures:
        return
    if plugin.priority is Priority.priority:
        yield "there is no method priority(message)"
        return

    def ask(made: Any, given: list[Any]) -> Iterator[str]:
        for message in _messages():
            try:
                given.append(priority_of(name, made, message))
            except PluginError as error:
                yield str(error)

    yield from _asked_twice(plugin, options, ask, "the same messages other numbers")


def _asked_twice(
    plugin: type,
    options: Mapping[str, Any],
    ask: Callable[[Any, list[Any]], Iterator[str]],
    apart: str,
) -> Iterator[str]:
    """Asks two objects of the class, which must answer alike."""
    given: list[list[Any]] = []
    for _ in range(2):
        try:
            made = plugin(**options)
        except LoomnetError:
            raise
        except Exception as error:
            yield raised("__init__", error)
            return
        given.append([])
        yield from ask(made, given[-1])
    if given[0] != given[1]:
        yield (
            f"two objects alike gave {apart}: use neither the machine's clock nor a random "
            "generator without a seed"
        )


def _messages() -> Iterator[Message]:
    pace = ((None, None), (1e-6, 256.0), (86_400.0, 1 / 256))
    for layers, iteration, progress, size, (left_s, ratio) in itertools.product(
        (0, 1, 50), (1, 10**6), (0.0, 0.5, 1.0), (0, 1, 64 << 20), pace
    ):
        for layer in {None, *range(min(layers, 2)), *([layers - 1] if layers else [])}:
            left = 0 if layer is None else layer
            yield Message("job", layer, layers, iteration, progress, size, left, left_s, ratio)


# --- assigners ------------------------------------------------------------------------------------
def _assignment_breaches(name: str, plugin: type, options: Mapping[str, Any]) -> Iterator[str]:
    yield from (
        signatures := list(
            _signature_breaches(plugin, {"assign": ("demand", "free", "previous")}, ("assign",))
        )
    )
    if signatures:
        return
    if plugin.assign is Assigner.assign:
        yield "there is no method assign(demand, free, previous)"
        return

    def ask(made: Any, given: list[Any]) -> Iterator[str]:
        for demand, free in _regions():
            previous = np.zeros_like(demand)
            for _ in range(2):  # the second time with the circuits of the first
                try:
                    previous = circuits_of(name, made, demand, free, previous)
                except PluginError as error:
                    yield str(error)
                given.append(previous.tolist())

    yield from _asked_twice(plugin, options, ask, "the same demands other circuits")


def _regions() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    random = np.random.default_rng(1)
    for servers, alpha, most in itertools.product((2, 3, 8, 16), (0, 1, 6), (0, 1, 2**40)):
        upper = np.triu(random.integers(0, most, (servers, servers), endpoint=True), 1)
        free = np.full(servers, alpha)
        yield upper + upper.T, free
        free = free.copy()
        free[random.integers(servers)] = 0
        yield upper + upper.T, free
