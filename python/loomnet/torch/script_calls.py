"""What a script may ask of a run and tell it: the emulated time, and where its steps end."""

from __future__ import annotations

import os

from loomnet.base import rank_environment as env


def now() -> float:
    """Emulated seconds since the job started.

    On the virtual clock time stands while a rank computes, and two readings with a collective
    between them differ by what the collective took on the emulated network. On the live clock it is
    wall time over the dilation. 0 is the job's start, not the end of its first step, from which
    figures and faults count: that step has yet to come when a script asks first.

    Raises:
        RuntimeError: the process is no rank of a run, or a child of a rank.
    """
    from loomnet.torch import connection

    if not in_a_run():
        raise RuntimeError(
            "loomnet.torch.now(): this process is no rank of a run; start the "
            "script with `loomnet run` (ln.TorchJob)"
        )
    session = connection.connection().session
    return (session.now_ps - int(os.environ.get(env.STARTED, "0"))) / 1e12


def step() -> None:
    """Marks the end of a training step, which is the end of an iteration of the job.

    For scripts without a ``torch.optim.Optimizer``, such as benchmarks and inference, and for those
    with several: from the first call on, steps of optimizers are no steps of the job. All that
    follows an optimizer's step follows the mark: the declared compute time passes, faults at
    ``ln.step(n)`` come, and the script ends by SystemExit where the job is to stop. Where an
    optimizer has stepped before the first call, that call marks nothing: the step has its mark.

    Every rank calls it, as often as the others. Outside a run it does nothing.
    """
    if not in_a_run():
        return
    from loomnet.torch import connection, steps

    connection.connection()
    steps.mark()


def in_a_run() -> bool:
    """Whether this process is a rank of a run, or was forked from one."""
    if env.RANK_FD in os.environ:
        return True
    from loomnet.torch import connection

    return connection.existing() is not None
