"""The largest c·x under A x <= b and x >= 0. HiGHS finds it, for a smaller program: variables and
constraints that play the same part are taken together first. HiGHS alone takes a hundred times as
long for an all-to-all of 128 hosts."""

from __future__ import annotations

from dataclasses import dataclass

import highspy
import numpy

Floats = numpy.ndarray
Numbers = numpy.ndarray

# The serial simplex with one seed: the same program has the same solution, to the last bit.
_OPTIONS = {
    "output_flag": False,
    "solver": "simplex",
    "parallel": "off",
    "random_seed": 0,
    "primal_feasibility_tolerance": 1e-10,
    "dual_feasibility_tolerance": 1e-10,
}


class Unsolved(Exception):
    """HiGHS has not found an optimum of a program, or does not vouch for it."""


class _Quiet(highspy.Highs):
    """HiGHS without the callbacks that Highs() sets up: highspy 1.16 prints a line as it does so,
    before `output_flag` can be set."""

    def __init__(self) -> None:
        super(highspy.Highs, self).__init__()


@dataclass(frozen=True)
class Program:
    """Entries of A as (row, column, value) and `limits`, b. `marks`: rows with different marks are
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


def maximize(program: Program, objective: Floats) -> Optimum:
    """An optimum of a program that has one. Raises Unsolved."""
    row_class, column_class = _alike(program, objective)
    rows, columns = int(row_class.max()) + 1, int(column_class.max()) + 1
    # One row of each class stands for all; variables of a class are equal in some optimum.
    chosen = numpy.full(rows, -1)
    chosen[row_class[::-1]] = numpy.arange(len(row_class))[::-1]
    kept = chosen[row_class[program.rows]] == program.rows
    # Entries of one place are added up, and are in order of their row.
    places, at = numpy.unique(
        row_class[program.rows[kept]] * columns + column_class[program.columns[kept]],
        return_inverse=True,
    )
    values = numpy.bincount(at.reshape(-1), weights=program.values[kept])
    starts = numpy.searchsorted(places, numpy.arange(rows + 1) * columns)
    costs = numpy.bincount(column_class, weights=objective, minlength=columns)
    solved = _solved(starts, places % columns, values, program.limits[chosen], costs)
    found = solved.getSolution()
    return Optimum(
        solved.getObjectiveValue(),
        numpy.array(found.col_value)[column_class],
        numpy.array(found.row_dual)[row_class],
    )


def _solved(
    starts: Numbers, columns: Numbers, values: Floats, limits: Floats, costs: Floats
) -> highspy.Highs:
    solver = _Quiet()
    taken = [solver.setOptionValue(*option) for option in _OPTIONS.items()]
    assert all(status == highspy.HighsStatus.kOk for status in taken), taken
    program = highspy.HighsLp()
    program.num_row_, program.num_col_ = len(limits), len(costs)
    program.sense_ = highspy.ObjSense.kMaximize
    program.col_cost_ = costs
    program.col_lower_ = numpy.zeros(len(costs))
    program.col_upper_ = numpy.full(len(costs), highspy.kHighsInf)
    program.row_lower_ = numpy.full(len(limits), -highspy.kHighsInf)
    program.row_upper_ = limits
    matrix = program.a_matrix_
    matrix.format_ = highspy.MatrixFormat.kRowwise
    matrix.num_row_, matrix.num_col_ = program.num_row_, program.num_col_
    matrix.start_, matrix.index_, matrix.value_ = starts, columns, values
    solver.passModel(program)
    # All solvers of a process share their threads. One thread, so that none is started; where a
    # scenario has used HiGHS with more, 0 takes those, of which the serial simplex uses one.
    for threads in (1, 0):
        solver.setOptionValue("threads", threads)
        if solver.run() != highspy.HighsStatus.kError:
            break
    status = solver.getModelStatus()
    if status != highspy.HighsModelStatus.kOptimal:
        raise Unsolved(solver.modelStatusToString(status))
    return solver


# --- classes of equivalent rows and variables -----------------------------------------------------
def _alike(program: Program, objective: Floats) -> tuple[Numbers, Numbers]:
    """Classes of rows and of variables such that any two of a class have the same entries towards
    each other class (Grohe et al., "Dimension reduction via colour refinement", ESA 2014)."""
    by_row = _Grouped(program.rows, len(program.limits))
    by_column = _Grouped(program.columns, program.variables)
    kinds = _numbered(program.values).astype(numpy.uint64)
    row = _numbered(program.limits + 0j + 1j * program.marks)
    column = _numbered(objective)
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
