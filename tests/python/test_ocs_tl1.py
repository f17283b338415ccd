"""TL1 as a panel speaks it: over TCP, with clients that mean no good, and any text at all."""

import contextlib
import re
import socket
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomnet._core import PanelDevice
from loomnet.ocs import Settings, Sonic, StandaloneSwitch, Tl1Server
from loomnet.ocs.access import Access
from loomnet.ocs.stream_server import MOST_OF_ONE
from loomnet.ocs.tl1 import Session
from loomnet.ocs.tl1_commands import VERBS, State
from loomnet.ocs.tl1_syntax import MOST_COMMAND

ANSWER = re.compile(
    rb"\r\n\n   \S+ \d\d-\d\d-\d\d \d\d:\d\d:\d\d\r\nM  \S+ "
    rb"(COMPLD\r\n(   \"[^\"\r\n]*\"\r\n)*|DENY\r\n   [A-Z]{4}\r\n   /\* "
    rb"[ -~]*? \*/\r\n);"
)
LOGIN = "ACT-USER::admin:1::root;"


class Client:
    def __init__(self, server):
        self.link = socket.create_connection(server.address, timeout=20)

    def __call__(self, text):
        self.link.sendall(text.encode("latin-1"))
        return self.answer()

    def answer(self):
        data = b""
        while not data.endswith(b"\r\n;"):
            more = self.link.recv(1 << 16)
            if not more:
                return data
            data += more
        return data


@pytest.fixture
def switch():
    return StandaloneSwitch(48, "polatis", seed=3)


@pytest.fixture
def server(switch):
    with Tl1Server(switch.operate, address=("127.0.0.1", 0)) as server:
        yield server


def test_the_very_bytes_of_an_answer(server):
    client = Client(server)
    client(LOGIN)
    assert re.fullmatch(
        rb"\r\n\n   ocs0 \d\d-\d\d-\d\d \d\d:\d\d:\d\d\r\nM  7 COMPLD\r\n;",
        client("ENT-PATCH::11&12,60&59:7:;"),
    )
    assert client("RTRV-PATCH:::c8:;").endswith(
        b'\r\nM  c8 COMPLD\r\n   "11,60"\r\n   "12,59"\r\n;'
    )
    assert client("ENT-PATCH:::9:;").endswith(
        b"\r\nM  9 DENY\r\n   IIAC\r\n   /* Empty parameters */\r\n;"
    )
    # Two at once, and a line end between, as a terminal sends them.
    client.link.sendall(b"RTRV-HDR:::1:;\r\nRTRV-HDR:::2:;")
    both = b""
    while both.count(b"COMPLD") < 2:
        both += client.link.recv(4096)
    assert b"M  1 COMPLD" in both and b"M  2 COMPLD" in both


def test_an_answer_comes_when_the_changed_ports_are_tuned(server, switch):
    client = Client(server)
    client(LOGIN)
    begin = time.monotonic()
    client("ENT-PATCH::1,49:1:;")
    took = time.monotonic() - begin
    assert switch.operate(lambda device, now: device.status(0, False, now)) == "tuned"
    assert 0.02 < took < 0.3
    begin = time.monotonic()
    client("ENT-PATCH::1,49:2:;")  # is there already
    assert time.monotonic() - begin < 0.015


def test_a_patch_that_another_client_has_taken_is_not_completed():
    slow = StandaloneSwitch(8, "polatis")
    with Tl1Server(slow.operate, address=("127.0.0.1", 0)) as server:
        first, second = Client(server), Client(server)
        first(LOGIN), second(LOGIN)
        first.link.sendall(b"ENT-PATCH::1,9:1:;")
        time.sleep(0.01)
        assert b"M  2 COMPLD" in second("ENT-PATCH::1,10:2:;")
        assert first.answer().endswith(
            b"M  1 DENY\r\n   SSTP\r\n   /* Another request has taken a port of the patch */\r\n;"
        )
        # The same patch twice is there for both.
        first.link.sendall(b"ENT-PATCH::2,11:3:;")
        assert b"M  4 COMPLD" in second("ENT-PATCH::2,11:4:;")
        assert b"M  3 COMPLD" in first.answer()


