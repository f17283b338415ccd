"""A plain training script that asks for Gloo: run by the tests as a user's would be, in processes
of its own. Arguments: what goes wrong in which rank, if anything."""

import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    fault, victim = (sys.argv[1], int(sys.argv[2])) if len(sys.argv) > 2 else ("", -1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(7)
    model = DistributedDataParallel(torch.nn.Linear(32, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(rank)
    for step in range(1, 41):
        x = torch.randn(16, 32, generator=generator)
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.6f}", flush=True)
        if rank == victim and step == 5:
            if fault == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            elif fault == "raise":
                raise ValueError("the data is gone")
            elif fault == "leave":
                sys.exit(0)
            elif fault == "hang":
                time.sleep(1000)
        if fault == "stop" and step > 5:
            time.sleep(0.05)
    numbers = torch.arange(10_000) * (rank + 1)
    dist.all_reduce(numbers)
    print(f"sum {int(numbers.sum())} backend {dist.get_backend()}", flush=True)
    group = dist.distributed_c10d._get_default_group()
    print(
        "called",
        group.name(),
        dist.get_backend_config(),
        group._get_backend_name(),
        group._get_backend(torch.device("cpu")).options.backend,
        model._get_ddp_logging_data()["backend_name"],
        flush=True,
    )
    with torch.profiler.profile() as profiler:
        dist.all_reduce(numbers)
    print(
        "profiled",
        [e.name for e in profiler.events() if e.name.endswith(":all_reduce")],
        flush=True,
    )
    dist.monitored_barrier()  # torch asks that the group's backend is called gloo


if __name__ == "__main__":
    main()
