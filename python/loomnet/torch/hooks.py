"""Communication hooks of DistributedDataParallel that state each gradient bucket's attributes.

The layer is the bucket's index. DDP fills buckets in the order in which the backward pass makes the
gradients, so bucket 0 holds the model's last layers. The next forward pass needs the first layers
first: by default a later bucket is the more urgent one.

    model = DDP(model)
    model.register_comm_hook(None, loomnet.torch.hooks.bucket_hook)

The hooks work without Loomnet too, where nothing reads the attributes.
"""

# No `from __future__ import annotations`: DDP compares a hook's annotations with the types.
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from loomnet.torch.work_attributes import MOST_LAYER, MOST_PRIORITY, Deliveries, attributes

__all__ = ["BucketState", "bucket_hook", "bucket_wrapper"]

Hook = Callable[[Any, dist.GradBucket], torch.futures.Future[torch.Tensor]]


def _by_order(index: int) -> int:
    return min(index, MOST_PRIORITY)


class BucketState:
    """State of :func:`bucket_hook`.

    Args:
        process_group: that reduces the buckets; None is the default group.
        loss_tolerance: share of each bucket's bytes that the transport may give up, 0 to 1.
        priority: the priority, 0 to 255, of the bucket with this index.

    Attributes:
        deliveries: by bucket index, what the latest all-reduce of that bucket has received; to be
            read once the backward pass is over.
    """

    def __init__(self, process_group: dist.ProcessGroup | None = None, *,
                 loss_tolerance: float = 0.0, priority: Callable[[int], int] = _by_order) -> None:
        self.process_group = process_group
        self.loss_tolerance = loss_tolerance
        self.priority = priority
        self.deliveries: dict[int, Deliveries] = {}


def bucket_hook(state: BucketState | dist.ProcessGroup | None,
                bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Averages a bucket over the ranks, as DDP does without a hook and with the same results.

    Args:
        state: a :class:`BucketState`; or a process group, or None, for one with its defaults.
        bucket: of gradients; its buffer is all-reduced in place.

    Returns:
        A future of the bucket's buffer.
    """
    if not isinstance(state, BucketState):
        state = BucketState(state)
    group = state.process_group if state.process_group is not None else dist.group.WORLD
    tensor, index = bucket.buffer(), bucket.index()
    # DDP itself multiplies by the inverse: a division may differ in the last bit.
    tensor.mul_(1.0 / dist.get_world_size(group))
    with attributes(layer=min(index, MOST_LAYER), priority=state.priority(index),
                    loss_tolerance=state.loss_tolerance) as state.deliveries[index]:
        work = dist.all_reduce(tensor, group=group, async_op=True)
    assert work is not None
    return work.get_future().then(_first)


def bucket_wrapper(hook: Hook) -> Hook:
    """Another hook, such as ``default_hooks.fp16_compress_hook``, with layer and priority stated
    for the calls that it makes before it returns. The state goes to that hook."""

    def wrapped(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        index = bucket.index()
        with attributes(layer=min(index, MOST_LAYER), priority=_by_order(index)):
            return hook(state, bucket)

    return wrapped


def _first(future: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
    return future.value()[0]