def test_a_semicolon_in_quotes_ends_no_command(server):
    client = Client(server)
    client(LOGIN)
    assert b"M  7 DENY\r\n   IDNV\r\n   /* Invalid value a;b */" in client(
        'ED-PORT-LABEL::1:7:::LABEL="a;b";'
    )
    assert b"M  8 COMPLD" in client("RTRV-HDR:::8:;")
    # A quote that is not closed ends with its line.
    client.link.sendall(b'RTRV-HDR:::"9;\r\nRTRV-HDR:::10:;RTRV-HDR:::11:;')
    answers = b""
    while b"M  11 COMPLD" not in answers:
        answers += client.link.recv(4096)
    assert b"IICT" in answers


def test_another_session_goes_on_meanwhile(switch):
    slow = StandaloneSwitch(8, "telescent")
    with Tl1Server(slow.operate, address=("127.0.0.1", 0)) as server:
        waiting, other = Client(server), Client(server)
        waiting(LOGIN), other(LOGIN)
        waiting.link.sendall(b"ENT-PATCH::1,9:1:;")
        time.sleep(0.05)
        assert b'"1,9"' in other("RTRV-PATCH:::2:;")
        begin = time.monotonic()
    assert time.monotonic() - begin < 2, "closing does not wait 120 s for the light"
    assert waiting.answer() == b""


def test_a_script_shuts_and_opens_a_port(server, switch):
    client = Client(server)
    client(LOGIN)
    client("ENT-PORT-FLAP::5:1::40,60,3;")
    client("OPR-PORT-FLAP::5:2:;")
    seen, end = [], time.monotonic() + 10
    while time.monotonic() < end and len(seen) < 6:
        shut = switch.operate(lambda device, now: device.shutter_closed(4, False))
        if not seen or seen[-1] != shut:
            seen.append(shut)
        time.sleep(0.002)
    assert seen == [True, False] * 3


def test_requests_are_noted_and_share_settings():
    notes, panel = [], Settings(name="ocs7")
    switch = StandaloneSwitch(8, "ideal")
    with Tl1Server(
        switch.operate,
        panel,
        address=("127.0.0.1", 0),
        note=lambda at, text: notes.append((at, text)),
    ) as server:
        client = Client(server)
        assert b"   ocs7 " in client(LOGIN)
        client("ED-PORT-LABEL::2:5:::LABEL=rack;")
        client("ENT-PATCH::1,10:6:;")
        client("ENT-PATCH::1,99:7:;"), client("RTRV-PATCH:::8:;")
    assert [text for _, text in notes] == [
        "tl1 ED-PORT-LABEL::2:5:::LABEL=rack",
        "tl1 ENT-PATCH::1,10:6:",
    ]
    assert 0 < notes[0][0] < notes[1][0]
    sonic = Sonic(switch.operate, panel)
    assert next(row for row in sonic.port_config() if row["id"] == "2A")["label"] == "rack"
    assert [row["id"] for row in sonic.cross_connect_status()] == ["1A-2B"]
    assert sonic.cross_connect_config() == [], "live, and not configured there"


def test_published_clients_log_in_as_root_and_ask_for_the_mode_of_attenuators(switch):
    session = Session(Access(switch.operate), State(), lambda at: None)
    assert b"COMPLD" in session.answer("ACT-USER::root:1::root")
    answer = session.answer("rtrv-eqpt::atten:2:::parameter=config").decode()
    (line,) = (line for line in answer.splitlines() if "=" in line)
    # A client takes what stands between "=" and the closing quote for the mode.
    assert line.split("=")[1][:-1] == "CONVERGED"
    assert b"COMPLD" in session.answer("SET-PORT-ATTEN::ALL:3:::MODE=CONVERGED,LEVEL=3")
    assert b"IDNV" in session.answer("RTRV-EQPT::ATTEN:4:::PARAMETER=SIZE")


def test_a_session_that_was_silent_for_long_must_log_in_again(switch, monkeypatch):
    session = Session(Access(switch.operate), State(), lambda at: None)
    session.answer(LOGIN[:-1])
    session.answer("ED-EQPT::TIMEOUT:1:::ADMIN=2")
    now = time.monotonic()
    monkeypatch.setattr("loomnet.ocs.tl1.time.monotonic", lambda: now + 100)
    assert b"COMPLD" in session.answer("RTRV-HDR:::2")
    monkeypatch.setattr("loomnet.ocs.tl1.time.monotonic", lambda: now + 221)
    assert b"PICC" in session.answer("RTRV-HDR:::3")


