"""What a script finds that looks at its launcher, its clocks and its devices, and calls its ranks
by other numbers than the run does. Two ranks on host h0, one on h1."""

import os
import time
from time import perf_counter

import torch
import torch.distributed as dist

import loomnet.torch

rank = int(os.environ["RANK"])
assert dist.is_torchelastic_launched()
found = [
    os.environ[name]
    for name in (
        "GROUP_RANK",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "GROUP_WORLD_SIZE",
        "ROLE_WORLD_SIZE",
    )
]
assert (
    found == [["0", "0", "2", "2", "3"], ["0", "1", "2", "2", "3"], ["1", "0", "1", "2", "3"]][rank]
), found

# Errors of cuda name the option that gives it.
for ask in (
    lambda: torch.cuda.set_device(0),
    lambda: torch.zeros(1, device="cuda"),
    lambda: torch.ones(1).cuda(),
    lambda: torch.nn.Linear(1, 1).to("cuda"),
    torch.cuda.current_device,
    torch.cuda.Stream,
    torch.cuda.Event,
):
    try:
        ask()
    except (AssertionError, AttributeError, RuntimeError) as error:
        assert 'TorchJob(cuda="cpu")' in str(error), error
    else:
        raise AssertionError("cuda without a device")

dist.init_process_group("nccl", rank=2 - rank, world_size=3)
assert dist.get_rank() == 2 - rank
assert (dist.get_backend(), dist.get_backend_config()) == ("nccl", "cuda:nccl")
dist.all_reduce(total := torch.tensor([rank]))
assert total.item() == 3

began, emulated = perf_counter(), loomnet.torch.now()
dist.all_reduce(torch.ones(1_000_000))
for clock in (time.time, time.time_ns, time.perf_counter, time.perf_counter_ns):
    clock()
print("WALL", perf_counter() - began, "EMULATED", loomnet.torch.now() - emulated)
named = [dist.new_group(backend=name) for name in ("gloo", "nccl", "cpu:gloo,cuda:nccl")]
assert [dist.get_backend_config(group) for group in named] == [
    "cpu:gloo,cuda:gloo",
    "cuda:nccl",
    "cpu:gloo,cuda:nccl",
]
for group in named:
    dist.all_reduce(total, group=group)
assert total.item() == 81
print("RIGHT", flush=True)
