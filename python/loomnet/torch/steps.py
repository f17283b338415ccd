"""Sees training steps from outside the script: a hook after every optimizer step tells the run its
number and, every so often, a hash of the parameters. A script may mark its steps itself instead."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import weakref
from typing import Any

from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

import loomnet.torch.connection as _connection
from loomnet.base import rank_environment as env
from loomnet.torch.computing import Computing


class StepHook:
    """Counts the steps of the first optimizer that steps; others (inner ones of a wrapper, a second
    network's) are not steps of the job.

    Args:
        hash_every: hash the parameters each so many steps; 0: never.
        computing: lets the declared time of each step pass.
    """

    def __init__(self, hash_every: int, computing: Computing) -> None:
        self.step = 0
        self._own = False  # the script marks its steps itself
        self.computing = computing
        self._hash_every = hash_every
        self._optimizer: weakref.ref[Any] | None = None

    def __call__(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        link = _connection.existing()
        if link is None:
            return
        if self._optimizer is None or self._optimizer() is None:
            self._optimizer = weakref.ref(optimizer)
        if self._optimizer() is not optimizer or self._own:
            return
        self._count(link, optimizer)

    def mark(self, link: _connection.Connection) -> None:
        """The script says that a step has ended."""
        first, self._own = not self._own, True
        if not (first and self.step):  # else the optimizer has counted this very step
            self._count(link, None)

    def _count(self, link: _connection.Connection, optimizer: Any) -> None:
        self.step += 1
        kinds = link.core.MARK_KINDS
        link.session.mark(kinds["step"], self.step)
        if optimizer is not None and self._hash_every and self.step % self._hash_every == 0:
            digest = parameter_hash(optimizer)
            if digest is not None:
                link.session.mark(
                    kinds["hash"],
                    self.step,
                    int.from_bytes(digest[:8], "little"),
                    int.from_bytes(digest[8:], "little"),
                )
        last = link.session.last_step
        if last >= 0 and self.step >= last:
            raise SystemExit(0)
        self.computing.after_step(self.step)


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


_installed: list[StepHook] = []


def mark() -> None:
    """The script says that a step has ended; see loomnet.torch.step."""
    link = _connection.existing()
    if link is not None and _installed:
        _installed[0].mark(link)


def count() -> int:
    """Steps so far, as the hook of this process counts them."""
    return _installed[0].step if _installed else 0


def install() -> StepHook:
    """Registers the hook for every optimizer of the process; see ``HASH_EVERY`` of
    rank_environment."""
    hook = StepHook(
        int(os.environ.get(env.HASH_EVERY, "0") or 0), Computing(os.environ.get(env.COMPUTE))
    )
    register_optimizer_step_post_hook(hook)
    _tell_of_the_first_optimizer()
    _installed[:] = [hook]
    return hook


def _tell_of_the_first_optimizer() -> None:
    """Lets the run know that steps will come: until the first one it cannot tell a script that sets
    itself up from one that never steps, and time 0 of the two differs."""
    original, told = Optimizer.__init__, []

    @functools.wraps(original)
    def init(self: Optimizer, *args: Any, **options: Any) -> None:
        original(self, *args, **options)
        if not told:
            told.append(True)
            _connection.when_connected(tell)

    def tell(link: _connection.Connection) -> None:
        link.session.mark(link.core.MARK_KINDS["optimizer"], 0)

    Optimizer.__init__ = init
