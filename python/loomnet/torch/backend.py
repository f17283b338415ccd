"""The process group: every method that PyTorch calls on a group, as operations of the executor.

A subclass of ``dist.ProcessGroup`` rather than a compiled backend, which would tie the wheel to one
libtorch. Names come in two sets, up to 2.12 and since: both are served.
"""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

import loomnet.torch.connection as _connection
import loomnet.torch.monitored as monitored
from loomnet.torch.errors import InvalidCall
from loomnet.torch.naming import NamedGroup
from loomnet.torch.operations import Call, FakeCall, same_type, single
from loomnet.torch.overloads import listed, reducing, rooted, rows_of, timed
from loomnet.torch.profiling import Record, end, profiling
from loomnet.torch.rendezvous import chosen, meet
from loomnet.torch.skip import skip_in_dynamo
from loomnet.torch.sparse import allreduce_sparse
from loomnet.torch.work import Caller, CoalescedWork, FinishedWork, LoomnetWork
from loomnet.torch.work_attributes import record_call, stated

Tensors = list[torch.Tensor]
_RECENT = 512  # small works kept referenced: C++ may outlive Python's last reference
_SMALL = 65536  # bytes
_ANY_SOURCE = 0xFFFF_FFFF


class _OfThread(threading.local):
    """What a group is told by a thread about the calls of that thread."""

    coalesced: list[dist.Work] | None = None  # works since _start_coalescing
    inside = False  # a call that is made of several


