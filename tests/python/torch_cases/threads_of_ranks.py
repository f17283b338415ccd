"""Run by two ranks: threads that call beside training, or late; ``save FOLDER``, ``late``."""

import sys
import threading
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.nn.parallel import DistributedDataParallel as DDP

import loomnet.torch

dist.init_process_group("gloo")
rank = dist.get_rank()
groups = [dist.new_group([0, 1]) for _ in range(3)]


def training():
    torch.manual_seed(0)
    layers = (torch.nn.Linear(64, 64) for _ in range(3))
    model = DDP(torch.nn.Sequential(*layers), bucket_cap_mb=0.01)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        model(torch.full((2, 64), rank + 1.0)).sum().backward()
        optimizer.step()

    return model, step


def sums(number: int) -> None:
    values = torch.ones(3000 * number)
    for _ in range(10):
        dist.all_reduce(values, group=groups[number])


def save(folder: str) -> None:
    """Checkpoints in a group of their own, and two threads that call at the same instants."""
    model, step = training()
    step()
    for number in range(2):
        saved = dcp.async_save(
            {"model": model.state_dict()},
            process_group=groups[0],
            checkpoint_id=f"{folder}/{number}",
        )
        for _ in range(3):
            step()
        saved.result()
    other = threading.Thread(target=sums, args=(1,))
    other.start()
    sums(2)
    other.join()
    step()
    # A wait in a store is no sleep outside the network.
    store = dist.distributed_c10d._get_default_store()
    if rank:
        loomnet.torch.step()  # the declared time passes while rank 0 waits
        store.queue_push("word", "come")
        loomnet.torch.step()
    else:
        store.queue_pop("word")
    store.barrier("end", 2)


def late() -> None:
    """Rank 0's second thread has slept when it calls for the first time; all the others wait."""
    if rank:
        dist.recv(torch.zeros(4), 0, group=groups[1])
        dist.send(torch.zeros(4), 0)
        return

    def call() -> None:
        time.sleep(2)
        dist.send(torch.zeros(4), 1, group=groups[1])

    other = threading.Thread(target=call, name="late \x1b[31mcaller")
    other.start()
    dist.recv(torch.zeros(4), 1)
    other.join()


{"save": save, "late": late}[sys.argv[1]](*sys.argv[2:])
dist.barrier()
dist.destroy_process_group()
