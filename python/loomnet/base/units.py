"""Quantities with units: strings go in ("400 Gb/s"), exact integers come out, bare numbers are
refused. MB is 10^6 bytes, MiB is 2^20."""

from __future__ import annotations

import functools
import re
from decimal import Decimal
from fractions import Fraction
from typing import Any, ClassVar, Self

from loomnet.base.arguments import checked_call
from loomnet.base.errors import UnitError
from loomnet.base.names import nearest, quoted

_QUANTITY = re.compile(
    r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE]([+-]?[0-9]+))?)\s*(\S.*)?", re.DOTALL
)
# Bounds of the text, looked at before any arithmetic: 10 to the power of a user's choice is exact
# here, and may take the machine's memory.
MOST_TEXT, MOST_EXPONENT = 100, 40
_DECIMAL = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def _exact(number: float | Fraction) -> Fraction:
    try:
        return Fraction(number)
    except (TypeError, ValueError, OverflowError):  # nan, inf
        raise UnitError(f"{quoted(number)} is not a finite number") from None


@functools.total_ordering
class Quantity:
    """A whole number of base units. Built from a string with a unit, or from its own kind."""

    __slots__ = ("_count",)
    kind: ClassVar[str] = "quantity"
    example: ClassVar[str] = ""
    base: ClassVar[str] = ""
    maximum: ClassVar[int] = 2**63 - 1
    minimum: ClassVar[int] = 0
    units: ClassVar[dict[str, int]] = {}
    shown: ClassVar[tuple[str, ...]] = ()

    @checked_call
    def __init__(self, value: str | Self) -> None:
        """Raises UnitError, naming the unit that is missing or unknown."""
        if isinstance(value, type(self)):
            self._count = value._count
        elif isinstance(value, str):
            self._count = self._checked(self._parse(value), value)
        elif isinstance(value, Quantity):
            raise UnitError(f"{value!r} is a {value.kind}, not a {self.kind}")
        else:
            raise UnitError(
                f"{quoted(value)} has no unit: write a {self.kind} as a string with one of "
                f'{self.listed()}, for example "{self.example}"'
            )

    @classmethod
    def of(cls, count: int) -> Self:
        """From a whole number of base units; for code that holds typed numbers, not for users."""
        made = cls.__new__(cls)
        try:
            made._count = cls._checked(int(count), count)
        except (TypeError, ValueError, OverflowError) as error:
            if isinstance(error, UnitError):
                raise
            raise UnitError(f"{quoted(count)} is no number of {cls.base}") from None
        return made

    @classmethod
    def given(cls, where: str, value: Any) -> Self:
        """What a user gave; a UnitError begins with `where`, the name it was given under."""
        try:
            return cls(value)
        except UnitError as error:
            raise UnitError(f"{where}: {error}") from None

    @classmethod
    def _checked(cls, count: int, source: object) -> int:
        if not cls.minimum <= count <= cls.maximum:
            bound = f"at least {cls.minimum}" if count < cls.minimum else f"at most {cls.maximum}"
            raise UnitError(f"{cls.kind} {quoted(source)} is out of range: {bound} {cls.base}")
        return count

    @classmethod
    def _parse(cls, text: str) -> int:
        match = _QUANTITY.fullmatch(text.strip()) if len(text) <= MOST_TEXT else None
        if match is None:
            raise UnitError(
                f'"{text[:MOST_TEXT]}" is not a {cls.kind}: write a number and a unit, '
                f'for example "{cls.example}"'
            )
        number, exponent, unit = match.groups()
        if exponent is not None and abs(int(exponent)) > MOST_EXPONENT:
            raise UnitError(
                f'{cls.kind} "{text}" is out of range: its exponent must be -{MOST_EXPONENT} to '
                f"{MOST_EXPONENT}"
            )
        if unit is None:
            raise UnitError(
                f'{cls.kind} "{text}" has no unit: write one of {cls.listed()} behind the number, '
                f'for example "{cls.example}"'
            )
        scale = cls.units.get(
            unit.replace("\N{GREEK SMALL LETTER MU}", "u").replace("\N{MICRO SIGN}", "u")
        )
        if scale is None:
            raise UnitError(
                f'{cls.kind} "{text}": unknown unit "{unit}"; nearest: '
                f"{', '.join(nearest(unit, cls.units))}; units are {cls.listed()}"
            )
        exact = Fraction(Decimal(number)) * scale
        if exact.denominator != 1:
            raise UnitError(f'{cls.kind} "{text}" is not a whole number of {cls.base}')
        return exact.numerator

    @property
    def count(self) -> int:
        """The number of base units."""
        return self._count

    def __str__(self) -> str:
        for unit in self.shown:
            scale = self.units[unit]
            if self._count >= scale or unit == self.shown[-1]:
                value = Decimal(self._count) / Decimal(scale)
                if value * scale == self._count:
                    return f"{value.normalize():f} {unit}"
        return f"{self._count} {self.base_unit()}"

    @classmethod
    def listed(cls) -> str:
        """The units for a message, the smallest first."""
        known = {*cls.shown, *(unit for unit in ("min", "h") if unit in cls.units)}
        return ", ".join(sorted(known, key=lambda unit: cls.units[unit]))

    @classmethod
    def base_unit(cls) -> str:
        """The unit whose scale is one."""
        return next(name for name, scale in cls.units.items() if scale == 1)

    def __repr__(self) -> str:
        return f'{type(self).__name__}("{self}")'

    def __hash__(self) -> int:
        return hash((type(self).__name__, self._count))

    def __eq__(self, other: object) -> bool:
        return self._count == other._count if isinstance(other, type(self)) else NotImplemented

    def __lt__(self, other: Self) -> bool:
        return self._count < other._count if isinstance(other, type(self)) else NotImplemented

    def __bool__(self) -> bool:
        return self._count != 0

    def __add__(self, other: Self) -> Self:
        if not isinstance(other, type(self)):
            return NotImplemented
        return self.of(self._count + other._count)

    def __sub__(self, other: Self) -> Self:
        if not isinstance(other, type(self)):
            return NotImplemented
        return self.of(self._count - other._count)

    def __mul__(self, factor: float) -> Self:
        if not isinstance(factor, (int, float, Fraction)):
            return NotImplemented
        return self.of(int(_exact(factor) * self._count))

    __rmul__ = __mul__

    def __truediv__(self, other: Self | float) -> Any:
        """By its own kind: a plain ratio; by a number: a quantity, rounded down."""
        if isinstance(other, (type(self), int, float, Fraction)) and not other:
            raise UnitError(f"{self} / {other}: cannot divide by zero")
        if isinstance(other, type(self)):
            return self._count / other._count
        if isinstance(other, (int, float, Fraction)):
            return self.of(int(Fraction(self._count) / _exact(other)))
        return NotImplemented

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self).of, (self._count,))

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(
            cls, serialization=core_schema.plain_serializer_function_ser_schema(str)
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: Any) -> dict[str, Any]:
        return {"type": "string", "examples": [cls.example]}


