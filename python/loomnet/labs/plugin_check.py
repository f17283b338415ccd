"""`ln.check_plugin`: tries a plug-in's class against its contract, in small runs of its own on the
virtual clock, and says all that it breaks."""

from __future__ import annotations

import inspect
import itertools
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
from loomnet.fabrics.clos import two_tier
from loomnet.fabrics.model import Fabric
from loomnet.faults import model as faults
from loomnet.jobs.collectives import AllReduce
from loomnet.labs.lab import Lab
from loomnet.plugins.assignments import Assigner, circuits_of
from loomnet.plugins.congestions import METHODS, REQUIRED, failure_of
from loomnet.plugins.controllers import Controller, controller
from loomnet.plugins.failures import raised
from loomnet.plugins.priorities import Message, Priority, priority_of
from loomnet.plugins.registry import ASSIGNMENT, CONGESTION, CONTROLLER, names_of
from loomnet.systems.registry import transports

MS = 10**9


@checked_call
def check_plugin(
    plugin: type, /, *, fabric: Fabric | None = None, every: Time | str | None = None,
    **options: Any,
) -> None:
    """Tries a registered class against its contract, and returns where it keeps it.

    A congestion control carries flows over every transport that gives what it needs, without and
    with loss, marks, a link that dies and flows that pause. A controller drives a short run with
    faults, twice, which must be alike: on `fabric`, by default two leaves and two spines of one
    plane, called every `every`. A priority is asked about messages of many kinds, an assigner about
    regions of 2 to 16 servers, some of which have failed. `options` are the class's own.

    Raises ContractError (a UsageError; exit status 2) with a line for each breach, and UsageError
    for what is no registered class.
    """
    known = names_of(plugin) if isinstance(plugin, type) else []
    if not known:
        raise UsageError(f"check_plugin: {quoted(plugin)} is not registered; write "
                         '@ln.plugin.congestion("mine"), .controller, .priority or .assignment '
                         "above the class")
    for kind, name in known:
        if kind == CONGESTION:
            found = _congestion_breaches(name, plugin, options)
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


def _signature_breaches(plugin: type, methods: Mapping[str, tuple[str, ...]],
                        required: tuple[str, ...]) -> Iterator[str]:
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
_LINKS: dict[str, dict[str, Any]] = {
    "nothing goes wrong": {},
    "packets are lost": {"impairment": {"loss": 0.02, "burst": 3.0}},
    "packets are marked": {"ecn": True},
    "the link dies": {"dies": True},
}
_RATE, _DELAY_PS = 10**9, 10**7


def _congestion_breaches(name: str, plugin: type, options: Mapping[str, Any]) -> Iterator[str]:
    signatures = list(_signature_breaches(plugin, METHODS, REQUIRED))
    yield from signatures
    if signatures:
        return
    needs = _core.congestion_controls()[name]["needs"]
    models = _core.transports()
    carried = False
    for each in transports().values():
        if each.name != each.model or each.control_option is None:
            continue
        if name not in models[each.model]["congestion_controls"]:
            continue
        carried = True
        for what, links in _LINKS.items():
            try:
                _flows(each.model, {each.control_option: name, **options}, **links)
            except _core.PluginError as error:
                if isinstance(failure := failure_of(error), KeyboardInterrupt):
                    raise failure from None
                yield f"{failure}, over {each.model} where {what}"
            except (ValueError, TypeError) as error:  # of the options
                raise UsageError(f"check_plugin: {error}") from None
    if not carried:
        yield f"needs={quoted(needs)}: no transport gives all of that"


