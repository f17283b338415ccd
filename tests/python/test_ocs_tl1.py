"""TL1 over real TCP connections, as clients of optical circuit switches speak it: transcripts of
every command and every mistake, timing, and clients that mean ill."""

from __future__ import annotations

import random
import re
import socket
import statistics
import threading
import time

import pytest

from loomnet import ocs
from loomnet.ocs.tl1_grammar import Denied, parse, ports
from loomnet.ocs.tl1_server import MOST_CLIENTS

FRAME = re.compile(
    rb"\r\n\n   (?P<sid>\S+) (?P<at>\d\d-\d\d-\d\d \d\d:\d\d:\d\d)\r\n"
    rb"M  (?P<ctag>\S+) (?P<code>COMPLD|DENY)\r\n(?P<body>(?:   .*\r\n)*);")


class Client:
    """Reads to the semicolon on a line of its own, as the prototype's would."""

    def __init__(self, server: ocs.Tl1Server, login: bool = True) -> None:
        self.socket = socket.create_connection(server.address, timeout=10)
        self.read = b""
        if login:
            assert self.ask("ACT-USER::admin:1::root;") == ("COMPLD", [])

    def ask(self, command: str) -> tuple[str, list[str]]:
        self.socket.sendall(command.encode())
        return self.answer(re.match(r"[^:]*:[^:]*:[^:]*:([\w-]+)", command))

    def answer(self, tag: re.Match[str] | None) -> tuple[str, list[str]]:
        while b"\r\n;" not in self.read:
            came = self.socket.recv(4096)
            assert came, self.read
            self.read += came
        end = self.read.index(b"\r\n;") + 3
        frame, self.read = self.read[:end], self.read[end:]
        found = FRAME.fullmatch(frame)
        assert found is not None, frame
        if tag is not None:
            assert found["ctag"].decode() == tag[1]
        lines = [line.strip() for line in found["body"].decode().splitlines()]
        if found["code"] == b"COMPLD":
            assert all(re.fullmatch(r'".*"', line) for line in lines)
            return "COMPLD", [line[1:-1] for line in lines]
        assert re.fullmatch(r"/\* .* \*/", lines[1]), lines
        return lines[0], [lines[1][3:-3]]


@pytest.fixture
def switch():
    return ocs.StandaloneSwitch(8, "ideal")


@pytest.fixture
def server(switch):
    with ocs.Tl1Server(switch.operate, port=0) as server:
        yield server


@pytest.fixture
def client(server):
    client = Client(server)
    yield client
    client.socket.close()


DIALOGUE = [
    ("ENT-PATCH::1,9:2:;", []),
    ("ent-patch::2&3&4,10&11&12:a-1:;", []),
    ("RTRV-PATCH:::3:;", ["1,9", "2,10", "3,11", "4,12"]),
    ("RTRV-PATCH::2&12:4:;", ["2,10", "4,12"]),
    ("ENT-PATCH::1&&2,10&&11:5:;", []),  # takes ports from those that have them
    ("RTRV-PATCH::ALL:6:;", ["1,10", "2,11", "4,12"]),
    ("DLT-PATCH::4:7:;", []),
    ("RTRV-PATCH:::8:;", ["1,10", "2,11"]),
    ("OPR-PORT-SHUTTER::1&9:9:;", []),
    ("RTRV-PORT-SHUTTER::1&2&9:10:;", ["1:CLOSED", "2:OPEN", "9:CLOSED"]),
    ("RLS-PORT-SHUTTER::1&9:11:;", []),
    ("RTRV-PORT-SHUTTER::1:12:;", ["1:OPEN"]),
    ("ED-PORT-LABEL::2&10:13:::LABEL=left&right one;", []),
    ("RTRV-PORT-LABEL:::14:;", ["2:left", "10:right one"]),
    ("DLT-PORT-LABEL::2:15:;", []),
    ("RTRV-PORT-LABEL::ALL:16:;", ["10:right one"]),
    ("ENT-PORT-FLAP::3:17::20,20,2;", []),
    ("RTRV-PORT-FLAP::3:18:;", ["3:20,20,2,OFF"]),
    ("OPR-PORT-FLAP::3:19:;", []),
    ("RLS-PORT-FLAP::3:20:;", []),
    ("SET-PORT-ATTEN::10:21:::MODE=RELATIVE,LEVEL=3.5;", []),
    ("RTRV-PORT-ATTEN::10:22:;", ["10:RELATIVE,3.50,"]),
    ("SET-PORT-PMON::10:23:::WAVE=1310;", []),
    ("RTRV-PORT-PMON::10:24:;", ["10:1310.00,0.00,1"]),
    ("RTRV-EQPT::SYSTEM:25:::PARAMETER=SIZE;", ["SYSTEM:SIZE=8x8"]),
    ("ED-EQPT::BOOT:26:::MODE=DARK;", []),
    ("RTRV-EQPT::BOOT:27:;", ["BOOT:MODE=DARK"]),
    ("ED-EQPT::TIMEOUT:28:::ADMIN=0;", []),
    ("RTRV-HDR:::29:;", []),
    ("SET-SID:::30::panel-1;", []),
    ("RTRV-HDR:panel-1::31:;", []),
    ("DLT-PATCH:\"panel-1\"::32:;", []),
    ("RTRV-PATCH:::33:;", []),
    ("CANC-USER::admin:34:;", []),
]


