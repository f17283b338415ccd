"""PyTorch's own distributed suite, as its wheel ships it, over the loopback NIC or over Gloo.

    suite.py loomnet|mapped|gloo RESULTS [--only REGEX] [--world N] [--cpu-for-cuda]

``loomnet`` asks for the backend by name, ``mapped`` asks for gloo in a run that maps the name, and
``gloo`` is PyTorch alone: what a test says there is the yardstick. Ranks are forked from this
process, which has imported torch. Writes a JSON object, name of a test to [outcome, seconds, text].
With ``--cpu-for-cuda`` tests that ask for GPUs run too, on the CPU.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import io
import json
import os
import re
import sys
import tempfile
import threading
import time
import types
import unittest
from pathlib import Path
from typing import Any

LIMIT = 120.0  # seconds that a test may take
_ERROR = re.compile(r"[\w.]*(Error|Exception|Invalid)\w*:")


def prepare(backend: str, world: int, on_cpu: bool) -> Any:
    """The suite's module, which reads its parameters from the environment when imported."""
    os.environ |= {
        "BACKEND": "loomnet" if backend == "loomnet" else "gloo",
        "WORLD_SIZE": str(world),
        "INIT_METHOD": "file:///set-for-each-test",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    try:
        import expecttest  # noqa: F401
    except ImportError:  # needed at import only: no test here has expected output
        stub = types.ModuleType("expecttest")
        stub.TestCase = unittest.TestCase  # type: ignore[attr-defined]
        sys.modules["expecttest"] = stub
    from torch.testing._internal import common_distributed, common_utils

    # Two kinds of tests are off by themselves: those that flaked over Gloo on Linux, and those of
    # groups of two ranks where there are fewer than eight.
    common_utils.IS_LINUX = False
    common_distributed.skip_if_small_worldsize = lambda test: test
    if on_cpu:
        import cpu_for_cuda

        cpu_for_cuda.skip_no_more(common_distributed)
    common_distributed.TIMEOUT_DEFAULT = int(LIMIT)
    common_distributed.logger.setLevel("ERROR")
    for backends in common_distributed.DistTestCases.backend_feature.values():
        if "gloo" in backends:
            backends.add("loomnet")
    from torch.testing._internal.distributed import distributed_test

    for supported in ("PROFILING_SUPPORTED_BACKENDS", "SEND_RECV_PROFILING_SUPPORTED_BACKENDS"):
        getattr(distributed_test, supported).append("loomnet")
    return distributed_test


def rank_process(backend: str, nic: Any, log: Path, on_cpu: bool) -> type:
    """A class of processes whose n-th one is rank n of the run."""
    import torch

    forking = torch.multiprocessing.get_context("fork").Process

    class RankProcess(forking):  # type: ignore[misc, valid-type]
        def run(self) -> None:
            rank = self._args[0]
            output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.dup2(output, 1)
            os.dup2(output, 2)
            atexit._clear()
            os.environ["RANK"] = str(rank)
            if nic is not None:
                memory, event = nic.fds(rank)
                os.environ |= {
                    "LOOMNET_RANK_FD": str(os.dup(memory)),
                    "LOOMNET_EVENT_FD": str(os.dup(event)),
                }
            if backend == "mapped":
                os.environ |= {"LOOMNET_MAP_BACKEND": "1", "LOOMNET_TRANSPORT": "mrc"}
            from loomnet.torch import autoload

            torch.set_num_threads(1)
            autoload()
            if on_cpu:
                import cpu_for_cuda

                cpu_for_cuda.begin()
            try:
                super().run()
            finally:
                atexit._run_exitfuncs()

    return RankProcess


def make_case(module: Any, backend: str, world: int, logs: Path, on_cpu: bool) -> type:
    from loomnet import _core

    class Case(module.TestDistBackend, module.DistributedTest._DistTestBase):  # type: ignore[misc, name-defined]
        def setUp(self) -> None:
            super().setUp()
            module.INIT_METHOD = os.environ["INIT_METHOD"]
            self.nic = _core.testing.LoopbackNic(world, 1) if backend != "gloo" else None
            self.log = logs / f"{self._testMethodName}.log"
            self._start_processes(rank_process(backend, self.nic, self.log, on_cpu))
            if self.nic is not None:
                self.nic.start()  # a thread: not before the forks

        def tearDown(self) -> None:
            processes = self.processes
            super().tearDown()
            for process in processes:
                process.join(5)
                process.kill()
                process.join()
            if self.nic is not None:
                self.nic.stop()

        def _join_processes(self, function: Any) -> None:
            watching = threading.Event()
            watcher = threading.Thread(target=self._tell_of_ends, args=(watching,))
            watcher.start()
            try:
                super()._join_processes(function)
            finally:
                watching.set()
                watcher.join()
            if self.nic is not None:
                faults = {r: self.nic.fault(r) for r in range(world)}
                assert set(faults.values()) == {"none"}, f"cut off by the NIC: {faults}"

        def _tell_of_ends(self, stop: threading.Event) -> None:
            told: set[int] = set()
            while self.nic is not None and not stop.wait(0.02):
                for rank, process in enumerate(self.processes):
                    if rank not in told and process.exitcode is not None:
                        told.add(rank)
                        self.nic.gone(rank, killed=process.exitcode != 0)

    return Case


def run(case: type, name: str) -> tuple[str, float, str]:
    """(passed, failed or skipped; seconds; first line of the reason) of one test."""
    began, test, result = time.monotonic(), case(name), unittest.TestResult()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        test.run(result)
    seconds = round(time.monotonic() - began, 1)
    if result.skipped:
        return "skipped", seconds, result.skipped[0][1].splitlines()[0]
    problems = result.failures + result.errors
    if not problems:
        return "passed", seconds, ""
    log = test.log.read_text(errors="replace") if test.log.exists() else ""
    lines = [line for line in log.splitlines() if _ERROR.match(line)]
    return "failed", seconds, (lines or problems[0][1].strip().splitlines())[-1][:300]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("backend", choices=("loomnet", "mapped", "gloo"))
    parser.add_argument("results", type=Path)
    parser.add_argument("--only", default="", help="tests whose name matches")
    parser.add_argument("--world", type=int, default=4)
    parser.add_argument("--logs", type=Path)
    parser.add_argument("--cpu-for-cuda", action="store_true")
    given = parser.parse_args()
    logs = given.logs or Path(tempfile.mkdtemp(prefix="loomnet-suite-"))
    logs.mkdir(exist_ok=True)
    module = prepare(given.backend, given.world, given.cpu_for_cuda)
    case = make_case(module, given.backend, given.world, logs, given.cpu_for_cuda)
    names = [n for n in unittest.TestLoader().getTestCaseNames(case) if re.search(given.only, n)]
    outcomes: dict[str, tuple[str, float, str]] = {}
    for name in names:
        outcomes[name] = run(case, name)
        outcome, seconds, reason = outcomes[name]
        print(f"{outcome:8}{seconds:6.1f} s  {name}  {reason}", flush=True)
        given.results.write_text(json.dumps(outcomes, indent=1))
    counts = {
        o: sum(o == each[0] for each in outcomes.values()) for o in ("passed", "failed", "skipped")
    }
    print(given.backend, *(f"{o} {n}" for o, n in counts.items()), flush=True)


if __name__ == "__main__":
    main()
