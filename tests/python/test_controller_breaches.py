"""Controllers that break the contract, and changes that are refused: named in one line."""

import itertools
import json
import math
import sys

import numpy
import pytest
from test_controllers import Closer, Slower, broken, go, register

import loomnet as ln


def answering(value):
    return broken(advance=lambda self, now, view: value)


class Mute(Exception):
    def __str__(self):
        raise ValueError


def throw(error):
    raise error


BREACHES = {
    "an exception": (
        broken(advance=lambda self, now, view: view.jobs["x"]),
        "advance raised KeyError: 'x' (test_controller_breaches.py:",
    ),
    "a link that is not there": (
        broken(advance=lambda self, now, view: view.link("a->b")),
        'advance raised view.link: no direction "a->b"; nearest: ',
    ),
    "a generator that raises": (
        broken(advance=lambda self, now, view: (1 / 0 for _ in "a")),
        "advance raised ZeroDivisionError: division by zero (test_",
    ),
    "no list": (answering(5), "advance gave 5, which is no list of changes"),
    "a text": (answering("down"), "advance gave 'down', which is no list of changes"),
    "no change": (answering([3]), "advance gave 3, which is no change"),
    "an unknown link": (
        answering([ln.change.link("p0.leaf0--p0.spine9")]),
        'advance: no link "p0.leaf0--p0.spine9"; nearest: p0.leaf0--p0.spine0',
    ),
    "an unknown switch": (answering([ln.change.switch("p1.*", up=False)]), 'no switch "p1.*"'),
    "a rate above the link's": (
        answering([ln.change.link("h0--*", rate="1 Tb/s")]),
        "1 Tb/s is above h0->p0.leaf0's own rate, 10 Gb/s",
    ),
    "endless changes": (
        broken(advance=lambda self, now, view: itertools.repeat(ln.change.routes())),
        "more than 100,000 changes",
    ),
    "another signature": (broken(advance=lambda self: None), "advance raised TypeError"),
    "no advance": (broken(), "there is no method advance(now, view)"),
    "a time that goes back": (
        broken(
            advance=lambda self, now, view: None,
            next_time=lambda self, seen=[]: seen.append(1) or -len(seen),
        ),
        "next_time gave -1, which is before 0",
    ),
    "a time that stands": (
        broken(advance=lambda self, now, view: None, next_time=lambda self: 0),
        "next_time gave 0, which is not after 0, the time of its last call",
    ),
    "a time of another type": (
        broken(advance=lambda self, now, view: None, next_time=lambda self: 1.5),
        "no whole number",
    ),
    "a time beyond time": (
        broken(advance=lambda self, now, view: None, next_time=lambda self: 2**64),
        "beyond the end of time",
    ),
    "an unknown event": (
        broken(subscribes=("iterations",), on_event=lambda self, now, event: 1),
        'no event "iterations"; nearest: iteration',
    ),
    "no on_event": (broken(subscribes=("end",)), "has no method on_event"),
    "a maker that raises": (broken(__init__=lambda self: [][1]), "__init__ raised IndexError"),
    "a field for a method": (broken(advance=3), "advance is not a method"),
    "sys.exit": (
        broken(advance=lambda self, now, view: sys.exit(3)),
        "advance raised SystemExit: 3 (test_controller_breaches.py:",
    ),
    "a maker that exits": (
        broken(__init__=lambda self: sys.exit()),
        "__init__ raised SystemExit (",
    ),
    "a property for a method": (
        broken(advance=property(lambda self: 1 / 0)),
        "advance raised ZeroDivisionError: division by zero (test_",
    ),
    "a property for events": (
        broken(subscribes=property(lambda self: 1 / 0)),
        "subscribes raised ZeroDivisionError: division by zero (test_",
    ),
    "an object that lies": (
        answering(type("Liar", (), {"__class__": property(lambda self: 1 / 0)})()),
        "which is no list of changes",
    ),
    "an object without a text": (
        answering(type("Mute", (), {"__repr__": lambda self: 1 / 0})()),
        "advance gave <Mute instance at ",
    ),
    "an error without a text": (
        broken(advance=lambda self, now, view: throw(Mute())),
        "advance raised Mute (test_controller_breaches.py:",
    ),
    "an error of a library": (
        broken(advance=lambda self, now, view: json.loads("{")),
        "(char 1) (test_controller_breaches.py:",
    ),
    "a number of another library": (
        broken(advance=lambda self, now, view: None, next_time=lambda self: numpy.int64(5)),
        "next_time gave np.int64(5), which is no whole number",
    ),
}


