"""The `loomnet` command as a user starts it, beside a test: what it prints can be waited for."""

import contextlib
import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

SCENARIOS = Path(__file__).parent / "short_scenarios.py"
# A shell's background job ignores SIGINT and SIGQUIT, what nohup starts SIGHUP, and all processes
# that those start do so too.
AS_FROM_A_TERMINAL = ("env", "--default-signal=INT,QUIT,HUP")
TRAFFIC = r"^\S+  \d+(\.\d+)? [num]?s"  # the progress line: traffic runs


class Run:
    """A `loomnet` command under way. `lines`: what it has printed, both streams, in order."""

    def __init__(self, command, cwd, environment):
        self.lines: list[str] = []
        self._fresh: queue.Queue[str | None] = queue.Queue()
        self.process = subprocess.Popen(
            [*AS_FROM_A_TERMINAL, *command],
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            process_group=0,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            self._fresh.put(line.rstrip("\n"))
        self._fresh.put(None)

    @property
    def output(self) -> str:
        return "\n".join(self.lines)

    def until(self, pattern: str, seconds: float = 25) -> str:
        """The first line from here on that matches; fails if the command ends without it."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                line = self._fresh.get(timeout=max(deadline - time.monotonic(), 0.01))
            except queue.Empty:
                raise AssertionError(f"no {pattern!r} in {seconds} s:\n{self.output}") from None
            assert line is not None, f"ended without {pattern!r}:\n{self.output}"
            self.lines.append(line)
            if re.search(pattern, line):
                return line

    def wait(self, seconds: float = 60) -> int:
        """Its exit status; fails with all threads' stacks if it has none in time."""
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)  # PYTHONFAULTHANDLER: it says where it hangs
            self.process.wait(10)
            status = None
        self._reader.join(5)
        with contextlib.suppress(queue.Empty):
            while (line := self._fresh.get_nowait()) is not None:
                self.lines.append(line)
        assert status is not None, f"no end in {seconds} s:\n{self.output}"
        return status

    def interrupt(self, number=signal.SIGINT):
        """As a terminal does: to the command and to all it has started in its group."""
        os.killpg(self.process.pid, number)


class Loomnet:
    def __init__(self, directory: Path):
        self.directory = directory
        self._runs: list[Run] = []

    def start(self, *arguments, prefix=(), environment=None, python=sys.executable) -> Run:
        """Any command; `prefix` goes before it (setpriv, prlimit, …)."""
        command = [*map(str, prefix), str(python), "-m", "loomnet", *map(str, arguments)]
        run = Run(
            command,
            self.directory,
            {**os.environ, "PYTHONFAULTHANDLER": "1", **(environment or {})},
        )
        self._runs.append(run)
        return run

    def live(self, scenario: str, *settings: str, options=(), **keywords) -> Run:
        """A live run of one of the short scenarios."""
        set_ = [word for setting in settings for word in ("--set", setting)]
        return self.start(
            "run", f"{SCENARIOS}::{scenario}", "--clock", "live", *set_, *options, **keywords
        )

    def report(self) -> dict:
        """What the only run here has written."""
        (path,) = self.directory.glob("runs/*/report.json")
        return json.loads(path.read_text())

    def counters(self) -> dict:
        (path,) = self.directory.glob("runs/*/counters.json")
        return json.loads(path.read_text())

    def clean(self) -> str:
        run = self.start("clean")
        assert run.wait(30) == 0, run.output
        return run.output

    def end(self):
        for run in self._runs:
            if run.process.poll() is None:
                run.process.kill()
                run.process.wait(10)
                self.clean()
            run.process.stdout.close()
