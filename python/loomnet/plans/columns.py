"""The links and hosts of a plan as columns. The object of a link or a host is made when it is
read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar, overload

import numpy

from loomnet.plans.entries import HalfLinkPlan, LinkPlan

T = TypeVar("T")
# Of a half-link: its two ends, and what they are called.
Names = Callable[[int], tuple[str, str]]


class Links:
    """`rows`: int64[n, 5] of link, node, port, node, port in order of the links; `planes`:
    int64[n], -1 for a panel's; `kinds`: int64[n, 2], for each direction which of `settings` it has,
    the fields that HalfLinkPlan has beside its number, name and ends; `names`: of a link's two
    directions, by its number. An index is the number that the link has in the whole fabric."""

    def __init__(
        self,
        rows: numpy.ndarray,
        planes: numpy.ndarray,
        kinds: numpy.ndarray,
        settings: Sequence[Mapping[str, Any]],
        names: Names,
    ) -> None:
        self.rows, self.planes, self.kinds, self.settings = rows, planes, kinds, settings
        self._names = names
        self._whole = not len(rows) or rows[-1, 0] == len(rows) - 1
        self._made: dict[int, LinkPlan] = {}

    @property
    def numbers(self) -> numpy.ndarray:
        return self.rows[:, 0]

    def place(self, number: int) -> int:
        """Where a link stands in the columns. Raises IndexError for one that is not there."""
        at = number if self._whole else int(numpy.searchsorted(self.rows[:, 0], number))
        if not 0 <= at < len(self.rows) or self.rows[at, 0] != number:
            raise IndexError(f"link {number} is not in this plan")
        return at

    def column(self, field: str) -> numpy.ndarray:
        """A field of settings: [n, 2], of each link's two directions."""
        return numpy.array([each[field] for each in self.settings])[self.kinds]

    def setting(self, half: int, field: str) -> Any:
        """A field of one direction's settings."""
        return self.settings[self.kinds[self.place(half // 2), half % 2]][field]

    def half(self, number: int) -> HalfLinkPlan:
        at, back = self.place(number // 2), number % 2
        _, *ends = self.rows[at].tolist()
        if back:
            ends = ends[2:] + ends[:2]
        return HalfLinkPlan(
            number, self._names(number // 2)[back], *ends, **self.settings[self.kinds[at, back]]
        )

    def half_name(self, number: int) -> str:
        return self._names(number // 2)[number % 2]

    def half_numbers(self) -> dict[str, int]:
        """The number of each direction, by its name."""
        return {
            name: 2 * number + back
            for number in self.numbers.tolist()
            for back, name in enumerate(self._names(number))
        }

    def firsts(self) -> Iterator[LinkPlan]:
        """The first of all links that are alike both ways, of each kind, in order."""
        _, at = numpy.unique(self.kinds, axis=0, return_index=True)
        return map(self.__getitem__, self.numbers[numpy.sort(at)].tolist())

    def __getitem__(self, number: int) -> LinkPlan:
        if number < 0:
            number = int(self.rows[number, 0])
        if number not in self._made:
            self._made[number] = self._link(number)
        return self._made[number]

    def _link(self, number: int) -> LinkPlan:
        ahead, back = self.half(2 * number), self.half(2 * number + 1)
        plane = int(self.planes[self.place(number)])
        return LinkPlan(
            number, ahead.name.replace("->", "--"), None if plane < 0 else plane, ahead, back
        )

    def __iter__(self) -> Iterator[LinkPlan]:
        return map(self.__getitem__, self.rows[:, 0].tolist())

    def __len__(self) -> int:
        return len(self.rows)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Links)
            and len(self) == len(other)
            and all(a == b for a, b in zip(self, other, strict=True))
        )


class Part(Generic[T]):
    """Entries by the numbers of the whole fabric, each made when first read; iterating gives those
    that are there."""

    def __init__(self, numbers: Sequence[int], make: Callable[[int], T]) -> None:
        self.numbers, self._make = numbers, make
        self._made: dict[int, T] = {}

    @overload
    def __getitem__(self, number: int) -> T: ...
    @overload
    def __getitem__(self, number: slice) -> list[T]: ...
    def __getitem__(self, number: int | slice) -> T | list[T]:
        """The entry of this number; a slice is of those that are there."""
        if isinstance(number, slice):
            return [self[each] for each in self.numbers[number]]
        if number not in self._made:
            self._made[number] = self._make(number)
        return self._made[number]

    def __iter__(self) -> Iterator[T]:
        return map(self.__getitem__, self.numbers)

    def __len__(self) -> int:
        return len(self.numbers)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Part) and list(self) == list(other)
