"""Tensors in parts: DeviceMesh, DTensor, tensor and sequence parallel layers."""

import torch
import torch.distributed as dist
from models import WIDTH, Block, network, sgd
from registry import Rank, case
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
)
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)


def sample(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def trained_by(model: nn.Module, steps: int = 3, width: int = WIDTH) -> dict[str, object]:
    """All ranks train on the same batch, as ranks of one tensor parallel group do."""
    optimizer, losses = sgd(model), []
    for step in range(steps):
        optimizer.zero_grad()
        output = model(sample(8, width, seed=step))
        loss = output.square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item() if not isinstance(loss, DTensor) else loss.full_tensor().item())
    return {"losses": losses, "parameters": dict(model.named_parameters())}


@case()
def mesh_of_two_dimensions(r: Rank):
    mesh = init_device_mesh("cpu", (2, r.world // 2), mesh_dim_names=("rows", "columns"))
    sums = {}
    for name in ("rows", "columns"):
        dist.all_reduce(t := torch.tensor([10**r.rank]), group=mesh.get_group(name))
        sums[name] = t
    flat = mesh["rows", "columns"]._flatten("all")
    dist.all_reduce(t := torch.tensor([10**r.rank]), group=flat.get_group())
    return {
        "sums": sums,
        "all": t,
        "place": mesh.get_coordinate(),
        "members": dist.get_process_group_ranks(mesh.get_group("columns")),
    }


@case()
def mesh_of_three_dimensions(r: Rank):
    mesh = init_device_mesh("cpu", (r.world // 4, 2, 2), mesh_dim_names=("a", "b", "c"))
    found = {}
    for name in "abc":
        dist.all_gather_object(
            box := [None] * mesh[name].size(), r.rank, group=mesh.get_group(name)
        )
        found[name] = box
    return found


@case(live=True)
def tensor_parallel_layers(r: Rank):
    mesh = init_device_mesh("cpu", (r.world,))
    model = network()
    plan = {f"{i}.up": ColwiseParallel() for i in range(2)}
    plan |= {f"{i}.down": RowwiseParallel() for i in range(2)}
    return trained_by(parallelize_module(model, mesh, plan))


class Normed(nn.Module):
    """Norms run on shards of the sequence, the block between them on shards of its width."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(11)
        self.norm, self.block, self.last = nn.LayerNorm(WIDTH), Plain(), nn.LayerNorm(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(x + self.block(self.norm(x)))


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.tanh(self.up(x)))


@case(1024)
def sequence_parallel_layers(r: Rank):
    """The biases of the norms begin at zero and stay within what one rounding moves them."""
    mesh = init_device_mesh("cpu", (r.world,))
    model = parallelize_module(
        Normed(),
        mesh,
        {
            "norm": SequenceParallel(sequence_dim=0),
            "block": PrepareModuleInput(
                input_layouts=(Shard(0),), desired_input_layouts=(Replicate(),)
            ),
            "block.up": ColwiseParallel(),
            "block.down": RowwiseParallel(output_layouts=Shard(0), use_local_output=False),
            "last": SequenceParallel(sequence_dim=0),
        },
    )
    optimizer, losses = sgd(model), []
    for step in range(3):
        optimizer.zero_grad()
        x = DTensor.from_local(sample(8, WIDTH, seed=step).chunk(r.world)[r.rank], mesh, [Shard(0)])
        loss = model(x).square().mean().full_tensor()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"losses": losses, "parameters": dict(model.named_parameters())}


@case()
def loss_in_parallel(r: Rank):
    """Cross entropy over classes that are spread over the ranks."""
    mesh = init_device_mesh("cpu", (r.world,))
    head = parallelize_module(nn.Linear(WIDTH, 24), mesh, ColwiseParallel(use_local_output=False))
    with loss_parallel():
        loss = nn.functional.cross_entropy(head(sample(8, WIDTH)), torch.arange(8) * 3)
        loss.backward()
    return {"loss": loss, "gradients": {n: p.grad for n, p in head.named_parameters()}}


@case()
def embedding_in_parallel(r: Rank):
    mesh = init_device_mesh("cpu", (r.world,))
    torch.manual_seed(4)
    table = parallelize_module(
        nn.Embedding(30, WIDTH), mesh, RowwiseParallel(input_layouts=Replicate())
    )
    out = table(torch.tensor([0, 7, 29, 7]))
    out.square().sum().backward()
    return {"out": out, "gradient": table.weight.grad}


@case()
def fsdp2_over_tensor_parallel(r: Rank):
    mesh = init_device_mesh("cpu", (2, r.world // 2), mesh_dim_names=("data", "tensor"))
    model = network()
    for module in model:
        if isinstance(module, Block):
            parallelize_module(
                module, mesh["tensor"], {"up": ColwiseParallel(), "down": RowwiseParallel()}
            )
            fully_shard(module, mesh=mesh["data"])
    fully_shard(model, mesh=mesh["data"])
    return trained_by(model)


@case()
def ddp_over_tensor_parallel(r: Rank):
    from torch.distributed.tensor.parallel.ddp import _pre_dp_module_transform
    from torch.nn.parallel import DistributedDataParallel

    mesh = init_device_mesh("cpu", (2, r.world // 2), mesh_dim_names=("data", "tensor"))
    model = parallelize_module(
        network(),
        mesh["tensor"],
        {f"{i}.up": ColwiseParallel() for i in range(2)}
        | {f"{i}.down": RowwiseParallel() for i in range(2)},
    )
    _pre_dp_module_transform(model)
    wrapped = DistributedDataParallel(model, process_group=mesh.get_group("data"))
    return trained_by(wrapped)


# --- DTensor --------------------------------------------------------------------------------------
@case()
def dtensor_matmul(r: Rank):
    mesh = init_device_mesh("cpu", (r.world,))
    a, b = sample(16, 24), sample(24, 8, seed=1)
    found = {}
    for name, left, right in (
        ("row", Shard(0), Replicate()),
        ("column", Replicate(), Shard(1)),
        ("inner", Shard(1), Shard(0)),
        ("both", Shard(0), Shard(1)),
    ):
        product = distribute_tensor(a, mesh, [left]) @ distribute_tensor(b, mesh, [right])
        found[name] = {"own": product, "whole": product.full_tensor()}
    return found


@case(0)
def dtensor_redistribute(r: Rank):
    mesh = init_device_mesh("cpu", (2, r.world // 2))
    x = sample(16, 8)
    d = distribute_tensor(x, mesh, [Shard(0), Shard(1)])
    found = []
    for placements in (
        [Replicate(), Shard(0)],
        [Shard(1), Shard(1)],
        [Shard(1), Replicate()],
        [Shard(0), Shard(0)],
        [Replicate(), Replicate()],
    ):
        d = d.redistribute(mesh, placements)
        found.append({"own": d, "whole": d.full_tensor()})
    return found


@case(0)
def dtensor_of_uneven_shards(r: Rank):
    mesh = init_device_mesh("cpu", (r.world,))
    found = []
    for rows in (1, r.world - 1, r.world + 1, 3 * r.world + 2):
        d = distribute_tensor(torch.arange(rows * 6).reshape(rows, 6), mesh, [Shard(0)])
        found.append(
            {
                "own": d,
                "whole": d.full_tensor(),
                "turned": d.redistribute(mesh, [Shard(1)]).to_local(),
            }
        )
    return found


@case()
def dtensor_partial_sums(r: Rank):
    mesh = init_device_mesh("cpu", (r.world,))
    own = sample(10, 3, seed=r.rank)
    found = {}
    for op in ("sum", "avg", "max", "min"):
        part = DTensor.from_local(own, mesh, [Partial(op)])
        found[op] = part.full_tensor()
    part = DTensor.from_local(own, mesh, [Partial()])
    found["scattered"] = part.redistribute(mesh, [Shard(0)])
    return found


@case()
def dtensor_reductions_and_softmax(r: Rank):
    mesh = init_device_mesh("cpu", (r.world,))
    # PyTorch refuses max() where a rank's shard is empty.
    d = distribute_tensor(sample(16, 3 * r.world), mesh, [Shard(1)])
    return {
        "sum": d.sum().full_tensor(),
        "rows": d.sum(1).full_tensor(),
        "max": d.max().full_tensor(),
        "softmax": torch.softmax(d, 1).full_tensor(),
        "norm": d.norm().full_tensor(),
        "var": d.var(0).full_tensor(),
    }


@case()
def dtensor_gradients(r: Rank):
    mesh = init_device_mesh("cpu", (r.world,))
    w = distribute_tensor(sample(16, 8), mesh, [Shard(0)]).requires_grad_()
    x = distribute_tensor(sample(4, 16, seed=2), mesh, [Replicate()])
    (x @ w).redistribute(mesh, [Replicate()]).square().sum().backward()
    return {"own": w.grad, "whole": w.grad.full_tensor()}


@case()
def dtensor_module(r: Rank):
    mesh = init_device_mesh("cpu", (r.world,))

    def by_rows(_name: str, module: nn.Module, mesh) -> None:
        for name, parameter in list(module.named_parameters(recurse=False)):
            # PyTorch's optimizers refuse a parameter with fewer rows than ranks.
            rows = Shard(0) if len(parameter) >= r.world else Replicate()
            module.register_parameter(
                name, nn.Parameter(distribute_tensor(parameter.data, mesh, [rows]))
            )

    model = distribute_module(
        network(1),
        mesh,
        by_rows,
        input_fn=lambda _m, inputs, mesh: tuple(
            DTensor.from_local(x, mesh, [Replicate()], run_check=False) for x in inputs
        ),
    )
    return trained_by(model)
