"""Control interfaces of an optical circuit switch: bars E6, E7, E8, P2 and P3 of MixNet (SIGCOMM
2025, doi 10.1145/3718958.3750465), whose prototype patched a panel of 48 ports by TL1."""

import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import loomnet as ln
from loomnet._core import PanelDevice
from loomnet.base.errors import UsageError
from loomnet.ocs import Sonic, StandaloneSwitch, Tl1Server
from loomnet.ocs.access import Access
from loomnet.ocs.tl1 import Session
from loomnet.ocs.tl1_commands import State

PORTS = 48
# Cross-connects of a request -> mean and 99th percentile of its time in ms, as published.
SWITCHING = {1: (41.44, 60), 4: (42.44, 62), 16: (46.75, 68)}
NIC_S = (5.67, 6.33)  # from light to a NIC that can be used: mean, 99th percentile

# A session: each command, and COMPLD with its lines, or a code with its comment.
SESSION = [
    ("RTRV-PATCH:::1:;", "PICC"),
    ("ACT-USER::admin:2::wrong;", "PICC"),
    ("ACT-USER::nobody:3::root;", "PICC"),
    ("ACT-USER::admin:4;", "IPMS Too few parameters (0/1) in block 1"),
    ("ACT-USER::user:5::user;", "COMPLD"),
    ("ED-EQPT::BOOT:6:::MODE=DARK;", "SRCN"),
    ("SET-SID:::7::panel;", "SRCN"),
    ("CANC-USER::user:8;", "COMPLD"),
    ("RTRV-PATCH:::9:;", "PICC"),
    ("ACT-USER::admin:10::root;", "COMPLD"),
    ("CANC-USER::user:11;", "PICC"),
    # Cross-connects: port n is ingress n and egress 48 + n.
    ("ENT-PATCH::11,76:12:;", "COMPLD"),
    ("RTRV-PATCH::11:13:;", "COMPLD 11,76"),
    ("ent-patch::1&2&3,57&58&59:14:;", "COMPLD"),
    ("ENT-PATCH:ocs0:4&&7,60&&63:15;", "COMPLD"),
    ("RTRV-PATCH:::16:;", "COMPLD 1,57 2,58 3,59 4,60 5,61 6,62 7,63 11,76"),
    ("RTRV-PATCH::58&60&&61:17:;", "COMPLD 2,58 4,60 5,61"),
    ("ENT-PATCH::8,76:18:;", "COMPLD"),  # takes a port from what uses it
    ("RTRV-PATCH::8&11:19:;", "COMPLD 8,76"),
    ("DLT-PATCH::1&59:20:;", "COMPLD"),
    ("RTRV-PATCH::ALL:21:;", "COMPLD 2,58 4,60 5,61 6,62 7,63 8,76"),
    ("DLT-PATCH::ALL:22:;", "COMPLD"),
    ("RTRV-PATCH:::23:;", "COMPLD"),
    ("ENT-PATCH::20,68:24:;", "COMPLD"),  # its own fibre: a loopback
    ("ENT-PATCH:::25:;", "IIAC Empty parameters"),
    ("ENT-PATCH::11:26:;", "IIAC Too few parameters (0/1)"),
    ("ENT-PATCH::11,12:27:;", "IDNV Invalid OXC port: 12"),
    ("ENT-PATCH::60,61:28:;", "IDNV Invalid OXC port: 60"),
    ("ENT-PATCH::0,49:29:;", "IDNV Invalid OXC port: 0"),
    ("ENT-PATCH::1,97:30:;", "IDNV Invalid OXC port: 97"),
    ("ENT-PATCH::one,49:31:;", "IDNV Invalid OXC port: one"),
    ("ENT-PATCH::1&1,49&50:32:;", "IDNV Invalid OXC port: 1"),
    ("ENT-PATCH::1&2,49:33:;", "IDNV Bad parameter value"),
    ("ENT-PATCH::1,2&49,50:34:;", "IDNV Bad parameter value"),  # no list of pairs
    ("ENT-PATCH::1,49:35:::FOO=1;", "IPNV Unexpected parameter FOO in block 2"),
    ("ENT-PATCH::1,49:36::5;", "IPNV Unexpected parameter 5 in block 1"),
    ("RTRV-PATCH:::37:;", "COMPLD 20,68"),  # nothing of these was applied
    # What is no command.
    ("RTRV-PATCH::;", "IICT Parse error at offset 13 in command"),
    ("RTRV-PATCH:::;", "IICT Parse error at offset 14 in command"),
    ("RTRV-PATCH:::1:2:3:4:5;", "IICT Parse error at offset 21 in command"),
    ("RTRV-PATCH:::a b:;", "IICT Parse error at offset 15 in command"),
    ("RTRV-PATCH:other::38:;", "IITA Parse error at offset 12 in command"),
    ("RTRV-LIGHT:::39:;", "ICNV"),
    # Shutters, labels, flapping.
    ("OPR-PORT-SHUTTER::10&58:40:;", "COMPLD"),
    ("RTRV-PORT-SHUTTER::10&11&58:41:;", "COMPLD 10:CLOSED 11:OPEN 58:CLOSED"),
    ("RLS-PORT-SHUTTER:::42:;", "COMPLD"),
    ("RTRV-PORT-SHUTTER::10,58:43:;", "COMPLD 10:OPEN 58:OPEN"),
    ("ED-PORT-LABEL::2&50:44:::LABEL=a&rack.3;", "COMPLD"),
    ("RTRV-PORT-LABEL:::45:;", "COMPLD 2:a 50:rack.3"),
    ("ED-PORT-LABEL::2:46:::LABEL=@#$;", "IDNV Invalid value @#$"),
    (f"ED-PORT-LABEL::2:47:::LABEL={'x' * 26};", f"IDNV Invalid value {'x' * 26}"),
    ("ED-PORT-LABEL::2:48:::LABEL=a&b;", "IDNV Bad parameter value"),
    ("ED-PORT-LABEL::2:49:;", "IPMS Too few parameters (0/1) in block 2"),
    ("DLT-PORT-LABEL::2:50:;", "COMPLD"),
    ("RTRV-PORT-LABEL::ALL:51:;", "COMPLD 50:rack.3"),
    ("ENT-PORT-FLAP::3:52::20,30,2;", "COMPLD"),
    ("RTRV-PORT-FLAP:::53:;", "COMPLD 3:20,30,2"),
    ("OPR-PORT-FLAP::3:54:;", "COMPLD"),
    ("RTRV-PORT-SHUTTER::3:55:;", "COMPLD 3:CLOSED"),
    ("RLS-PORT-FLAP::3:56:;", "COMPLD"),
    ("RTRV-PORT-SHUTTER::3:57:;", "COMPLD 3:OPEN"),
    ("OPR-PORT-FLAP::4:58:;", "SSTP"),
    ("ENT-PORT-FLAP::60:59::20,30,2;", "IDNV Invalid OXC port: 60"),
    ("ENT-PORT-FLAP::3:60::20,30;", "IPMS Too few parameters (2/3) in block 1"),
    ("ENT-PORT-FLAP::3:61::20,soon,2;", "IDNV Invalid value soon"),
    # Light.
    ("RTRV-PORT-POWER::20&67&68:62:;", r"COMPLD 20:0\.00 67:-60\.00 68:-1\.[5-8]\d"),
    ("SET-PORT-ATTEN::68:63:::MODE=ABSOLUTE,LEVEL=10;", "COMPLD"),
    ("RTRV-PORT-ATTEN::67&68:64:;", "COMPLD 67:NONE,, 68:ABSOLUTE,10.00,"),
    ("RTRV-PORT-POWER::68:65:;", r"COMPLD 68:-11\.[5-8]\d"),
    ("SET-PORT-ATTEN::68:66:::MODE=RELATIVE,LEVEL=3,REFS=20;", "COMPLD"),
    ("RTRV-PORT-POWER::68:67:;", "COMPLD 68:-3.00"),
    ("SET-PORT-ATTEN::68:68:::MODE=CONVERGED,LEVEL=4;", "COMPLD"),
    ("RTRV-PORT-ATTEN::68:69:;", "COMPLD 68:CONVERGED,4.00,"),
    ("SET-PORT-ATTEN::68:70:::MODE=NONE;", "COMPLD"),
    ("SET-PORT-ATTEN::20:71:::MODE=NONE;", "IDNV Invalid OXC port: 20"),
    ("SET-PORT-ATTEN::68:72:::MODE=SOME;", "IDNV Invalid value SOME"),
    ("SET-PORT-ATTEN::68:73:::MODE=ABSOLUTE;", "IPMS Too few parameters (0/1) in block 2"),
    ("SET-PORT-ATTEN::68:74:::MODE=NONE,LEVEL=1;", "IPNV Parameter not valid"),
    ("SET-PORT-ATTEN::68:75:::LEVEL;", "IPNV Parameter not valid"),
    ("SET-PORT-PMON::10:76:::WAVE=1310;", "COMPLD"),
    ("RTRV-PORT-PMON::10&11:77:;", "COMPLD 10:1310.0,0.0,1 11:1550.0,0.0,1"),
    ("SET-PORT-PMON::10:78:::WAVE=red;", "IDNV Invalid value red"),
    # The device.
    ("RTRV-EQPT::SYSTEM:79:::PARAMETER=SIZE;", "COMPLD SYSTEM:SIZE=48x48"),
    ("RTRV-EQPT::SYSTEM:80:::PARAMETER=COLOUR;", "IDNV Invalid value COLOUR"),
    ("RTRV-EQPT::CASE:81:::PARAMETER=SIZE;", "IIAC"),
    ("RTRV-EQPT:::82:::PARAMETER=SIZE;", "IIAC Too few parameters (0/1)"),
    ("RTRV-NETYPE:::83:;", r"COMPLD Loomnet,emulated-48x48,OCS,\S+"),
    ("RTRV-INV::OCS:84:;", r"COMPLD .*SN=\S+"),
    ("ED-EQPT::BOOT:85:::MODE=DARK;", "COMPLD"),
    ("RTRV-EQPT::BOOT:86:::PARAMETER=MODE;", "COMPLD BOOT:MODE=DARK"),
    ("ED-EQPT::BOOT:87:::MODE=BRIGHT;", "IDNV Invalid value BRIGHT"),
    ("ED-EQPT::TIMEOUT:88:::ADMIN=60,USER=0;", "COMPLD"),
    ("ED-EQPT::TIMEOUT:89:::ADMIN=61;", "IDNV Invalid value 61"),
    ("ED-EQPT::TIMEOUT:90:::MODE=DARK;", "IPNV Unexpected parameter MODE in block 2"),
    ("RTRV-HDR:::91:;", "COMPLD"),
    ("RTRV-TOD:::92:;", r"COMPLD SYSTEM:\d\d-\d\d-\d\d,\d\d-\d\d-\d\d"),
    (f"SET-SID:::93::{'n' * 23};", f"IDNV Invalid value {'n' * 23}"),
    ("SET-SID:::94;", "IPMS Too few parameters (0/1) in block 1"),
    ('SET-SID:::95::"lab 3";', "COMPLD"),
    ('RTRV-HDR:"lab 3"::96:;', "COMPLD"),
    ("RTRV-HDR:ocs0::97:;", "IITA Parse error at offset 10 in command"),
    ("SET-SID:::98::ocs0;", "COMPLD"),
    ("DLT-PATCH:::99:;", "COMPLD"),
]
FRAME = re.compile(
    rb'\r\n\n   ("lab 3"|ocs0) \d\d-\d\d-\d\d \d\d:\d\d:\d\d\r\n'
    rb"M  (?P<ctag>\S+) (?P<what>COMPLD|DENY)\r\n(?P<rest>[^;]*);"
)
REASON = re.compile(r"   (?P<code>[A-Z]{4})\r\n   /\* (?P<comment>.+) \*/\r\n")


