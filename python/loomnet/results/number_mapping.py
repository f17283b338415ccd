"""A result as a mapping from the names of its figures to their values."""

from __future__ import annotations

import abc
from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import Any

from loomnet.measures.rows import Measured, Metric


class NumberMapping(Mapping[str, "Measured | None"]):
    """What Result is as a mapping: `r["down.blip_s"]`, `r.get(…)`, `len(r)`, `dict(r)`. A value is
    None where the figure is null. Two are equal only where they are one object, as two runs are."""

    by_name: dict[str, Metric]

    @abc.abstractmethod
    def metric(self, name: str) -> Metric:
        """The row behind a figure. Raises UnknownNameError."""

    def __getitem__(self, name: str) -> Measured | None:
        row = self.metric(name)
        return None if row.value is None else Measured(row)

    def __contains__(self, name: object) -> bool:
        return name in self.by_name

    def __iter__(self) -> Iterator[str]:
        return iter(self.by_name)

    def __len__(self) -> int:
        return len(self.by_name)

    def __bool__(self) -> bool:
        return True  # as before it had a length: `if r:` asks whether there is a result

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return object.__hash__(self)

    def keys(self) -> KeysView[str]:
        """The names of all figures."""
        return self.by_name.keys()

    def items(self) -> ItemsView[str, Any]:
        """(name, value) of all figures."""
        return dict(self).items()

    def values(self) -> ValuesView[Any]:
        """The values of all figures."""
        return dict(self).values()

    def _ipython_key_completions_(self) -> list[str]:
        """What a notebook offers after `r["` and the Tab key."""
        return list(self.by_name)
