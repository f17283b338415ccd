"""Finds the Open vSwitch that runs, or starts one of Loomnet's own in its own state directory.

Only the standard library is used, so that ``script/bootstrap`` can run this file by its path:
``python openvswitch.py ensure | stop | status``. A daemon that somebody else runs is used, never
stopped. One that is started here lives in /run/loomnet/ovs, with its own database and control
sockets, and serves every run of the machine until ``stop``.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

SYSTEM_DIRECTORY = Path("/run/openvswitch")
OWN_DIRECTORY = Path("/run/loomnet/ovs")
# What its daemons make there.
_OWN_FILES = ("conf.db", ".conf.db.*", "*.pid", "*.ctl", "*.sock", "*.mgmt", "*.snoop", "*.log")
SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")


class OpenVSwitchError(RuntimeError):
    """Open vSwitch is missing, dead or refused a command; the text says which and what to do."""


@dataclass(frozen=True)
class OpenVSwitch:
    """A running Open vSwitch.

    Attributes:
        directory: where its sockets and pid files are.
        own: True if Loomnet started it.
        datapath: ``system`` where the kernel has the module, else ``netdev`` (userspace, about
            0.5 Gb/s: plenty for rendezvous and control, which is all it carries).
    """

    directory: Path
    own: bool
    datapath: str

    @property
    def database(self) -> str:
        return f"unix:{self.directory}/db.sock"

    def vsctl(self, *arguments: str, timeout: float = 10) -> str:
        """Runs ovs-vsctl on this instance and returns its output.

        Raises:
            OpenVSwitchError: it failed, or the daemon did not apply the change in `timeout` s.
        """
        return self._run(
            ["ovs-vsctl", f"--db={self.database}", f"--timeout={timeout:.0f}", *arguments]
        )

    def ofctl(self, command: str, bridge: str, *arguments: str) -> str:
        """Runs ovs-ofctl on one of this instance's bridges; OpenVSwitchError if it fails."""
        target = f"unix:{self.directory}/{bridge}.mgmt"
        return self._run(["ovs-ofctl", command, target, *arguments])

    def alive(self) -> bool:
        """True while both daemons run: two looks at /proc, cheap enough for a run's watch."""
        return all(_daemon_pid(self.directory, d) for d in ("ovsdb-server", "ovs-vswitchd"))

    def silent(self, timeout: int = 1) -> str | None:
        """The daemon that does not answer within `timeout` s, if one does not. A daemon that is
        stopped or hangs still has its process, and every command would wait for that command's own
        timeout; one that is stopped is found at once."""
        for daemon in ("ovsdb-server", "ovs-vswitchd"):
            pid = _daemon_pid(self.directory, daemon)
            if pid is None or _state(pid) in "Tt":
                return daemon
        for daemon in ("ovsdb-server", "ovs-vswitchd"):
            control = f"{self.directory}/{daemon}.{_daemon_pid(self.directory, daemon)}.ctl"
            try:
                self._run(["ovs-appctl", f"--target={control}", f"--timeout={timeout}", "version"])
            except OpenVSwitchError:
                return daemon
        return None

    def check_answers(self) -> None:
        """Raises OpenVSwitchError where it runs, and does not answer."""
        if (daemon := self.silent()) is not None:
            raise OpenVSwitchError(
                f"{daemon} of the Open vSwitch in {self.directory} runs but "
                f"does not answer; continue or restart it: {self.restart}"
            )

    @property
    def restart(self) -> str:
        """The line that mends one that hangs."""
        if self.own:
            return f"{sys.executable} {__file__} stop; the next live run starts it again"
        return "systemctl restart openvswitch-switch"

    def _run(self, command: list[str]) -> str:
        try:
            # In a group of its own: a second Ctrl-C must not keep a bridge from being deleted.
            done = subprocess.run(command, capture_output=True, text=True, process_group=0)
        except FileNotFoundError:
            raise OpenVSwitchError(_INSTALL) from None
        if done.returncode != 0:
            reason = " ".join(done.stderr.split()) or f"exit status {done.returncode}"
            state = "" if self.alive() else f"Open vSwitch in {self.directory} is not running; "
            raise OpenVSwitchError(f"{state}{' '.join(command)}: {reason}")
        return done.stdout


_INSTALL = "Open vSwitch is not installed: sudo apt-get install openvswitch-switch"


def running() -> OpenVSwitch | None:
    """The system's Open vSwitch if it runs, else Loomnet's own if that runs, else None."""
    for directory, own in ((SYSTEM_DIRECTORY, False), (OWN_DIRECTORY, True)):
        candidate = OpenVSwitch(directory, own, _datapath())
        if (directory / "db.sock").is_socket() and candidate.alive():
            return candidate
    return None


