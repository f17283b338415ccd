"""What a run records beside its report: a Perfetto trace and captures of single ports. Asked for by
the user, checked and opened before the run starts, filled by the engine's recorder, written
here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loomnet.errors import UsageError
from loomnet.folder import Folder, Output
from loomnet.naming import did_you_mean, quoted
from loomnet.plan import HalfLinkPlan, Plan
from loomnet.reading import user_path
from loomnet.shown import number_text

if TYPE_CHECKING:
    from loomnet.engine import Engine
    from loomnet.rundata import RunData

# lab.run's default: a trace of about 50 MB at most; what does not fit is sampled, and says so.
MOST_HOPS = 250_000


@dataclass(frozen=True)
class Record:
    """What to record of a run: `trace` a Perfetto trace, `pcap` "NODE:PORT" -> pcapng file."""

    trace: Path | None = None
    pcap: Mapping[str, Path] = field(default_factory=dict)
    most_hops: int = MOST_HOPS  # packet hops kept in the trace; the other bounds follow

    @classmethod
    def of(
        cls,
        trace: str | Path | None = None,
        pcap: Mapping[str, str | Path] | None = None,
        most_hops: int = MOST_HOPS,
    ) -> Record:
        """From paths as strings. Raises UsageError where two of them are one file."""
        if pcap is not None and not isinstance(pcap, Mapping):
            raise UsageError(f'pcap={quoted(pcap)} is not a table, as {{"h0:0": "h0.pcapng"}} is')
        files = {}
        for port, file in (pcap or {}).items():
            if not isinstance(port, str):
                raise UsageError(f"pcap: {quoted(port)} is not NODE:PORT")
            files[port] = user_path(f"pcap {port}", file)
        target = None if trace is None else user_path("trace", trace)
        seen: dict[Path, str] = {}
        for name, file in [("trace", target), *files.items()]:
            if file is None:
                continue
            other = seen.setdefault(file.absolute(), name)
            if other != name:
                raise UsageError(
                    f"{name}: {file} is the file of {other} already; give each its own"
                )
        return cls(target, files, most_hops)

    def __bool__(self) -> bool:
        return self.trace is not None or bool(self.pcap)

    def labelled(self, label: str) -> Record:
        """The same with `-label` behind each file's stem: for a lab's second and later runs."""

        def named(file: Path) -> Path:
            return file.with_name(f"{file.stem}-{label}{file.suffix}")

        return Record(
            None if self.trace is None else named(self.trace),
            {port: named(file) for port, file in self.pcap.items()},
            self.most_hops,
        )


def parse_pcap(texts: list[str]) -> dict[str, Path]:
    """`NODE:PORT=FILE` strings as given to --pcap. Raises UsageError."""
    found: dict[str, Path] = {}
    for text in texts:
        port, sign, file = text.partition("=")
        if not sign or not file or ":" not in port:
            raise UsageError(f"--pcap {text}: write NODE:PORT=FILE, for example h0:0=h0.pcapng")
        if port in found:
            raise UsageError(f"--pcap {text}: {port} is given twice")
        found[port] = Path(file)
    return found


def find_port(plan: Plan, text: str) -> HalfLinkPlan:
    """The half-link that leaves `NODE:PORT`; PORT is a number (at a host: the plane) or the name of
    the node at the link's other end. Raises UsageError naming what there is."""
    name, sign, port = text.rpartition(":")
    nodes = {node.name: node for node in (*plan.hosts, *plan.switches)}
    if not sign or not name:
        raise UsageError(f'port "{text}": write NODE:PORT, for example {plan.hosts[0].name}:0')
    if name not in nodes:
        raise UsageError(f'port "{text}": no node "{name}"{did_you_mean(name, nodes)}')
    node = nodes[name]
    leaving = [
        link.forward if link.forward.source == node.number else link.backward
        for link in (plan.links[number] for number in node.ports)
    ]
    if port.isdecimal() and len(port) < 10 and int(port) < len(leaving):
        return leaving[int(port)]
    peers = {half.name.partition("->")[2]: half for half in leaving}
    if port in peers:
        return peers[port]
    raise UsageError(
        f'port "{text}": {name} has ports 0 to {len(leaving) - 1} '
        f"({', '.join(list(peers)[:4])}{', …' if len(peers) > 4 else ''})"
    )


class Recording:
    """One run's recording: files that are open, then the engine's recorder, then bytes in the
    files.

    Raises UsageError on construction for an unknown port or a file that cannot be written.
    """

    def __init__(
        self, record: Record, plan: Plan, placement: tuple[int, ...], folder: Folder
    ) -> None:
        self.record, self.plan, self._folder = record, plan, folder
        self.profiles: Folder | None = None  # of what the ranks' torch.profiler exported
        self.placement = placement  # rank -> host
        self._ports = {port: find_port(plan, port) for port in record.pcap}
        self._files: dict[Path, Output] = {}
        self._written: dict[Path, int] = {}  # bytes
        self._captures: dict[int, Path] = {}  # recorder's number -> file
        self._recorder: Any = None
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
                halvings = self._recorder.kept_of_packets()
                kept = f"1 of {2**halvings} packets is kept" if halvings else "all packets are kept"
                bound = f" ({self.record.most_hops:,} hops at most)" if halvings else ""
                self.said.append(f"trace {path}: {size}, {kept}{bound}")
            else:
                self.said.append(f"capture {path}: {size}")

    # --- around a run -----------------------------------------------------------------------------
    def environment(self) -> dict[str, str]:
        """What a rank's process must know: where its profiles go, if anybody reads them."""
        if self.record.trace is None:
            return {}
        self.profiles = self._folder.folder("profiles")
        return {"LOOMNET_PROFILES": str(self.profiles.path.absolute())}

    def attach(self, engine: Engine, *, live: bool = False) -> None:
        """Begins to record; before anything of the job happens."""
        from loomnet import _core

        self._engine = engine
        for file in self._files.values():
            file.begin()
        self._recorder = _core.Recorder(
            engine.network,
            seed=engine.seed,
            timeline=self.record.trace is not None,
            most_hops=self.record.most_hops,
        )
        if not live:
            self._recorder.stop_when_full()
        for port, half in self._ports.items():
            number = self._recorder.capture(half.number, port, half.name)
            self._captures[number] = self.record.pcap[port]

    @property
    def recorder(self) -> Any:
        return self._recorder

    def drain(self, take: Callable[[int], bytes] | None = None) -> None:
        """Writes what the captures hold. `take` fetches it where the network is another
        thread's."""
        take = take or self._recorder.take
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
        """Ends the captures and writes the trace. `origin_ps`: engine time of the job's time 0."""
        from loomnet.timeline import write_trace

        assert self._engine is not None
        for number, path in self._captures.items():
            self._write(path, self._recorder.finish(number))
        if self.record.trace is not None:
            for piece in write_trace(self, self._engine, data, origin_ps):
                self._write(self.record.trace, piece)
        self._say_what_was_kept()
        for file in self._files.values():
            file.close()
        self._captures.clear()
        self._recorder = None
