"""Starts real rank processes over the loopback NIC, and tells the NIC when one ends."""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import multiprocessing
import os
import runpy
import signal
import socket
import sys
import time
import traceback
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

from loomnet import _core

HERE = Path(__file__).parent
_server = multiprocessing.get_context("forkserver")
# Imported once for all ranks: torch's heavy parts in each of them would take most of the time.
_server.set_forkserver_preload(
    [
        "torch",
        "torch._dynamo",
        "torch.distributed",
        "torch.distributed._functional_collectives",
        "torch.distributed.device_mesh",
        "torch.distributed.fsdp",
        "torch.distributed.optim",
        "torch.distributed.tensor.parallel",
        "torch.nn.parallel",
        "loomnet.torch.backend",
    ]
)


def become_rank(
    script: str, arguments: list[str], environment: dict[str, str], log: str, descriptors: list[Any]
) -> None:
    """In the new process: what ``python script arguments…`` would do in that environment."""
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(output, 1)
    os.dup2(output, 2)
    faulthandler.enable(output)
    # A rank starts children, such as a data loader's workers, as a plain interpreter does.
    multiprocessing.current_process()._config["daemon"] = False
    multiprocessing.set_start_method(None, force=True)
    fds = [d.detach() for d in descriptors]
    os.environ |= environment
    if fds:
        os.environ |= {"LOOMNET_RANK_FD": str(fds[0]), "LOOMNET_EVENT_FD": str(fds[1])}
    sys.argv = [script, *arguments]
    status = 0
    try:
        import torch

        from loomnet.torch import autoload

        torch.set_num_threads(1)
        if fds:
            autoload()  # `import torch` has run already, outside a run
        sys.path.insert(0, os.path.dirname(script))
        runpy.run_path(script, run_name="__main__")
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException as error:
        sys.last_value = error
        traceback.print_exc()
        status = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(status)


class Ranks:
    """`world` processes of a script of this folder, or of any path; stopped, whatever happens, on
    exit. `sums`: the NIC sums for them. Without `nic` they are what a launch outside Loomnet
    starts.

    Attributes:
        nic: the ``LoopbackNic`` between them.
        status: exit status by rank, of those that have ended.
        ended: seconds from start to the end of each.
    """

    def __init__(
        self,
        script: str,
        world: int,
        *arguments: str,
        directory: Path,
        channels: int = 1,
        sums: bool = False,
        nic: bool = True,
        **environment: str,
    ) -> None:
        self.nic = _core.testing.LoopbackNic(world, channels, sums)
        self.nic.start()
        self.status: dict[int, int] = {}
        self.ended: dict[int, float] = {}
        self.directory = directory
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.began = time.monotonic()
        self.processes = []
        for rank in range(world):
            variables = {
                "RANK": str(rank),
                "WORLD_SIZE": str(world),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "GLOO_SOCKET_IFNAME": "lo",
                **environment,
            }
            process = _Rank(
                args=(
                    str(HERE / script),
                    list(arguments),
                    variables,
                    str(directory / f"{rank}.log"),
                ),
                fds=self.nic.fds(rank) if nic else (),
            )
            process.start()
            self.processes.append(process)

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *exc: object) -> None:
        for process in self.processes:
            process.kill()
            process.join()
        self.nic.stop()

    def poll(self) -> None:
        for rank, process in enumerate(self.processes):
            if rank not in self.status and process.exitcode is not None:
                self.status[rank] = process.exitcode
                self.ended[rank] = time.monotonic() - self.began
                self.nic.gone(rank, killed=process.exitcode != 0)

    def wait(self, timeout: float) -> dict[int, int]:
        """Exit statuses once all have ended. Raises TimeoutError with logs and stacks."""
        deadline = time.monotonic() + timeout
        while len(self.status) < len(self.processes):
            if time.monotonic() > deadline:
                late = [r for r in range(len(self.processes)) if r not in self.status]
                for r in late:
                    os.kill(self.processes[r].pid, signal.SIGABRT)  # faulthandler shows where
                    self.processes[r].join()
                raise TimeoutError(f"ranks {late} still run:\n{self.logs()}")
            self.poll()
            time.sleep(0.02)
        return self.status

    def wait_for(self, rank: int, text: str, timeout: float) -> None:
        """Until the rank's log holds `text`."""
        deadline = time.monotonic() + timeout
        while text not in self.log(rank):
            self.poll()
            if time.monotonic() > deadline or rank in self.status:
                raise TimeoutError(f"rank {rank} never wrote {text!r}:\n{self.logs()}")
            time.sleep(0.02)

    def log(self, rank: int) -> str:
        with contextlib.suppress(FileNotFoundError):
            return (self.directory / f"{rank}.log").read_text(errors="replace")
        return ""

    def logs(self) -> str:
        return "\n".join(f"--- rank {r}\n{self.log(r)}" for r in range(len(self.processes)))


class _Rank(_server.Process):  # type: ignore[name-defined, misc]
    """Descriptors can only be handed over while the process is being started."""

    def __init__(self, args: tuple[Any, ...], fds: tuple[int, ...]) -> None:
        super().__init__(daemon=True)
        self._rank_args, self._rank_fds = args, fds

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_rank_fds": [DupFd(fd) for fd in self._rank_fds]}

    def run(self) -> None:
        become_rank(*self._rank_args, self._rank_fds)
