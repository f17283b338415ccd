"""From tensors to operations of the compiled executor: types, reductions, memory.

An operation is the tuple that ``RankSession.start`` takes. A :class:`Call` gathers the operations
of one call with what must stay alive and what must be copied back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.distributed import ReduceOp

_TYPES = {
    torch.bool: "bool", torch.uint8: "uint8", torch.int8: "int8", torch.int16: "int16",
    torch.int32: "int32", torch.int64: "int64", torch.float16: "float16",
    torch.bfloat16: "bfloat16", torch.float32: "float32", torch.float64: "float64",
}
# By the enum's value: ReduceOp itself does not hash alike (ReduceOp.SUM against opts.reduceOp).
_REDUCTIONS = {
    ReduceOp.RedOpType.SUM: "sum", ReduceOp.RedOpType.AVG: "avg", ReduceOp.RedOpType.MIN: "min",
    ReduceOp.RedOpType.MAX: "max", ReduceOp.RedOpType.PRODUCT: "product",
    ReduceOp.RedOpType.BAND: "band", ReduceOp.RedOpType.BOR: "bor",
    ReduceOp.RedOpType.BXOR: "bxor", ReduceOp.RedOpType.PREMUL_SUM: "premul_sum",
}
_PLAIN = (torch.Tensor, torch.nn.Parameter)


class FakeCall(Exception):
    """A fake tensor came in: shapes only, nothing to move."""


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor that holds the memory. Groups bypass the dispatcher, so subclasses come as they
    are: asynchronous results are waited for, fake ones raise FakeCall."""
    if type(tensor) in _PLAIN:
        return tensor
    if hasattr(tensor, "trigger_wait"):
        return plain(tensor.trigger_wait())
    from torch._subclasses.fake_tensor import FakeTensor

    if isinstance(tensor, FakeTensor):
        raise FakeCall
    return tensor


class Call:
    """Builds the operations of one call.

    Args:
        core: the compiled module, for its enumerations.
        size: ranks in the group.
    """

    def __init__(self, core: Any, size: int) -> None:
        self._collectives = core.COLLECTIVES
        self._types = core.DATA_TYPES
        self._reductions = core.REDUCE_OPS
        self._size = size
        self.operations: list[tuple[Any, ...]] = []
        self.keep: list[Any] = []
        self.after: list[Callable[[], None]] = []

    def add(self, collective: str, dtype: torch.dtype, count: int, inputs: Sequence[int] = (),
            outputs: Sequence[int] = (), *, input_counts: Sequence[int] = (),
            output_counts: Sequence[int] = (), reduce: ReduceOp | None = None, root: int = 0,
            peer: int = 0, tag: int = 0) -> None:
        """One operation; counts in elements of `dtype`, pointers of :meth:`read` and others."""
        name, scale = _TYPES.get(dtype), 1
        if name is None:
            if reduce is not None:
                raise TypeError(f"loomnet: {dtype} tensors cannot be reduced")
            name, scale = "opaque", dtype.itemsize
        factor, operator = 1.0, "sum"
        if reduce is not None:
            operator = _REDUCTIONS[getattr(reduce, "op", reduce)]
            if operator == "premul_sum":
                factor = float(reduce.factor)
        self.operations.append((
            self._collectives[collective], self._types[name], self._reductions[operator],
            count * scale, list(inputs), list(outputs), [n * scale for n in input_counts],
            [n * scale for n in output_counts], root, peer, tag, factor))

    def read(self, tensor: torch.Tensor) -> int:
        """Pointer to contiguous memory with the tensor's values."""
        tensor = self._dense(tensor)
        if not tensor.is_contiguous() or tensor.is_conj() or tensor.is_neg():
            tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
        self.keep.append(tensor)
        return tensor.data_ptr()

    def write(self, tensor: torch.Tensor) -> int:
        """Pointer to contiguous memory that ends up in the tensor."""
        tensor = self._dense(tensor)
        self.keep.append(tensor)
        if tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg():
            return tensor.data_ptr()
        scratch = torch.empty(tensor.shape, dtype=tensor.dtype)
        return self._copy_back(tensor, scratch)

    def update(self, tensor: torch.Tensor) -> int:
        """Pointer to memory that is read and then written."""
        tensor = self._dense(tensor)
        self.keep.append(tensor)
        if tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg():
            return tensor.data_ptr()
        scratch = tensor.detach().resolve_conj().resolve_neg().contiguous()
        return self._copy_back(tensor, scratch)

    def _copy_back(self, tensor: torch.Tensor, scratch: torch.Tensor) -> int:
        def copy() -> None:
            tensor.detach().copy_(scratch)

        self.keep.append(scratch)
        self.after.append(copy)
        return scratch.data_ptr()

    @staticmethod
    def _dense(tensor: torch.Tensor) -> torch.Tensor:
        tensor = plain(tensor)
        if tensor.layout is not torch.strided:
            raise TypeError("loomnet: only all_reduce takes sparse tensors")
        if tensor.device.type != "cpu":
            raise TypeError(f"loomnet: tensors must be on the CPU, not {tensor.device}")
        return tensor


def single(pointer: int, count: int) -> list[int]:
    """Pointer list of one contiguous buffer; an empty tensor has none."""
    return [pointer] if count else []


def same_type(tensors: Sequence[torch.Tensor]) -> torch.dtype:
    """The tensors' one data type. Raises ValueError if they differ."""
    dtype = tensors[0].dtype
    if any(t.dtype != dtype for t in tensors):
        raise ValueError(f"loomnet: tensors of one call differ in type: "
                         f"{sorted({str(t.dtype) for t in tensors})}")
    return dtype
