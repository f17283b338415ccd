"""Communication hooks of DistributedDataParallel that state each gradient bucket's attributes.

The layer is the bucket's index. DDP fills buckets in the order in which the backward pass makes the
gradients, so bucket 0 holds the model's last layers. The next forward pass needs the first layers
first: by default a later bucket is the more urgent one.

    model = DDP(model)
    model.register_comm_hook(None, loomnet.torch.hooks.bucket_hook)

With `by_layer` the layer counts from the model's front instead, and the priority is that of the
formula "layer" of :mod:`loomnet.plugins.priorities`: what switches that sum gradients go by.

The hooks work without Loomnet too, where nothing reads the attributes.
"""

# No `from __future__ import annotations`: DDP compares a hook's annotations with the types.
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from loomnet.torch.work_attributes import MOST_LAYER, MOST_PRIORITY, Deliveries, attributes

__all__ = ["BucketState", "LayerState", "bucket_hook", "bucket_wrapper", "by_layer"]

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

    def __init__(
        self,
        process_group: dist.ProcessGroup | None = None,
        *,
        loss_tolerance: float = 0.0,
        priority: Callable[[int], int] = _by_order,
    ) -> None:
        self.process_group = process_group
        self.loss_tolerance = loss_tolerance
        self.priority = priority
        self.deliveries: dict[int, Deliveries] = {}


def bucket_hook(
    state: BucketState | dist.ProcessGroup | None, bucket: dist.GradBucket
) -> torch.futures.Future[torch.Tensor]:
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
    index = bucket.index()
    with attributes(
        layer=min(index, MOST_LAYER),
        priority=state.priority(index),
        loss_tolerance=state.loss_tolerance,
    ) as state.deliveries[index]:
        return _averaged(bucket, group)


class LayerState:
    """The state that :func:`by_layer` keeps for one model.

    Args:
        process_group: that reduces the buckets; None is the default group.

    Attributes:
        buckets: of the model, as of its latest backward pass; 0 until one has ended.
    """

    def __init__(self, process_group: dist.ProcessGroup | None = None) -> None:
        self.process_group = process_group
        self.buckets = 0


_states: dict[dist.ProcessGroup | None, LayerState] = {}  # of models without one of their own


def by_layer(
    state: LayerState | dist.ProcessGroup | None, bucket: dist.GradBucket
) -> torch.futures.Future[torch.Tensor]:
    """Averages a bucket over the ranks as :func:`bucket_hook` does, and states its layer: 0 is the
    front-most bucket, which the next forward pass needs first and the backward pass makes last.

    The priority of layer l of L is log2(L / (l + 1)), from -16 to 16, on a scale from 1 to 255.
    The hindmost bucket has 128, as operations have that state none. The job's time left and its
    share of communication, which ESA weighs too, are not known to a script.

    DDP numbers buckets from the back and says of the last one alone that it is the last, so the
    first backward pass states nothing. DDP then makes new buckets, once: where there are more than
    before, the front-most ones share layer 0 for one pass.

    Args:
        state: a :class:`LayerState`, one for each model; or a process group, or None, in a script
            with one model for each.
        bucket: of gradients; its buffer is all-reduced in place.

    Returns:
        A future of the bucket's buffer.
    """
    if not isinstance(state, LayerState):
        state = _states.setdefault(state, LayerState(state))
    group = state.process_group if state.process_group is not None else dist.group.WORLD
    index, buckets = bucket.index(), state.buckets
    if bucket.is_last():
        state.buckets = index + 1
    if buckets == 0:
        return _averaged(bucket, group)
    layer = max(buckets - 1 - index, 0)
    with attributes(layer=min(layer, MOST_LAYER), priority=layer_priority(layer, buckets)):
        return _averaged(bucket, group)


def layer_priority(layer: int, layers: int) -> int:
    """1 to 255, the most urgent; of `layers` layers, 0 being the front-most."""
    octaves = min(max(math.log2(layers / (layer + 1)), -16.0), 16.0)
    return 1 + math.floor((MOST_PRIORITY - 1) * (octaves + 16.0) / 32.0 + 0.5)


def _averaged(
    bucket: dist.GradBucket, group: dist.ProcessGroup | None
) -> torch.futures.Future[torch.Tensor]:
    tensor = bucket.buffer()
    # DDP itself multiplies by the inverse: a division may differ in the last bit.
    tensor.mul_(1.0 / dist.get_world_size(group))
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
