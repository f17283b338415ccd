"""A group as the start of operations: the session that carries them, the order of threads' calls,
and the checks of arguments that all calls have in common."""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

import loomnet.torch.connection as _connection
from loomnet.torch.errors import InvalidCall
from loomnet.torch.naming import NamedGroup
from loomnet.torch.operations import Call, FakeCall
from loomnet.torch.profiling import Record, end, profiling
from loomnet.torch.rendezvous import chosen, meet
from loomnet.torch.skip import skip_in_dynamo
from loomnet.torch.work import Caller, CoalescedWork, FinishedWork, LoomnetWork
from loomnet.torch.work_attributes import record_call, stated

_RECENT = 512  # small works kept referenced: C++ may outlive Python's last reference
_SMALL = 65536  # bytes


class _OfThread(threading.local):
    """What a group is told by a thread about the calls of that thread."""

    coalesced: list[dist.Work] | None = None  # works since _start_coalescing
    inside = False  # a call that is made of several


class StartingGroup(NamedGroup):
    """A group of ranks over the emulated network, without the calls that move data.

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

    def __init__(
        self,
        store: dist.Store,
        rank: int,
        size: int,
        timeout: timedelta,
        name: str = "",
        backend_name: str = "loomnet",
    ) -> None:
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
    def _get_backend(self, device: torch.device) -> StartingGroup:
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
    def _start(
        self,
        title: str,
        tensors: Sequence[Any],
        build: Callable[[Call], None],
        result: list[Any],
        opts: Any = None,
    ) -> dist.Work:
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
                raw = self._session.start(
                    self._communicator, call.operations, limit, asked, *stated()
                )
                self._started += not self._thread.inside
                self._callers[threading.get_ident()] = caller
        except ValueError as error:
            end(record)
            raise InvalidCall(f"loomnet: {error}") from None
        except BaseException:
            end(record)
            raise
        record_call(raw, call.written)
        work = LoomnetWork(self._link, raw, result, call.keep, call.after, record, self._callers)
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

    # --- life ----------------------------------------------------------------------------------
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
            raise InvalidCall(
                f"loomnet: {what}: lists of {len(some)} outputs and {len(others)} inputs"
            )

    def _check_parts(self, parts: Sequence[Any], what: str) -> None:
        if len(parts) != self._size:
            raise InvalidCall(
                f"loomnet: {what} needs one tensor per rank, {self._size} of them, not {len(parts)}"
            )

    def _check_whole(self, whole: torch.Tensor, part: torch.Tensor, what: str) -> None:
        if whole.numel() != part.numel() * self._size:
            raise InvalidCall(
                f"loomnet: {what}: {whole.numel()} elements are not {self._size} "
                f"times {part.numel()}"
            )

    def _root(self, opts: Any) -> int:
        root = 0 if opts is None else opts.rootRank
        if not 0 <= root < self._size:
            raise InvalidCall(f"loomnet: invalid root rank: {root} in a group of {self._size}")
        return root

    def _peer(self, rank: int) -> int:
        if not 0 <= rank < self._size or rank == self._rank:
            raise InvalidCall(
                f"loomnet: peer must be another rank of the group of {self._size}, not {rank}"
            )
        return rank

    def _splits(self, tensor: torch.Tensor, splits: Sequence[int], what: str) -> list[int]:
        rows = tensor.shape[0] if tensor.dim() else 1
        if not splits:
            if rows % self._size:
                raise InvalidCall(
                    f"loomnet: all_to_all: {rows} {what} rows do not divide by {self._size} ranks"
                )
            return [tensor.numel() // self._size] * self._size
        if len(splits) != self._size or sum(splits) != rows:
            raise InvalidCall(
                f"loomnet: all_to_all: {what} splits {list(splits)} do not add up to "
                f"{rows} rows of {self._size} ranks"
            )
        row = tensor.numel() // rows if rows else 0
        return [n * row for n in splits]


skip_in_dynamo(StartingGroup)
