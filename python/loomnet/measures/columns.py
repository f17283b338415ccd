"""Rows that grow while a run goes on, as numpy columns: the store of every series of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Column: TypeAlias = NDArray[Any]
else:  # numpy.typing alone takes a tenth of a short run's time
    Column = np.ndarray


class Columns:
    """Rows of a structured dtype. What is added is copied once; reading copies nothing."""

    def __init__(self, *fields: Any) -> None:
        """`fields`: as numpy.dtype takes them, ("name", type) or ("name", type, shape)."""
        self._room = np.empty(64, np.dtype(list(fields)))
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def rows(self) -> Column:
        """All rows so far, as a structured array; a view, valid until rows are added."""
        return self._room[: self._count]

    def __getitem__(self, name: str) -> Column:
        return self.rows[name]

    def add(self, count: int, **columns: Any) -> None:
        """`count` rows; a column has a value for each, or one for all."""
        end = self._count + count
        if end > len(self._room):
            self._room = np.concatenate(
                [self.rows, np.empty(max(end, 2 * self._count) - self._count, self._room.dtype)]
            )
        for name, values in columns.items():
            self._room[name][self._count : end] = values
        self._count = end

    def keep(self, which: Column) -> None:
        """Keeps these rows, given by a mask or by numbers, and forgets the others."""
        self._room = self.rows[which]
        self._count = len(self._room)


def first_of_steps(at: Column, step: int, series: Column | None = None) -> Column:
    """A mask of the rows to keep where each series keeps its first row of every `step`. Rows are in
    the order of time; `series`: the series of each row, one for all where there is none."""
    number = at // step
    if series is None:
        return np.append(np.ones(min(len(at), 1), bool), number[1:] != number[:-1])
    order = np.argsort(series, kind="stable")
    key, number = series[order], number[order]
    first = np.append(
        np.ones(min(len(at), 1), bool), (key[1:] != key[:-1]) | (number[1:] != number[:-1])
    )
    kept = np.zeros(len(at), bool)
    kept[order[first]] = True
    return kept


def as_rows(rows: Any) -> list[Any]:
    """Rows of a two-dimensional array of integers, or of a list of tuples, as tuples of ints."""
    return list(map(tuple, rows.tolist())) if isinstance(rows, np.ndarray) else list(rows)
