"""A bottleneck whose hosts send by a congestion control of ours in the kernel's TCP, for tests that
look into its slots and stop its agent."""

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import loomnet as ln
import loomnet._core as _core

TRAFFIC = Path(__file__).with_name("steered_traffic.py")
PORT = 7100
FREE, LIVE, RELEASED = 0, 1, 2  # states of a slot
START, AGENT, FALLBACK = 0, 1, 2  # modes of a flow
TIMEOUT_S = 0.15
# The part of ebpf/astraea_abi.h that tests read or write: field, type, offset.
_FIELDS = (
    ("state", "u4", 0),
    ("gen", "u4", 4),
    ("family", "u2", 8),
    ("local_port", "u2", 10),
    ("remote_port", "u2", 12),
    ("netns", "u4", 16),
    ("local", "V16", 32),
    ("remote", "V16", 48),
    ("last_ack_ns", "u8", 72),
    ("acks", "u4", 116),
    ("cwnd", "u4", 120),
    ("mss", "u4", 140),
    ("bytes_acked", "u8", 152),
    ("mode", "u4", 160),
    ("fallbacks", "u4", 168),
    ("command", "u8", 192),
    ("pacing_cmd", "u8", 200),
)
# Of the rest where the program decides by itself.
_FIELDS += (("decisions", "u4", 180), ("intervals", "u4", 220), ("action", "i4", 252))
_NAMES, _TYPES, _OFFSETS = zip(*_FIELDS, strict=True)
SLOT = np.dtype({"names": _NAMES, "formats": _TYPES, "offsets": _OFFSETS, "itemsize": 256})
BOTTLENECK = "p0.leaf0->p0.leaf1"


def bottleneck(rate="100 Mb/s", hosts=1, rtt_ms=5.0, buffer="62 kB"):
    """`hosts` pairs of them; a round trip of `rtt_ms` without queues."""
    fabric = ln.Fabric("bottleneck")
    ends = [fabric.add_switch("p0.leaf0"), fabric.add_switch("p0.leaf1")]
    for end in ends:
        for _ in range(hosts):
            fabric.add_link(fabric.add_host(), end, rate="400 Mb/s", delay="0.5 ms")
    fabric.add_link(*ends, rate=rate, delay=f"{rtt_ms / 2 - 1:g} ms")
    fabric.override(BOTTLENECK, data_limit=buffer)
    return fabric.check().place("*", "engine")


def steady_policy(packets=3):
    """A file's bytes: a network of the default's size, 55-64-32-1, that keeps `packets` of its flow
    in the queue, by the last feature of the newest frame (log2 of the queue and one, over 8). The
    other weights of the hidden layers are noise that the last layer does not listen to."""
    draw = np.random.default_rng(3)
    first, second, last = (draw.normal(0, 0.05, size) for size in ((64, 55), (32, 64), (1, 32)))
    first[0], second[0], last[0] = 0, 0, 0
    first[0, 54], second[0, 0], last[0, 0] = 1, 1, -6
    end = np.array([6 * np.log2(packets + 1) / 8])
    layers = [(first, np.zeros(64)), (second, np.zeros(32)), (last, end)]
    policy = _core.astraea.Policy(layers)
    policy.quantise()
    return policy.to_bytes()


class Steered:
    """The control, registered under a name of this process's."""

    def __init__(self, slots=64, **options):
        self.core = _core.KernelControl(
            "astraea", f"lnt{os.getpid() % 10**6}_t", options, slots=slots
        )
        self.name = self.core.name
        self.slots = self.core.slots().view(SLOT)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.core.stop()
        del self.slots, self.core

    def live(self):
        return np.flatnonzero(self.slots["state"] == LIVE)

    def command(self, slot, window, pacing_Bps=0):
        """As an agent does. Returns CLOCK_MONOTONIC at the store, in ns."""
        now = time.monotonic_ns()
        self.slots["pacing_cmd"][slot] = pacing_Bps
        self.slots["command"][slot] = (now // 10**6 & 0xFFFFFFFF) << 32 | window
        return now

    def wait(self, what, seconds=5.0):
        """Until what() holds, looking all the time; seconds that it took."""
        began = time.monotonic()
        while not what():
            if time.monotonic() > began + seconds:
                raise AssertionError(f"not within {seconds} s: {what.__doc__ or what}")
            time.sleep(0)
        return time.monotonic() - began

    def wait_live(self, flows):
        self.wait(lambda: len(self.live()) == flows)
        return self.live()


@contextlib.contextmanager
def sending(lab, name, flows, seconds, hosts=(0, 1), port=PORT):
    """Flows from one host to another; yields the sender, whose output is the bytes acknowledged."""
    words = [sys.executable, "-I", "-S", str(TRAFFIC)]
    target = lab.address(f"h{hosts[1]}")
    pipe = {"stdout": subprocess.PIPE, "text": True}
    receiver = lab.popen(f"h{hosts[1]}", [*words, "receive", str(port)], **pipe)
    try:
        assert receiver.stdout.readline() == "listening\n"
        arguments = [target, str(port), name, str(flows), str(seconds)]
        sender = lab.popen(f"h{hosts[0]}", [*words, "send", *arguments], **pipe)
        try:
            yield sender
        finally:
            sender.kill()
            sender.wait()
            sender.stdout.close()
    finally:
        receiver.kill()
        receiver.wait()
        receiver.stdout.close()


def acked(sender):
    """Bytes per connection, once it has ended."""
    return json.loads(sender.communicate(timeout=60)[0])


class Meter:
    """What a link carries between two looks, in bits of link time per second."""

    def __init__(self, lab, link=f"link {BOTTLENECK}"):
        self.lab, self.link = lab, link
        self.look()

    def _count(self):
        counters = self.lab.counters()[self.link]
        return time.monotonic(), counters["bytes"], counters["packets"]

    def look(self):
        self.at, self.bytes, self.packets = self._count()

    def rate(self):
        """Since the last call or look(). A frame takes 24 bytes more of the link's time."""
        at, size, packets = self._count()
        bits = 8 * (size - self.bytes + 24 * (packets - self.packets))
        seconds = at - self.at
        self.at, self.bytes, self.packets = at, size, packets
        return bits / seconds
