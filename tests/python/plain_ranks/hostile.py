"""Rank 1 does to the engine what its first argument names, and ends after SECONDS with status 7 if
it is still there; rank 0 goes on with collectives that need rank 1, and says what it is told."""

import contextlib
import fcntl
import os
import sys
import threading
import time

from plain import ENGINE_WORDS, RANK, RANK_WORDS, RING_NAMES, Memory, Nic

SECONDS = 1.5
SLEEPING, RANK_WAKE = (RANK_WORDS + 2 * 64) // 8, (ENGINE_WORDS + 2 * 64) // 8


def event_descriptors() -> list[int]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            if "eventfd" in os.readlink(f"/proc/self/fd/{name}"):
                found.append(int(name))
    return found


def blocking_writes(memory):
    """A write to any inherited event descriptor blocks, and this rank claims to sleep."""
    for fd in event_descriptors():
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(fd, (2**64 - 2).to_bytes(8, "little"))
        fcntl.fcntl(fd, fcntl.F_SETFL, os.O_RDWR)
    while True:
        memory.words[SLEEPING], memory.words[RANK_WAKE] = 1, 0


def stolen_reads(memory):
    """A read of any inherited event descriptor blocks, and this rank reads it before the engine."""

    def steal(fd):
        while True:
            os.read(fd, 8)

    for fd in event_descriptors():
        fcntl.fcntl(fd, fcntl.F_SETFL, os.O_RDWR)
        threading.Thread(target=steal, args=(fd,), daemon=True).start()
    while True:
        for fd in event_descriptors():
            os.write(fd, (1).to_bytes(8, "little"))
        time.sleep(0.001)


def index(memory, ring, word):
    """A ring's index is far from where it was."""
    memory.words[memory.ring(ring, word)] += 1 << 40
    time.sleep(3600)


def state(memory):
    while True:  # the session of this very rank writes the word too
        memory.words[RANK_WORDS // 8] = 200
        time.sleep(0.0001)


ACTS = {
    "blocking_writes": blocking_writes,
    "stolen_reads": stolen_reads,
    "state": state,
    "far_step": lambda memory: memory.flood("step", 1 << 40),
    **{
        kind: lambda memory, kind=kind: memory.flood(kind)
        for kind in ("step", "hash", "optimizer", "work_begin", "work_end", "failure", "meet")
    },
    **{
        f"{ring}_{word}": lambda memory, ring=ring, word=word: index(memory, ring, word)
        for ring in RING_NAMES
        for word in ("produced", "consumed")
    },
}
ENDING = ("blocking_writes", "stolen_reads")  # nothing to cut off: the run ends with this rank

if __name__ == "__main__":
    nic = Nic()
    nic.run("all_reduce")
    print("first ok", flush=True)
    if RANK == 1:
        time.sleep(0.2)  # the session's own thread has no more to say
        act = threading.Thread(target=ACTS[sys.argv[1]], args=(Memory(),), daemon=True)
        act.start()
        act.join(SECONDS if sys.argv[1] in ENDING else None)
        os._exit(7)
    try:
        while True:
            nic.run("all_reduce")
    except RuntimeError as error:
        print(f"error: {error}", flush=True)
        sys.exit(3)
