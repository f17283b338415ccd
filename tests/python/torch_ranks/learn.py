"""A plain training script for jobs on the virtual clock, of which tests make many: a gradient of 1
MB, and nothing to import but PyTorch. Argument: steps."""

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
torch.manual_seed(1)
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(512, 512))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
generator = torch.Generator().manual_seed(dist.get_rank())
for step in range(1, int(sys.argv[1]) + 1):
    optimizer.zero_grad()
    loss = model(torch.randn(4, 512, generator=generator)).square().mean()
    loss.backward()
    optimizer.step()
    if dist.get_rank() == 0:
        # Nine digits name a float32: losses of two runs can be compared to the bit.
        print(f"step {step} loss {loss.item():.9g}", flush=True)
dist.destroy_process_group()