class Bench:
    """A device whose time stands but where it is told to pass."""

    def __init__(self, profile, seed):
        self.device, self.now = PanelDevice(PORTS, profile, seed=seed), 0

    def operate(self, fn):
        self.device.advance(self.now)
        return fn(self.device, self.now)

    def session(self):
        def wait(at_ps):
            self.now = max(self.now, at_ps)

        session = Session(Access(self.operate), State(), wait)
        return lambda command: session.answer(command.removesuffix(";"))


class Client:
    """As the prototype's controller: one command, then all up to the `;` of a line of its own."""

    def __init__(self, address):
        self.link = socket.create_connection(address, timeout=60)
        self.link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __call__(self, command):
        self.link.sendall(command.encode())
        answer = b""
        while not answer.endswith(b"\r\n;"):
            more = self.link.recv(65536)
            if not more:
                raise OSError(f"the panel has left after {answer!r}")
            answer += more
        return answer


def said(answer, command):
    """`COMPLD 11,76` or `IIAC Empty parameters`; the whole where it is framed in another way."""
    framed = FRAME.fullmatch(answer)
    blocks = command.rstrip(";").split(":")
    ctag = blocks[3] if len(blocks) > 3 and blocks[3] and " " not in blocks[3] else "0"
    if framed is None or framed["ctag"].decode() != ctag:
        return repr(answer)
    rest = framed["rest"].decode()
    if framed["what"] == b"DENY":
        reason = REASON.fullmatch(rest)
        return repr(answer) if reason is None else f"{reason['code']} {reason['comment']}"
    lines = rest.split("\r\n")[:-1]
    if not all(line.startswith('   "') and line.endswith('"') for line in lines):
        return repr(answer)
    return " ".join(["COMPLD", *(line[4:-1] for line in lines)])


