"""From tensors to operations of the compiled executor: types, reductions, memory.

An operation is the tuple that ``RankSession.start`` takes. A :class:`Call` gathers the operations
of one call with what must stay alive and what must be copied back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.distributed import ReduceOp

from loomnet.torch.errors import InvalidCall
from loomnet.torch.work_attributes import Written

_TYPES = {
    torch.bool: "bool",
    torch.uint8: "uint8",
    torch.int8: "int8",
    torch.int16: "int16",
    torch.int32: "int32",
    torch.int64: "int64",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float32: "float32",
    torch.float64: "float64",
}
# A complex number is reduced as the two reals it consists of, where the operator allows it.
_PARTS = {
    torch.complex32: torch.float16,
    torch.complex64: torch.float32,
    torch.complex128: torch.float64,
}
_COMPLEX_REDUCTIONS = ("sum", "avg", "premul_sum")
# By the enum's value: ReduceOp itself does not hash alike (ReduceOp.SUM against opts.reduceOp).
_OPERATORS: Any = ReduceOp.RedOpType  # torch's stub does not list its members
_REDUCTIONS = {
    _OPERATORS.SUM: "sum",
    _OPERATORS.AVG: "avg",
    _OPERATORS.MIN: "min",
    _OPERATORS.MAX: "max",
    _OPERATORS.PRODUCT: "product",
    _OPERATORS.BAND: "band",
    _OPERATORS.BOR: "bor",
    _OPERATORS.BXOR: "bxor",
    _OPERATORS.PREMUL_SUM: "premul_sum",
}
_PLAIN = (torch.Tensor, torch.nn.Parameter)


class FakeCall(Exception):
    """A fake tensor came in: shapes only, nothing to move."""


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor that holds the memory. Groups bypass the dispatcher, so subclasses come as they
    are: asynchronous results are waited for, fake ones raise FakeCall."""
    if type(tensor) in _PLAIN:
        return tensor
    if (waited := getattr(tensor, "trigger_wait", None)) is not None:
        return plain(waited())
    from torch._subclasses.fake_tensor import FakeTensor

    if isinstance(tensor, FakeTensor):
        raise FakeCall
    return tensor


class Call:
    """Builds the operations of one call.

    Args:
        core: the compiled module, for its enumerations.
        size: ranks in the group.
        apart: whether what is written goes to memory of its own first, and to the tensors when all
            has been read; needed where :meth:`overlaps`.
    """

    def __init__(self, core: Any, size: int, apart: bool = False) -> None:
        self._collectives = core.COLLECTIVES
        self._types = core.DATA_TYPES
        self._reductions = core.REDUCE_OPS
        self._size = size
        self._apart = apart
        self._spans: list[tuple[int, int, bool]] = []  # first byte, end, whether written
        self.operations: list[tuple[Any, ...]] = []
        self.keep: list[Any] = []
        self.after: list[Callable[[], None]] = []
        self.written: list[Written] = []

    def add(
        self,
        collective: str,
        dtype: torch.dtype,
        count: int,
        inputs: Sequence[int] = (),
        outputs: Sequence[int] = (),
        *,
        input_counts: Sequence[int] = (),
        output_counts: Sequence[int] = (),
        reduce: ReduceOp | None = None,
        root: int = 0,
        peer: int = 0,
        tag: int = 0,
    ) -> None:
        """One operation; counts in elements of `dtype`, pointers of :meth:`read` and others."""
        factor, operator = 1.0, "sum"
        if reduce is not None:
            operator = _REDUCTIONS[getattr(reduce, "op", reduce)]
            if operator == "premul_sum":
                factor = float(reduce.factor)
        name, scale = _TYPES.get(dtype), 1
        if name is None:
            if reduce is None:
                name, scale = "opaque", dtype.itemsize
            else:
                name, scale = _part(collective, dtype, operator), 2
        self.operations.append(
            (
                self._collectives[collective],
                self._types[name],
                self._reductions[operator],
                count * scale,
                list(inputs),
                list(outputs),
                [n * scale for n in input_counts],
                [n * scale for n in output_counts],
                root,
                peer,
                tag,
                factor,
            )
        )

    def read(self, tensor: torch.Tensor, slot: int = 0) -> int:
        """Pointer to contiguous memory with the tensor's values. At `slot`, memory may be written
        too: it is where the same values belong in the output."""
        tensor = self._dense(tensor)
        if not tensor.is_contiguous() or tensor.is_conj() or tensor.is_neg():
            tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
        self.keep.append(tensor)
        pointer = tensor.data_ptr()
        if pointer != slot:
            self._spans.append((pointer, pointer + tensor.nbytes, False))
        return pointer

    def write(self, tensor: torch.Tensor, slot: int = 0) -> int:
        """Pointer to contiguous memory that ends up in the tensor. At `slot`, memory may be read
        too: it is where this rank's own contribution to the output stands."""
        return self._writes(tensor, self._write(tensor, slot))

    def _write(self, tensor: torch.Tensor, slot: int) -> int:
        tensor = self._dense(tensor)
        self.keep.append(tensor)
        if tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg():
            pointer = tensor.data_ptr()
            if pointer == slot:
                return pointer
            if not self._apart:
                self._spans.append((pointer, pointer + tensor.nbytes, True))
                return pointer
        else:
            _refuse_overlap(tensor)
        return self._copy_back(tensor, torch.empty(tensor.shape, dtype=tensor.dtype))

    def update(self, tensor: torch.Tensor) -> int:
        """Pointer to memory that is read and then written."""
        return self._writes(tensor, self._update(tensor))

    def _update(self, tensor: torch.Tensor) -> int:
        tensor = self._dense(tensor)
        self.keep.append(tensor)
        if tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg():
            pointer = tensor.data_ptr()
            if not self._apart:
                self._spans.append((pointer, pointer + tensor.nbytes, True))
                return pointer
            return self._copy_back(tensor, tensor.detach().clone())
        _refuse_overlap(_unexpanded(tensor))
        return self._copy_back(tensor, tensor.detach().resolve_conj().resolve_neg().contiguous())

    def address(self, tensor: torch.Tensor) -> int:
        """Where the tensor's own memory begins."""
        return self._dense(tensor).data_ptr()

    def overlaps(self) -> bool:
        """Whether memory that is written is read or written through another tensor too: peers would
        get what has already been overwritten."""
        if len(self._spans) < 2:
            return False
        reach = written = 0  # the ends so far: of all spans, of those written
        for first, end, writes in sorted(self._spans):
            if first < (reach if writes else written) and first < end:
                return True
            reach = max(reach, end)
            if writes:
                written = max(written, end)
        return False

    def _writes(self, tensor: torch.Tensor, pointer: int) -> int:
        self.written.append(Written(pointer, tuple(tensor.shape), tensor.element_size()))
        return pointer

    def _copy_back(self, tensor: torch.Tensor, scratch: torch.Tensor) -> int:
        def copy() -> None:
            values = _unexpanded(scratch, tensor.stride())
            if values.numel() != scratch.numel() and not _same_bytes(
                values.expand_as(scratch), scratch
            ):
                raise InvalidCall(
                    "loomnet: elements of an expanded tensor share their memory, and "
                    "other ranks' tensors have different values there; clone() the "
                    "tensor before the operation"
                )
            _unexpanded(tensor.detach()).copy_(values)

        self.keep.append(scratch)
        self.after.append(copy)
        return scratch.data_ptr()

    @staticmethod
    def _dense(tensor: torch.Tensor) -> torch.Tensor:
        tensor = plain(tensor)
        if tensor.layout is not torch.strided:
            raise InvalidCall("loomnet: only all_reduce takes sparse tensors")
        if tensor.device.type != "cpu":
            raise InvalidCall(f"loomnet: tensors must be on the CPU, not {tensor.device}")
        return tensor


