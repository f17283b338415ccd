"""What stands around training: data loaders, RPC, the profiler, the compiler, threads."""

import os
import subprocess
import sys
import threading

import torch
import torch.distributed as dist
import torch.distributed.rpc as rpc
from models import WIDTH, loss_of, network, sgd, train, trained
from registry import Rank, case
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def samples() -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    return TensorDataset(
        torch.randn(70, WIDTH, generator=generator), torch.randint(0, 4, (70,), generator=generator)
    )


def loaded(r: Rank, workers: int, **options: object):
    data = samples()
    sampler = DistributedSampler(data, shuffle=True, seed=5)
    loader = DataLoader(data, batch_size=8, sampler=sampler, num_workers=workers, **options)
    model = DDP(network())
    optimizer, losses = sgd(model), []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss = loss_of(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return trained(model, losses)


@case()
def data_loader_in_the_rank(r: Rank):
    return loaded(r, 0)


@case()
def data_loader_workers(r: Rank):
    return loaded(r, 2)


@case()
def data_loader_workers_that_persist(r: Rank):
    return loaded(r, 1, persistent_workers=True, prefetch_factor=4)


def affine(x: torch.Tensor, factor: int) -> torch.Tensor:
    return x * factor + 1


class Counter:
    def __init__(self) -> None:
        self.count = 0

    def add(self, amount: int) -> int:
        self.count += amount
        return self.count


@case(0, group=False)
def rpc_alone(r: Rank):
    rpc.init_rpc(f"worker{r.rank}", rank=r.rank, world_size=r.world)
    right = f"worker{r.right}"
    future = rpc.rpc_async(right, affine, args=(torch.arange(4), 2))
    found = [rpc.rpc_sync(right, affine, args=(torch.full((3,), r.rank), 10)), future.wait()]
    remote = rpc.remote(right, Counter)
    found += [remote.rpc_sync().add(2), remote.rpc_sync().add(5)]
    rpc.shutdown()
    return found


@case(0)
def rpc_after_a_collective(r: Rank):
    dist.all_reduce(t := torch.tensor([r.rank]))
    rpc.init_rpc(f"late{r.rank}", rank=r.rank, world_size=r.world)
    found = [t, rpc.rpc_sync(f"late{r.right}", affine, args=(t, 3))]
    dist.all_reduce(u := torch.tensor([r.rank + 1]))
    rpc.shutdown()
    return [*found, u]


@case()
def profiler(r: Rank):
    """Collectives are in the profile under Gloo's names."""
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True
    ) as profile:
        dist.all_reduce(t := torch.full((5, 3), float(r.rank)))
        dist.broadcast(t, 1)
        dist.barrier()
        model = DDP(network())
        losses = train(model, r.rank, steps=2)
    names = {event.name for event in profile.events()}
    shapes = [event.input_shapes for event in profile.events() if event.name == "gloo:all_reduce"]
    return {
        **trained(model, losses),
        "sum": t,
        "collectives": sorted(name for name in names if name.startswith("gloo:")),
        "shape": [5, 3] in [shape for each in shapes for shape in each],
    }


@case()
def compiled_function(r: Rank):
    @torch.compile(backend="aot_eager", fullgraph=True)
    def step(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) * 2

    dist.all_reduce(t := step(torch.full((8,), float(r.rank))))
    return t


@case()
def compiled_ddp(r: Rank):
    model = DDP(torch.compile(network(), backend="aot_eager"))
    return trained(model, train(model, r.rank))


@case()
def compiled_functional_collective(r: Rank):
    import torch.distributed._functional_collectives as functional

    @torch.compile(backend="aot_eager", fullgraph=True)
    def step(x: torch.Tensor) -> torch.Tensor:
        y = functional.all_reduce(x * 2, "sum", list(range(r.world)))
        return functional.all_gather_tensor(y + 1, 0, list(range(r.world)))

    return step(torch.full((4,), r.rank + 0.5))


@case()
def compiled_by_inductor(r: Rank):
    """The generated code is C++: rank 0 compiles it, the others find it in PyTorch's cache, and so
    does the next placement."""
    from torch._inductor import config

    config.cpp_cache_precompile_headers = False
    config.compile_threads = 1
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = r.kept

    @torch.compile
    def step(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) * 2

    own = torch.full((8,), float(r.rank))
    if r.rank == 0:
        step(own)
    dist.barrier()
    dist.all_reduce(t := step(own))
    return t


@case()
def thread_that_computes(r: Rank):
    found = []
    ones = torch.ones(300, 300)
    thread = threading.Thread(target=lambda: found.append(ones.matrix_power(3)[0, 0]))
    thread.start()
    model = DDP(network())
    losses = train(model, r.rank)
    thread.join()
    return {**trained(model, losses), "beside": found}


@case(0)
def children_of_a_rank(r: Rank):
    dist.all_reduce(t := torch.tensor([r.rank]))
    said = subprocess.run(
        [sys.executable, "-c", f"print({r.rank} * 7)"], capture_output=True, text=True, check=True
    ).stdout
    pid = os.fork()
    if pid == 0:
        os._exit(r.rank + 3)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    dist.all_reduce(u := torch.tensor([int(said)]))
    return [t, u, status]


@case()
def two_threads_with_groups_of_their_own(r: Rank):
    groups = [dist.new_group(r.everyone) for _ in range(2)]
    tensors = [torch.full((1000,), float(r.rank + i)) for i in range(2)]

    def sums(i: int) -> None:
        for _ in range(20):
            dist.all_reduce(tensors[i], op=dist.ReduceOp.MAX, group=groups[i])
            tensors[i] += 1

    other = threading.Thread(target=sums, args=(1,))
    other.start()
    sums(0)
    other.join()
    return tensors
