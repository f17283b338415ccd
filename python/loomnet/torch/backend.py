"""The process group: every method that PyTorch calls on a group, as operations of the executor.

A subclass of ``dist.ProcessGroup`` rather than a compiled backend, which would tie the wheel to one
libtorch. Names come in two sets, up to 2.12 and since: both are served.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

import loomnet.torch.monitored as monitored
from loomnet.torch.errors import InvalidCall
from loomnet.torch.operations import Call, same_type, single
from loomnet.torch.overloads import listed, reducing, rooted, rows_of, timed
from loomnet.torch.profiling import end
from loomnet.torch.skip import skip_in_dynamo
from loomnet.torch.sparse import allreduce_sparse
from loomnet.torch.starting import StartingGroup
from loomnet.torch.work import FinishedWork

Tensors = list[torch.Tensor]
_ANY_SOURCE = 0xFFFF_FFFF


class LoomnetGroup(StartingGroup):
    """A group of ranks over the emulated network; see StartingGroup for its arguments."""

    # --- reductions ----------------------------------------------------------------------------
    def allreduce(
        self,
        tensors: Tensors | torch.Tensor,
        opts: Any = None,
        timeout: timedelta | None = None,
        *,
        op: Any = None,
    ) -> dist.Work:
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

    def reduce(
        self,
        tensors: Tensors | torch.Tensor,
        opts: Any = None,
        op: Any = None,
        timeout: timedelta | None = None,
        *,
        root: int | None = None,
    ) -> dist.Work:
        tensors, opts = listed(tensors), rooted(opts, timeout, root, op)
        reduce, root = _reduce_op(opts), self._root(opts)

        def build(call: Call) -> None:
            for t in tensors:
                n = t.numel()
                p = call.update(t) if root == self._rank else call.read(t)
                out = single(p, n) if root == self._rank else []
                call.add("reduce", t.dtype, n, single(p, n), out, reduce=reduce, root=root)

        return self._start("reduce", tensors, build, tensors, opts)

    def reduce_scatter(
        self,
        outputs: Tensors | torch.Tensor,
        inputs: list[Tensors] | Tensors,
        opts: Any = None,
        timeout: timedelta | None = None,
        *,
        op: Any = None,
    ) -> dist.Work:
        outs, rows = rows_of(outputs, inputs)
        opts = reducing(opts, timeout, op)
        reduce = _reduce_op(opts)

        def build(call: Call) -> None:
            self._check_lists(outs, rows, "reduce_scatter")
            for out, parts in zip(outs, rows, strict=True):
                self._check_parts(parts, "reduce_scatter")
                n, slot = out.numel(), call.address(parts[self._rank])
                call.add(
                    "reduce_scatter",
                    same_type([out, *parts]),
                    n,
                    [call.read(t) for t in parts],
                    single(call.write(out, slot), n),
                    input_counts=[t.numel() for t in parts],
                    reduce=reduce,
                )

        return self._start("reduce_scatter", rows[0] if rows else [], build, outs, opts)

    def reduce_scatter_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: Any = None
    ) -> dist.Work:
        reduce = _reduce_op(opts)

        def build(call: Call) -> None:
            self._check_lists(outputs, inputs, "reduce_scatter")
            for out, whole in zip(outputs, inputs, strict=True):
                self._check_whole(whole, out, "reduce_scatter")
                n = out.numel()
                slot = call.address(whole) + self._rank * out.nbytes
                call.add(
                    "reduce_scatter",
                    same_type([out, whole]),
                    n,
                    single(call.read(whole), n),
                    single(call.write(out, slot), n),
                    reduce=reduce,
                )

        return self._start("reduce_scatter", inputs, build, outputs, opts)

    def reduce_scatter_single(
        self, output: torch.Tensor, whole: torch.Tensor, opts: Any = None
    ) -> dist.Work:
        return self.reduce_scatter_single_coalesced([output], [whole], opts)

    # --- moving --------------------------------------------------------------------------------
    def broadcast(
        self,
        tensors: Tensors | torch.Tensor,
        opts: Any = None,
        timeout: timedelta | None = None,
        *,
        root: int | None = None,
    ) -> dist.Work:
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

    def allgather(
        self,
        outputs: list[Tensors] | Tensors,
        inputs: Tensors | torch.Tensor,
        opts: Any = None,
        timeout: timedelta | None = None,
    ) -> dist.Work:
        owns, rows = rows_of(inputs, outputs)
        opts = timed(opts, timeout)

        def build(call: Call) -> None:
            self._check_lists(rows, owns, "all_gather")
            for parts, own in zip(rows, owns, strict=True):
                self._check_parts(parts, "all_gather")
                n, slot = own.numel(), call.address(parts[self._rank])
                call.add(
                    "all_gather",
                    same_type([own, *parts]),
                    n,
                    single(call.read(own, slot), n),
                    [call.write(t) for t in parts],
                    output_counts=[t.numel() for t in parts],
                )

        return self._start("all_gather", owns, build, rows, opts)

    def allgather_coalesced(
        self, outputs: list[Tensors], inputs: Tensors, opts: Any = None
    ) -> dist.Work:
        # outputs[rank][i]: turned so that each input has its row of outputs.
        self._check_parts(outputs, "all_gather_coalesced")
        for row in outputs:
            self._check_lists(row, inputs, "all_gather_coalesced")
        return self.allgather([list(row) for row in zip(*outputs, strict=True)], inputs, opts)

    def all_gather_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: Any = None
    ) -> dist.Work:
        def build(call: Call) -> None:
            self._check_lists(outputs, inputs, "all_gather")
            for whole, own in zip(outputs, inputs, strict=True):
                self._check_whole(whole, own, "all_gather")
                n = own.numel()
                slot = call.address(whole) + self._rank * own.nbytes
                call.add(
                    "all_gather",
                    same_type([own, whole]),
                    n,
                    single(call.read(own, slot), n),
                    single(call.write(whole), n),
                )

        return self._start("all_gather", inputs, build, outputs, opts)

    def all_gather_single(
        self, output: torch.Tensor, own: torch.Tensor, opts: Any = None
    ) -> dist.Work:
        return self.all_gather_single_coalesced([output], [own], opts)

    def gather(
        self,
        outputs: list[Tensors] | Tensors,
        inputs: Tensors | torch.Tensor,
        opts: Any = None,
        timeout: timedelta | None = None,
        *,
        root: int | None = None,
    ) -> dist.Work:
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
            call.add(
                "gather",
                same_type([own, *parts]),
                n,
                single(call.read(own, slot), n),
                [call.write(t) for t in parts],
                output_counts=[t.numel() for t in parts],
                root=root,
            )

        return self._start("gather", owns, build, rows, opts)

    def scatter(
        self,
        outputs: Tensors | torch.Tensor,
        inputs: list[Tensors] | Tensors,
        opts: Any = None,
        timeout: timedelta | None = None,
        *,
        root: int | None = None,
    ) -> dist.Work:
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
            call.add(
                "scatter",
                same_type([own, *parts]),
                n,
                [call.read(t) for t in parts],
                single(call.write(own, slot), n),
                input_counts=[t.numel() for t in parts],
                root=root,
            )

        return self._start("scatter", rows[0] if rows else [], build, outs, opts)

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> dist.Work:
        def build(call: Call) -> None:
            self._check_parts(outputs, "all_to_all")
            self._check_parts(inputs, "all_to_all")
            call.add(
                "all_to_all",
                same_type([*outputs, *inputs]),
                0,
                [call.read(t) for t in inputs],
                [call.write(t) for t in outputs],
                input_counts=[t.numel() for t in inputs],
                output_counts=[t.numel() for t in outputs],
            )

        return self._start("all_to_all", inputs, build, outputs, opts)

    def all_to_all_single(
        self,
        output: torch.Tensor,
        whole: torch.Tensor,
        output_splits: Sequence[int] = (),
        input_splits: Sequence[int] = (),
        opts: Any = None,
        *,
        timeout: timedelta | None = None,
    ) -> dist.Work:
        def build(call: Call) -> None:
            call.add(
                "all_to_all",
                same_type([output, whole]),
                0,
                single(call.read(whole), whole.numel()),
                single(call.write(output), output.numel()),
                input_counts=self._splits(whole, input_splits, "input"),
                output_counts=self._splits(output, output_splits, "output"),
            )

        return self._start("all_to_all", [whole], build, [output], timed(opts, timeout))

    def barrier(self, opts: Any = None, *, timeout: timedelta | None = None) -> dist.Work:
        return self._start(
            "barrier",
            (),
            lambda call: call.add("barrier", torch.uint8, 0),
            [],
            timed(opts, timeout),
        )

    # --- point to point ------------------------------------------------------------------------
    def send(self, tensors: Tensors, dstRank: int, tag: int = 0) -> dist.Work:
        t = _only(tensors, "send")

        def build(call: Call) -> None:
            call.add(
                "send",
                t.dtype,
                t.numel(),
                single(call.read(t), t.numel()),
                peer=self._peer(dstRank),
                tag=_tag(tag),
            )

        return self._start("send", tensors, build, tensors)

    def recv(self, tensors: Tensors, srcRank: int, tag: int = 0) -> dist.Work:
        return self._receive("recv", tensors, self._peer(srcRank), tag)

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> dist.Work:
        return self._receive("recvAnySource", tensors, _ANY_SOURCE, tag)

    def _receive(self, title: str, tensors: Tensors, peer: int, tag: int) -> dist.Work:
        t = _only(tensors, "recv")

        def build(call: Call) -> None:
            call.add(
                "recv",
                t.dtype,
                t.numel(),
                [],
                single(call.write(t), t.numel()),
                peer=peer,
                tag=_tag(tag),
            )

        return self._start(title, tensors, build, tensors)

    # --- life ----------------------------------------------------------------------------------
    def monitored_barrier(
        self, timeout: timedelta | None = None, wait_all_ranks: bool = False
    ) -> None:
        """See :func:`loomnet.torch.monitored.monitored_barrier`; no timeout is the group's own."""
        limit = self._timeout if timeout is None else timeout
        monitored.monitored_barrier(self, limit, wait_all_ranks)

    def split_group(
        self,
        ranks: list[int],
        timeout: timedelta | None = None,
        opts: Any = None,
        group_name: str | None = None,
        group_desc: str | None = None,
        device_types: Any = None,
    ) -> LoomnetGroup | None:
        """The sub-group of `ranks`, None where this rank is not in it. All ranks call it."""
        name = group_name or f"{self._name}:split:{self._started}:{'-'.join(map(str, ranks))}"
        if self._rank not in ranks:
            return None
        group = LoomnetGroup(
            dist.PrefixStore(f"{name}/", self._store),
            ranks.index(self._rank),
            len(ranks),
            timeout or self._timeout,
            name,
        )
        group.setGroupDesc(group_desc or "")
        return group


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