def test_every_command(client):
    for command, lines in DIALOGUE:
        assert client.ask(command) == ("COMPLD", lines), command


def test_what_the_switch_says_of_itself(client):
    [kind] = client.ask("RTRV-NETYPE:::1:;")[1]
    assert re.fullmatch(r"Loomnet,panel-8,OCS,\S+", kind)
    [inventory] = client.ask("RTRV-INV::OCS:2:;")[1]
    assert "SN=" in inventory
    [clock] = client.ask("RTRV-TOD:::3:;")[1]
    assert re.fullmatch(r"\d{4}(,\d\d){5}", clock)


def test_power_falls_by_loss_and_attenuation(client, switch):
    client.ask("ENT-PATCH::1,16:1:;")
    loss = switch.operate(lambda device, now: device.insertion_loss(0, 7)) / 100

    def power(port: int) -> float:
        [line] = client.ask(f"RTRV-PORT-POWER::{port}:2:;")[1]
        found = re.fullmatch(rf"{port}:(-?\d+\.\d\d)", line)
        assert found is not None, line
        return float(found[1])

    assert power(16) == pytest.approx(-loss, abs=0.01) and power(1) == pytest.approx(0, abs=0.01)
    assert power(15) == -60.0
    client.ask("SET-PORT-ATTEN::16:3:::MODE=RELATIVE,LEVEL=2;")
    assert power(16) == pytest.approx(-loss - 2, abs=0.01)
    client.ask("SET-PORT-ATTEN::16:4:::MODE=ABSOLUTE,LEVEL=-5;")
    assert power(16) == pytest.approx(-5, abs=0.01)


