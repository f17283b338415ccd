"""The Dask cluster that a sweep runs its points on: of processes here, or a scheduler elsewhere."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from loomnet.base.errors import UnavailableError, UsageError
from loomnet.base.installing import install_line
from loomnet.base.names import quoted
from loomnet.processes.invoking_user import writer_of
from loomnet.sweeps.worker import ignore_interrupts

_LOGGERS = ("distributed", "tornado", "asyncio")
_CLOSING_S = 5


class SchedulerGone(Exception):
    """The scheduler does not answer any more."""


class Scratch(Protocol):
    """Where the sweep notes which folder is its cluster's own."""

    folder: Path

    @property
    def scratch(self) -> str | None: ...
    def note(self, scratch: str | None) -> None: ...


def cpus() -> int:
    return len(os.sched_getaffinity(0))


def import_distributed() -> Any:
    """Raises UnavailableError without Dask."""
    try:
        import distributed
    except ImportError:
        raise UnavailableError(f"a sweep needs Dask: {install_line('sweep')}") from None
    return distributed


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Dask logs a traceback of what it raises besides, and of a scheduler that has gone many."""
    # Dask gives some of its modules a level of their own.
    names = [name for name in logging.root.manager.loggerDict if name.startswith(_LOGGERS)]
    loggers = [logging.getLogger(name) for name in {*names, *_LOGGERS}]
    before = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL + 1)
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


@contextlib.contextmanager
def remote_client(distributed: Any, scheduler: str) -> Iterator[Any]:
    """A client of the scheduler at that address. Raises UnavailableError where there is none."""
    if not isinstance(scheduler, str) or not scheduler:
        raise UsageError(
            f'sweep: scheduler={quoted(scheduler)} is not an address, as "tcp://10.0.0.1:8786" is'
        )
    from distributed.comm import addressing

    try:  # a client of an address that cannot be read complains once more when it is collected
        addressing.get_address_host_port(addressing.normalize_address(scheduler), strict=True)
    except ValueError as error:
        raise UsageError(f"sweep: scheduler: {error}") from None
    with _silent():
        try:
            client = distributed.Client(scheduler, timeout="10s", set_as_default=False)
        except Exception as error:  # OSError, ValueError, what the address's own protocol raises
            text = " ".join(str(error).split())
            raise UnavailableError(f"sweep: no Dask scheduler at {scheduler}: {text}") from None
        try:
            yield client
        finally:
            with contextlib.suppress(Exception):  # of a scheduler that has gone
                client.close(_CLOSING_S)


@contextlib.contextmanager
def client_of(distributed: Any, jobs: int, index: Scratch, remote: Any) -> Iterator[Any]:
    """The client of a scheduler elsewhere, or one of a cluster of processes on this machine, which
    has a folder of its own in the sweep's."""
    import dask.config

    if remote is not None:
        yield remote
        return
    # Under sudo the cluster's processes are root's, which writes into no folder of the user's.
    beside = writer_of(index.folder).uid is None
    if beside and (left := index.scratch) is not None:  # of a sweep that was killed
        shutil.rmtree(index.folder / left, ignore_errors=True)
    scratch = Path(
        tempfile.mkdtemp(
            prefix=".dask-" if beside else "loomnet-dask-", dir=index.folder if beside else None
        )
    )
    if beside:
        index.note(scratch.name)
    try:
        with (
            # What takes its process down once would do so again.
            dask.config.set({"distributed.scheduler.allowed-failures": 0}),
            distributed.LocalCluster(
                n_workers=jobs,
                threads_per_worker=1,
                processes=True,
                dashboard_address=None,
                silence_logs="CRITICAL",
                local_directory=str(scratch),
                # It serves HTTP without a dashboard, too, and warns where the usual port is taken,
                # as by another sweep.
                scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
            ) as cluster,
            distributed.Client(cluster, set_as_default=False) as client,
        ):
            client.run(ignore_interrupts)  # Ctrl-C reaches all processes; this one decides
            yield client
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        if beside:
            index.note(None)
