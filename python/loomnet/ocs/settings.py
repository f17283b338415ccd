"""Settings that a panel's control interfaces keep and the device does not have. None of them
changes the light."""

from __future__ import annotations

from dataclasses import dataclass, field

from loomnet.base.errors import UsageError
from loomnet.base.names import quoted
from loomnet.ocs.names import Pair, Simplex

MOST_LABEL = 64  # characters
WAVELENGTH_NM = 1550.0


@dataclass
class Monitor:
    """A power monitor's settings."""

    wavelength_nm: float = WAVELENGTH_NM
    offset_db: float = 0.0
    averaging: int = 1


@dataclass
class Flap:
    """A script that shuts a port for `off_ms` and opens it for `on_ms`, `cycles` times."""

    off_ms: int
    on_ms: int
    cycles: int
    begun_ps: int | None = None  # None: it does not run

    def phase(self, now_ps: int) -> tuple[bool, int | None]:
        """Whether the port is shut now, and the time of the next change; None where the script has
        ended."""
        if self.begun_ps is None:
            return False, None
        off, period = self.off_ms * 10**9, (self.off_ms + self.on_ms) * 10**9
        cycle, rest = divmod(now_ps - self.begun_ps, period)
        if cycle >= self.cycles:
            return False, None
        start = self.begun_ps + cycle * period
        return (True, start + off) if rest < off else (False, start + period)


@dataclass
class Attenuation:
    """The attenuation mode of a port, and the level that it holds."""

    mode: str = "NONE"
    level: float | None = None
    reference: int | None = None  # simplex port by its TL1 number


@dataclass
class Settings:
    """Settings of one panel, which its control interfaces share. They are read and written inside
    operate() only."""

    name: str = "ocs0"
    labels: dict[Simplex, str] = field(default_factory=dict)
    configured: set[Pair] = field(default_factory=set)
    monitors: dict[int, Monitor] = field(default_factory=dict)  # by TL1 port number
    flaps: dict[int, Flap] = field(default_factory=dict)  # by ingress port from 0
    attenuations: dict[int, Attenuation] = field(default_factory=dict)  # by egress port from 0
    boot: str = "RESTORE"

    def label(self, port: Simplex, text: str) -> None:
        """Sets a label; an empty text removes it. Raises UsageError."""
        if (
            len(text) > MOST_LABEL
            or not text.isascii()
            or not text.isprintable()
            or set(text) & set('";')
        ):
            raise UsageError(
                f"Error: label {quoted(text)}: printable ASCII without double quotes "
                f"and semicolons, {MOST_LABEL} characters at most"
            )
        if text:
            self.labels[port] = text
        else:
            self.labels.pop(port, None)