class Rate(Quantity):
    """Bits per second. "400 Gb/s", "400 Gbit/s", "400 Gbps"; with a capital B, bytes per second."""

    __slots__ = ()
    kind, example, base, minimum = "rate", "400 Gb/s", "bits per second", 1
    units: ClassVar = {
        prefix + unit: scale * bits
        for unit, bits in (("b/s", 1), ("bit/s", 1), ("bps", 1), ("B/s", 8))
        for prefix, scale in {**_DECIMAL, **_BINARY}.items()
    }
    shown = ("Tb/s", "Gb/s", "Mb/s", "kb/s", "b/s")

    @property
    def bits_per_second(self) -> int:
        return self._count

    def serialization(self, size: Size) -> Time:
        """Time to clock `size` out, rounded to the nearest picosecond."""
        return Time.of((size.count * 8 * 10**12 + self._count // 2) // self._count)

    def bytes_in(self, time: Time) -> int:
        """Whole bytes carried in `time`; the bandwidth-delay product when `time` is an RTT."""
        return time.count * self._count // (8 * 10**12)


class Time(Quantity):
    """A span or a moment of emulated time, in picoseconds. "1 us", "0.5 ms", "10 min"."""

    __slots__ = ()
    kind, example, base = "time", "1 us", "picoseconds"
    units: ClassVar = {
        "ps": 1,
        "ns": 10**3,
        "us": 10**6,
        "ms": 10**9,
        "s": 10**12,
        "min": 60 * 10**12,
        "h": 3600 * 10**12,
    }
    shown = ("s", "ms", "us", "ns", "ps")

    @property
    def picoseconds(self) -> int:
        return self._count

    @property
    def seconds(self) -> float:
        return self._count / 1e12

    @classmethod
    def from_seconds(cls, seconds: float) -> Time:
        """The nearest picosecond to a number of seconds."""
        return cls.of(round(_exact(seconds) * 10**12))


class Size(Quantity):
    """Bytes. "256 MiB" is 2^28, "64 MB" is 64 * 10^6."""

    __slots__ = ()
    kind, example, base = "size", "256 MiB", "bytes"
    units: ClassVar = {prefix + "B": scale for prefix, scale in {**_DECIMAL, **_BINARY}.items()}
    shown = ("TB", "GB", "MB", "kB", "B")

    @property
    def bytes(self) -> int:
        return self._count

    def __str__(self) -> str:
        decimal = super().__str__()
        for unit in ("TiB", "GiB", "MiB", "KiB"):
            if self._count and self._count % self.units[unit] == 0:
                binary = f"{self._count // self.units[unit]} {unit}"
                return min(binary, decimal, key=len)  # 64 MB is 62500 KiB, too
        return decimal


def time_or_none(value: Time | str | None) -> Time | None:
    """A Time that may be left out."""
    return None if value is None else Time(value)


def size_or_none(value: Size | str | None) -> Size | None:
    """A Size that may be left out."""
    return None if value is None else Size(value)


def rate_or_none(value: Rate | str | None) -> Rate | None:
    """A Rate that may be left out."""
    return None if value is None else Rate(value)
