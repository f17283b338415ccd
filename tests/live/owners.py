"""Tells which test suite a process or a run belongs to: this one, another one on the machine, or
unknown.

A process is this suite's if it or one of its ancestors is this process or carries this suite's mark
in its environment. A rank's environment holds no such mark, but the id of its run, and a run is
this suite's if the process that holds its journal is."""

import os

from loomnet.base.rank_environment import RUN
from loomnet.processes.journal import process_start

OWN, OTHER, UNKNOWN = "own", "other", "unknown"
_MARK = "LOOMNET_TEST_SESSION"
_SESSION = f"{os.getpid()}-{process_start(os.getpid())}"
os.environ[_MARK] = _SESSION  # every command that a test starts inherits it
_known: dict[str, str] = {}  # run id -> owner: a run that has died is still whose it was


class Owners:
    """The owners as of one look at the machine. `alive`: run id -> pid of each run that lives."""

    def __init__(self, alive: dict[str, int]) -> None:
        self._network = os.readlink("/proc/self/ns/net")
        self._found: dict[int, str] = {}
        for run_id, pid in alive.items():
            _known[run_id] = self.of_process(pid)
        self._found.clear()

    @property
    def other_runs(self) -> list[str]:
        return [run_id for run_id, owner in _known.items() if owner == OTHER]

    def of_process(self, pid: int) -> str:
        if pid not in self._found:
            self._found[pid] = self._find(pid)
        return self._found[pid]

    def _find(self, pid: int) -> str:
        """An orphan counts as unknown where a run that nobody knows marked it, and where it is in
        a network of its own: a daemon that a rank left behind, with another environment."""
        marks = _variables(pid)
        if pid == os.getpid() or marks.get(_MARK) == _SESSION:
            return OWN
        run_id = marks.get(RUN)
        if run_id is not None and (owner := _known.get(run_id, UNKNOWN)) != UNKNOWN:
            return owner
        if (parent := _parent(pid)) > 1:
            return self.of_process(parent)
        try:
            apart = os.readlink(f"/proc/{pid}/ns/net") != self._network
        except OSError:
            return UNKNOWN  # it ends just now
        return UNKNOWN if run_id is not None or apart else OTHER


def run_of(pid: int) -> str | None:
    """The id of the run that marked this process."""
    return _variables(pid).get(RUN)


def _variables(pid: int) -> dict[str, str]:
    """Those of the process's environment that are looked at here."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            environment = file.read()
    except OSError:
        return {}
    found = {}
    for name in (_MARK, RUN):
        _, there, rest = (b"\0" + environment).partition(f"\0{name}=".encode())
        if there:
            found[name] = rest.partition(b"\0")[0].decode(errors="replace")
    return found


def _parent(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return 0
    return int(text[text.rindex(b")") + 2 :].split()[1])