@pytest.mark.parametrize("what", BREACHES)
def test_a_broken_controller_ends_the_run_by_name(tmp_path, what, monkeypatch):
    made, line = BREACHES[what]
    monkeypatch.chdir(tmp_path)
    ln.plugin.controller("broken")(made)
    with pytest.raises(ln.UsageError) as refused:
        go(None, [ln.controller("broken", every="1 ms")])
    said = str(refused.value)
    assert said.startswith('controller "broken": ') and line in said and "\n" not in said
    assert refused.value.exit_code == 2
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"


CHANGES = {
    "a rate without a unit": lambda: ln.change.link("h0--*", rate="5"),
    "a negative rate": lambda: ln.change.link("h0--*", rate="-5 Gb/s"),
    "a negative share": lambda: ln.change.link("h0--*", rate=-0.5),
    "a share that is no number": lambda: ln.change.link("h0--*", rate=math.nan),
    "a truth value": lambda: ln.change.link("h0--*", rate=True),
    "a rate above the link's": lambda: ln.change.link("h0--*", rate="1 Tb/s"),
    "a loss that is a text": lambda: ln.change.link("h0--*", loss="0.5"),
    "a delay beyond time": lambda: ln.change.link("h0--*", extra_delay="2500 h"),
    "an unknown name": lambda: ln.change.link("h0--*", los=0.5),
    "an unknown link": lambda: ln.change.link("h0--h99"),
    "no link's name": lambda: ln.change.link(""),
    "an unknown switch": lambda: ln.change.switch("h0", up=False),
    "no state": lambda: ln.change.switch("p0.spine0"),
    "an unknown route": lambda: ln.change.routes(avoid=["nowhere"]),
    "an unknown panel": lambda: ln.change.circuits("ocs0", [("h0", "h1")]),
    "pairs that are none": lambda: ln.change.circuits("ocs0", [("h0",)]),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_bad_change_is_named_by_the_users_own_line(tmp_path, what, monkeypatch):
    change = CHANGES[what]
    monkeypatch.chdir(tmp_path)
    ln.plugin.controller("bad_change")(broken(advance=lambda self, now, view: change()))
    with pytest.raises(ln.UsageError) as refused:
        go(None, [ln.controller("bad_change", every="1 ms")])
    line = change.__code__.co_firstlineno
    assert str(refused.value).endswith(f" (test_controller_breaches.py:{line})"), refused.value
    assert "\n" not in str(refused.value) and refused.value.exit_code == 2


def _takes_every():
    @ln.plugin.controller("takes_every")
    class TakesEvery:
        def __init__(self, every=1):
            self.every = every

        def advance(self, now, view):
            return ()

    ln.controller("takes_every", every="1 ms")


REFUSED = {
    "an unknown name": (lambda: ln.controller("clozer"), 'no controller "clozer"; nearest: '),
    "no time": (lambda: ln.controller("closer", every="often"), "often"),
    "no step": (lambda: ln.controller("closer", every="0 s"), "every=0 ps must be 1 ns or more"),
    "an unknown option": (
        lambda: go(None, [ln.controller("closer", lnk="x")]),
        'controller "closer" has no option lnk; nearest: link',
    ),
    "an option that is missing": (
        lambda: go(None, [ln.controller("slower", every="1 ms")]),
        "missing a required argument: 'link'; give it to ln.controller",
    ),
    "nothing that calls it": (
        lambda: go(None, [ln.controller("slower", link="a")]),
        'nothing calls it: give every="30 ms"',
    ),
    "an option every": (lambda: _takes_every(), "its class has an option every, which "),
    "no list": (lambda: go(None, 5), "controllers=5 is not a list"),
    "a class": (lambda: go(None, [Closer]), "is not a controller; write ln.controller("),
    "a loss above 1": (lambda: ln.change.link("a--b", loss=1.5), "loss=1.5 must be 0 to 1"),
    "a share above 1": (lambda: ln.change.link("a--b", rate=2.0), "rate=2.0: a share above 0"),
    "a name that is taken": (
        lambda: ln.plugin.controller("closer")(Slower),
        '"closer" is the name of test_controllers.Closer already',
    ),
    "no class": (lambda: ln.plugin.controller("x")(5), "5 is not a class"),
    "no name": (lambda: ln.plugin.controller(Closer), "is not a name"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused_is_one_line(what, tmp_path, monkeypatch):
    register(Closer)
    register(Slower)
    monkeypatch.chdir(tmp_path)
    call, line = REFUSED[what]
    with pytest.raises(ln.UsageError) as refused:
        call()
    assert line in str(refused.value) and refused.value.exit_code == 2
    assert list(tmp_path.iterdir()) == []
