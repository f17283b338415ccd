"""Probes inside a live lab's hosts: datagrams at a steady pace, frames from many hosts at once, and
what hosts' kernels say of their ports' carriers. Times are CLOCK_MONOTONIC nanoseconds."""

import json
import subprocess
import sys
from dataclasses import dataclass

SEND = """
import json, socket, sys, time
address, port, every_ns = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
seconds = float(sys.argv[4])
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
s.setblocking(False)
print("ready", flush=True)
sys.stdin.readline()
begin = due = time.monotonic_ns()
sent = []
while due < begin + seconds * 1e9:
    now = time.monotonic_ns()
    if now < due:
        time.sleep((due - now) / 1e9)
    at = time.monotonic_ns()
    try:
        s.sendto(b"%d" % len(sent), (address, port))
        sent.append(at)
    except OSError:
        pass  # no way out now
    due += every_ns
print(json.dumps(sent))
"""
RECEIVE = """
import json, socket, sys, time
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
s.bind(("::", int(sys.argv[1])))
print("ready", flush=True)
s.settimeout(30)  # until all senders are there
found = []
try:
    while True:
        found.append(int(s.recv(2048)))
        s.settimeout(float(sys.argv[2]))
except TimeoutError:
    pass
print(json.dumps(found), flush=True)
"""
# A socket in the network namespace of each of these processes. Both programs run outside the hosts.
ENTER = """
import ctypes, json, os, select, socket, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)

def inside(pid, make):
    with open(f"/proc/{pid}/ns/net") as there:
        assert libc.setns(there.fileno(), 0x40000000) == 0, os.strerror(ctypes.get_errno())
    return make()
"""
# Link messages of the hosts' kernels. Reading the carrier from sysfs instead would take the lock
# that a change of carrier takes. The program has a higher priority than the lab's threads, so that
# it adds little to the times that it takes.
WATCH = (
    ENTER
    + """
def listening():
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
    s.bind((0, 1))  # RTMGRP_LINK
    return s

end, interface = time.monotonic() + float(sys.argv[1]), sys.argv[2].encode()
sockets = {s.fileno(): (s, number) for number, pid in enumerate(sys.argv[3:])
           for s in [inside(pid, listening)]}
poll = select.epoll()
for number in sockets:
    poll.register(number, select.EPOLLIN)
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(2))
print("ready", flush=True)
found = []
while (left := end - time.monotonic()) > 0:
    for number, _ in poll.poll(left):
        at = time.monotonic_ns()
        data = sockets[number][0].recv(1 << 16)
        while len(data) >= 32:
            size, kind = struct.unpack_from("=IH", data)
            _, flags = struct.unpack_from("=iI", data, 20)
            if kind == 16 and data[36:].split(bytes(1))[0] == interface:  # RTM_NEWLINK
                found.append((sockets[number][1], at, bool(flags & 0x10000)))  # IFF_LOWER_UP
            data = data[size + 3 & ~3:]
print(json.dumps(found), flush=True)
"""
)
# Each host sends a frame every `pace` seconds, with its number, a sequence number and the time in
# it, to an address that no host has, and takes whatever comes.
SWARM = (
    ENTER
    + """
def port():
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x88B5))
    s.bind(("p0", 0x88B5))
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    s.setblocking(False)
    return s

seconds, pace, hosts = float(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]
sockets = [inside(pid, port) for pid in hosts]
header = bytes.fromhex("02beefbeef0102beefbeef0288b5")
sent, came = [], []

def take():
    for host, s in enumerate(sockets):
        try:
            while True:
                source, number, at = struct.unpack_from("=HIQ", s.recv(256), 14)
                came.append((host, source, number, at, time.monotonic_ns()))
        except BlockingIOError:
            pass

print("ready", flush=True)
end, number = time.monotonic() + seconds, 0
while (begin := time.monotonic()) < end:
    for host, s in enumerate(sockets):
        at = time.monotonic_ns()
        s.send((header + struct.pack("=HIQ", host, number, at)).ljust(64, bytes(1)))
        sent.append((host, number, at))
    number += 1
    take()
    time.sleep(max(0, begin + pace - time.monotonic()))
time.sleep(0.2)
take()
print(json.dumps([sent, came]), flush=True)
"""
)
LISTEN = """
import json, socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
s.bind((sys.argv[1], 3))
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
print("ready", flush=True)
s.settimeout(float(sys.argv[2]))
found = []
try:
    while True:
        frame, (_, _, kind, _, _) = s.recvfrom(65536)
        if kind != 4:  # PACKET_OUTGOING
            found.append(frame.hex())
except TimeoutError:
    pass
print(json.dumps(found), flush=True)
"""
FRAMES = """
import json, socket, sys, time
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind((sys.argv[1], 0))
for frame in json.loads(sys.stdin.read()):
    s.send(bytes.fromhex(frame))
    time.sleep(0.001)
"""


def started(lab, host, code, *words):
    """A program in a host that says when it is ready, and ends with a line of JSON."""
    process = lab.popen(
        host,
        [sys.executable, "-I", "-S", "-c", code, *map(str, words)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline().strip() == "ready"
    return process


def answer(process):
    return json.loads(process.communicate(timeout=30)[0])


def around(lab, hosts, code, *words):
    """A program of this machine that is given the processes of these hosts after its words."""
    nodes = lab._standing.network.glue.nodes
    process = subprocess.Popen(
        [
            sys.executable,
            "-I",
            "-S",
            "-c",
            code,
            *map(str, words),
            *(str(nodes[host].pid) for host in hosts),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline().strip() == "ready"
    return process


def carriers_seen(watch):
    """Of a WATCH that ended, on hosts with carrier: for each, by its number there, the times when
    its carrier changed, and to what."""
    found = {}
    for host, at, up in answer(watch):
        rows = found.setdefault(host, [])
        if up == (len(rows) % 2 == 1):
            rows.append((at, up))
    return found


def swarm_seen(swarm):
    """Of a SWARM that ended: (host, number, time) of what was sent, and the frames that came."""
    sent, came = answer(swarm)
    return sent, [Frame(*each) for each in came]


@dataclass(frozen=True)
class Frame:
    """A frame of a SWARM that arrived."""

    receiver: int
    source: int
    number: int
    sent: int
    received: int


class Probe:
    """Datagrams from one host to another, from `begin()` on; `end()`: when each was sent, and
    whether it arrived."""

    def __init__(self, lab, source, destination, seconds, *, every_s=0.00025, port=7000):
        self.receiver = started(lab, destination, RECEIVE, port, 1.0)
        self.sender = started(
            lab, source, SEND, lab.address(destination), port, round(every_s * 1e9), seconds
        )

    def begin(self):
        self.sender.stdin.write("\n")
        self.sender.stdin.flush()

    def end(self):
        sent, arrived = answer(self.sender), answer(self.receiver)
        assert arrived == sorted(set(arrived)), "out of order, or twice"
        there = set(arrived)
        return [(at, number in there) for number, at in enumerate(sent)]