def mismatches(ask, rows=None):
    """Of a session: what was answered in another way."""
    found = []
    for command, expected in SESSION if rows is None else rows:
        answer = said(ask(command), command)
        code_alone = re.fullmatch("[A-Z]{4}", expected) and answer.startswith(f"{expected} ")
        if answer != expected and not code_alone and not re.fullmatch(expected, answer):
            found.append(f"{command} expected {expected}, answered {answer}")
    return found


def refused(call, begins):
    try:
        call()
    except UsageError as error:
        return str(error).startswith(begins)
    return False


def half_circuits(lab, seed):
    """E6: a half-circuit is reported, a loopback legal, a port named twice and A-A are refused."""
    bench = Bench("ideal", seed)
    sonic = Sonic(bench.operate)
    sonic.add("1A-2B,3A-3B,4A-5B,5A-4B")
    rows = {row["id"]: row["a_side_status"] for row in sonic.cross_connect_status()}
    held = [
        sonic.half_circuits() == ["1A-2B"],
        rows["3A-3B"] == "tuned",
        refused(lambda: sonic.add("6A-7B,6A-8B"), "Error"),
        refused(lambda: sonic.add("6A-7A"), "Invalid"),
    ]
    lab.check(
        "E6",
        sum(held),
        eq=len(held),
        what="rules of half circuits, loopbacks and ports named twice that hold",
    )


