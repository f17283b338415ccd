"""Rank 1 breaks its contract with the NIC in the way the first argument names; the others go on
with collectives that need it, and say what they are told."""

import mmap
import os
import random
import struct
import sys
import time

import torch
import torch.distributed as dist

PAGE = 4096
RINGS = 3 * PAGE  # words of the five rings, 128 bytes each; entries from the next page on
REQUEST = struct.Struct("<QQQqQQIIIIIIIIfHHBB6x")  # rank_abi.hpp: Submission
ENTRY_BYTES = (96, 56, 56)  # of the first three rings

kind, rank = sys.argv[1], int(os.environ["RANK"])
descriptor = os.dup(int(os.environ["LOOMNET_RANK_FD"]))
memory = mmap.mmap(descriptor, 0)
words = memoryview(memory).cast("Q")  # whole words: struct writes them byte by byte


def garbage():
    dice = random.Random(5)
    for at in range(PAGE, 16 * PAGE, 8):  # state, ring words, requests
        struct.pack_into("<Q", memory, at, dice.getrandbits(64))


def requests():
    """Writes of 64 KiB without end."""
    mask = struct.unpack_from("<I", memory, 24 + 12)[0] - 1  # Geometry.submissions
    posted = words[RINGS // 8]
    while True:
        if posted - words[(RINGS + 64) // 8] > mask:
            continue
        REQUEST.pack_into(
            memory,
            4 * PAGE + (posted & mask) * REQUEST.size,
            posted,
            0,
            0,
            0,
            0,
            0,
            0,
            65536,
            0,
            0,
            0,
            0,
            0,
            0,
            0.0,
            0,
            0,
            0,
            0,
        )
        posted += 1
        words[RINGS // 8] = posted


def marks():
    """Steps without end, each well-formed."""
    at = (RINGS + 3 * 128) // 8
    counts = struct.unpack_from("<5I", memory, 24 + 12)
    entries = 4 * PAGE
    for count, size in zip(counts[:3], ENTRY_BYTES, strict=True):
        entries = -(-(entries + count * size) // PAGE) * PAGE
    mask = counts[3] - 1
    for entry in range(mask + 1):
        struct.pack_into("<IIqQQQ", memory, entries + entry * 40, 1, 0, 0, entry, 0, 0)
    while True:
        words[at] = words[at + 8] + mask + 1


def shrink():
    for name, size in (("shrink", 0), ("shrink", PAGE), ("grow", memory.size() + PAGE)):
        try:
            os.ftruncate(descriptor, size)
            print(f"{name} to {size} was possible", flush=True)
        except OSError as error:
            print(f"{name} refused: {error.strerror}", flush=True)


dist.init_process_group("gloo")
tensor = torch.ones(1000)
dist.all_reduce(tensor)
print("first ok", flush=True)
if rank == 1:
    time.sleep(1)  # its own thread has no more to publish: rings are this script's alone
    {"garbage": garbage, "requests": requests, "marks": marks, "shrink": shrink}[kind]()
    if kind != "shrink":
        time.sleep(300)
try:
    for _ in range(3):
        dist.all_reduce(tensor)
    print("all ok", flush=True)
except RuntimeError as error:
    print(f"error: {error}", flush=True)
    sys.exit(3)
dist.destroy_process_group()
