"""Plug-ins by name: registration, congestion controls in runs, and check_plugin, which finds what a
class breaks."""

import itertools
import math
import random
import time

import pytest

import loomnet as ln
from loomnet.base.errors import ContractError, RunInterrupted

CHOICES = {"tcp": "cc", "mrc": "cc", "roce": "cc"}


class Aimd(ln.plugin.Congestion):
    """A window that grows by a packet per round trip and halves at a sign of congestion."""

    options = {"factor": 0.5}  # noqa: RUF012

    def __init__(self, flow):
        super().__init__(flow)
        self.flow, self.cuts, self.factor = flow, 0, flow.options["factor"]

    def on_ack(self, ack):
        self.window += self.flow.mss * ack.delivered / self.window

    def on_congestion(self, event):
        self.cuts += 1
        self.window = max(self.window * self.factor, self.flow.mss)

    def observe(self):
        return {"cuts": self.cuts}


class Notified(Aimd):
    needs = ("notifications", "line_rate")


class Watch(ln.plugin.Controller):
    def __init__(self, link="p0.leaf0--p0.spine0"):
        self.link = link

    def advance(self, now, view):
        return [ln.change.link(self.link, up=view.now < 10**9)]


class Front(ln.plugin.Priority):
    """The layers at the input are needed first."""

    def priority(self, message):
        return 1 if message.layer is None else 255 - min(message.layer, 254)


def fabric():
    return ln.clos.two_tier(
        planes=1, leaves=2, spines=1, hosts_per_leaf=2, rate="10 Gb/s", delay="5 us"
    )


def go(directory, transport, name, **options):
    return ln.run(
        fabric(),
        ln.SendRecv("1 MiB", 3, transport),
        seed=1,
        directory=directory,
        **{transport: {CHOICES[transport]: name, **options}},
    )


@pytest.mark.parametrize("transport", CHOICES)
def test_a_registered_control_carries_every_transport(tmp_path, transport):
    ln.plugin.congestion("aimd2")(Aimd)
    slow = go(tmp_path / "a", transport, "aimd2", factor=0.1)
    fast = go(tmp_path / "b", transport, "aimd2")
    assert slow["errors"] == fast["errors"] == 0
    again = go(tmp_path / "c", transport, "aimd2")
    assert str(again.metrics) == str(fast.metrics)
    notes = fast.data.fidelity.notes
    assert "aimd2" in (notes.get("congestion control") or notes["tcp"])


def test_roce_gives_a_control_what_it_asks_for(tmp_path):
    """The line rate, the fabric's round trip, and marks that the receiver notifies of."""
    seen = []

    class Asks(Notified):
        def __init__(self, flow):
            super().__init__(flow)
            seen.append((flow.line_rate_bps, flow.network_rtt_ps))

    ln.plugin.congestion("asks")(Asks)
    job = ln.Incast("4 MB", transport="roce")
    r = ln.run(fabric(), job, seed=1, directory=tmp_path, roce={"cc": "asks"})
    assert r["errors"] == 0
    assert set(seen) == {(10**10, r.plan.base_rtt_ps)}
    assert sum(row.get("marked", 0) for row in r.data.totals.values()) > 0


def test_dcqcn_by_its_name_is_dcqcn(tmp_path):
    job = ln.Incast("4 MB", transport="roce")
    runs = [
        ln.run(fabric(), job, seed=1, directory=tmp_path / str(n), roce=options)
        for n, options in enumerate(({"dcqcn": True}, {"cc": "dcqcn"}))
    ]
    assert runs[0].data.totals == runs[1].data.totals
    assert str(runs[0].metrics) == str(runs[1].metrics)
    assert runs[1].data.fidelity.notes["dcqcn"] == "on"


def test_what_a_control_raises_ends_the_run_in_one_line(tmp_path, monkeypatch):
    class Raises(Aimd):
        def on_ack(self, ack):
            return {}[ack.now_ps]

    ln.plugin.congestion("raises")(Raises)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ln.UsageError) as refused:
        go(None, "tcp", "raises")
    assert str(refused.value).startswith('congestion control "raises": on_ack raised KeyError: ')
    assert "(test_plugins.py:" in str(refused.value) and "\n" not in str(refused.value)
    assert refused.value.exit_code == 2 and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("transport", CHOICES)
def test_live_a_control_in_python_is_refused(tmp_path, transport):
    ln.plugin.congestion("aimd2")(Aimd)
    job = ln.Flows(pairs=[(0, 1)], count=1, sizes="1 MB", transport=transport)
    with pytest.raises(
        ln.UsageError,
        match=rf'{transport}: {CHOICES[transport]}="aimd2" is a '
        "congestion control in Python, which runs on the",
    ):
        ln.run(
            fabric(),
            job,
            clock="live",
            directory=tmp_path / "run",
            **{transport: {CHOICES[transport]: "aimd2"}},
        )
    assert not (tmp_path / "run").exists()


