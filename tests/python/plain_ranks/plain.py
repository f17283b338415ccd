"""A rank without a framework, so that it starts at once: its NIC, and the calls of a training step.
Beside it, the layout of the memory that it shares with the engine, for ranks that abuse it."""

import array
import atexit
import mmap
import os
import struct

from loomnet import _core

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
PAGE = 4096
RANK_WORDS, ENGINE_WORDS, RINGS = PAGE, 2 * PAGE, 3 * PAGE
RING_NAMES = ("submissions", "completions", "arrivals", "marks", "notices")
ENTRY_BYTES = (96, 56, 56, 40, 16)
MARK = struct.Struct("<IIqQQQ")


def descriptor(name: str) -> int:
    return int(os.environ[f"LOOMNET_{name}_FD"])


class Nic:
    """This rank's session. Calls block until done and raise RuntimeError with the NIC's message."""

    def __init__(self):
        self.session = _core.RankSession(descriptor("RANK"), descriptor("EVENT"))
        self.session.create(0, list(range(WORLD)))
        self._kept = []

    def start(self, collective, count=1000, peer=0, seconds=0):
        data = array.array("f", [1.0]) * count
        self._kept.append(data)
        address = [data.buffer_info()[0]]
        operation = (
            _core.COLLECTIVES[collective],
            _core.DATA_TYPES["float32"],
            _core.REDUCE_OPS["sum"],
            count,
            address,
            address,
            [],
            [],
            0,
            peer,
            0,
            1.0,
        )
        return self.session.start(0, [operation], int(seconds * 1e9))

    def run(self, collective, count=1000, peer=0, seconds=0):
        work = self.start(collective, count, peer, seconds)
        self.session.wait(work, -1)
        if not work.ok:
            raise RuntimeError(work.message)

    def step(self, number, compute_ps=10**9):
        """What an optimizer's hook does after each step."""
        self.session.mark(_core.MARK_KINDS["step"], number)
        if "LOOMNET_COMPUTE" in os.environ:
            self.session.compute(compute_ps)


class Memory:
    """The shared memory as a rank may write it: in whole words."""

    def __init__(self):
        self.map = mmap.mmap(descriptor("RANK"), 0)
        self.words = memoryview(self.map).cast("Q")
        self.counts = struct.unpack_from("<5I", self.map, 24 + 12)
        self.entries, at = {}, 4 * PAGE
        for name, count, size in zip(RING_NAMES, self.counts, ENTRY_BYTES, strict=True):
            self.entries[name] = at
            at += -(-count * size // PAGE) * PAGE

    def ring(self, name: str, word: str) -> int:
        """Index in `words` of a ring's "produced" or "consumed"."""
        return (RINGS + 128 * RING_NAMES.index(name) + 64 * (word == "consumed")) // 8

    def flood(self, kind: str, value: int = 0):
        """Well-formed marks of one kind without end, as fast as the engine takes them."""
        at, count = self.ring("marks", "produced"), self.counts[3]
        number = {**_core.MARK_KINDS, "meet": 7}[kind]
        for entry in range(count):
            MARK.pack_into(
                self.map,
                self.entries["marks"] + entry * MARK.size,
                number,
                0,
                0,
                value or entry,
                0,
                0,
            )
        while True:
            self.words[at] = self.words[at + 8] + count
            os.write(descriptor("EVENT"), (1).to_bytes(8, "little"))


class Job:
    """What a training script does, by name."""

    def __init__(self):
        self.rank, self.world, self.nic = RANK, WORLD, Nic()
        atexit.register(self.leave)

    def all_reduce(self):
        self.nic.run("all_reduce")

    def step(self, number):
        self.nic.step(number)

    def start_send(self, peer):
        self.nic.start("send", count=100_000, peer=peer)

    def receive(self, peer):
        self.nic.run("recv", count=100_000, peer=peer)

    def leave(self):
        self.nic.session.leave(5 * 10**9)
