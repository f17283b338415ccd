"""What a run records beside its report: a Perfetto trace and captures of single ports. Asked for by
the user, checked and opened before the run starts, filled by the engine's recorder, written
here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import loomnet._core as _core
from loomnet.base import rank_environment as env
from loomnet.base.errors import UsageError
from loomnet.base.number_text import number_text
from loomnet.measures.run_data import RunData
from loomnet.plans.entries import HalfLinkPlan
from loomnet.plans.job_request import JobRequest
from loomnet.plans.model import Plan
from loomnet.plans.port_search import find_port
from loomnet.processes.folder import Folder, Output
from loomnet.running.engine import Engine
from loomnet.running.perfetto_trace import write_trace
from loomnet.running.record import Record


def check_trace(record: Record, plan: Plan, jobs: Iterable[JobRequest]) -> None:
    """Raises UsageError where a trace could not tell apart whose operations a host shows."""
    for asked in jobs if record.trace is not None else ():
        for host in asked.hosts:
            if (count := asked.placement.count(host)) > 1:
                raise UsageError(
                    f"trace: {plan.hosts[host].name} has {count} ranks of one job, and a trace "
                    "shows a host's operations as those of one rank; leave the trace out "
                    "(captures of ports are there), or use hosts of one rank"
                )


class Recording:
    """One run's recording: files that are open, then the engine's recorder, then bytes in the
    files.

    Raises UsageError on construction for an unknown port or a file that cannot be written.
    """

    def __init__(self, record: Record, plan: Plan, folder: Folder) -> None:
        self.record, self.plan, self._folder = record, plan, folder
        # Of each PyTorch job, what its ranks' torch.profiler exported.
        self.profiles: dict[int, tuple[JobRequest, Folder]] = {}
        self._ports = {port: find_port(plan, port) for port in record.pcap}
        self._files: dict[Path, Output] = {}
        self._written: dict[Path, int] = {}  # bytes
        self._captures: dict[int, Path] = {}  # recorder's number -> file
        self._recorder: _core.Recorder | None = None  # from attach() to finish()
        self.said: list[str] = []  # once finished: a line per file
        self.failed: dict[Path, str] = {}  # why a file holds less than was recorded
        self._engine: Engine | None = None
        try:
            if record.trace is not None:
                self._files[record.trace] = Output(record.trace, "--trace")
            for port, file in record.pcap.items():
                self._files[file] = Output(file, f"--pcap {port}")
        except UsageError:
            self.discard()
            raise

    @property
    def ports(self) -> Mapping[str, HalfLinkPlan]:
        """What leaves each captured port."""
        return self._ports

    @property
    def files(self) -> list[Path]:
        return list(self._files)

    def discard(self) -> None:
        """The run did not take place: closes the files and removes those it made."""
        for file in self._files.values():
            file.discard()

    def _say_what_was_kept(self) -> None:
        """One line per file, with its size; of the trace also the share of packets in it."""
        for path in [each for each in self._files if each not in self.failed]:
            size = number_text(self._written.get(path, 0), "B")
            if path == self.record.trace:
                halvings = self.recorder.kept_of_packets()
                kept = f"1 of {2**halvings} packets is kept" if halvings else "all packets are kept"
                bound = f" ({self.record.most_hops:,} hops at most)" if halvings else ""
                self.said.append(f"trace {path}: {size}, {kept}{bound}")
            else:
                self.said.append(f"capture {path}: {size}")

    # --- around a run -----------------------------------------------------------------------------
    def environment(self, asked: JobRequest) -> dict[str, str]:
        """What a process of a job's ranks must know: where its profiles go, if anybody reads
        them."""
        if self.record.trace is None:
            return {}
        folder = asked.folder_in(self._folder).folder("profiles")
        self.profiles[asked.number] = asked, folder
        return {env.PROFILES: str(folder.path.absolute())}

    def attach(self, engine: Engine, *, live: bool = False) -> None:
        """Begins to record; before anything of the job happens."""
        self._engine = engine
        for file in self._files.values():
            file.begin()
        self._recorder = _core.Recorder(
            engine.network,
            seed=engine.seed,
            timeline=self.record.trace is not None,
            most_hops=self.record.most_hops,
        )
        self._recorder.set_zero(None)
        if not live:
            self._recorder.stop_when_full()
        for port, half in self._ports.items():
            number = self._recorder.capture(engine.half(half.number), port, half.name)
            self._captures[number] = self.record.pcap[port]

    @property
    def recorder(self) -> _core.Recorder:
        """The engine's own, between attach() and finish()."""
        assert self._recorder is not None
        return self._recorder

    def drain(self, take: Callable[[int], bytes] | None = None) -> None:
        """Writes what the captures hold. `take` fetches it where the network is another
        thread's."""
        take = take or self.recorder.take
        for number, path in self._captures.items():
            self._write(path, take(number))

    def _write(self, path: Path, data: bytes) -> None:
        if path in self.failed:
            return
        try:
            self._files[path].write(data)
        except UsageError as error:  # a full disk takes the file, not the run
            self.failed[path] = str(error)
        else:
            self._written[path] = self._written.get(path, 0) + len(data)

    def finish(self, data: RunData, origin_ps: int) -> None:
        """Ends the captures and writes the trace. `origin_ps`: engine time of the first job's time
        0."""
        assert self._engine is not None
        self.recorder.set_zero(origin_ps)
        for number, path in self._captures.items():
            self._write(path, self.recorder.finish(number))
        if self.record.trace is not None:
            for piece in write_trace(
                self._engine,
                data,
                origin_ps,
                recorder=self.recorder,
                profiles=list(self.profiles.values()),
            ):
                self._write(self.record.trace, piece)
        self._say_what_was_kept()
        for file in self._files.values():
            file.close()
        self._captures.clear()
        self._recorder = None