MISTAKES = [
    ("RTRV-HDR;", "IICT", "Parse error at offset 9 in command"),
    ("RTRV-HDR:::;", "IICT", "Parse error at offset 12 in command"),
    ("RTRV-HDR:::1:::::;", "IICT", "Parse error at offset 17 in command"),
    ("RTRV-HDR:other::1:;", "IITA", "Parse error at offset 10 in command"),
    ("DO-WHAT:::1:;", "IICT", "Parse error at offset 1 in command"),
    ("ENT-PATCH:::1:;", "IIAC", "Empty parameters"),
    ("ENT-PATCH::1:1:;", "IIAC", "Too few parameters (1/2)"),
    ("OPR-PORT-SHUTTER:::1:;", "IIAC", "Too few parameters (0/1)"),
    ("RTRV-EQPT::FAN:1:;", "IIAC", "Parameter not valid"),
    ("RTRV-INV:::1:;", "IIAC", "Empty parameters"),
    ("ENT-PATCH::1,99:1:;", "IDNV", "Invalid OXC port: 99"),
    ("ENT-PATCH::9,1:1:;", "IDNV", "Invalid OXC port: 9"),
    ("ENT-PATCH::0,9:1:;", "IDNV", "Invalid OXC port: 0"),
    ("ENT-PATCH::1,2&9,10:1:;", "IIAC", "Parameter not valid"),  # & builds lists, no pairs
    ("ENT-PATCH::1&2,9:1:;", "IDNV", "Bad parameter value"),
    ("ENT-PATCH::4&&1,9&&12:1:;", "IDNV", "Invalid value 4&&1"),
    ("SET-PORT-ATTEN::9:1:::MODE=MORE;", "IDNV", "Invalid value MORE"),
    ("SET-PORT-ATTEN::1:1:::MODE=NONE;", "IDNV", "Invalid OXC port: 1"),
    ("SET-PORT-ATTEN::9:1:::MODE=RELATIVE,LEVEL=-1;", "IDNV", "Invalid value -1"),
    ("SET-PORT-ATTEN::9:1:::MODE=RELATIVE;", "IPMS", "Too few parameters (1/2) in block 2"),
    ("SET-PORT-ATTEN::9:1:::COLOUR=RED;", "IPNV", "Unexpected parameter COLOUR in block 2"),
    ("SET-PORT-ATTEN::9:1:::MODE;", "IPNV", "Parameter not valid"),
    ("ED-PORT-LABEL::1:1:::LABEL=@#$;", "IDNV", "Invalid value @#$"),
    ("ED-PORT-LABEL::1:1:::LABEL=abcdefghijklmnopqrstuvwxyz;", "IDNV",
     "Invalid value abcdefghijklmnopqrstuvwxyz"),
    ("ED-PORT-LABEL::1&2:1:::LABEL=a;", "IDNV", "Bad parameter value"),
    ("ED-PORT-LABEL::1:1:;", "IPMS", "Too few parameters (0/1) in block 2"),
    ("ENT-PORT-FLAP::1:1::20,20;", "IPMS", "Too few parameters (2/3) in block 1"),
    ("ENT-PORT-FLAP::1:1::20,20,1,7;", "IPNV", "Unexpected parameter 7 in block 1"),
    ("ENT-PORT-FLAP::9:1::20,20,1;", "IDNV", "Invalid OXC port: 9"),
    ("OPR-PORT-FLAP::1:1:;", "SSTP", "No flap script entered"),
    ("SET-SID:::1::;", "IPMS", "Too few parameters (0/1) in block 1"),
    ("SET-SID:::1::abcdefghijklmnopqrstuvw;", "IDNV", "Invalid value abcdefghijklmnopqrstuvw"),
    ("ED-EQPT::TIMEOUT:1:::ADMIN=61;", "IDNV", "Invalid value 61"),
    ("CANC-USER::other:1:;", "PICC", "Not logged in"),
    ("ACT-USER::admin:1::wrong;", "PICC", "Login incorrect"),
    ("ACT-USER::admin:1:;", "IPMS", "Too few parameters (0/1) in block 1"),
]


@pytest.mark.parametrize(("command", "code", "text"), MISTAKES)
def test_every_mistake_is_named_and_changes_nothing(client, switch, command, code, text):
    client.ask("ENT-PATCH::1,9:0:;")
    def state():
        return switch.operate(lambda device, now: (device.generation, device.cross_connects()))

    before = state()
    assert client.ask(command) == (code, [text])
    assert state() == before


def test_nothing_is_done_before_a_login_or_after_a_logout(server):
    client = Client(server, login=False)
    assert client.ask("ENT-PATCH::1,9:1:;") == ("PICC", ["Log in first"])
    assert client.ask("ACT-USER::admin:2::root;") == ("COMPLD", [])
    assert client.ask("CANC-USER::admin:3:;") == ("COMPLD", [])
    assert client.ask("RTRV-HDR:::4:;") == ("PICC", ["Log in first"])


def test_a_list_is_one_generation_and_answers_when_it_is_tuned():
    switch = ocs.StandaloneSwitch(48, "polatis", seed=3)
    with ocs.Tl1Server(switch.operate, port=0) as server:
        client = Client(server)
        first = switch.operate(lambda device, now: device.generation)
        began = time.monotonic()
        client.ask("ENT-PATCH::1&&16,49&&64:1:;")
        took = time.monotonic() - began
        generation, dark = switch.operate(lambda device, now: (
            device.generation, [device.status(port, False, now) for port in range(16)]))
        assert generation == first + 1 and set(dark) == {"tuned"}
        assert 0.025 < took < 0.5


