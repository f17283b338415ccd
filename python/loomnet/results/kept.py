"""The results of a lab's runs. Their series are kept as long as they are small or someone holds
them, so that a lab of many large runs needs the memory of the largest one and not of all."""

from __future__ import annotations

import copy
import sys
import weakref
from collections.abc import Iterator, MutableMapping
from dataclasses import fields, is_dataclass
from typing import Any, NoReturn, cast

from loomnet.base.errors import UsageError
from loomnet.base.names import in_quotes
from loomnet.results.result import Result

# Of all runs but the newest together.
KEPT_BYTES = 64_000_000
_SAMPLED = 4  # entries of a sequence or table, which stand for the others


class KeptResults(MutableMapping[str | None, Result]):
    """Results by label. Those of older runs lose what is large where all of it is more than
    KEPT_BYTES: their figures stay, and a UsageError says so of all else. A result that is held
    elsewhere is found here whole. `most`: in place of KEPT_BYTES; None: no bound."""

    def __init__(self, most: int | None = KEPT_BYTES) -> None:
        self._most = most
        self._whole: dict[str | None, Result] = {}  # oldest first
        self._bytes: dict[str | None, int] = {}
        self._held: dict[str | None, weakref.ref[Result]] = {}
        self._small: dict[str | None, Result] = {}
        self._labels: dict[str | None, None] = {}

    def __setitem__(self, label: str | None, result: Result) -> None:
        for each in (self._whole, self._bytes, self._held, self._small):
            each.pop(label, None)
        self._whole[label], self._labels[label] = result, None
        if self._most is None:
            return
        self._bytes[label] = weight(result.plan) + sum(weight(part.data) for part in result.parts)
        older = list(self._whole)[:-1]
        total = sum(self._bytes[each] for each in older)
        for each in older:
            if total <= self._most:
                break
            total -= self._bytes[each]
            self._let_go(each)

    def _let_go(self, label: str | None) -> None:
        result = self._whole.pop(label)
        self._held[label] = weakref.ref(result)
        self._small[label] = without_series(result)

    def __getitem__(self, label: str | None) -> Result:
        if label in self._whole:
            return self._whole[label]
        held = self._held[label]()
        return self._small[label] if held is None else held

    def __delitem__(self, label: str | None) -> None:
        del self._labels[label]
        for each in (self._whole, self._bytes, self._held, self._small):
            each.pop(label, None)

    def __iter__(self) -> Iterator[str | None]:
        return iter(self._labels)

    def __len__(self) -> int:
        return len(self._labels)

    def __contains__(self, label: object) -> bool:
        return label in self._labels


def without_series(result: Result) -> Result:
    """A copy that has a result's figures and what a report prints of its data."""
    small = copy.copy(result)
    small.__dict__.pop("_flow_records", None)
    small.data = cast(Any, _Printed(result))
    small.plan = cast(Any, _Gone(result))
    small.phases = []
    small.jobs = {name: without_series(each) for name, each in result.jobs.items()}
    return small


class _Gone:
    """In place of what is no longer kept."""

    def __init__(self, result: Result) -> None:
        self._title = result.title

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # what copies and debuggers look for
            raise AttributeError(name)
        raise UsageError(
            f"run {in_quotes(self._title)}: {name} was let go when later runs needed "
            "the memory; hold the result that lab.run() returned for as long as it is "
            "read"
        )


class _Printed(_Gone):
    """Of a run's data what a report prints after the last run."""

    def __init__(self, result: Result) -> None:
        super().__init__(result)
        data = result.data
        self.errors, self.totals = data.errors, data.totals
        self.ended, self.reason, self.end_ps = data.ended, data.reason, data.end_ps
        self.fidelity, self.deterministic = data.fidelity, data.deterministic


def weight(value: Any, depth: int = 6) -> int:
    """About how many bytes a value and what it holds take. Of a sequence or a table some entries
    stand for all."""
    if (size := getattr(value, "nbytes", None)) is not None:
        return int(size)
    own = sys.getsizeof(value, 64)
    if depth == 0 or isinstance(value, (str, bytes, int, float)) or value is None:
        return own
    if isinstance(value, dict):
        some = [
            each for pair, _ in zip(value.items(), range(_SAMPLED), strict=False) for each in pair
        ]
        return own + _of_sample(some, 2 * len(value), depth)
    if isinstance(value, (list, tuple, set, frozenset)):
        some = [each for each, _ in zip(value, range(_SAMPLED), strict=False)]
        return own + _of_sample(some, len(value), depth)
    if is_dataclass(value):
        return own + sum(
            weight(getattr(value, each.name, None), depth - 1) for each in fields(value)
        )
    inner = getattr(value, "__dict__", None)
    return own + (sum(weight(each, depth - 1) for each in inner.values()) if inner else 0)


def _of_sample(some: list[Any], count: int, depth: int) -> int:
    return count * sum(weight(each, depth - 1) for each in some) // len(some) if some else 0
