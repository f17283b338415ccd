"""Sees training steps from outside the script: a hook after every optimizer step tells the run its
number and, every so often, a hash of the parameters."""

from __future__ import annotations

import ctypes
import hashlib
import os
import time
import weakref
from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook

from loomnet.torch import connection as _connection


class StepHook:
    """Counts the steps of the first optimizer that steps; others (inner ones of a wrapper, a second
    network's) are not steps of the job.

    Args:
        hash_every: hash the parameters each so many steps; 0: never.
        compute: picoseconds of emulated time that the computing of the steps after the first takes,
            joined by commas, the last one for all that follow; "measured" for this process's own
            CPU time; None where time passes by itself (the live clock).
    """

    def __init__(self, hash_every: int, compute: str | None = None) -> None:
        self.step = 0
        self._compute_ps: list[int] = []
        if compute not in (None, "measured"):
            self._compute_ps = [int(each) for each in compute.split(",")]
        self._measured_s = time.process_time() if compute == "measured" else None
        self._hash_every = hash_every
        self._optimizer: weakref.ref[Any] | None = None
        # Monotonic ns in which this process stood still while its declared compute time passed;
        # kept for a run that is traced.
        self.pauses: list[tuple[int, int]] | None = None

    def __call__(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        link = _connection.existing()
        if link is None:
            return
        if self._optimizer is None or self._optimizer() is None:
            self._optimizer = weakref.ref(optimizer)
        if self._optimizer() is not optimizer:
            return
        self.step += 1
        kinds = link.core.MARK_KINDS
        link.session.mark(kinds["step"], self.step)
        if self._hash_every and self.step % self._hash_every == 0:
            digest = parameter_hash(optimizer)
            if digest is not None:
                link.session.mark(kinds["hash"], self.step, int.from_bytes(digest[:8], "little"),
                                  int.from_bytes(digest[8:], "little"))
        last = link.session.last_step
        if last >= 0 and self.step >= last:
            raise SystemExit(0)
        self._compute(link.session)

    def _compute(self, session: Any) -> None:
        """On the virtual clock: this iteration's compute time passes, declared or measured."""
        if self._compute_ps:
            began = time.monotonic_ns()
            session.compute(self._compute_ps[min(self.step, len(self._compute_ps)) - 1])
            if self.pauses is not None:
                self.pauses.append((began, time.monotonic_ns()))
        elif self._measured_s is not None:
            now = time.process_time()
            session.compute(max(round((now - self._measured_s) * 1e12), 1))
            self._measured_s = time.process_time()


def parameter_hash(optimizer: Any) -> bytes | None:
    """BLAKE2b (16 bytes) over the bytes of all parameters in order, or None where ranks hold
    different shards of them and no two hashes would agree."""
    digest = hashlib.blake2b(digest_size=16)
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if hasattr(parameter, "to_local") or getattr(parameter, "_is_flat_param", False):
                return None
            data = parameter.detach().contiguous()
            # Not .numpy(): it would make the storage non-resizable for ever.
            size = data.numel() * data.itemsize
            if size:
                digest.update((ctypes.c_char * size).from_address(data.data_ptr()))
    return digest.digest()


def install() -> StepHook:
    """Registers the hook for every optimizer of the process, as ``LOOMNET_HASH_EVERY`` says."""
    hook = StepHook(int(os.environ.get("LOOMNET_HASH_EVERY", "0") or 0),
                    os.environ.get("LOOMNET_COMPUTE"))
    register_optimizer_step_post_hook(hook)
    return hook
