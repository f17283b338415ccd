"""What senders and their congestion controls held over time: series that a run was asked for."""

from __future__ import annotations

import csv
import fnmatch
import io
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from loomnet.base.errors import UsageError
from loomnet.base.line_styles import STYLES, line_style
from loomnet.base.names import did_you_mean, in_quotes, quoted
from loomnet.base.notebook import picture_and_rows, since_text, time_unit
from loomnet.base.table import Table
from loomnet.base.units import Time
from loomnet.measures.columns import Column, Columns

COLUMNS = ("time", "where", "name", "value")
# Of all series together, of 24 bytes each; beyond it every second value goes.
MOST_VALUES = 4_000_000


class Observed:
    """A value for each look, sender and name. `where` is a direction of a queue pair, "h0->h1 qp
    256"; `name` is that of the engine or of the control."""

    def __init__(self, every_ps: int, wanted: tuple[str, ...]) -> None:
        self.every_ps, self.wanted = every_ps, wanted
        self._keys: dict[tuple[str, str], int] = {}  # (where, name) of each series
        self._looks = Columns(("at_ps", np.int64), ("series", np.int64), ("value", float))

    @classmethod
    def of(cls, options: Mapping[str, Any], every_ps: int | None) -> Observed | None:
        """What `lab.run(…, sample="1 ms", observe=["cwnd"])` asks for; None: nothing. Raises
        UsageError."""
        asked = options.get("observe")
        if asked is None:
            return None
        names = [asked] if isinstance(asked, str) else asked
        if (
            not isinstance(names, (list, tuple))
            or not names
            or not all(isinstance(name, str) for name in names)
        ):
            raise UsageError(f'run: observe={quoted(asked)} is no list of names, as ["cwnd"]')
        if every_ps is None:
            raise UsageError('run: observe: values are read every sample; give sample="1 ms" too')
        return cls(every_ps, tuple(names))

    def choose(self, known: Iterable[str], *, complete: bool = True) -> list[str]:
        """The wanted ones of these names. `complete`: no other names follow, so that a pattern
        without a match raises UsageError."""
        names = list(known)
        for pattern in self.wanted:
            if complete and not fnmatch.filter(names, pattern):
                raise UsageError(
                    f"run: observe: no series {in_quotes(pattern)}{did_you_mean(pattern, names)}"
                )
        return [
            name
            for name in names
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in self.wanted)
        ]

    def key(self, where: str, name: str) -> int:
        """The number of a series, for take()."""
        return self._keys.setdefault((where, name), len(self._keys))

    def take(self, at_ps: int | Column, keys: int | Column, values: Column) -> None:
        """Values of these series at these times, or one series, or one time; NaN is no value."""
        there = ~np.isnan(values)
        at, key = (np.broadcast_to(each, values.shape)[there] for each in (at_ps, keys))
        self._looks.add(len(at), at_ps=at, series=key, value=values[there])
        if len(self._looks) > MOST_VALUES:
            self._thin()

    def _thin(self) -> None:
        """Keeps every second value of each series."""
        keys = self._looks["series"]
        order = np.argsort(keys, kind="stable")
        first = np.searchsorted(keys[order], keys[order])
        self._looks.keep(np.sort(order[(np.arange(len(order)) - first) % 2 == 0]))

    def series(self) -> dict[tuple[str, str], tuple[Column, Column]]:
        """Of each (where, name), sorted: times in picoseconds, and values."""
        order = np.argsort(self._looks["series"], kind="stable")
        at, keys, values = (self._looks[name][order] for name in ("at_ps", "series", "value"))
        found = {}
        for each, number in sorted(self._keys.items()):
            begin, end = np.searchsorted(keys, (number, number + 1))
            if end > begin:
                found[each] = at[begin:end], values[begin:end]
        return found

    @property
    def names(self) -> list[str]:
        return sorted({name for _, name in self._keys} | set(self.wanted))

    def rows(
        self, name: str = "*", where: str = "*", every_ps: int = 0
    ) -> Iterator[tuple[float, str, str, float]]:
        """(seconds, where, name, value) of the series that the globs stand for, one after another,
        the first value of each `every_ps`."""
        for (place, each), (times, values) in self.series().items():
            if not (fnmatch.fnmatchcase(each, name) and fnmatch.fnmatchcase(place, where)):
                continue
            step = -1
            for at, value in zip(times.tolist(), values.tolist(), strict=True):
                if every_ps == 0 or at // every_ps > step:
                    step = at // every_ps if every_ps else 0
                    yield at / 1e12, place, each, value

    def csv(self) -> bytes:
        """All of it as comma-separated values with a line of names; times in seconds."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows((f"{at:.12g}", *rest) for at, *rest in self.rows())
        return text.getvalue().encode()


class ObservedTable(Table):
    """Rows of time (seconds), where, name and value, in the unit of the name: bytes unless it ends
    in _ps (picoseconds) or _bps (bits per second), or a control says otherwise."""

    first_job: str | None = None  # of the run, from whose time 0 times count

    @classmethod
    def of(
        cls, observed: Observed, name: str, where: str | None, every: Time | None
    ) -> ObservedTable:
        rows = observed.rows(
            name, "*" if where is None else where, 0 if every is None else every.count
        )
        return cls(COLUMNS, [dict(zip(COLUMNS, row, strict=True)) for row in rows])

    def _repr_html_(self) -> str:
        return picture_and_rows(self)

    def plot(self, axes: Any = None) -> Any:
        """Draws a line for each `where` on matplotlib axes (made if not given) and returns them. In
        a notebook the figure is shown below the cell."""
        if axes is None:
            from loomnet.base.notebook import new_axes

            axes = new_axes()
        lines: dict[tuple[str, str], tuple[list[float], list[float]]] = {}
        for at, where, name, value in zip(*map(self.column, COLUMNS), strict=True):
            times, values = lines.setdefault((where, name), ([], []))
            times.append(at)
            values.append(value)
        unit, factor = time_unit(max((times[-1] for times, _ in lines.values()), default=0.0))
        for number, ((where, _), (times, values)) in enumerate(lines.items()):
            axes.step(
                [at / factor for at in times],
                values,
                where="post",
                linewidth=1,
                label=where,
                **line_style(number),
            )
        axes.set_xlabel(f"emulated time{since_text(self.first_job)} ({unit})")
        axes.set_ylabel(", ".join(sorted({name for _, name in lines})))
        if 0 < len(lines) <= len(STYLES):
            axes.legend(fontsize="small")
        return axes