def test_a_script_flaps_a_port_as_often_as_it_says(client, switch):
    client.ask("ENT-PORT-FLAP::1:1::60,60,2;")
    client.ask("OPR-PORT-FLAP::1:2:;")
    seen, until = [], time.monotonic() + 0.6
    while time.monotonic() < until:
        shut = switch.operate(lambda device, now: device.shutter_closed(0, False))
        if not seen or seen[-1] != shut:
            seen.append(shut)
        time.sleep(0.005)
    assert seen == [True, False, True, False]
    assert client.ask("RTRV-PORT-FLAP::1:3:;") == ("COMPLD", ["1:60,60,2,OFF"])


def test_any_bytes_get_one_frame_for_each_semicolon(server):
    draw = random.Random(1)
    pieces = [command.encode() for command, *_ in (*DIALOGUE, *MISTAKES)]
    client = Client(server)
    for _ in range(2000):
        bytes_ = bytearray(draw.choice(pieces))
        for _ in range(draw.randrange(4)):
            bytes_[draw.randrange(len(bytes_))] = draw.randrange(256)
        if b"TIMEOUT" in bytes_.upper():
            continue
        client.socket.sendall(bytes(bytes_))
        for _ in range(bytes_.count(b";")):
            client.answer(None)
        if not bytes_.endswith(b";"):
            client.socket.sendall(b";")
            client.answer(None)


def test_lists_of_ports():
    assert ports("1&3&&5", 1, 8) == [1, 3, 4, 5] and ports("ALL", 1, 3) == [1, 2, 3]
    for text in ("1&", "&", "1&&&3", "a", "1&&2&&3", "²", "99999999999"):
        with pytest.raises(Denied):
            ports(text, 1, 8)
    with pytest.raises(Denied, match="Parse error at offset 1 "):
        parse("")


def test_clients_that_mean_ill_are_left(server):
    flood = socket.create_connection(server.address, timeout=10)
    flood.sendall(b"x" * 20_000)
    came = b""
    while data := flood.recv(4096):
        came += data
    assert b"Command too long" in came
    idle = [socket.create_connection(server.address, timeout=10) for _ in range(MOST_CLIENTS)]
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:  # one too many is closed at once
        extra = socket.create_connection(server.address, timeout=5)
        extra.sendall(b"RTRV-HDR:::1:;")
        try:
            closed = extra.recv(10) == b""
        except ConnectionError:
            closed = True
        extra.close()
        if closed:
            break
    assert closed
    for each in idle:
        each.close()
    for _ in range(100):  # places are free again
        try:
            Client(server).socket.close()
            break
        except (AssertionError, ConnectionError):
            time.sleep(0.05)
    else:
        pytest.fail("no place became free")


def test_an_end_leaves_no_thread_and_no_port(switch):
    before = threading.active_count()
    server = ocs.Tl1Server(switch.operate, port=0)
    client = Client(server)
    address = server.address
    server.close()
    server.close()
    client.socket.close()
    deadline = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.02)
    assert threading.active_count() == before
    with pytest.raises(ConnectionError):
        socket.create_connection(address, timeout=1)


@pytest.mark.parametrize(("pairs", "mean_ms"), [(1, 41.44), (16, 46.75)])
def test_a_clients_times_are_those_of_the_panel(pairs, mean_ms):
    switch = ocs.StandaloneSwitch(48, "polatis", seed=pairs)
    with ocs.Tl1Server(switch.operate, port=0) as server:
        client = Client(server)
        took = []
        for number in range(24):
            shift = number % 2 * 16
            egress = f"{49 + shift}&&{48 + shift + pairs}" if pairs > 1 else f"{49 + shift}"
            ingress = f"1&&{pairs}" if pairs > 1 else "1"
            began = time.monotonic()
            assert client.ask(f"ENT-PATCH::{ingress},{egress}:{number}:;")[0] == "COMPLD"
            took.append(time.monotonic() - began)
        # Of so few samples; scenarios/mfabric/control.py takes 200.
        assert statistics.mean(took) * 1e3 == pytest.approx(mean_ms, rel=0.12)
