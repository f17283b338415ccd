"""The flows of a job, as the engine hands them over and the figures of flows read them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, overload

import numpy as np

from loomnet.measures.columns import Column

_NEVER = -1  # in end_ps and arrived_ps, which count from the engine's time 0
_FIELDS = ("source", "destination", "bytes", "start_ps", "end_ps", "arrived_ps")


class FlowRow(NamedTuple):
    """One flow: hosts by number, payload bytes, times. `end_ps`: the sender had its last
    acknowledgement. `arrived_ps`: the last byte was in place at the destination, which the kernel's
    TCP does not tell. None: never, or not known."""

    source: int
    destination: int
    bytes: int
    start_ps: int
    end_ps: int | None
    arrived_ps: int | None = None


class FlowRows(Sequence[FlowRow]):
    """Reads like a list; rows are made when they are asked for. `origin_ps`: the engine time that
    their times count from."""

    def __init__(
        self, columns: Sequence[Column] | Column | None = None, origin_ps: int = 0
    ) -> None:
        """`columns`: those of FlowRow in the engine's time, of equal length; a time below 0 is
        none."""
        self._columns = np.array(columns if columns is not None else [[]] * len(_FIELDS), np.int64)
        self.origin_ps = origin_ps

    @classmethod
    def of(cls, rows: Iterable[FlowRow]) -> FlowRows:
        """In the engine's time."""
        found = [tuple(_NEVER if value is None else value for value in row) for row in rows]
        return cls([np.array(column, np.int64) for column in zip(*found, strict=True)] or None)

    def since(self, origin_ps: int) -> FlowRows:
        """With times counted from there."""
        return FlowRows(self._columns, origin_ps)

    @property
    def columns(self) -> Column:
        """A row of numbers for each field of FlowRow, times from the origin; where a flow never
        ended, its end is below its start."""
        found = self._columns.copy()
        found[3:] -= self.origin_ps
        found[4:][self._columns[4:] < 0] = np.iinfo(np.int64).min
        return found

    def __len__(self) -> int:
        return self._columns.shape[1]

    @overload
    def __getitem__(self, index: int) -> FlowRow: ...
    @overload
    def __getitem__(self, index: slice) -> list[FlowRow]: ...
    def __getitem__(self, index: int | slice) -> FlowRow | list[FlowRow]:
        if isinstance(index, slice):
            return list(self._rows(self._columns[:, index]))
        return next(self._rows(self._columns[:, [index]]))

    def __iter__(self) -> Iterator[FlowRow]:
        return self._rows(self._columns)

    def _rows(self, columns: Column) -> Iterator[FlowRow]:
        origin = self.origin_ps
        for source, destination, size, start, end, arrived in columns.T.tolist():
            yield FlowRow(
                source,
                destination,
                size,
                start - origin,
                None if end < 0 else end - origin,
                None if arrived < 0 else arrived - origin,
            )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (FlowRows, list)) and list(self) == list(other)
