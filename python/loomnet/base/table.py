"""A small table of rows: reads like a list of dicts, prints itself in terminals and notebooks."""

from __future__ import annotations

import html
import importlib
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any

from loomnet.base.errors import UnknownNameError, UsageError
from loomnet.base.installing import install_line
from loomnet.base.names import quoted
from loomnet.base.number_text import DIGITS, number_text

MOST_HTML_ROWS = 200  # of a table in a notebook; the others are counted below it


class Row(dict[str, Any]):
    """A row of a table, by the names of its columns."""

    def __missing__(self, name: object) -> Any:
        raise UnknownNameError(
            f"no column {quoted(name)} in this row; a row is read by name: {', '.join(self)}"
        )


class Table:
    """Rows with named columns. Iterates as dicts; `column(name)` is one column as a list. `empty`:
    what a table without rows says."""

    def __init__(
        self, columns: Iterable[str], rows: Iterable[Mapping[str, Any]], empty: str = "no rows"
    ) -> None:
        self.columns, self.empty = tuple(columns), empty
        self.rows: list[dict[str, Any]] = [
            Row((name, row.get(name)) for name in self.columns) for row in rows
        ]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """A row. Raises UsageError, which is a KeyError here, for a text."""
        if isinstance(index, str):
            if index in self.columns:
                raise UnknownNameError(
                    f"a table's rows go by number: column({quoted(index)}) is this column"
                )
            own = (
                'r["NAME"] of the result or report reads a number by its name'
                if {"name", "value"} <= set(self.columns)
                else f"column(NAME) is a column; there are {', '.join(self.columns)}"
            )
            raise UnknownNameError(f"a table's rows go by number, not by {quoted(index)}: {own}")
        return self.rows[index]

    def column(self, name: str) -> list[Any]:
        """One column, in row order. Raises UsageError, which is a KeyError here, for a column that
        is not there."""
        if name not in self.columns:
            raise UnknownNameError(f"no column {quoted(name)}; there are {', '.join(self.columns)}")
        return [row[name] for row in self.rows]

    def to_polars(self) -> Any:
        """The same table as a polars.DataFrame; quantities become their text. Raises UsageError
        where polars is not installed."""
        polars = _frames("to_polars", "polars", "sweep")
        return polars.DataFrame(
            {name: [_plain(value) for value in self.column(name)] for name in self.columns},
            strict=False,
        )

    def to_pandas(self) -> Any:
        """The same table as a pandas.DataFrame; quantities become their text. Raises UsageError
        where pandas is not installed."""
        pandas = _frames("to_pandas", "pandas", "pandas")
        return pandas.DataFrame(
            {name: [_plain(value) for value in self.column(name)] for name in self.columns}
        )

    def _cells(self, rows: list[dict[str, Any]]) -> list[list[str]]:
        units = {
            name: next(
                (
                    unit
                    for end, unit in _UNITS.items()
                    if name == end or (end.startswith("_") and name.endswith(end))
                ),
                None,
            )
            for name in self.columns
        }
        of_row = {"value", "unit"} <= set(self.columns)
        digits = {
            name: _digits([row[name] for row in rows]) if name in _MOMENTS else DIGITS
            for name in self.columns
        }
        return [
            [
                _text(
                    row[name],
                    row["unit"] if of_row and name == "value" else units[name],
                    digits[name],
                )
                for name in self.columns
            ]
            for row in rows
        ]

    def __repr__(self) -> str:
        cells = [list(self.columns), *self._cells(self.rows)]
        widths = [max(len(line[i]) for line in cells) for i in range(len(self.columns))]
        lines = [
            "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True))
            for line in cells
        ]
        return "\n".join(line.rstrip() for line in (*lines, *([] if self.rows else [self.empty])))

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in line) + "</tr>"
            for line in self._cells(self.rows[:MOST_HTML_ROWS])
        )
        if not self.rows:
            return f"<table><thead><tr>{head}</tr></thead></table><p>{html.escape(self.empty)}</p>"
        left = len(self.rows) - MOST_HTML_ROWS
        more = f"<p>… and {left:,} rows more; to_polars() has all of them</p>" if left > 0 else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _frames(what: str, name: str, extra: str) -> ModuleType:
    """A package that holds tables. Raises UsageError with the command that installs it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UsageError(f"{what}: {name} is not installed: {install_line(extra)}") from None


# What numbers of a column are in, by its name or the end of it.
_UNITS = {"_s": "s", "time": "s", "_bps": "b/s", "bytes": "B", "_bytes": "B"}


_MOMENTS = ("time", "start_s", "end_s")  # of which two that differ must read so
MOST_DIGITS = 12


def _digits(values: list[Any]) -> int:
    """Significant digits by which moments in a column are told apart."""
    moments = {value for value in values if isinstance(value, (int, float))}
    return next(
        (
            digits
            for digits in range(DIGITS, MOST_DIGITS)
            if len({number_text(value, "s", digits) for value in moments}) == len(moments)
        ),
        MOST_DIGITS,
    )


def _text(value: Any, unit: str | None, digits: int = DIGITS) -> str:
    """What a reader needs, with its unit where that is known; the whole number stays in the row."""
    if value is None:
        return ""
    if unit is not None and isinstance(value, (int, float)) and not isinstance(value, bool):
        return number_text(value, unit, digits)
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
