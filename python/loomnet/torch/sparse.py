"""All-reduce of sparse tensors: gather every rank's non-zeros, then add them up."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed import ReduceOp

from loomnet.torch.errors import InvalidCall

_MOST_DIMENSIONS = 12


def allreduce_sparse(group: Any, tensor: torch.Tensor, opts: Any) -> None:
    """Sums a COO tensor over `group`, in place, before it returns.

    Raises InvalidCall for another layout, for another reduction than SUM, and where the ranks'
    tensors differ in shape.
    """
    if tensor.layout is not torch.sparse_coo:
        raise InvalidCall(f"loomnet: all_reduce of {tensor.layout} tensors is not supported")
    if opts is not None and opts.reduceOp != ReduceOp.SUM:
        raise InvalidCall(
            "loomnet: unsupported reduction operation (all_reduce of sparse tensors "
            "only works with ReduceOp.SUM)"
        )
    if tensor.dim() > _MOST_DIMENSIONS:
        raise InvalidCall(
            f"loomnet: all_reduce of sparse tensors of {tensor.dim()} dimensions; "
            f"{_MOST_DIMENSIONS} are the most"
        )
    own = tensor.detach().coalesce()
    indices, values = own.indices().contiguous(), own.values().contiguous()
    nonzeros = _agree(group, own, indices.shape[1])
    all_indices = [torch.empty(indices.shape[0], n, dtype=torch.int64) for n in nonzeros]
    all_values = [torch.empty(n, *values.shape[1:], dtype=values.dtype) for n in nonzeros]
    group.allgather([all_indices], [indices]).wait()
    group.allgather([all_values], [values]).wait()
    total = torch.sparse_coo_tensor(torch.cat(all_indices, 1), torch.cat(all_values), own.shape)
    # `tensor.data.copy_` would be lost: a sparse tensor's data is an alias without its indices.
    with torch.no_grad():
        tensor.copy_(total.coalesce())


def _agree(group: Any, own: torch.Tensor, nonzeros: int) -> list[int]:
    """How many non-zeros each rank has; InvalidCall on all ranks where their shapes differ."""
    shape = torch.full((3 + _MOST_DIMENSIONS,), -1, dtype=torch.int64)
    shape[: 3 + own.dim()] = torch.tensor([nonzeros, own.sparse_dim(), own.dense_dim(), *own.shape])
    shapes = [torch.empty_like(shape) for _ in range(group.size())]
    group.allgather([shapes], [shape]).wait()
    for rank, other in enumerate(shapes):
        if not torch.equal(other[1:], shape[1:]):
            sizes = [n for n in other[3:].tolist() if n >= 0]
            raise InvalidCall(
                f"loomnet: all_reduce: sparse dimensions do not match: this rank's "
                f"{list(own.shape)} ({own.sparse_dim()} sparse), rank {rank}'s "
                f"{sizes} ({int(other[1])} sparse)"
            )
    return [int(other[0]) for other in shapes]
