"""The largest c·x under A x <= b and x >= 0, with b >= 0: by the simplex method, on what is left
when variables and constraints that play the same part are taken together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy

Floats = numpy.ndarray
Numbers = numpy.ndarray

# Of the tableau: what takes seconds. A fabric of which no two links are alike reaches it with some
# hundred pairs of hosts; a regular one never does.
MOST_ENTRIES = 3_000_000
_GAIN, _PIVOT = 1e-10, 1e-8  # smaller numbers are rounding errors


class TooLarge(Exception):
    """The program has too many parts of which no two are alike."""


@dataclass(frozen=True)
class Program:
    """Entries of A as (row, column, value), and `limits`, b. `marks`: rows with different marks are
    never taken together."""

    rows: Numbers
    columns: Numbers
    values: Floats
    limits: Floats
    marks: Numbers
    variables: int


@dataclass(frozen=True)
class Optimum:
    value: float
    variables: Floats
    prices: Floats  # of each row; above 0: the row holds the optimum back, in every optimum


def maximize(program: Program, *objectives: Floats) -> Optimum:
    """The optimum of the last objective among the optima of those before it. Raises TooLarge."""
    row_class, column_class = _alike(program, objectives)
    rows, columns = int(row_class.max()) + 1, int(column_class.max()) + 1
    if (rows + 1) * (rows + columns + 1) > MOST_ENTRIES:
        raise TooLarge
    # One row of each class stands for all; variables of a class are equal in some optimum.
    chosen = numpy.full(rows, -1)
    chosen[row_class[::-1]] = numpy.arange(len(row_class))[::-1]
    kept = chosen[row_class[program.rows]] == program.rows
    matrix = numpy.zeros((rows, columns))
    numpy.add.at(matrix, (row_class[program.rows[kept]], column_class[program.columns[kept]]),
                 program.values[kept])
    folded = [numpy.bincount(column_class, weights=each, minlength=columns) for each in objectives]
    value, found, prices = _simplex(matrix, program.limits[chosen], folded)
    return Optimum(value, found[column_class], prices[row_class])


# --- what is alike --------------------------------------------------------------------------------
def _alike(program: Program, objectives: tuple[Floats, ...]) -> tuple[Numbers, Numbers]:
    """Classes of rows and of variables such that any two of a class have the same entries towards
    each other class (Grohe et al., "Dimension reduction via colour refinement", ESA 2014)."""
    by_row = _Grouped(program.rows, len(program.limits))
    by_column = _Grouped(program.columns, program.variables)
    kinds = _numbered(program.values).astype(numpy.uint64)
    row = _numbered(program.limits + 0j + 1j * program.marks)
    column = numpy.zeros(program.variables, dtype=numpy.int64)
    for each in objectives:
        column = _numbered(column + 1j * _numbered(each))
    count = -1
    while count != (count := int(row.max()) + int(column.max())):
        column = _finer(column, by_column.sums(_mixed(row[program.rows], kinds)))
        row = _finer(row, by_row.sums(_mixed(column[program.columns], kinds)))
    return row, column


class _Grouped:
    """Entries in order of their row, or column."""

    def __init__(self, index: Numbers, count: int) -> None:
        self._order = numpy.argsort(index, kind="stable")
        ordered = index[self._order]
        self._starts = numpy.flatnonzero(numpy.r_[True, ordered[1:] != ordered[:-1]])
        self._groups, self._count = ordered[self._starts], count

    def sums(self, each: Numbers) -> Numbers:
        found = numpy.zeros(self._count, dtype=numpy.uint64)
        found[self._groups] = numpy.add.reduceat(each[self._order], self._starts)
        return found


def _numbered(values: Numbers) -> Numbers:
    return numpy.unique(values, return_inverse=True)[1].reshape(-1)


def _mixed(colours: Numbers, kinds: Numbers) -> Numbers:
    """A number for each pair, such that sums of different ones differ (splitmix64). None is 0."""
    mixed = (colours.astype(numpy.uint64) << numpy.uint64(32)) + kinds + numpy.uint64(1)
    mixed *= numpy.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> numpy.uint64(shift))) * numpy.uint64(factor)
    return mixed ^ (mixed >> numpy.uint64(31))


def _finer(colours: Numbers, sums: Numbers) -> Numbers:
    order = numpy.lexsort((sums, colours))
    sorted_colours, sorted_sums = colours[order], sums[order]
    new = (sorted_colours[1:] != sorted_colours[:-1]) | (sorted_sums[1:] != sorted_sums[:-1])
    found = numpy.empty(len(colours), dtype=numpy.int64)
    found[order] = numpy.r_[0, numpy.cumsum(new)]
    return found


# --- simplex --------------------------------------------------------------------------------------
def _simplex(matrix: Floats, limits: Floats, objectives: list[Floats]
             ) -> tuple[float, Floats, Floats]:
    """Value of the last objective, variables, and the price of each row."""
    rows, columns = matrix.shape
    tableau = numpy.hstack([matrix, numpy.eye(rows), limits.reshape(-1, 1)])
    basis = numpy.arange(columns, columns + rows)
    allowed = numpy.ones(columns + rows, dtype=bool)
    costs = numpy.zeros(columns + rows + 1)
    for objective in objectives:
        costs = numpy.zeros(columns + rows + 1)
        costs[:columns] = -objective
        costs -= costs[basis] @ tableau
        _improve(tableau, costs, basis, allowed)
        # Later objectives keep this optimum: what would lower it stays out.
        allowed &= costs[:-1] < _GAIN
    found = numpy.zeros(columns + rows)
    found[basis] = tableau[:, -1]
    return float(costs[-1]), found[:columns], costs[columns:-1]


def _improve(tableau: Floats, costs: Floats, basis: Numbers, allowed: Numbers) -> None:
    """Pivots to the optimum. The column of the largest gain enters; where gains stay away, the
    first one, by which no tableau comes twice (Bland, 1977)."""
    idle = 0
    while True:
        gains = numpy.where(allowed, -costs[:-1], 0)
        better = numpy.flatnonzero(gains > _GAIN)
        if len(better) == 0:
            return
        entering = int(better[0]) if idle > 30 else int(gains.argmax())
        column = tableau[:, entering]
        above = numpy.flatnonzero(column > _PIVOT)
        assert len(above), "each variable is bounded by a capacity"
        ratios = tableau[above, -1] / column[above]
        least = ratios.min()
        ties = above[ratios <= least + 1e-15]
        leaving = int(ties[basis[ties].argmin()] if idle > 30 else ties[column[ties].argmax()])
        idle = idle + 1 if least <= 1e-15 else 0
        tableau[leaving] /= tableau[leaving, entering]
        factors = tableau[:, entering].copy()
        factors[leaving] = 0
        touched = numpy.flatnonzero(factors)
        tableau[touched] -= factors[touched, None] * tableau[leaving]
        costs -= costs[entering] * tableau[leaving]
        tableau[:, -1] = numpy.maximum(tableau[:, -1], 0)
        basis[leaving] = entering
