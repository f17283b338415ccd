"""A rank that attaches by hand and writes garbage, or tries to shrink the memory; the others run
collectives that need it."""

import mmap
import os
import random
import signal
import struct
import sys
from pathlib import Path

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
    # From a child, with the rank itself stopped: its own garbage would end it before the NIC reads
    # any, and this is about what the NIC does.
    if os.fork() == 0:
        while Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[0] != "T":
            pass
        dice = random.Random(5)
        for at in range(4096, 16 * 4096, 8):  # state, indices, submissions
            struct.pack_into("<Q", memory, at, dice.getrandbits(64))
        os._exit(0)
    os.kill(os.getpid(), signal.SIGSTOP)
try:
    for _ in range(3):
        dist.all_reduce(t)
    print("second ok", flush=True)
except RuntimeError as error:
    print(f"error: {error}", flush=True)
    sys.exit(3)
