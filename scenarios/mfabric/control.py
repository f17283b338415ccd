"""The control interfaces of an optical circuit switch: E6 and E7, SONiC's model; E8, a dialogue in
TL1 over a TCP connection; and with the live clock P2 and P3, how long a client waits for a change
(MixNet, SIGCOMM 2025, doi 10.1145/3718958.3750465)."""

import socket
import statistics
import time

import loomnet as ln
from loomnet import ocs

PORTS = 48
PUBLISHED_MS = {1: (41.44, 60.0), 4: (42.44, 62.0), 16: (46.75, 68.0)}  # by pairs: mean, p99
# Command of TL1, and what begins the line behind its answer's header.
DIALOGUE = {
    "RTRV-HDR:::1:;": "PICC",
    "ACT-USER::admin:2::root;": "COMPLD",
    "ENT-PATCH::1&2,49&50:3:;": "COMPLD",
    "RTRV-PATCH:::4:;": '"1,49"',
    "OPR-PORT-SHUTTER::1:5:;": "COMPLD",
    "RTRV-PORT-SHUTTER::1:6:;": '"1:CLOSED"',
    "ENT-PATCH::1,2&49,50:7:;": "IIAC",
    "ENT-PATCH::99,49:8:;": "IDNV",
    "SET-PORT-ATTEN::49:9:;": "IPMS",
    "SET-PORT-ATTEN::49:10:::COLOUR=RED;": "IPNV",
    "RTRV-HDR:other::11:;": "IITA",
    "RTRV-HDR;": "IICT",
    "OPR-PORT-FLAP::1:12:;": "SSTP",
    "RTRV-EQPT::SYSTEM:13:::PARAMETER=SIZE;": '"SYSTEM:SIZE=48x48"',
    "CANC-USER::admin:14:;": "COMPLD",
}


class Client:
    """Of TL1: a command, and the frame that answers it."""

    def __init__(self, server):
        self.socket = socket.create_connection(server.address, timeout=30)
        self.read = b""

    def ask(self, command):
        self.socket.sendall(command.encode())
        while b"\r\n;" not in self.read:
            self.read += self.socket.recv(4096)
        frame, _, self.read = self.read.partition(b"\r\n;")
        return frame.decode()

    def timed(self, pairs, shift, number):
        began = time.monotonic()
        assert "COMPLD" in self.ask(f"ENT-PATCH::1&&{pairs},{PORTS + 1 + shift}&&"
                                    f"{PORTS + shift + pairs}:{number}:;")
        return time.monotonic() - began


def refused(does):
    try:
        does()
    except ln.UsageError as error:
        return str(error)
    return ""


def model(lab):
    """E6 and E7."""
    sonic = ocs.Sonic(ocs.StandaloneSwitch(PORTS, "ideal").operate)
    sonic.add("1A-2B")
    lab.check("E6-half-circuit", len(sonic.half_circuits()), eq=1)
    lab.check("E6-loopback", "succeeded" in sonic.add("3A-3B"), eq=1)
    lab.check("E6-duplicate-port", refused(lambda: sonic.add("4A-5B,4A-6B")).startswith("Error"),
              eq=1)
    lab.check("E6-A-to-A", refused(lambda: sonic.add("4A-5A")).startswith("Invalid"), eq=1)
    lab.check("E7-safe", refused(lambda: sonic.add("1A-7B", "safe")).startswith("Error"), eq=1)
    sonic.add("1A-7B", "update")
    ids = [row["id"] for row in sonic.cross_connect_status()]
    lab.check("E7-update", ids == ["1A-7B", "3A-3B"], eq=1)
    sonic.add("8A..10A-11B..13B", "overwrite")
    ids = [row["id"] for row in sonic.cross_connect_status()]
    lab.check("E7-overwrite", ids == ["8A-11B", "9A-12B", "10A-13B"], eq=1)
    first, second = (sonic.reconcile([(1, 2), (3, 4)]) for _ in range(2))
    lab.check("E7-reconcile", len(first.added), eq=4)
    lab.check("E7-second-reconcile-sends", len(second.added) + len(second.removed)
              + second.generation - first.generation, eq=0)


def dialogue(lab):
    """E8: a few of the commands and each code; tests/python/test_ocs_tl1.py has all."""
    with ocs.Tl1Server(ocs.StandaloneSwitch(PORTS, "ideal").operate, port=0) as server:
        client = Client(server)
        wrong = [command for command, begins in DIALOGUE.items()
                 if begins not in client.ask(command)]
    for command in wrong:
        print("not as the table says:", command)
    lab.check("E8", len(wrong), eq=0)


def client_times(lab, samples, slow):
    """P2 and P3 as a client over TCP sees them."""
    for pairs, (mean, _) in PUBLISHED_MS.items():
        with ocs.Tl1Server(ocs.StandaloneSwitch(PORTS, "polatis", seed=lab.seed + pairs).operate,
                           port=0) as server:
            client = Client(server)
            client.ask("ACT-USER::admin:1::root;")
            took = sorted(client.timed(pairs, each % 2 * 16, each) * 1e3 for each in range(samples))
        lab.check(f"P2-{pairs}", statistics.mean(took), approx=mean, abs=1.0, published=mean,
                  reason=f"{samples} samples, whose mean has a standard error of "
                         f"{mean * 0.168 / samples**0.5:.2f} ms")
        lab.metric(f"P2-{pairs}-p99", took[int(0.99 * len(took))], unit="ms",
                   published=PUBLISHED_MS[pairs][1])
    switch = ocs.StandaloneSwitch(PORTS, "polatis+nic", seed=lab.seed)
    took = []
    for each in range(slow):
        began = time.monotonic()
        a, b = 2 * each, 2 * each + 1
        switch.operate(lambda device, now, a=a, b=b: device.change([], [(a, b), (b, a)], "update",
                                                                   now))
        while not switch.operate(lambda device, now, a=a: device.carrier(a, now)):
            time.sleep(0.005)
        took.append(time.monotonic() - began)
    lab.check("P3", statistics.mean(took), approx=5.67, rel=0.05, published=5.67,
              reason=f"{slow} samples; panel.py takes 2,000 of the device's own clock to 2 %")


@ln.scenario
def control(lab: ln.Lab, samples: int = 200, slow: int = 5):
    model(lab)
    dialogue(lab)
    if lab.clock == "live":  # a client's time is the wall's
        client_times(lab, samples, slow)
    fabric = ln.Fabric("two")
    fabric.add_panel("ocs0", ports=2)
    for host in ("h0", "h1"):
        fabric.add_host(host)
        fabric.add_link(host, "ocs0", rate="100 Mb/s", delay="10 us")
    lab.circuits("ocs0", [("h0", "h1")], at="1 ms")
    r = lab.run(fabric, ln.Flows(pairs=[(0, 1)], sizes="10 kB", count=1))
    lab.check("patched-flow", r["errors"], eq=0)
