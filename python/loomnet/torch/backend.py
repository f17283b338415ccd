"""The process group: every method that PyTorch calls on a group, as operations of the executor.

A subclass of ``dist.ProcessGroup`` rather than a compiled backend, which would tie the wheel to one
libtorch. Names come in two sets, up to 2.12 and since: both are served.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

from loomnet.torch import connection as _connection
from loomnet.torch.naming import NamedGroup
from loomnet.torch.operations import Call, FakeCall, same_type, single
from loomnet.torch.rendezvous import meet
from loomnet.torch.skip import skip_in_dynamo
from loomnet.torch.sparse import allreduce_sparse
from loomnet.torch.work import CoalescedWork, FinishedWork, LoomnetWork

Tensors = list[torch.Tensor]
_RECENT = 512  # small works kept referenced: C++ may outlive Python's last reference
_SMALL = 65536  # bytes
_CHECK_TAG = 0xFFFF_FF00  # of monitored_barrier's messages


class LoomnetGroup(NamedGroup):
    """A group of ranks over the emulated network.

    Args:
        store: the group's own (prefixed) store.
        rank: this process's rank in the group.
        size: ranks in the group.
        timeout: of its operations; afterwards the group is aborted on all ranks.
        name: the group's name in PyTorch.

    Raises:
        RuntimeError: no run around (with the fix), or the members did not meet in time.
    """

    def __init__(self, store: dist.Store, rank: int, size: int, timeout: timedelta,
                 name: str = "") -> None:
        super().__init__(rank, size)
        self._link = _connection.connection()
        self._session = self._link.session
        self._store = store.clone()
        self._name, self._desc = name, ""
        self._rank, self._size = rank, size
        self._timeout_ns = int(timeout.total_seconds() * 1e9)
        self._timeout = timeout
        self._recent: list[LoomnetWork | None] = [None] * _RECENT
        self._started = 0
        self._coalescing: list[dist.Work] | None = None
        self._open = True
        self._id, members = meet(self._store, rank, size, timeout, self._link)
        self._session.create(self._id, members)
        _connection.register_group(self)

    # --- what a group is called ----------------------------------------------------------------
    def getBackendName(self) -> str:
        return "loomnet"

    def _get_backend(self, device: torch.device) -> LoomnetGroup:
        return self

    def set_timeout(self, timeout: timedelta) -> None:
        """Of operations started from now on."""
        self._timeout = timeout
        self._timeout_ns = int(timeout.total_seconds() * 1e9)

    # --- starting ------------------------------------------------------------------------------
    def _start(self, build: Callable[[Call], None], result: list[Any],
               opts: Any = None) -> dist.Work:
        call = Call(self._link.core, self._size)
        try:
            build(call)
        except FakeCall:
            return FinishedWork(result)
        limit = self._timeout_ns
        timeout = getattr(opts, "timeout", None)
        if timeout is not None and timeout > timedelta(0):
            limit = int(timeout.total_seconds() * 1e9)
        if not self._open:
            raise _connection.error(f"loomnet: group {self._name} has been shut down")
        raw = self._session.start(self._id, call.operations, limit)
        work = LoomnetWork(self._link, raw, result, call.keep, call.after)
        self._link.hold(work)
        if raw.bytes < _SMALL:
            self._recent[self._started % _RECENT] = work
        self._started += 1
        if self._coalescing is not None:
            self._coalescing.append(work)
        return work

    def _start_coalescing(self, device: torch.device) -> None:
        self._coalescing = []

    def _end_coalescing(self, device: torch.device) -> dist.Work:
        works, self._coalescing = self._coalescing or [], None
        return CoalescedWork(works)

    # --- reductions ----------------------------------------------------------------------------
    def allreduce(self, tensors: Tensors | torch.Tensor, opts: Any = None) -> dist.Work:
        if isinstance(tensors, torch.Tensor):
            tensors = [tensors]
        if len(tensors) == 1 and tensors[0].layout is not torch.strided:
            allreduce_sparse(self, tensors[0], opts)
            return FinishedWork(tensors)
        return self.allreduce_coalesced(tensors, opts)

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> dist.Work:
        reduce = _reduce_op(opts)

        def build(call: Call) -> None:
            for t in tensors:
                p, n = call.update(t), t.numel()
                call.add("all_reduce", t.dtype, n, single(p, n), single(p, n), reduce=reduce)

        return self._start(build, tensors, opts)

    def reduce(self, tensors: Tensors, opts: Any = None) -> dist.Work:
        reduce, root = _reduce_op(opts), _root(opts)

        def build(call: Call) -> None:
            for t in tensors:
                n = t.numel()
                p = call.update(t) if root == self._rank else call.read(t)
                out = single(p, n) if root == self._rank else []
                call.add("reduce", t.dtype, n, single(p, n), out, reduce=reduce, root=root)

        return self._start(build, tensors, opts)

    def reduce_scatter(self, outputs: Tensors, inputs: list[Tensors],
                       opts: Any = None) -> dist.Work:
        reduce = _reduce_op(opts)

        def build(call: Call) -> None:
            for out, parts in zip(outputs, inputs, strict=True):
                self._check_parts(parts, "reduce_scatter")
                call.add("reduce_scatter", same_type([out, *parts]), out.numel(),
                         [call.read(t) for t in parts], single(call.write(out), out.numel()),
                         input_counts=[t.numel() for t in parts], reduce=reduce)

        return self._start(build, outputs, opts)

    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors,
                                        opts: Any = None) -> dist.Work:
        reduce = _reduce_op(opts)

        def build(call: Call) -> None:
            for out, whole in zip(outputs, inputs, strict=True):
                self._check_whole(whole, out, "reduce_scatter")
                n = out.numel()
                call.add("reduce_scatter", same_type([out, whole]), n, single(call.read(whole), n),
                         single(call.write(out), n), reduce=reduce)

        return self._start(build, outputs, opts)

    def reduce_scatter_single(self, output: torch.Tensor, whole: torch.Tensor,
                              opts: Any = None) -> dist.Work:
        return self.reduce_scatter_single_coalesced([output], [whole], opts)

    # --- moving --------------------------------------------------------------------------------
    def broadcast(self, tensors: Tensors, opts: Any = None) -> dist.Work:
        root = _root(opts)

        def build(call: Call) -> None:
            for t in tensors:
                n = t.numel()
                if root == self._rank:
                    call.add("broadcast", t.dtype, n, single(call.read(t), n), [], root=root)
                else:
                    call.add("broadcast", t.dtype, n, [], single(call.write(t), n), root=root)

        return self._start(build, tensors, opts)

    def allgather(self, outputs: list[Tensors], inputs: Tensors, opts: Any = None) -> dist.Work:
        def build(call: Call) -> None:
            for parts, own in zip(outputs, inputs, strict=True):
                self._check_parts(parts, "all_gather")
                call.add("all_gather", same_type([own, *parts]), own.numel(),
                         single(call.read(own), own.numel()), [call.write(t) for t in parts],
                         output_counts=[t.numel() for t in parts])

        return self._start(build, outputs, opts)

    def allgather_coalesced(self, outputs: list[Tensors], inputs: Tensors,
                            opts: Any = None) -> dist.Work:
        # outputs[rank][i]: turned so that each input has its row of outputs.
        return self.allgather([list(row) for row in zip(*outputs, strict=True)], inputs, opts)

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors,
                                    opts: Any = None) -> dist.Work:
        def build(call: Call) -> None:
            for whole, own in zip(outputs, inputs, strict=True):
                self._check_whole(whole, own, "all_gather")
                n = own.numel()
                call.add("all_gather", same_type([own, whole]), n, single(call.read(own), n),
                         single(call.write(whole), n))

        return self._start(build, outputs, opts)

    def all_gather_single(self, output: torch.Tensor, own: torch.Tensor,
                          opts: Any = None) -> dist.Work:
        return self.all_gather_single_coalesced([output], [own], opts)

    def gather(self, outputs: list[Tensors], inputs: Tensors, opts: Any = None) -> dist.Work:
        root, own = _root(opts), inputs[0]

        def build(call: Call) -> None:
            n = own.numel()
            if root != self._rank:
                call.add("gather", own.dtype, n, single(call.read(own), n), root=root)
                return
            parts = outputs[0]
            self._check_parts(parts, "gather")
            call.add("gather", same_type([own, *parts]), n, single(call.read(own), n),
                     [call.write(t) for t in parts],
                     output_counts=[t.numel() for t in parts], root=root)

        return self._start(build, outputs, opts)

    def scatter(self, outputs: Tensors, inputs: list[Tensors], opts: Any = None) -> dist.Work:
        root, own = _root(opts), outputs[0]

        def build(call: Call) -> None:
            n = own.numel()
            if root != self._rank:
                call.add("scatter", own.dtype, n, [], single(call.write(own), n), root=root)
                return
            parts = inputs[0]
            self._check_parts(parts, "scatter")
            call.add("scatter", same_type([own, *parts]), n, [call.read(t) for t in parts],
                     single(call.write(own), n), input_counts=[t.numel() for t in parts], root=root)

        return self._start(build, outputs, opts)

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> dist.Work:
        def build(call: Call) -> None:
            self._check_parts(outputs, "all_to_all")
            self._check_parts(inputs, "all_to_all")
            call.add("all_to_all", same_type([*outputs, *inputs]), 0,
                     [call.read(t) for t in inputs], [call.write(t) for t in outputs],
                     input_counts=[t.numel() for t in inputs],
                     output_counts=[t.numel() for t in outputs])

        return self._start(build, outputs, opts)

    def all_to_all_single(self, output: torch.Tensor, whole: torch.Tensor,
                          output_splits: Sequence[int] = (), input_splits: Sequence[int] = (),
                          opts: Any = None) -> dist.Work:
        def build(call: Call) -> None:
            call.add("all_to_all", same_type([output, whole]), 0,
                     single(call.read(whole), whole.numel()),
                     single(call.write(output), output.numel()),
                     input_counts=self._splits(whole, input_splits, "input"),
                     output_counts=self._splits(output, output_splits, "output"))

        return self._start(build, [output], opts)

    def barrier(self, opts: Any = None) -> dist.Work:
        return self._start(lambda call: call.add("barrier", torch.uint8, 0), [], opts)

    # --- point to point ------------------------------------------------------------------------
    def send(self, tensors: Tensors, dstRank: int, tag: int = 0) -> dist.Work:
        t = tensors[0]

        def build(call: Call) -> None:
            call.add("send", t.dtype, t.numel(), single(call.read(t), t.numel()), peer=dstRank,
                     tag=tag)

        return self._start(build, tensors)

    def recv(self, tensors: Tensors, srcRank: int, tag: int = 0) -> dist.Work:
        t = tensors[0]

        def build(call: Call) -> None:
            call.add("recv", t.dtype, t.numel(), [], single(call.write(t), t.numel()),
                     peer=srcRank, tag=tag)

        return self._start(build, tensors)

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> dist.Work:
        return self.recv(tensors, 0xFFFF_FFFF, tag)

    # --- life ----------------------------------------------------------------------------------
    def monitored_barrier(self, timeout: timedelta | None = None,
                          wait_all_ranks: bool = False) -> None:
        """A barrier that names who is missing: rank 0 raises for the first rank that did not come
        within `timeout` (with `wait_all_ranks`, for all of them), the others hear of it."""
        limit = timeout or self._timeout
        token = torch.zeros(1, dtype=torch.uint8)
        if self._rank != 0:
            self.send([token], 0, _CHECK_TAG).wait(limit)
            self.recv([token], 0, _CHECK_TAG + 1).wait(limit)
            return
        missing = []
        for peer in range(1, self._size):
            try:
                self.recv([torch.zeros(1, dtype=torch.uint8)], peer, _CHECK_TAG).wait(limit)
            except RuntimeError:
                missing.append(peer)
                if not wait_all_ranks:
                    break
        if missing:
            reason = f"monitored_barrier: ranks {missing} did not come within {limit}"
            self.fail(reason)
            raise _connection.error(f"loomnet: {reason}")
        for peer in range(1, self._size):
            self.send([token], peer, _CHECK_TAG + 1).wait(limit)

    def split_group(self, ranks: list[int], timeout: timedelta | None = None, opts: Any = None,
                    group_name: str | None = None, group_desc: str | None = None,
                    device_types: Any = None) -> LoomnetGroup | None:
        """The sub-group of `ranks`, None where this rank is not in it. All ranks call it."""
        name = group_name or f"{self._name}:split:{self._started}:{'-'.join(map(str, ranks))}"
        if self._rank not in ranks:
            return None
        group = LoomnetGroup(dist.PrefixStore(f"{name}/", self._store), ranks.index(self._rank),
                             len(ranks), timeout or self._timeout, name)
        group.setGroupDesc(group_desc or "")
        return group

    def fail(self, reason: str) -> None:
        """Fails whatever runs on the group, here and at its members, with `reason`."""
        self._session.abort(self._id, reason)

    def abort(self) -> None:
        self.fail(f"rank {self._session.rank} aborted group {self._name}")

    def shutdown(self) -> None:
        if self._open:
            self._open = False
            _connection.forget_group(self)
            self._session.close(self._id)

    # --- checks --------------------------------------------------------------------------------
    def _check_parts(self, parts: Sequence[torch.Tensor], what: str) -> None:
        if len(parts) != self._size:
            raise ValueError(f"loomnet: {what} needs one tensor per rank, {self._size} of them, "
                             f"not {len(parts)}")

    def _check_whole(self, whole: torch.Tensor, part: torch.Tensor, what: str) -> None:
        if whole.numel() != part.numel() * self._size:
            raise ValueError(f"loomnet: {what}: {whole.numel()} elements are not {self._size} "
                             f"times {part.numel()}")

    def _splits(self, tensor: torch.Tensor, splits: Sequence[int], what: str) -> list[int]:
        rows = tensor.shape[0] if tensor.dim() else 1
        if not splits:
            if rows % self._size:
                raise ValueError(f"loomnet: all_to_all: {rows} {what} rows do not divide by "
                                 f"{self._size} ranks")
            return [tensor.numel() // self._size] * self._size
        if len(splits) != self._size or sum(splits) != rows:
            raise ValueError(f"loomnet: all_to_all: {what} splits {list(splits)} do not add up to "
                             f"{rows} rows of {self._size} ranks")
        row = tensor.numel() // rows if rows else 0
        return [n * row for n in splits]

    # Names up to torch 2.12.
    _allgather_base = all_gather_single
    _reduce_scatter_base = reduce_scatter_single
    alltoall_base = all_to_all_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced


def _reduce_op(opts: Any) -> ReduceOp:
    return ReduceOp(ReduceOp.SUM) if opts is None else opts.reduceOp


def _root(opts: Any) -> int:
    return 0 if opts is None else opts.rootRank


skip_in_dynamo(LoomnetGroup)