def test_guessing_passwords_ends_the_connection(server):
    client = Client(server)
    for _ in range(5):
        assert b"PICC" in client("ACT-USER::admin:1::guess;")
    try:
        assert client("ACT-USER::admin:1::root;") == b""
    except ConnectionError:
        pass  # it has been closed already


def test_hostile_clients_leave_the_others_alone(server):
    silent = [socket.create_connection(server.address) for _ in range(MOST_OF_ONE - 1)]
    client = Client(server)
    client(LOGIN)
    assert socket.create_connection(server.address, timeout=5).recv(99) == b"\r\nbusy\r\n"
    silent[0].sendall(b"\xff\xfb\x01\0\x80" * 1000 + b";")  # a terminal's negotiation, and worse
    assert b"IICT" in silent[0].recv(4096)
    silent[1].sendall(b"A" * (MOST_COMMAND + 100_000))
    silent[1].sendall(b"BB;")
    assert b"Parse error at offset 16385" in silent[1].recv(4096)
    assert b"M  5 COMPLD" in client("RTRV-HDR:::5:;")
    for each in silent:
        each.close()
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        with contextlib.suppress(ConnectionError):  # "busy" closes the connection, read or not
            if b"COMPLD" in Client(server)(LOGIN):
                break
    else:
        raise AssertionError("no room again after the silent ones have left")


def test_many_at_once_get_their_own_answers(server):
    wrong = []

    def talk(number):
        client = Client(server)
        client(LOGIN)
        for index in range(20):
            if f"M  c{number}.{index} COMPLD".encode() not in client(
                f"ENT-PATCH::{number},{48 + number}:c{number}.{index}:;"
            ):
                wrong.append((number, index))

    threads = [threading.Thread(target=talk, args=(number,)) for number in range(1, 7)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(20)
    assert wrong == []


# --- any text at all ------------------------------------------------------------------------------

PARTS = st.one_of(
    st.sampled_from(
        [
            "",
            "1",
            "49",
            "1,49",
            "1&2,49&50",
            "1&&4",
            "ALL",
            "all",
            "x",
            "&",
            "&&",
            ",",
            "1&&",
            "&&1",
            "1&&3&&5",
            "97",
            "0",
            "1&1",
            '"',
            '"a"',
            "MODE=",
            "=",
            "MODE=A",
            "LEVEL=1",
            "REFS=1&2",
            "PARAMETER=SIZE",
            "LABEL=a",
            "admin",
            "BOOT",
            "*/",
            "20,20,20",
            "ADMIN=5",
            "WAVE=1310",
            "MODE=RELATIVE,LEVEL=2,REFS=49",
            "١",
        ]
    ),
    st.text(max_size=12),
)
COMMANDS = st.one_of(
    st.text(max_size=60),
    st.lists(PARTS, max_size=9).map(":".join),
    st.tuples(
        st.sampled_from(sorted([*VERBS, "ACT-USER", "CANC-USER"])), st.lists(PARTS, max_size=7)
    ).map(lambda found: ":".join([found[0], *found[1]])),
    st.tuples(st.sampled_from(sorted(VERBS)), PARTS, PARTS, PARTS).map(
        lambda found: f"{found[0]}::{found[1]}:1::{found[2]}:{found[3]}"
    ),
)


@settings(max_examples=400, deadline=None)
@given(st.lists(COMMANDS, min_size=1, max_size=8))
def test_any_text_is_answered_and_the_device_stays_whole(commands):
    device, now = PanelDevice(48, "polatis"), [0]

    def operate(fn):
        device.advance(now[0])
        return fn(device, now[0])

    session = Session(Access(operate), State(), lambda at: now.__setitem__(0, max(at, now[0])))
    session.answer(LOGIN[:-1])
    for text in commands:
        answer = session.answer(text.replace(";", ""))
        assert ANSWER.fullmatch(answer), (text, answer)
        crosses = device.cross_connects()
        assert len({a for a, _ in crosses}) == len({b for _, b in crosses}) == len(crosses)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_answered(data):
    switch = StandaloneSwitch(4, "ideal")
    session = Session(Access(switch.operate), State(), lambda at: None)
    assert ANSWER.fullmatch(session.answer(data.replace(b";", b"").decode("latin-1")))
