"""What happened to the ports of a run's panels: statuses of simplex ports, carriers of hosts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import numpy as np

from loomnet.base.table import Table
from loomnet.measures.columns import Column, Columns
from loomnet.plans.entries import PanelPlan

_T = TypeVar("_T")
COLUMNS = ("time", "where", "kind", "value")
# As the engine numbers them: sides of a port, statuses of one, carriers of a host.
_SIDES, _CARRIER = ("A", "B"), 2
_STATUSES, _CARRIERS = ("blocked", "tuning", "tuned", "failed"), ("down", "up")


class PanelEvents:
    """Kind "status": of a simplex port, "ocs0 3A" where light comes in and "ocs0 3B" where it
    leaves, numbered from 1 as in a panel's control interfaces. Kind "carrier": of a host, by its
    link to the panel. Kind "command": what a panel was asked for from outside the run. `left_out`:
    events beyond those that a panel keeps. `patches`: by panel, when each ingress port was joined
    to which egress port, ports from 0, -1 for none; those of before the run come first."""

    def __init__(self) -> None:
        self.left_out = 0
        self.patches: dict[str, list[tuple[int, int, int]]] = {}  # (time in ps, port, far port)
        self._columns = Columns(("at_ps", np.int64), ("where", np.int32), ("what", np.int32))
        self._where: dict[str, int] = {}
        self._what: dict[tuple[str, str], int] = {}  # (kind, value)

    def add_command(self, at_ps: int, panel: str, text: str) -> None:
        """A panel was asked for this."""
        [where], [what] = self._places([panel]), self._kinds("command", [text])
        self._columns.add(1, at_ps=at_ps, where=where, what=what)

    def add(self, panel: PanelPlan, links: Sequence[str], rows: Column, left_out: int) -> None:
        """`links`: names of the panel's links, by port; `rows` as the engine gives them."""
        self.left_out += left_out
        ports = int(rows["port"].max(initial=0)) + 1
        carrier = rows["side"] == _CARRIER
        # A port without a link has no host whose carrier it could be.
        rows, carrier = (each[~carrier | (rows["port"] < len(links))] for each in (rows, carrier))
        sides = self._places(
            f"{panel.name} {port + 1}{side}" for port in range(ports) for side in _SIDES
        )
        hosts = self._places(links)
        where = np.concatenate([sides, hosts])[
            np.where(
                carrier,
                len(sides) + rows["port"].astype(np.int64),
                2 * rows["port"].astype(np.int64) + rows["side"],
            )
        ]
        kinds = np.concatenate(
            [self._kinds("status", _STATUSES), self._kinds("carrier", _CARRIERS)]
        )
        what = kinds[np.where(carrier, len(_STATUSES) + rows["value"], rows["value"])]
        self._columns.add(len(rows), at_ps=rows["at_ps"], where=where, what=what)

    def add_patches(self, panel: str, rows: Column) -> None:
        """As the engine gives them."""
        self.patches[panel] = list(
            zip(*(rows[name].tolist() for name in ("at_ps", "port", "peer")), strict=True)
        )

    def _places(self, names: Iterable[str]) -> Column:
        return _numbered(self._where, names)

    def _kinds(self, kind: str, values: Iterable[str]) -> Column:
        return _numbered(self._what, ((kind, value) for value in values))

    def __len__(self) -> int:
        return len(self._columns)

    def in_order(self) -> PanelEvents:
        """Those of all panels, by time."""
        self._columns.keep(np.argsort(self._columns["at_ps"], kind="stable"))
        return self

    def since(self, origin_ps: int) -> PanelEvents:
        """In time since then."""
        found = PanelEvents()
        found.left_out, found._where, found._what = self.left_out, self._where, self._what
        found.patches = {
            panel: [(at - origin_ps, port, far) for at, port, far in rows]
            for panel, rows in self.patches.items()
        }
        found._columns.add(
            len(self),
            at_ps=self._columns["at_ps"] - origin_ps,
            where=self._columns["where"],
            what=self._columns["what"],
        )
        return found

    @property
    def rows(self) -> list[tuple[int, str, str, str]]:
        """(time in ps, where, kind, value) of each."""
        where, what = list(self._where), list(self._what)
        return [(at, where[place], *what[kind]) for at, place, kind in self._columns.rows.tolist()]

    @property
    def table(self) -> Table:
        """One row for each event, times in seconds."""
        return Table(
            COLUMNS,
            (dict(zip(COLUMNS, (at / 1e12, *rest), strict=True)) for at, *rest in self.rows),
        )


def _numbered(known: dict[_T, int], names: Iterable[_T]) -> Column:
    """Numbers of these names, in the order in which they came first."""
    return np.array([known.setdefault(name, len(known)) for name in names], np.int32)
