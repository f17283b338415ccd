"""What a user asks to be recorded of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from loomnet.base.errors import UsageError
from loomnet.base.names import quoted
from loomnet.base.reading import user_path

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