def serves(database: str) -> bool:
    """Whether the server of a database (``unix:DIRECTORY/db.sock``) runs."""
    directory = Path(database.removeprefix("unix:")).parent
    return _daemon_pid(directory, "ovsdb-server") is not None


def ensure() -> OpenVSwitch:
    """The running Open vSwitch; starts Loomnet's own where there is none.

    Raises:
        OpenVSwitchError: not installed, no privilege, or the daemons do not come up.
    """
    if found := running():
        return found
    if not shutil.which("ovsdb-server") or not shutil.which("ovs-vswitchd"):
        raise OpenVSwitchError(_INSTALL)
    if os.geteuid() != 0:
        raise OpenVSwitchError("Open vSwitch is not running, and only root may start it")
    return start()


def start(directory: Path = OWN_DIRECTORY) -> OpenVSwitch:
    """Starts an Open vSwitch with all its state in `directory`, ending one that is there.

    Raises:
        OpenVSwitchError: a daemon does not come up; what had started is stopped again.
    """
    stop(directory)  # Half of a pair may be left.
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    for old in directory.iterdir():
        if any(old.match(each) for each in _OWN_FILES) and not old.is_dir():
            old.unlink()
    # A database of its own, made anew each time: no bridge of a dead run comes back to life.
    environment = {
        **os.environ,
        "OVS_RUNDIR": str(directory),
        "OVS_DBDIR": str(directory),
        "OVS_LOGDIR": str(directory),
        "OVS_SYSCONFDIR": str(directory),
    }
    # It serves the machine, not the run that started it (base/rank_environment.py: RUN).
    environment.pop("LOOMNET_RUN", None)
    instance = OpenVSwitch(directory, True, _datapath())
    database = directory / "conf.db"
    daemon = ["--detach", "--no-chdir", "--pidfile", "--log-file", "-vconsole:off", "-vsyslog:off"]
    for command in (
        ["ovsdb-tool", "create", str(database), str(SCHEMA)],
        ["ovsdb-server", str(database), f"--remote=punix:{directory}/db.sock", *daemon],
        ["ovs-vsctl", f"--db={instance.database}", "--no-wait", "--timeout=5", "init"],
        ["ovs-vswitchd", instance.database, *daemon],
    ):
        # Output to a file, not a pipe: a daemon keeps its ends open, and a pipe would never end.
        with open(directory / "start.log", "a+") as log:
            start = log.tell()
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
            )
            log.seek(start)
            text = " ".join(log.read().split())
        if done.returncode != 0:
            stop(directory)
            raise OpenVSwitchError(f"{' '.join(command)}: {text or done.returncode}")
    return instance


def stop(directory: Path = OWN_DIRECTORY) -> bool:
    """Ends the Open vSwitch that Loomnet started, never another one. True if one was running."""
    pids = [pid for d in ("ovs-vswitchd", "ovsdb-server") if (pid := _daemon_pid(directory, d))]
    for pid in pids:
        try:
            os.kill(pid, signal.SIGTERM)
        except ProcessLookupError:
            continue
    deadline = time.monotonic() + 5
    while any(Path(f"/proc/{p}").exists() for p in pids) and time.monotonic() < deadline:
        time.sleep(0.01)
    for pid in (p for p in pids if Path(f"/proc/{p}").exists()):
        os.kill(pid, signal.SIGKILL)
    return bool(pids)


def _daemon_pid(directory: Path, daemon: str) -> int | None:
    """The daemon's pid by its pid file, if a process of that name and that pid file runs."""
    try:
        pid = int((directory / f"{daemon}.pid").read_text())
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (OSError, ValueError):
        return None
    name, _, rest = stat.partition("(")[2].rpartition(")")
    return pid if name == daemon[:15] and rest.split()[0] not in "ZX" else None


def _state(pid: int) -> str:
    """The letter of a process's state, X for one that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def _datapath() -> str:
    return "system" if Path("/sys/module/openvswitch").exists() else "netdev"


def _main() -> int:
    action = sys.argv[1] if len(sys.argv) == 2 else ""
    if action == "stop":
        print("stopped" if stop() else "Loomnet's Open vSwitch was not running")
        return 0
    if action not in ("ensure", "status"):
        print("usage: openvswitch.py ensure | stop | status", file=sys.stderr)
        return 2
    try:
        found = ensure() if action == "ensure" else running()
    except OpenVSwitchError as error:
        print(f"loomnet: {error}", file=sys.stderr)
        return 2
    print(f"Open vSwitch: {found.directory} ({found.datapath})" if found else "not running")
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(_main())