def modes(lab, seed):
    """E7."""
    bench = Bench("polatis", seed)
    sonic = Sonic(bench.operate)
    held = ["succeeded" in sonic.add("1A..3A-4B..6B,7A-8B"), bench.device.generation == 1]
    sonic.add("1A-4B")  # is there already
    held += [
        bench.device.generation == 1,
        refused(lambda: sonic.add("9A-8B", "safe"), "Error"),
        refused(lambda: sonic.add("10A-49B"), "Error"),
        refused(lambda: sonic.add("x"), "Inv"),
    ]
    sonic.add("9A-8B")
    held.append(bench.device.cross_connects() == [(0, 3), (1, 4), (2, 5), (8, 7)])
    sonic.add("10A-11B", "overwrite")
    held.append(bench.device.cross_connects() == [(9, 10)])
    first = sonic.reconcile([(10, 12), "1A-1B"], timeout_s=0)
    held.append((first.removed, first.added) == (("10A-11B",), ("10A-12B", "12A-10B", "1A-1B")))
    bench.now += 10**12
    again = sonic.reconcile([(10, 12), "1A-1B"], timeout_s=0)
    held += [again.tuned, again.generation == first.generation, not again.removed + again.added]
    lab.check("E7", sum(held), eq=len(held), what="rules of modes, ranges and reconcile that hold")


def session(lab, seed):
    """E8: live over TCP, else without the socket."""
    if lab.clock == "live":
        with Tl1Server(
            StandaloneSwitch(PORTS, "polatis", seed=seed).operate, address=("127.0.0.1", 0)
        ) as server:
            client = Client(server.address)
            wrong = mismatches(client)
            client.link.close()
    else:
        wrong = mismatches(Bench("polatis", seed).session())
    for line in wrong:
        lab.say(line)
    lab.check(
        "E8",
        len(SESSION) - len(wrong),
        eq=len(SESSION),
        what="TL1 commands, and mistakes in them, that are answered right",
    )


def patches(count):
    """Two requests of so many cross-connects that undo one another."""
    ingress = "&".join(str(port + 1) for port in range(count))
    return [
        f"ENT-PATCH::{ingress},{'&'.join(str(PORTS + first + port) for port in range(count))}:1:;"
        for first in (1, 17)
    ]


def samples(ask, count, number, now):
    """Times from a command to its answer, in ms."""
    ask("ACT-USER::admin:1::root;")
    found = []
    for index in range(number):
        begin = now()
        answer = ask(patches(count)[index % 2])
        found.append((now() - begin) * 1e3)
        if b" COMPLD" not in answer:
            raise AssertionError(answer)
    return np.array(found)


def in_device_time(count, number, seed):
    bench = Bench("polatis", seed)
    return samples(bench.session(), count, number, lambda: bench.now * 1e-12)


def in_wall_time(count, number, seed):
    with Tl1Server(
        StandaloneSwitch(PORTS, "polatis", seed=seed).operate, address=("127.0.0.1", 0)
    ) as server:
        client = Client(server.address)
        found = samples(client, count, number, time.perf_counter)
        client.link.close()
    return found


