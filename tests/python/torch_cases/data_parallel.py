"""DistributedDataParallel, its communication hooks, Join and ZeroRedundancyOptimizer."""

import torch
import torch.distributed as dist
from models import BATCH, CLASSES, WIDTH, batches, loss_of, network, sgd, state, train, trained
from registry import Rank, case
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import (
    debugging_hooks,
    default_hooks,
    post_localSGD_hook,
    powerSGD_hook,
)
from torch.nn.parallel import DistributedDataParallel as DDP


@case(live=True)
def ddp_plain(r: Rank):
    model = DDP(network())
    return trained(model, train(model, r.rank))


@case()
def ddp_views_and_small_buckets(r: Rank):
    model = DDP(network(4), gradient_as_bucket_view=True, bucket_cap_mb=0.001)
    return trained(model, train(model, r.rank))


@case()
def ddp_static_graph(r: Rank):
    model = DDP(network(), static_graph=True)
    return trained(model, train(model, r.rank, steps=5))


class Branches(nn.Module):
    """Uses one of two branches by the step and the rank."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = network(1), network(1, 8), nn.Linear(CLASSES, CLASSES)
        with torch.no_grad():
            self.head.weight.copy_(torch.eye(CLASSES) * 0.5)
            self.head.bias.zero_()
        self.turn = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.turn += 1
        return self.head((self.first if self.turn % 3 else self.second)(x))


@case()
def ddp_unused_parameters(r: Rank):
    model = Branches()
    model.turn = r.rank % 2
    model = DDP(model, find_unused_parameters=True)
    return trained(model, train(model, r.rank, steps=6))


@case()
def ddp_accumulation_with_no_sync(r: Rank):
    model = DDP(network())
    optimizer, losses, norms = sgd(model), [], []
    for number, (x, y) in enumerate(batches(r.rank, 6)):
        last = number % 3 == 2
        if last:
            loss = loss_of(model(x), y)
            loss.backward()
            norms.append(nn.utils.clip_grad_norm_(model.parameters(), 0.5).item())
            optimizer.step()
            optimizer.zero_grad()
        else:
            with model.no_sync():
                loss = loss_of(model(x), y)
                loss.backward()
        losses.append(loss.item())
    return {**trained(model, losses), "norms": norms}


@case()
def ddp_checkpointed_activations(r: Rank):
    from torch.utils.checkpoint import checkpoint

    class Recomputed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = network(3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for part in self.inner:
                x = checkpoint(part, x, use_reentrant=False)
            return x

    model = DDP(Recomputed())
    return trained(model, train(model, r.rank))


@case()
def ddp_batchnorm_buffers(r: Rank):
    """Statistics of rank 0 are broadcast before each forward."""
    torch.manual_seed(5)
    model = DDP(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), network(1)))
    losses = train(model, r.rank)
    return {**trained(model, losses), "buffers": dict(model.named_buffers())}


@case()
def ddp_float64_and_two_optimizers(r: Rank):
    model = network().double()
    wrapped = DDP(model)
    first = torch.optim.SGD(model[0].parameters(), lr=0.1)
    second = torch.optim.SGD(model[1:].parameters(), lr=0.01)
    for x, y in batches(r.rank):
        loss_of(wrapped(x.double()), y).backward()
        for optimizer in (first, second):
            optimizer.step()
            optimizer.zero_grad()
    return state(model)


@case()
def ddp_sparse_embedding(r: Rank):
    torch.manual_seed(3)
    model = DDP(nn.Sequential(nn.Embedding(20, 8, sparse=True), nn.Linear(8, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        model(torch.tensor([r.rank, step, 7, 7])).square().sum().backward()
        optimizer.step()
    return state(model)


@case()
def ddp_local_gradients_of_a_ranks_own(r: Rank):
    """Uneven batches: DDP averages gradients whatever each rank's batch was."""
    model = DDP(network())
    optimizer = sgd(model)
    for x, y in batches(r.rank, 3, size=2 + r.rank):
        optimizer.zero_grad()
        loss_of(model(x), y).backward()
        optimizer.step()
    return state(model)


