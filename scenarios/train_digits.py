"""Plain PyTorch DistributedDataParallel on scikit-learn's digits; runs unchanged under torchrun:

    torchrun --nproc-per-node 4 scenarios/train_digits.py --steps 100

A multilayer perceptron of 1.1 M float32 parameters, so a gradient of 4.4 MB per step. The loss of a
step depends on the seed, the world size and the step alone, never on how long the run lasts.
"""

import argparse
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def options(batch: int, hidden: int) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=None, help="passes over the data")
    parser.add_argument("--steps", type=int, default=None, help="end after so many steps")
    parser.add_argument(
        "--seconds",
        type=float,
        default=None,
        help="end after so many wall seconds; every rank at the same step",
    )
    parser.add_argument("--batch", type=int, default=batch, help="samples per rank and step")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--timeout", type=float, default=60, help="seconds for one collective")
    parser.add_argument("--hidden", type=int, default=hidden, help="neurons of the outer layers")
    parser.add_argument(
        "--bucket-mb",
        type=int,
        default=None,
        help="MiB of gradients in an all-reduce, 25 by default; the first has 1",
    )
    args = parser.parse_args()
    if args.epochs is None and args.steps is None and args.seconds is None:
        args.epochs = 2
    return args


def model(hidden: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(64, hidden),
        nn.ReLU(),
        nn.Linear(hidden, 2 * hidden),
        nn.ReLU(),
        nn.Linear(2 * hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, 10),
    )


def main(batch: int = 32, hidden: int = 512) -> None:
    args = options(batch, hidden)
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    limit = timedelta(seconds=args.timeout)
    dist.init_process_group(args.backend, timeout=limit)
    rank, world = dist.get_rank(), dist.get_world_size()
    digits = load_digits()
    images = torch.tensor(digits.data, dtype=torch.float32) / 16
    labels = torch.tensor(digits.target)
    net = DistributedDataParallel(
        model(args.hidden), gradient_as_bucket_view=True, bucket_cap_mb=args.bucket_mb
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=args.lr, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    per_epoch = len(images) // (args.batch * world)
    if per_epoch == 0:
        raise SystemExit(f"{world} ranks of batch {args.batch} want more than {len(images)} images")
    total = (
        args.steps
        if args.steps is not None
        else (None if args.epochs is None else args.epochs * per_epoch)
    )
    started, step = time.monotonic(), 0
    while total is None or step < total:
        if args.seconds is not None and time_is_up(started, args.seconds):
            break
        epoch, place = divmod(step, per_epoch)
        order = torch.randperm(
            len(images), generator=torch.Generator().manual_seed(args.seed * 1_000_003 + epoch)
        )
        first = (place * world + rank) * args.batch
        chosen = order[first : first + args.batch]
        optimizer.zero_grad(set_to_none=True)
        loss = criterion(net(images[chosen]), labels[chosen])
        loss.backward()
        optimizer.step()
        step += 1
        if rank == 0:
            # Nine digits name a float32: losses of two runs can be compared to the bit.
            print(f"step {step} loss {loss.item():.9g}", flush=True)
    if rank == 0:
        with torch.no_grad():
            right = (net.module(images).argmax(1) == labels).float().mean().item()
        print(f"done after {step} steps, accuracy {right:.4f}", flush=True)
    dist.destroy_process_group()


def time_is_up(started: float, seconds: float) -> bool:
    """Rank 0's clock decides for all, so that every rank ends at the same step."""
    verdict = torch.tensor([time.monotonic() - started >= seconds], dtype=torch.int32)
    dist.broadcast(verdict, src=0)
    return bool(verdict.item())


if __name__ == "__main__":
    main()