def _flows(transport: str, options: dict[str, Any], *, impairment: dict[str, Any] | None = None,
           ecn: bool = False, dies: bool = False) -> None:
    """Six flows of 200 kB over one link, the last of them after a pause."""
    network = _core.Network(seed=1, meter_bin_ps=MS)
    hosts = [network.add_host(1) for _ in range(2)]
    ends = _core.LinkConfig(rate_bps=_RATE, delay_ps=_DELAY_PS, data_limit=60_000,
                            ecn_low=5_000 if ecn else 0, ecn_high=20_000 if ecn else 0)
    link = network.connect(hosts[0], 0, hosts[1], 0, ends, ends)
    known = {row["name"] for row in _core.transports()[transport]["options"]}
    facts = {"line_rate_bps": _RATE, "port_rate_bps": _RATE, "net_rtt_ps": 4 * _DELAY_PS,
             "ecn": True}
    chosen = {each: value for each, value in facts.items() if each in known} | options
    for host in hosts:
        network.set_transport(host, transport, chosen)
    path: list[Any] = [([], -1, [0], 0, 1, None, 1.0)]
    traffic = _core.FlowTraffic(network, False)
    for flow, start in enumerate((0, 0, 5 * MS, 8 * MS, 20 * MS, 500 * MS)):
        numbers = 256 + 2 * flow, 257 + 2 * flow
        network.connect_qp(hosts[0], numbers[0], hosts[1], numbers[1], flow + 1, path, path)
        network.connect_qp(hosts[1], numbers[1], hosts[0], numbers[0], flow + 1, path, path)
        traffic.add(source=hosts[0], destination=hosts[1], qp=numbers[0], bytes=200_000,
                    message=50_000, depth=2, start_ps=start + MS)
    if impairment:
        network.schedule_link(0, link, impairment=impairment)
    if dies:
        network.schedule_link(3 * MS, link, up=False)
        network.schedule_link(300 * MS, link, up=True)
    traffic.start()
    probe = _core.FlowProbe(network, [(hosts[0], 256 + 2 * flow) for flow in range(6)])
    for step in range(1, 41):
        network.run_until(step * 50 * MS)
        probe.take()  # asks observe()


# --- controllers ----------------------------------------------------------------------------------
def _controller_breaches(name: str, plugin: type, fabric: Fabric | None, every: Time | str | None,
                         options: Mapping[str, Any]) -> Iterator[str]:
    methods = {"advance": ("now", "view"), "on_event": ("now", "event"), "next_time": ()}
    signatures = list(_signature_breaches(plugin, methods, ()))
    yield from signatures
    if signatures:
        return
    if every is None and "next_time" not in plugin.__dict__ and (
            getattr(plugin, "next_time", None) in (None, Controller.next_time)):
        every = None if getattr(plugin, "subscribes", ()) else "0.5 ms"
    made = fabric or two_tier(planes=1, leaves=2, spines=2, hosts_per_leaf=2, rate="10 Gb/s",
                              delay="5 us")
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
                    made, jobs, rows, controllers=[controller(name, every=every, **options)])
            except PluginError as error:
                yield str(error)
                return
            outcomes.append((str(r.metrics), r.data.totals))
    if outcomes[0] != outcomes[1]:
        yield ("two runs alike went differently: use neither the machine's clock nor a random "
               "generator without a seed")


# --- priorities -----------------------------------------------------------------------------------
def _priority_breaches(name: str, plugin: type, options: Mapping[str, Any]) -> Iterator[str]:
    yield from (signatures := list(_signature_breaches(
        plugin, {"priority": ("message",)}, ("priority",))))
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


def _asked_twice(plugin: type, options: Mapping[str, Any],
                 ask: Callable[[Any, list[Any]], Iterator[str]], apart: str) -> Iterator[str]:
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
        yield (f"two objects alike gave {apart}: use neither the machine's clock nor a random "
               "generator without a seed")


def _messages() -> Iterator[Message]:
    pace = ((None, None), (1e-6, 256.0), (86_400.0, 1 / 256))
    for layers, iteration, progress, size, (left_s, ratio) in itertools.product(
            (0, 1, 50), (1, 10**6), (0.0, 0.5, 1.0), (0, 1, 64 << 20), pace):
        for layer in {None, *range(min(layers, 2)), *([layers - 1] if layers else [])}:
            left = 0 if layer is None else layer
            yield Message("job", layer, layers, iteration, progress, size, left, left_s, ratio)


# --- assigners ------------------------------------------------------------------------------------
def _assignment_breaches(name: str, plugin: type, options: Mapping[str, Any]) -> Iterator[str]:
    yield from (signatures := list(_signature_breaches(
        plugin, {"assign": ("demand", "free", "previous")}, ("assign",))))
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