@case()
def ddp_join_of_uneven_inputs(r: Rank):
    model = DDP(network())
    optimizer, losses = sgd(model), []
    with model.join():
        for x, y in batches(r.rank, 2 + r.rank % 4):
            optimizer.zero_grad()
            loss = loss_of(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return trained(model, losses)


def hooked(r: Rank, *hook: object, steps: int = 4):
    model = DDP(network())
    model.register_comm_hook(*hook)
    return trained(model, train(model, r.rank, steps=steps))


@case()
def ddp_hook_allreduce(r: Rank):
    return hooked(r, None, default_hooks.allreduce_hook)


@case(2**14)
def ddp_hook_fp16(r: Rank):
    """Values travel as fp16: an order of additions shows in its tenth bit."""
    return hooked(r, None, default_hooks.fp16_compress_hook)


@case(2**16)
def ddp_hook_bf16(r: Rank):
    """DDP refuses the hook by its name without CUDA; under another name it is what users run."""
    refusal = ""
    try:
        hooked(r, None, default_hooks.bf16_compress_hook)
    except TypeError as error:
        refusal = str(error).splitlines()[0]

    def compressed(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        return default_hooks.bf16_compress_hook(state, bucket)

    return {"refusal": refusal, **hooked(r, None, compressed)}


@case()
def ddp_hook_powersgd(r: Rank):
    """The hook's callback waits for a future of its own collective."""
    state = powerSGD_hook.PowerSGDState(
        None, matrix_approximation_rank=2, start_powerSGD_iter=2, min_compression_rate=0.5
    )
    return hooked(r, state, powerSGD_hook.powerSGD_hook, steps=6)


@case(2**14)
def ddp_hook_fp16_around_powersgd(r: Rank):
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
    return hooked(
        r, state, default_hooks.fp16_compress_wrapper(powerSGD_hook.powerSGD_hook), steps=5
    )


@case()
def ddp_hook_that_sends_nothing(r: Rank):
    model = DDP(network(), gradient_as_bucket_view=True)
    model.register_comm_hook(None, debugging_hooks.noop_hook)
    losses = train(model, r.rank)
    dist.all_reduce(total := torch.cat([p.detach().flatten() for p in model.parameters()]))
    return {**trained(model, losses), "sum": total}


@case()
def ddp_hook_post_local_sgd(r: Rank):
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager

    groups = [dist.new_group([2 * i, 2 * i + 1]) for i in range(r.world // 2)]
    model = DDP(network())
    model.register_comm_hook(
        post_localSGD_hook.PostLocalSGDState(None, groups[r.rank // 2], start_localSGD_iter=2),
        post_localSGD_hook.post_localSGD_hook,
    )
    averager = PeriodicModelAverager(period=2, warmup_steps=2)
    optimizer = torch.distributed.optim.PostLocalSGDOptimizer(sgd(model), averager)
    return trained(model, train(model, r.rank, optimizer, steps=6))


@case()
def zero_redundancy_optimizer(r: Rank):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = DDP(network())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.05, momentum=0.5)
    losses = train(model, r.rank, optimizer)
    optimizer.consolidate_state_dict(0)
    moments = optimizer.state_dict()["state"] if r.rank == 0 else {}
    return {**trained(model, losses), "moments": moments}


@case()
def zero_with_bucket_views(r: Rank):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = DDP(network())
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(), torch.optim.SGD, parameters_as_bucket_view=True, lr=0.05
    )
    optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(3))], "lr": 0.1})
    return trained(model, train(model, r.rank, optimizer))


@case()
def zero_joined_with_ddp(r: Rank):
    from torch.distributed.algorithms.join import Join
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = DDP(network())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.05)
    with Join([model, optimizer]):
        for x, y in batches(r.rank, 2 + r.rank % 3, size=BATCH):
            optimizer.zero_grad()
            loss_of(model(x), y).backward()
            optimizer.step()
    return state(model)


@case()
def two_ddp_models_in_turns(r: Rank):
    """Two groups are busy at once, as with a discriminator and a generator."""
    second = dist.new_group(r.everyone)
    models = [DDP(network()), DDP(network(1, 9), process_group=second)]
    optimizers = [sgd(model) for model in models]
    for x, y in batches(r.rank):
        losses = [loss_of(model(x), y) for model in models]
        sum(losses).backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    return [state(model) for model in models]
