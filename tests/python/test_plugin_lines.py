"""A plug-in's breach is said with the line of its code, whatever it gave or raised; and a series of
a plug-in does not hide one of the engine's."""

import itertools
import re

import numpy as np
import pytest

import loomnet as ln
from loomnet.base.errors import PluginError
from loomnet.plugins.assignments import circuits_of
from loomnet.plugins.priorities import Message, priority_of

NUMBER = itertools.count()


def run_with(made, transport="tcp", **options):
    name = f"lines{next(NUMBER)}"
    ln.plugin.congestion(name)(made)
    return ln.run(
        ln.star(hosts=3, rate="10 Gb/s", delay="10 us"),
        ln.Incast("100 kB", transport=transport),
        write=False,
        **{transport: {"cc": name}},
        **options,
    )


class OddError(Exception):
    def __str__(self):
        raise RuntimeError("no text")


def sets(attribute, value):
    class Sets(ln.plugin.Congestion):
        """Gives one value at each acknowledgement."""

        def on_ack(self, ack):
            setattr(self, attribute, value)

    return Sets, Sets.on_ack.__code__.co_firstlineno


VALUES = {
    ("window", None): "window=None is not a number",
    ("window", float("nan")): "window=nan is not a number",
    ("window", -5): "window=-5 is negative",
    ("window", 1): "the window of 1 bytes is below one packet of ",
    ("pacing_rate", 0): "the pacing rate is 0",
    ("next_tick", 10**40): "000 is beyond the times that there are; None says never",
    ("next_tick", 1.5): "next_tick=1.5 is not a whole number",
    ("next_tick", 0): "the next tick, at 0 ps, is not after now, ",
}


@pytest.mark.parametrize(("attribute", "value"), VALUES)
def test_a_value_that_breaks_the_contract_has_the_line_of_its_method(attribute, value):
    made, line = sets(attribute, value)
    with pytest.raises(PluginError, match=re.escape(VALUES[attribute, value])) as breach:
        run_with(made)
    assert re.search(rf'"lines\d+": on_ack: .*\(test_plugin_lines\.py:{line}\)$', str(breach.value))


def test_the_line_is_of_the_class_where_no_method_gave_it():
    class NoWindow(ln.plugin.Congestion):
        """Makes no window."""

        def __init__(self, flow):
            self.flow = flow

    line = NoWindow.__init__.__code__.co_firstlineno
    with pytest.raises(
        PluginError, match=rf"the maker: .*window.*\(test_plugin_lines\.py:{line}\)$"
    ):
        run_with(NoWindow)


def test_an_exception_that_cannot_say_what_it_is_is_one_line():
    class Raises(ln.plugin.Congestion):
        """Raises."""

        def on_ack(self, ack):
            raise OddError

    line = Raises.on_ack.__code__.co_firstlineno + 1
    with pytest.raises(
        PluginError, match=rf"on_ack raised OddError \(test_plugin_lines\.py:{line}\)$"
    ):
        run_with(Raises)


def test_other_kinds_of_plug_ins_have_the_line_too():
    class Assigns(ln.plugin.Assigner):
        def assign(self, demand, free, previous):
            return demand - 1

    class Says(ln.plugin.Priority):
        def priority(self, message):
            return -1

    class Asks(ln.plugin.Controller):
        subscribes = 5

        def advance(self, now, view):
            return None

    zeros = np.zeros((2, 2), np.int64)
    with pytest.raises(PluginError, match=r"less than 0 circuits \(test_plugin_lines\.py:\d+\)"):
        circuits_of("a", Assigns(), zeros, zeros[0], zeros)
    with pytest.raises(PluginError, match=r"from 1 to \d+ \(test_plugin_lines\.py:\d+\)"):
        priority_of("p", Says(), Message.__new__(Message))
    ln.plugin.controller("asks_lines")(Asks)
    with pytest.raises(PluginError, match=r"subscribes=5 is not .*\(test_plugin_lines\.py:\d+\)"):
        ln.run(
            ln.star(hosts=2, rate="10 Gb/s", delay="1 us"),
            ln.SendRecv("8 kB"),
            write=False,
            controllers=[ln.controller("asks_lines", every="1 us")],
        )


# --- series ---------------------------------------------------------------------------------------
def observing(name):
    class Observes(ln.plugin.Congestion):
        """Shows one series."""

        def observe(self):
            return {name: 5}

    return Observes


@pytest.mark.parametrize("transport", ["tcp", "roce", "mrc"])
def test_no_series_of_the_engines_is_hidden_by_a_plug_ins(transport):
    r = run_with(observing("mine"), transport, sample="10 us", observe=["*"])
    names = {name for _, name in r.data.observed.series()}
    assert {"mine", "cwnd", "acked"} <= names
    for name in sorted(names - {"mine"}):
        with pytest.raises(
            PluginError,
            match=rf'observe: "{name}" is a series of the engine\'s '
            r"own, .* \(test_plugin_lines\.py:\d+\)",
        ):
            run_with(observing(name), transport)
