"""Trains, and adds whole numbers whose sums every rank knows; one argument: its steps. Ends with
an error at the first element that is wrong."""

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(3)))
ddp = DistributedDataParallel(model, bucket_cap_mb=0.02)
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
data = torch.Generator().manual_seed(rank)
for step in range(int(sys.argv[1])):
    of_all = [
        torch.randint(
            -(2**28),
            2**28,
            (5000,),
            dtype=torch.int32,
            generator=torch.Generator().manual_seed(100 * step + each),
        )
        for each in range(world)
    ]
    own = of_all[rank].clone()
    dist.all_reduce(own)
    if not torch.equal(own, torch.stack(of_all).sum(0, dtype=torch.int32)):
        sys.exit(f"step {step}: wrong sum")
    optimizer.zero_grad()
    loss = ddp(torch.randn(8, 64, generator=data)).square().mean()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item().hex()}", flush=True)
dist.destroy_process_group()
