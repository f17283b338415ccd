"""Probes inside a live lab's hosts: datagrams at a steady pace, and what a host's kernel says of
its port's carrier. Times are CLOCK_MONOTONIC nanoseconds."""

import json
import subprocess
import sys

SEND = """
import json, socket, sys, time
address, port, every_ns = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
seconds = float(sys.argv[4])
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
s.setblocking(False)
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
s.settimeout(float(sys.argv[2]))
found = []
try:
    while True:
        found.append(int(s.recv(2048)))
except TimeoutError:
    pass
print(json.dumps(found), flush=True)
"""
WATCH = """
import json, sys, time
end = time.monotonic() + float(sys.argv[2])
file = open(f"/sys/class/net/{sys.argv[1]}/carrier")
before, found = None, []
print("ready", flush=True)
while time.monotonic() < end:
    file.seek(0)
    now = file.read().strip()
    if now != before:
        found.append((time.monotonic_ns(), now))
        before = now
    time.sleep(0.0001)
print(json.dumps(found), flush=True)
"""
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
    process = lab.popen(host, [sys.executable, "-I", "-S", "-c", code, *map(str, words)],
                        stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline().strip() == "ready"
    return process


def answer(process):
    return json.loads(process.communicate(timeout=30)[0])


class Probe:
    """Datagrams from one host to another; `end()`: when each was sent, and whether it arrived."""

    def __init__(self, lab, source, destination, seconds, *, every_s=0.00025, port=7000):
        self.receiver = started(lab, destination, RECEIVE, port, 1.0)
        self.sender = lab.popen(
            source, [sys.executable, "-I", "-S", "-c", SEND, lab.address(destination), str(port),
                     str(round(every_s * 1e9)), str(seconds)], stdout=subprocess.PIPE, text=True)

    def end(self):
        sent, arrived = json.loads(self.sender.communicate(timeout=30)[0]), answer(self.receiver)
        assert arrived == sorted(set(arrived)), "out of order, or twice"
        there = set(arrived)
        return [(at, number in there) for number, at in enumerate(sent)]
