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


class Table:
    """Rows with named columns. Iterates as dicts; `column(name)` is one column as a list."""

    def __init__(self, columns: Iterable[str], rows: Iterable[Mapping[str, Any]]) -> None:
        self.columns = tuple(columns)
        self.rows = [{name: row.get(name) for name in self.columns} for row in rows]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
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
            {name: [_plain(value) for value in self.column(name)] for name in self.columns})

    def _cells(self) -> list[list[str]]:
        return [[_text(row[c]) for c in self.columns] for row in self.rows]

    def __repr__(self) -> str:
        cells = [list(self.columns), *self._cells()]
        widths = [max(len(line[i]) for line in cells) for i in range(len(self.columns))]
        return "\n".join(
            "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
            for line in cells
        )

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in line) + "</tr>"
            for line in self._cells()
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _frames(what: str, name: str, extra: str) -> ModuleType:
    """A package that holds tables. Raises UsageError with the command that installs it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UsageError(f"{what}: {name} is not installed: {install_line(extra)}") from None


def _text(value: Any) -> str:
    """What a reader needs; the whole number stays in the row."""
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
