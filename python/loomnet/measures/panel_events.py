"""What happened to the ports of a run's panels: statuses of simplex ports, carriers of hosts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from loomnet.base.table import Table
from loomnet.plans.model import PanelPlan

COLUMNS = ("time", "where", "kind", "value")
_Row = tuple[int, int, bool | None, str]


@dataclass
class PanelEvents:
    """`rows`: time in picoseconds, where, kind and value. Kind "status": of a
    simplex port, "ocs0 3A" where light comes in and "ocs0 3B" where it leaves, numbered from 1 as
    in a panel's control interfaces. Kind "carrier": of a host, by its link to the panel. Kind
    "command": what a panel was asked for from outside the run. `left_out`: events beyond those that
    a panel keeps."""

    rows: list[tuple[int, str, str, str]] = field(default_factory=list)
    left_out: int = 0

    def add(self, panel: PanelPlan, links: Sequence[str], rows: Sequence[_Row],
            left_out: int) -> None:
        """`links`: names of the panel's links, by port; `rows` as the engine gives them."""
        self.left_out += left_out
        for at, port, out, value in rows:
            if out is not None:
                where = f"{panel.name} {port + 1}{'B' if out else 'A'}"
                self.rows.append((at, where, "status", value))
            elif port < len(links):  # a port without a link has no host
                self.rows.append((at, links[port], "carrier", value))

    def in_order(self) -> PanelEvents:
        """Those of all panels, by time."""
        self.rows.sort(key=lambda row: row[0])
        return self

    def since(self, origin_ps: int) -> PanelEvents:
        """In time since then."""
        return PanelEvents([(at - origin_ps, where, kind, value)
                            for at, where, kind, value in self.rows], self.left_out)

    @property
    def table(self) -> Table:
        """One row for each event, times in seconds."""
        return Table(COLUMNS, [dict(zip(COLUMNS, (at / 1e12, *rest), strict=True))
                               for at, *rest in self.rows])