REFUSED = {
    "an unknown control": (lambda: go(None, "tcp", "aimd3"), "no control aimd3; nearest: "),
    "an unknown option": (lambda: go(None, "tcp", "aimd2", fctor=1), "no option fctor"),
    "a signal that is missing": (
        lambda: go(None, "tcp", "notified"),
        "notified needs notifications, line_rate, which this transport",
    ),
    "a name of the engine's": (
        lambda: ln.plugin.congestion("cubic")(Aimd),
        '"cubic": the engine has a control of that name',
    ),
    "a name that is taken": (
        lambda: ln.plugin.congestion("aimd2")(Notified),
        '"aimd2" is the name of test_plugins.Aimd already',
    ),
    "no name": (lambda: ln.plugin.congestion(5), "5 is not a name"),
    "no class": (lambda: ln.plugin.congestion("x")(lambda flow: 1), "is not a class"),
    "an unknown signal": (
        lambda: ln.plugin.congestion("x")(type("X", (Aimd,), {"needs": ("loudness",)})),
        "no signal loudness; there are rtt",
    ),
    "no table of options": (
        lambda: ln.plugin.congestion("x")(type("X", (Aimd,), {"options": 5})),
        "options=5 is not a table",
    ),
    "an option without a type": (
        lambda: ln.plugin.congestion("x")(type("X", (Aimd,), {"options": {"a": None}})),
        "option a has no default",
    ),
    "a control of another type": (lambda: go(None, "roce", 5), "roce: cc=5 is not a name"),
    "what is not registered": (lambda: ln.check_plugin(int), "<class 'int'> is not registered"),
    "no class to check": (lambda: ln.check_plugin("aimd2"), "'aimd2' is a name; give the class"),
    "an option of a check": (lambda: ln.check_plugin(Aimd, fctor=2), "no option fctor"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused_is_one_line(what, tmp_path, monkeypatch):
    ln.plugin.congestion("aimd2")(Aimd)
    ln.plugin.congestion("notified")(Notified)
    monkeypatch.chdir(tmp_path)
    call, line = REFUSED[what]
    with pytest.raises(ln.UsageError) as refused:
        call()
    assert line in str(refused.value) and "\n" not in str(refused.value)
    assert refused.value.exit_code == 2 and list(tmp_path.iterdir()) == []


# --- check_plugin ---------------------------------------------------------------------------------


def test_lawful_plug_ins_pass():
    ln.plugin.congestion("aimd2")(Aimd)
    ln.plugin.congestion("notified")(Notified)
    ln.plugin.controller("watch")(Watch)
    ln.plugin.priority("front")(Front)
    for kind in (Aimd, Notified, Watch, Front):
        ln.check_plugin(kind)
    ln.check_plugin(Aimd, factor=0.9)
    other = ln.clos.two_tier(
        planes=2, leaves=4, spines=2, hosts_per_leaf=1, rate="10 Gb/s", delay="5 us"
    )
    ln.check_plugin(Watch, fabric=other, every="1 ms", link="p1.leaf3--p1.spine0")


def cut(**values):
    """Aimd that sets these once packets have been lost, and only then."""

    def on_congestion(self, event):
        for name, value in values.items():
            setattr(self, name, value(event) if callable(value) else value)

    return type("Cut", (Aimd,), {"on_congestion": on_congestion})


CONTROLS = {
    "a window that is no number": (
        cut(window=math.nan),
        ["window=nan is not a number (test_plugins.py:"],
    ),
    "no window": (cut(window=0), ["the window is 0"]),
    "a negative rate": (cut(pacing_rate=-1.0), ["pacing rate is negative"]),
    "a rate beyond counting": (
        cut(pacing_rate=1e300),
        ["pacing rate is beyond what can be counted"],
    ),
    "a tick in the past": (cut(next_tick=lambda event: event.now_ps - 1), ["not after now"]),
    "a tick without a method": (
        cut(next_tick=lambda event: event.now_ps + 1),
        ["no method on_tick"],
    ),
    "no method": (
        type("Cut", (), {"__init__": lambda self, flow: None}),
        ["there is no method on_ack(ack)", "there is no method on_congestion(event)"],
    ),
    "another signature": (
        type("Cut", (Aimd,), {"on_ack": lambda self: None, "on_tick": lambda self, a, b: None}),
        [
            "on_ack: too many positional arguments: it is called as on_ack(ack)",
            "on_tick: missing a required argument: 'b'",
        ],
    ),
    "an exception after a pause": (
        type("Cut", (Aimd,), {"on_restart": lambda self, now_ps: [][1]}),
        ["on_restart raised IndexError"],
    ),
    "names that change": (
        type(
            "Cut",
            (Aimd,),
            {"observe": lambda self, seen=[]: {f"n{len(seen)}": seen.append(1) or 1.0}},
        ),
        ["observe: other names than at the first call"],
    ),
    "a value that is no number": (
        type("Cut", (Aimd,), {"observe": lambda self: {"a": "b"}}),
        ["observe: a='b' is not a number"],
    ),
    "too many needs": (
        type("Cut", (Aimd,), {"needs": ("refusals", "notifications")}),
        ["no transport gives all of that"],
    ),
}
CONTROLLERS = {
    "an exception": (
        {"advance": lambda self, now, view: view.jobs["other"]},
        ["advance raised KeyError: 'other'"],
    ),
    "an exception at an event": (
        {"subscribes": ("switch",), "on_event": lambda self, now, event: event.what},
        ["on_event raised AttributeError"],
    ),
    "two signatures": (
        {"advance": lambda self: None, "on_event": lambda self, now: None},
        ["advance: too many positional", "on_event: too many positional"],
    ),
    "no change": ({"advance": lambda self, now, view: ["down"]}, ["'down', which is no change"]),
    "time that stands": (
        {"advance": lambda self, now, view: None, "next_time": lambda self: 5},
        ["next_time gave 5, which is not after 5"],
    ),
    "chance": (
        {
            "advance": lambda self, now, view: ln.change.link(
                "h0--*", loss=random.SystemRandom().random() / 50
            )
        },
        ["two runs alike went differently"],
    ),
    "the machine's clock": (
        {
            "advance": lambda self, now, view: ln.change.link(
                "h0--*", extra_delay=f"{time.monotonic_ns() % 10**6} ns"
            )
        },
        ["two runs alike went differently"],
    ),
}
PRIORITIES = {
    "a number out of range": (
        {"priority": lambda self, message: message.bytes},
        ["priority gave 67108864, which is no whole number from 1 to 255"],
    ),
    "nothing": ({"priority": lambda self, message: 0}, ["priority gave 0, "]),
    "a fact that may be missing": (
        {"priority": lambda self, message: int(message.remaining_s)},
        ["priority raised TypeError"],
    ),
    "a share": (
        {"priority": lambda self, message: message.progress},
        ["gave 0.0, ", "gave 0.5, ", "gave 1.0, "],
    ),
    "a truth value": ({"priority": lambda self, message: True}, ["priority gave True"]),
    "no number": ({"priority": lambda self, message: math.nan}, ["priority gave nan"]),
    "an exception": (
        {"priority": lambda self, message: 1 // message.layers},
        ["priority raised ZeroDivisionError"],
    ),
    "chance": (
        {"priority": lambda self, message: random.SystemRandom().randint(1, 255)},
        ["two objects alike gave the same messages other numbers"],
    ),
    "no method": ({}, ["there is no method priority(message)"]),
    "another signature": ({"priority": lambda self: 1}, ["priority: too many positional"]),
    "a maker that raises": (
        {"__init__": lambda self: [][0], "priority": lambda self, m: 1},
        ["__init__ raised IndexError"],
    ),
}
NUMBER = itertools.count()


def found(register, made, **options):
    name = f"checked{next(NUMBER)}"
    register(name)(made)
    with pytest.raises(ContractError) as broken:
        ln.check_plugin(made, **options)
    assert broken.value.exit_code == 2 and broken.value.name.endswith(f'"{name}"')
    assert str(broken.value).splitlines() == [
        f"{broken.value.name}: {line}" for line in broken.value.breaches
    ]
    return broken.value.breaches


@pytest.mark.parametrize("what", CONTROLS)
def test_a_control_is_found_out(what):
    made, lines = CONTROLS[what]
    said = found(ln.plugin.congestion, made)
    for line in lines:
        assert any(line in each for each in said), said


@pytest.mark.parametrize("what", CONTROLLERS)
def test_a_controller_is_found_out(what):
    methods, lines = CONTROLLERS[what]
    said = found(ln.plugin.controller, type("Made", (), methods))
    assert len(said) == len(lines)
    for line, each in zip(lines, said, strict=True):
        assert line in each


@pytest.mark.parametrize("what", PRIORITIES)
def test_a_priority_is_found_out(what):
    methods, lines = PRIORITIES[what]
    said = found(ln.plugin.priority, type("Made", (), methods))
    for line in lines:
        assert any(line in each for each in said), said


def test_ctrl_c_inside_a_control_is_an_interrupt(tmp_path):
    def interrupted(self, ack):
        raise KeyboardInterrupt

    ln.plugin.congestion("interrupted")(type("Cut", (Aimd,), {"on_ack": interrupted}))
    with pytest.raises(RunInterrupted, match='in congestion control "interrupted": on_ack'):
        go(tmp_path, "tcp", "interrupted")