class LoomnetGroup(NamedGroup):
    """A group of ranks over the emulated network.

    Args:
        store: the group's own (prefixed) store.
        rank: this process's rank in the group.
        size: ranks in the group.
        timeout: of its operations; afterwards the group is aborted on all ranks.
        name: the group's name in PyTorch.
        backend_name: what the script takes its backend for; "gloo" where that name is mapped.

    Raises:
        RuntimeError: no run around (with the fix), or the members did not meet in time.
    """

    def __init__(self, store: dist.Store, rank: int, size: int, timeout: timedelta,
                 name: str = "", backend_name: str = "loomnet") -> None:
        super().__init__(store, rank, size, timeout, name, backend_name)
        self._link = _connection.connection()
        self._session = self._link.session
        self._rank, self._size = rank, size
        self.set_timeout(timeout)
        self._recent: collections.deque[LoomnetWork] = collections.deque(maxlen=_RECENT)
        self._started = 0
        self._thread = _OfThread()
        # Calls of several threads take their turns: the ranks match calls by their order.
        self._turn = threading.RLock()
        self._callers: dict[int, Caller] = {}  # threads that have called, by number
        self._open = True
        self._communicator, members = meet(name, rank, size, timeout, self._link)
        self._session.create(self._communicator, members)
        _connection.register_group(self)

    # --- as the object that torch takes for the group's backend ---------------------------------
    def _get_backend(self, device: torch.device) -> LoomnetGroup:
        return self

    def _get_sequence_number_for_group(self) -> int:
        return self._started

    def _set_sequence_number_for_group(self) -> None:
        """Nothing to agree on: every rank counts from 0."""

    def set_timeout(self, timeout: timedelta) -> None:
        """Of operations started from now on."""
        super().set_timeout(timeout)
        self._timeout_ns = int(timeout.total_seconds() * 1e9)
        self._chosen = chosen(timeout)

    # --- starting ------------------------------------------------------------------------------
    def _start(self, title: str, tensors: Sequence[Any], build: Callable[[Call], None],
               result: list[Any], opts: Any = None) -> dist.Work:
        """Starts what `build` adds to a call. A profiler sees it as `title` of `tensors`."""
        call = Call(self._link.core, self._size)
        try:
            build(call)
            if call.overlaps():
                call = Call(self._link.core, self._size, apart=True)
                build(call)
        except FakeCall:
            return FinishedWork(result)
        limit, asked = self._timeout_ns, self._chosen
        timeout = getattr(opts, "timeout", None)
        if timeout is not None and timeout > timedelta(0):
            limit, asked = int(timeout.total_seconds() * 1e9), chosen(timeout)
        if not self._open:
            raise _connection.error(f"loomnet: group {self._name} has been shut down")
        record = self._record(title, tensors)
        caller = Caller.now(threading.current_thread().name)
        try:
            with self._turn:
                raw = self._session.start(self._communicator, call.operations, limit, asked,
                                          *stated())
                self._started += not self._thread.inside
                self._callers[threading.get_ident()] = caller
        except ValueError as error:
            end(record)
            raise InvalidCall(f"loomnet: {error}") from None
        except BaseException:
            end(record)
            raise
        record_call(raw, call.written)
        work = LoomnetWork(self._link, raw, result, call.keep, call.after, record,
                           self._callers)
        self._link.hold(work)
        if record is not None:
            work.get_future()  # so that the event ends with the work, not with the wait for it
        if raw.bytes < _SMALL:
            self._recent.append(work)
        if self._thread.coalesced is not None:
            self._thread.coalesced.append(work)
        return work

    def _record(self, title: str, tensors: Sequence[torch.Tensor]) -> Record | None:
        if not profiling() or self._thread.inside:
            return None
        return Record(f"{self._backend_name}:{title}", tensors)

    def _start_coalescing(self, device: torch.device) -> None:
        self._thread.coalesced = []

    def _end_coalescing(self, device: torch.device) -> dist.Work:
        works, self._thread.coalesced = self._thread.coalesced or [], None
        return CoalescedWork(works)

    # --- reductions ----------------------------------------------------------------------------
    def allreduce(self, tensors: Tensors | torch.Tensor, opts: Any = None,
                  timeout: timedelta | None = None, *, op: Any = None) -> dist.Work:
        tensors, opts = listed(tensors), reducing(opts, timeout, op)
        if len(tensors) == 1 and tensors[0].layout is not torch.strided:
            return self._allreduce_sparse(tensors, opts)
        return self.allreduce_coalesced(tensors, opts)

    def _allreduce_sparse(self, tensors: Tensors, opts: Any) -> dist.Work:
        record = self._record("sparse_all_reduce", tensors)
        with self._turn:
            self._thread.inside = True
            try:
                allreduce_sparse(self, tensors[0], opts)
            finally:
                self._thread.inside = False
                self._started += 1
                end(record)
        return FinishedWork(tensors)

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> dist.Work:
        reduce = _reduce_op(opts)

        def build(call: Call) -> None:
            for t in tensors:
                p, n = call.update(t), t.numel()
                call.add("all_reduce", t.dtype, n, single(p, n), single(p, n), reduce=reduce)

        return self._start("all_reduce", tensors, build, tensors, opts)

    def reduce(self, tensors: Tensors | torch.Tensor, opts: Any = None, op: Any = None,
               timeout: timedelta | None = None, *, root: int | None = None) -> dist.Work:
        tensors, opts = listed(tensors), rooted(opts, timeout, root, op)
        reduce, root = _reduce_op(opts), self._root(opts)

        def build(call: Call) -> None:
            for t in tensors:
                n = t.numel()
                p = call.update(t) if root == self._rank else call.read(t)
                out = single(p, n) if root == self._rank else []
                call.add("reduce", t.dtype, n, single(p, n), out, reduce=reduce, root=root)

        return self._start("reduce", tensors, build, tensors, opts)

    def reduce_scatter(self, outputs: Tensors | torch.Tensor, inputs: list[Tensors] | Tensors,
                       opts: Any = None, timeout: timedelta | None = None, *,
                       op: Any = None) -> dist.Work:
        outs, rows = rows_of(outputs, inputs)
        opts = reducing(opts, timeout, op)
        reduce = _reduce_op(opts)

        def build(call: Call) -> None:
            self._check_lists(outs, rows, "reduce_scatter")
            for out, parts in zip(outs, rows, strict=True):
                self._check_parts(parts, "reduce_scatter")
                n, slot = out.numel(), call.address(parts[self._rank])
                call.add("reduce_scatter", same_type([out, *parts]), n,
                         [call.read(t) for t in parts], single(call.write(out, slot), n),
                         input_counts=[t.numel() for t in parts], reduce=reduce)

        return self._start("reduce_scatter", rows[0] if rows else [], build, outs, opts)

    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors,
                                        opts: Any = None) -> dist.Work:
        reduce = _reduce_op(opts)

        def build(call: Call) -> None:
            self._check_lists(outputs, inputs, "reduce_scatter")
            for out, whole in zip(outputs, inputs, strict=True):
                self._check_whole(whole, out, "reduce_scatter")
                n = out.numel()
                slot = call.address(whole) + self._rank * out.nbytes
                call.add("reduce_scatter", same_type([out, whole]), n, single(call.read(whole), n),
                         single(call.write(out, slot), n), reduce=reduce)

        return self._start("reduce_scatter", inputs, build, outputs, opts)

    def reduce_scatter_single(self, output: torch.Tensor, whole: torch.Tensor,
                              opts: Any = None) -> dist.Work:
        return self.reduce_scatter_single_coalesced([output], [whole], opts)

    # --- moving --------------------------------------------------------------------------------
    def broadcast(self, tensors: Tensors | torch.Tensor, opts: Any = None,
                  timeout: timedelta | None = None, *, root: int | None = None) -> dist.Work:
        tensors, opts = listed(tensors), rooted(opts, timeout, root)
        root = self._root(opts)

        def build(call: Call) -> None:
            for t in tensors:
                n = t.numel()
                if root == self._rank:
                    call.add("broadcast", t.dtype, n, single(call.read(t), n), [], root=root)
                else:
                    call.add("broadcast", t.dtype, n, [], single(call.write(t), n), root=root)

        return self._start("broadcast", tensors, build, tensors, opts)

    def allgather(self, outputs: list[Tensors] | Tensors, inputs: Tensors | torch.Tensor,
                  opts: Any = None, timeout: timedelta | None = None) -> dist.Work:
        owns, rows = rows_of(inputs, outputs)
        opts = timed(opts, timeout)

        def build(call: Call) -> None:
            self._check_lists(rows, owns, "all_gather")
            for parts, own in zip(rows, owns, strict=True):
                self._check_parts(parts, "all_gather")
                n, slot = own.numel(), call.address(parts[self._rank])
                call.add("all_gather", same_type([own, *parts]), n,
                         single(call.read(own, slot), n), [call.write(t) for t in parts],
                         output_counts=[t.numel() for t in parts])

        return self._start("all_gather", owns, build, rows, opts)

    def allgather_coalesced(self, outputs: list[Tensors], inputs: Tensors,
                            opts: Any = None) -> dist.Work:
        # outputs[rank][i]: turned so that each input has its row of outputs.
        self._check_parts(outputs, "all_gather_coalesced")
        for row in outputs:
            self._check_lists(row, inputs, "all_gather_coalesced")
        return self.allgather([list(row) for row in zip(*outputs, strict=True)], inputs, opts)

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors,
                                    opts: Any = None) -> dist.Work:
        def build(call: Call) -> None:
            self._check_lists(outputs, inputs, "all_gather")
            for whole, own in zip(outputs, inputs, strict=True):
                self._check_whole(whole, own, "all_gather")
                n = own.numel()
                slot = call.address(whole) + self._rank * own.nbytes
                call.add("all_gather", same_type([own, whole]), n, single(call.read(own, slot), n),
                         single(call.write(whole), n))

        return self._start("all_gather", inputs, build, outputs, opts)

    def all_gather_single(self, output: torch.Tensor, own: torch.Tensor,
                          opts: Any = None) -> dist.Work:
        return self.all_gather_single_coalesced([output], [own], opts)

    def gather(self, outputs: list[Tensors] | Tensors, inputs: Tensors | torch.Tensor,
               opts: Any = None, timeout: timedelta | None = None, *,
               root: int | None = None) -> dist.Work:
        owns, rows = rows_of(inputs, outputs) if outputs else (listed(inputs), [])
        opts = rooted(opts, timeout, root)
        root, own = self._root(opts), _only(owns, "gather")

        def build(call: Call) -> None:
            n = own.numel()
            if root != self._rank:
                call.add("gather", own.dtype, n, single(call.read(own), n), root=root)
                return
            parts = _only(rows, "gather")
            self._check_parts(parts, "gather")
            slot = call.address(parts[root])
            call.add("gather", same_type([own, *parts]), n, single(call.read(own, slot), n),
                     [call.write(t) for t in parts],
                     output_counts=[t.numel() for t in parts], root=root)

        return self._start("gather", owns, build, rows, opts)

    def scatter(self, outputs: Tensors | torch.Tensor, inputs: list[Tensors] | Tensors,
                opts: Any = None, timeout: timedelta | None = None, *,
                root: int | None = None) -> dist.Work:
        outs, rows = rows_of(outputs, inputs) if inputs else (listed(outputs), [])
        opts = rooted(opts, timeout, root)
        root, own = self._root(opts), _only(outs, "scatter")

        def build(call: Call) -> None:
            n = own.numel()
            if root != self._rank:
                call.add("scatter", own.dtype, n, [], single(call.write(own), n), root=root)
                return
            parts = _only(rows, "scatter")
            self._check_parts(parts, "scatter")
            slot = call.address(parts[root])
            call.add("scatter", same_type([own, *parts]), n, [call.read(t) for t in parts],
                     single(call.write(own, slot), n),
                     input_counts=[t.numel() for t in parts], root=root)

        return self._start("scatter", rows[0] if rows else [], build, outs, opts)

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> dist.Work:
        def build(call: Call) -> None:
            self._check_parts(outputs, "all_to_all")
            self._check_parts(inputs, "all_to_all")
            call.add("all_to_all", same_type([*outputs, *inputs]), 0,
                     [call.read(t) for t in inputs], [call.write(t) for t in outputs],
                     input_counts=[t.numel() for t in inputs],
                     output_counts=[t.numel() for t in outputs])

        return self._start("all_to_all", inputs, build, outputs, opts)

    def all_to_all_single(self, output: torch.Tensor, whole: torch.Tensor,
                          output_splits: Sequence[int] = (), input_splits: Sequence[int] = (),
                          opts: Any = None, *, timeout: timedelta | None = None) -> dist.Work:
        def build(call: Call) -> None:
            call.add("all_to_all", same_type([output, whole]), 0,
                     single(call.read(whole), whole.numel()),
                     single(call.write(output), output.numel()),
                     input_counts=self._splits(whole, input_splits, "input"),
                     output_counts=self._splits(output, output_splits, "output"))

        return self._start("all_to_all", [whole], build, [output], timed(opts, timeout))

    def barrier(self, opts: Any = None, *, timeout: timedelta | None = None) -> dist.Work:
        return self._start("barrier", (), lambda call: call.add("barrier", torch.uint8, 0), [],
                           timed(opts, timeout))

    # --- point to point ------------------------------------------------------------------------
    def send(self, tensors: Tensors, dstRank: int, tag: int = 0) -> dist.Work:
        t = _only(tensors, "send")

        def build(call: Call) -> None:
            call.add("send", t.dtype, t.numel(), single(call.read(t), t.numel()),
                     peer=self._peer(dstRank), tag=_tag(tag))

        return self._start("send", tensors, build, tensors)

    def recv(self, tensors: Tensors, srcRank: int, tag: int = 0) -> dist.Work:
        return self._receive("recv", tensors, self._peer(srcRank), tag)

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> dist.Work:
        return self._receive("recvAnySource", tensors, _ANY_SOURCE, tag)

    def _receive(self, title: str, tensors: Tensors, peer: int, tag: int) -> dist.Work:
        t = _only(tensors, "recv")

        def build(call: Call) -> None:
            call.add("recv", t.dtype, t.numel(), [], single(call.write(t), t.numel()),
                     peer=peer, tag=_tag(tag))

        return self._start(title, tensors, build, tensors)

    # --- life ----------------------------------------------------------------------------------
    def monitored_barrier(self, timeout: timedelta | None = None,
                          wait_all_ranks: bool = False) -> None:
        """See :func:`loomnet.torch.monitored.monitored_barrier`; no timeout is the group's own."""
        limit = self._timeout if timeout is None else timeout
        monitored.monitored_barrier(self, limit, wait_all_ranks)

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
        self._session.abort(self._communicator, reason)

    def abort(self) -> None:
        self.fail(f"rank {self._session.rank} aborted group {self._name}")

    def shutdown(self) -> None:
        if self._open:
            self._open = False
            _connection.forget_group(self)
            self._session.close(self._communicator)

    # --- checks --------------------------------------------------------------------------------
    def _check_lists(self, some: Sequence[Any], others: Sequence[Any], what: str) -> None:
        if len(some) != len(others):
            raise InvalidCall(f"loomnet: {what}: lists of {len(some)} outputs and {len(others)} "
                              "inputs")

    def _check_parts(self, parts: Sequence[Any], what: str) -> None:
        if len(parts) != self._size:
            raise InvalidCall(f"loomnet: {what} needs one tensor per rank, {self._size} of them, "
                              f"not {len(parts)}")

    def _check_whole(self, whole: torch.Tensor, part: torch.Tensor, what: str) -> None:
        if whole.numel() != part.numel() * self._size:
            raise InvalidCall(f"loomnet: {what}: {whole.numel()} elements are not {self._size} "
                              f"times {part.numel()}")

    def _root(self, opts: Any) -> int:
        root = 0 if opts is None else opts.rootRank
        if not 0 <= root < self._size:
            raise InvalidCall(f"loomnet: invalid root rank: {root} in a group of {self._size}")
        return root

    def _peer(self, rank: int) -> int:
        if not 0 <= rank < self._size or rank == self._rank:
            raise InvalidCall(f"loomnet: peer must be another rank of the group of {self._size}, "
                              f"not {rank}")
        return rank

    def _splits(self, tensor: torch.Tensor, splits: Sequence[int], what: str) -> list[int]:
        rows = tensor.shape[0] if tensor.dim() else 1
        if not splits:
            if rows % self._size:
                raise InvalidCall(f"loomnet: all_to_all: {rows} {what} rows do not divide by "
                                  f"{self._size} ranks")
            return [tensor.numel() // self._size] * self._size
        if len(splits) != self._size or sum(splits) != rows:
            raise InvalidCall(f"loomnet: all_to_all: {what} splits {list(splits)} do not add up to "
                              f"{rows} rows of {self._size} ranks")
        row = tensor.numel() // rows if rows else 0
        return [n * row for n in splits]


def _reduce_op(opts: Any) -> ReduceOp:
    return ReduceOp(ReduceOp.SUM) if opts is None else opts.reduceOp


def _only(items: Sequence[Any], what: str) -> Any:
    if len(items) != 1:
        raise InvalidCall(f"loomnet: {what} takes a single tensor, not {len(items)}")
    return items[0]


def _tag(tag: int) -> int:
    if not 0 <= tag < _ANY_SOURCE:
        raise InvalidCall(f"loomnet: a tag must be between 0 and {_ANY_SOURCE - 1}, not {tag}")
    return tag


# Names up to torch 2.12.
for _old, _method in {
    "_allgather_base": LoomnetGroup.all_gather_single,
    "_reduce_scatter_base": LoomnetGroup.reduce_scatter_single,
    "alltoall_base": LoomnetGroup.all_to_all_single,
    "allgather_into_tensor_coalesced": LoomnetGroup.all_gather_single_coalesced,
    "reduce_scatter_tensor_coalesced": LoomnetGroup.reduce_scatter_single_coalesced,
}.items():
    setattr(LoomnetGroup, _old, _method)
skip_in_dynamo(LoomnetGroup)
