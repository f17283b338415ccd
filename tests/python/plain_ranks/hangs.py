"""Hangs at a point of its life, in one of several ways: ``hangs.py STAGE WAY``."""

import os
import sys
import time

stage, way = sys.argv[1:]
rank = int(os.environ["RANK"])


def hang():
    """Both ranks call it. Nothing that follows comes to pass."""
    if way == "receive":
        dist.recv(torch.ones(9), 1 - rank)
    if rank == 1 and way == "missing":
        sys.exit(0)
    if rank == 1 and way == "sleep":
        time.sleep(10_000)
    if rank == 1 and way == "file":
        while not os.path.exists("a file that nobody writes"):
            time.sleep(0.05)


if stage == "before_init":
    hang()
    time.sleep(10_000)
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

if stage == "rendezvous":
    hang()
dist.init_process_group("gloo")
if stage == "first_collective":
    hang()
    dist.all_reduce(torch.ones(9))
weight = torch.ones(9, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1) if stage in ("before_step", "after_step") else None
for _ in range(3):
    weight.grad = torch.ones(9)
    dist.all_reduce(weight.grad)
    if stage == "after_step":
        assert optimizer is not None
        optimizer.step()
hang()
dist.all_reduce(weight.grad)
