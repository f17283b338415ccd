"""A rank that attaches by hand and writes garbage, or tries to shrink the memory; the others run
collectives that need it."""

import mmap
import os
import random
import struct
import sys
import time

kind, victim = sys.argv[1], int(sys.argv[2])
rank = int(os.environ["RANK"])

if rank == victim and kind == "shrink":
    fd = int(os.environ["LOOMNET_RANK_FD"])
    try:
        os.ftruncate(fd, 0)
    except OSError as error:
        print(f"refused: {error.strerror}", flush=True)

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

memory = mmap.mmap(int(os.environ["LOOMNET_RANK_FD"]), 0) if rank == victim else None
dist.init_process_group("loomnet")
t = torch.ones(1000)
dist.all_reduce(t)
print("first ok", flush=True)
if rank == victim and kind == "scribble":
    dice = random.Random(5)
    for at in range(4096, 16 * 4096, 8):  # state, indices, submissions
        struct.pack_into("<Q", memory, at, dice.getrandbits(64))
    time.sleep(300)
try:
    for _ in range(3):
        dist.all_reduce(t)
    print("second ok", flush=True)
except RuntimeError as error:
    print(f"error: {error}", flush=True)
    sys.exit(3)
