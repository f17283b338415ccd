"""A rank without a framework, so that it starts at once: its NIC, and the calls of a training step.
Beside it, the layout of the memory that it shares with the engine, for ranks that abuse it."""

import array
import mmap
import os
import struct

from loomnet import _core

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
PAGE = 4096
RANK_WORDS, ENGINE_WORDS, RINGS = PAGE, 2 * PAGE, 3 * PAGE
RING_NAMES = ("submissions", "completions", "arrivals", "marks", "notices")
ENTRY_BYTES = (80, 32, 32, 40, 16)
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
        operation = (_core.COLLECTIVES[collective], _core.DATA_TYPES["float32"],
                     _core.REDUCE_OPS["sum"], count, address, address, [], [], 0, peer, 0, 1.0)
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
        at, mask = self.ring("marks", "produced"), self.counts[3] - 1
        number = _core.MARK_KINDS[kind]
        made = self.words[at]
        while True:
            if made - self.words[at + 8] > mask:
                continue
            MARK.pack_into(self.map, self.entries["marks"] + (made & mask) * MARK.size,
                           number, 0, 0, value or made, 0, 0)
            made += 1
            self.words[at] = made
