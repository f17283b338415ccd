"""Trains, exchanges messages and sums in groups of ranks, then prints a digest of every result and
where the rank believes it is. `--dies N`: rank N ends itself instead."""

import hashlib
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
if sys.argv[1:2] == ["--dies"] and rank == int(sys.argv[2]):
    sys.exit(3)
torch.manual_seed(1)
model = DistributedDataParallel(
    torch.nn.Sequential(torch.nn.Linear(32, 100), torch.nn.ReLU(), torch.nn.Linear(100, 10))
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
data = torch.Generator().manual_seed(rank)
for _ in range(4):
    inputs = torch.randn(16, 32, generator=data)
    labels = torch.randint(0, 10, (16,), generator=data)
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(inputs), labels).backward()
    optimizer.step()
found = [p.detach() for p in model.parameters()]

received = torch.empty(1000)
sending = dist.isend(torch.full((1000,), float(rank)), (rank + 1) % world)
dist.recv(received, (rank - 1) % world)
sending.wait()
assert torch.equal(received, torch.full((1000,), float((rank - 1) % world)))

halves = [dist.new_group([0, 1]), dist.new_group([2, 3])]
own = torch.arange(5000.0) * (rank + 1)
dist.all_reduce(own, group=halves[rank // 2])
gathered = [torch.empty_like(own) for _ in range(world)]
dist.all_gather(gathered, own)
found += gathered
dist.barrier()

digest = hashlib.sha256(b"".join(each.numpy().tobytes() for each in found)).hexdigest()
print(
    f"DIGEST {digest} rank {rank} local {os.environ['LOCAL_RANK']} of "
    f"{os.environ['LOCAL_WORLD_SIZE']} on {os.environ['LOOMNET_HOST']}"
)
dist.destroy_process_group()
