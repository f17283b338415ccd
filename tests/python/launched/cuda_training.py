"""A training script for GPUs, unchanged: nccl, cuda:LOCAL_RANK, DDP with device_ids, autocast, a
scaler, streams and events, tokens per second by time.perf_counter; and a layer split over ranks."""

import os
import time

import torch
import torch.distributed as dist
import torch.distributed.fsdp

import loomnet.torch

local = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
device = torch.device("cuda", local)
dist.init_process_group("nccl", device_id=device)
rank, world = dist.get_rank(), dist.get_world_size()
assert torch.cuda.is_available() and torch.cuda.device_count() == 1 and dist.is_nccl_available()

torch.manual_seed(1)
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
net = net.to(device)
model = torch.nn.parallel.DistributedDataParallel(net, device_ids=[local], output_device=local)
optimizer = torch.optim.AdamW(model.parameters(), 0.01)  # asks whether its stream is captured
scaler = torch.amp.GradScaler("cuda")
begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
generator = torch.Generator(device="cuda").manual_seed(rank)
took = 0.0
for _step in range(3):
    batch = torch.randn(4, 8, device=device, generator=generator)
    wanted = torch.ones(4, 1).cuda(non_blocking=True)
    torch.cuda.synchronize()
    began, begun = time.perf_counter(), time.perf_counter_ns()
    begin.record()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        found = model(batch)
        assert found.dtype is torch.bfloat16 and torch.is_autocast_enabled()
        loss = torch.nn.functional.mse_loss(found.float(), wanted)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    end.record()
    took = time.perf_counter() - began
    assert abs(took - begin.elapsed_time(end) / 1e3) < 1e-9
    assert abs(took - (time.perf_counter_ns() - begun) / 1e9) < 1e-8
    # A millisecond of it is the step's compute.
    assert 0.001 < took < 0.002, took
assert abs(time.perf_counter() - loomnet.torch.now()) < 1e-8

# A copy between cuda and the CPU is one, and a move to where a tensor is already is none.
kept = {name: value.cpu() for name, value in net.state_dict().items()}
with torch.no_grad():
    for parameter in net.parameters():
        parameter.add_(1)
assert not any(torch.equal(kept[name], value) for name, value in net.state_dict().items())
weight = next(net.parameters())
address = weight.data_ptr()
net.cuda()
net.to("cuda:0")
assert weight.data_ptr() == address
zeros = torch.zeros(3)
moved = zeros.to(device)
moved += 1
assert zeros.sum() == 0 and moved.cuda() is moved and moved.to(zeros.cuda()) is moved
assert torch.cuda.FloatTensor([1.5]).item() == 1.5

# One layer by columns, the next by rows: what is summed over the ranks is the whole product.
torch.cuda.manual_seed(5)
first, second = torch.randn(8, 4 * world, device="cuda"), torch.randn(4 * world, 3, device="cuda")
part = slice(4 * rank, 4 * rank + 4)
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    assert torch.cuda.current_stream() is side
    inputs = torch.full((2, 8), 0.5, device="cuda")
    product = inputs @ first[:, part] @ second[part]
    dist.all_reduce(product)
torch.cuda.current_stream().wait_stream(side)
assert torch.allclose(product, inputs @ first @ second, atol=1e-4)

# A mesh of cuda, and parameters that are sharded over it.
mesh = torch.distributed.device_mesh.init_device_mesh("cuda", (world,))
sharded = torch.nn.Linear(8, 4 * world).cuda()
with torch.no_grad():
    sharded.weight.fill_(0.25)
full = torch.distributed.fsdp.fully_shard(sharded, mesh=mesh)
full(torch.ones(1, 8, device="cuda")).sum().backward()
gradient = sharded.weight.grad.full_tensor()
assert gradient.shape == (4 * world, 8) and bool((gradient == 1).all())

# The accelerator is cuda, and its streams are those of cuda.
accelerator = torch.accelerator.current_accelerator(check_available=True)
assert accelerator.type == "cuda" and torch.accelerator.device_count() == 1
assert torch.accelerator.current_stream() is torch.cuda.current_stream()
with torch.accelerator.device_index(local):
    assert torch.zeros(2, device=torch.accelerator.current_device_index()).sum() == 0
torch.Stream(device).wait_event(torch.Event())

# PyTorch reads what its compiler takes for constants when it is imported.
assert callable(torch.cuda.use_mem_pool.__wrapped__)

# Each public name that can be called with nothing answers, or is refused by name.
for module in (torch.cuda, torch.accelerator):
    for name in module.__all__:
        ask = getattr(module, name)
        if not callable(ask) or name.endswith(("Storage", "Tensor", "Error")):
            continue
        try:
            ask()
        except TypeError as error:
            assert "missing" in str(error) or "argument" in str(error), (name, error)
        except RuntimeError as error:
            assert f"loomnet: {module.__name__}.{name} needs a real CUDA" in str(error), (
                name,
                error,
            )

# What cannot be is refused by name.
for ask, name in (
    (torch.cuda.CUDAGraph, "CUDAGraph"),
    (lambda: torch.cuda.set_device(1), "invalid device ordinal 1"),
    (torch.cuda._lazy_init, "reaches CUDA inside PyTorch"),
):
    try:
        ask()
    except RuntimeError as error:
        assert name in str(error), error
    else:
        raise AssertionError(name)
print("RIGHT", rank, f"{32 / took:.0f} tokens/s", flush=True)