def single(pointer: int, count: int) -> list[int]:
    """Pointer list of one contiguous buffer; an empty tensor has none."""
    return [pointer] if count else []


def same_type(tensors: Sequence[torch.Tensor]) -> torch.dtype:
    """The tensors' one data type. Raises InvalidCall if they differ."""
    dtype = tensors[0].dtype
    if any(t.dtype != dtype for t in tensors):
        raise InvalidCall(
            f"loomnet: tensors of one call differ in type: "
            f"{sorted({str(t.dtype) for t in tensors})}"
        )
    return dtype


def _part(collective: str, dtype: torch.dtype, operator: str) -> str:
    """Name of the type of a complex number's two parts, which `operator` is to reduce."""
    part = _PARTS.get(dtype)
    if part is None:
        raise InvalidCall(f"loomnet: {collective}: {dtype} tensors cannot be reduced")
    if operator not in _COMPLEX_REDUCTIONS:
        raise InvalidCall(
            f"loomnet: {collective} does not support {operator.upper()} on complex tensors"
        )
    return _TYPES[part]


def _unexpanded(tensor: torch.Tensor, stride: Sequence[int] | None = None) -> torch.Tensor:
    """The tensor, with one element along each dimension that expand() has made of one. `stride`: of
    another tensor of this shape, which expand() has made."""
    for dimension, step in enumerate(tensor.stride() if stride is None else stride):
        if step == 0 and tensor.shape[dimension] > 1:
            tensor = tensor.narrow(dimension, 0, 1)
    return tensor


def _same_bytes(some: torch.Tensor, others: torch.Tensor) -> bool:
    # Not by value: a NaN differs from itself.
    return torch.equal(*(each.contiguous().flatten().view(torch.uint8) for each in (some, others)))


def _refuse_overlap(tensor: torch.Tensor) -> None:
    """Raises InvalidCall where two elements share memory, as those of an expanded tensor do."""
    reach = 0  # of the dimensions of smaller strides
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride <= reach:
            break
        reach += stride * (size - 1)
    else:
        return
    if 0 in tensor.shape:
        return
    offsets = torch.zeros(1, dtype=torch.int64)
    for stride, size in zip(tensor.stride(), tensor.shape, strict=True):
        offsets = (offsets[:, None] + stride * torch.arange(size)).flatten()
    if offsets.unique().numel() < offsets.numel():
        # The words of torch's own copy_().
        raise InvalidCall(
            "loomnet: more than one element of the written-to tensor refers to a "
            "single memory location; clone() the tensor before the operation"
        )
