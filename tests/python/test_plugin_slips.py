"""Slips of the pen in a congestion control that Python itself lets pass: a method that is never
called, an attribute that nothing reads, a kind of event that there is none of. And what
check_plugin says of flows that stand still, and of windows that TCP makes slow."""

import itertools

import pytest

import loomnet as ln
from loomnet.base.errors import ContractError, PluginError
from loomnet.plugins.spelling import slips

NUMBER = itertools.count()


def control(**own):
    made = type("Slip", (ln.plugin.Congestion,), own)
    ln.plugin.congestion(f"slip{next(NUMBER)}")(made)
    return made


def test_a_method_that_is_never_called_is_a_breach_with_the_nearest_name():
    with pytest.raises(ContractError) as error:
        ln.check_plugin(control(on_acks=lambda self, ack: None))
    (line,) = error.value.breaches
    assert line.startswith("on_acks is no method that is ever called; nearest: on_ack,")
    assert ln.check_plugin(control(once=lambda self: None, onward=1)) == []


def test_an_attribute_of_one_slip_is_a_note(capsys):
    def init(self, flow):
        self.window, self.pacing_rte, self.mine, self.windows_seen = flow.initial_window, 1e9, 0, 0

    made = control(__init__=init, accurate_enc=True)
    notes = ln.check_plugin(made)
    assert notes == [
        "nothing reads the attribute accurate_enc; accurate_ecn is read: is it meant?",
        "nothing reads the attribute pacing_rte; pacing_rate is read: is it meant?",
    ]
    assert [f"check_plugin: {note}" for note in notes] == capsys.readouterr().err.splitlines()


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("windw", "window"),
        ("windoww", "window"),
        ("wimdow", "window"),
        ("wnidow", "window"),
        ("indow", "window"),
        ("windows", "window"),
        ("next_tik", "next_tick"),
        ("need", "needs"),
    ],
)
def test_one_letter_is_a_slip(given, meant):
    assert len(list(slips([given], ["window", "next_tick", "needs"]))) == 1
    (said,) = slips([given], [meant])
    assert said.startswith(f"nothing reads the attribute {given}; {meant} ")


@pytest.mark.parametrize("given", ["window", "winds", "wd", "last_window", "tick", "", "wnidwo"])
def test_two_letters_are_none(given):
    assert not list(slips([given], ["window", "next_tick", "needs"]))


def test_the_one_attribute_that_must_be_there_is_looked_for():
    def init(self, flow):
        self.windows = flow.initial_window

    with pytest.raises(ContractError, match="there is no attribute window; there is windows"):
        ln.check_plugin(control(__init__=init))


def test_a_kind_of_event_that_there_is_none_of_raises():
    def on_congestion(self, event):
        if event.kind == "lost":
            self.window /= 2

    with pytest.raises(ContractError, match=r"event\.kind is never 'lost'; nearest: loss,"):
        ln.check_plugin(control(on_congestion=on_congestion))

    kinds = set()

    def counts(self, event):
        assert event.kind in ("loss", "ecn", "timeout", "refused", "notified")
        assert (event.kind == "loss") is not (event.kind != "loss")
        kinds.add({"loss": 1, "ecn": 2}.get(event.kind, event.kind))

    ln.check_plugin(control(on_congestion=counts))
    assert {1, 2, "timeout", "refused", "notified"} >= kinds > {1}


@pytest.mark.parametrize("transport", ["mrc", "roce", "tcp"])
def test_an_error_of_the_maker_has_its_line_over_each_transport(transport):
    name = f"raises{next(NUMBER)}"

    @ln.plugin.congestion(name)
    class Raises(ln.plugin.Congestion):
        def __init__(self, flow):
            self.window = flow.initial_windw

    with pytest.raises(PluginError, match=r"initial_windw.* \(test_plugin_slips\.py:\d+\)$"):
        ln.run(
            ln.star(hosts=2, rate="10 Gb/s", delay="1 us"),
            ln.Flows("1 kB", pairs=[(0, 1)], transport=transport),
            write=False,
            **{transport: {"cc": name}},
        )


def test_a_flow_that_stands_still_is_a_breach():
    """A packet per 8.5 s: packets that ask for no ACK wait longer than RoCE's timeout of 4.3 s."""

    def init(self, flow):
        self.window, self.pacing_rate = flow.initial_window, None

    def on_ack(self, ack):
        if ack.delivered_total >= 100_000:
            self.pacing_rate = 2_000.0

    with pytest.raises(ContractError) as error:
        ln.check_plugin(control(__init__=init, on_ack=on_ack))
    assert any(
        "a flow stands still until the transport's timeout" in line and "roce" in line
        for line in error.value.breaches
    ), error.value.breaches


def test_one_packet_over_tcp_is_a_note():
    def one(self, flow):
        self.window = flow.mss

    (note,) = ln.check_plugin(control(__init__=one))
    assert note.startswith("over tcp it asked for a window of less than two packets")
    assert "40 ms" in note

    def two(self, flow):
        self.window = 2 * flow.mss

    assert ln.check_plugin(control(__init__=two)) == []


def test_the_registered_class_is_the_users_own_afterwards():
    made = control()
    ln.check_plugin(made)
    name = f"slip{next(NUMBER) - 1}"
    windows = set()

    def on_ack(self, ack):
        windows.add(type(self).__name__)

    made.on_ack = on_ack
    ln.run(
        ln.star(hosts=2, rate="10 Gb/s", delay="1 us"),
        ln.Flows("100 kB", pairs=[(0, 1)], transport="roce"),
        write=False,
        roce={"cc": name},
    )
    assert windows == {"Slip"}