def switching(lab, seed, number, live_number):
    """P2."""
    for count, (mean, p99) in SWITCHING.items():
        found = in_device_time(count, number, seed + count)
        lab.check(
            f"P2-{count}",
            found.mean(),
            approx=mean,
            abs=1,
            published=mean,
            what=f"mean ms of a request for {count} circuits",
        )
        lab.check(
            f"P2-{count}-p99",
            np.percentile(found, 99),
            approx=p99,
            rel=0.05,
            published=p99,
            what=f"p99 ms of a request for {count} circuits",
        )
    if lab.clock != "live":
        return
    with ThreadPoolExecutor(len(SWITCHING)) as pool:
        timed = list(
            pool.map(lambda count: in_wall_time(count, live_number, seed + count), SWITCHING)
        )
    for (count, (mean, p99)), found in zip(SWITCHING.items(), timed, strict=True):
        drawn = in_device_time(count, live_number, seed + count)  # the same dark times
        lab.check(f"P2-{count}-live", found.mean(), approx=drawn.mean(), abs=1, published=mean)
        lab.check(
            f"P2-{count}-live-p99",
            np.percentile(found, 99),
            approx=np.percentile(drawn, 99),
            rel=0.05,
            published=p99,
        )


def usable(bench_or_switch, sleep):
    """Seconds from light to the carrier of a host whose port is patched to itself."""
    operate = bench_or_switch.operate
    operate(lambda device, now: device.change([], [(0, 0)], "update", now))
    lit = operate(lambda device, now: device.dark_until(0))
    while not operate(lambda device, now: device.carrier(0, now)):
        sleep(operate(lambda device, now: (device.next_time() or now) - now) * 1e-12)
    return (operate(lambda device, now: now) - lit) * 1e-12


def nics(lab, seed, number, live_number):
    """P3: NICs whose transceivers find the light late."""
    found = np.array([drawn_usable(seed + each) for each in range(number)])
    lab.check(
        "P3",
        found.mean(),
        approx=NIC_S[0],
        rel=0.02,
        published=NIC_S[0],
        what="mean seconds from light to a NIC that can be used",
    )
    lab.check(
        "P3-p99",
        np.percentile(found, 99),
        approx=NIC_S[1],
        rel=0.05,
        published=NIC_S[1],
        what="p99 seconds from light to a NIC that can be used",
    )
    if lab.clock != "live":
        return
    with ThreadPoolExecutor(live_number) as pool:
        timed = np.array(
            list(
                pool.map(
                    lambda each: usable(
                        StandaloneSwitch(PORTS, "polatis+nic", seed=seed + each),
                        lambda left: time.sleep(max(left, 1e-4)),
                    ),
                    range(live_number),
                )
            )
        )
    lab.check(
        "P3-live", timed.mean(), approx=found[:live_number].mean(), rel=0.02, published=NIC_S[0]
    )


def drawn_usable(seed):
    bench = Bench("polatis+nic", seed)

    def sleep(left):
        bench.now += round(left * 1e12)

    return usable(bench, sleep)


@ln.scenario
def control(lab: ln.Lab, samples: int = 2000, live_samples: int = 200, live_nics: int = 5):
    """The control interfaces of a panel, their mistakes and their times: bars E6 to E8, P2 and P3.

    E6: half-circuits, loopbacks, ports named twice. E7: modes, ranges, reconcile. E8: a TL1
    session with every command and every mistake. P2: times of TL1 requests for 1, 4 and 16
    cross-connects. P3: from light to a NIC that can be used. Live, E8, P2 and P3 are timed from
    outside as well, by clients over TCP; beside each published time stand the very dark times that
    the panel drew. Then circuits that are scripted carry a flow."""
    seed = 1000 * (lab.seed + 1)
    half_circuits(lab, seed)
    modes(lab, seed)
    session(lab, seed)
    switching(lab, seed, samples, live_samples)
    nics(lab, seed, samples, live_nics)
    fabric = ln.Fabric("pair")
    fabric.add_panel("ocs0", ports=PORTS, profile="sim25")
    for host in ("h0", "h1"):
        fabric.add_host(host)
        fabric.add_link(host, "ocs0", rate="40 Mb/s", delay="50 us")
    lab.circuits("ocs0", [("h0", "h1")], at="2 ms")
    r = lab.run(fabric, ln.Flows(pairs=[(0, 1)], sizes="10 kB", transport="mrc"), label="scripted")
    lab.check(
        "scripted",
        r.flows[0]["fct_s"],
        ge=0.0265,
        le=0.2,
        what="seconds of a flow over circuits that a script sets",
    )
