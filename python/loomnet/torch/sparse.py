"""All-reduce of sparse tensors: gather everyone's non-zeros, then add them up."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed import ReduceOp


def allreduce_sparse(group: Any, tensor: torch.Tensor, opts: Any) -> None:
    """Sums a COO tensor over `group`, in place, before it returns.

    Raises TypeError for another layout, ValueError for another reduction than SUM.
    """
    if tensor.layout is not torch.sparse_coo:
        raise TypeError(f"loomnet: all_reduce of {tensor.layout} tensors is not supported")
    if opts is not None and opts.reduceOp != ReduceOp.SUM:
        raise ValueError("loomnet: sparse tensors can only be summed")
    own = tensor.detach().coalesce()
    indices, values = own.indices().contiguous(), own.values().contiguous()
    size = group.size()
    counts = [torch.zeros(1, dtype=torch.int64) for _ in range(size)]
    group.allgather([counts], [torch.tensor([indices.shape[1]])]).wait()
    nonzeros = [int(n) for n in counts]
    all_indices = [torch.empty(indices.shape[0], n, dtype=torch.int64) for n in nonzeros]
    all_values = [torch.empty(n, *values.shape[1:], dtype=values.dtype) for n in nonzeros]
    group.allgather([all_indices], [indices]).wait()
    group.allgather([all_values], [values]).wait()
    total = torch.sparse_coo_tensor(torch.cat(all_indices, 1), torch.cat(all_values), own.shape)
    # `tensor.data.copy_` would be lost: a sparse tensor's data is an alias without its indices.
    with torch.no_grad():
        tensor.copy_(total.coalesce())
