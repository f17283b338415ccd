"""Prices of a fabric's parts by rate, in US dollars: the published table, or a user's own."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from loomnet.base.arguments import checked_call
from loomnet.base.errors import UnitError, UsageError
from loomnet.base.names import did_you_mean, in_quotes, quoted
from loomnet.base.reading import parse_json, read_text
from loomnet.base.units import Rate
from loomnet.systems.cost.parts import DAC, PARTS

MOST_FILE = 1 << 20  # bytes of a table
MOST_DOLLARS = 10**9  # for one part
KNOWN = (*PARTS, DAC)
_SHORT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([GT])\s*")
_BARE = re.compile(r"\s*[0-9]{1,9}\s*")
_DOLLARS = re.compile(r"[0-9]+(?:\.[0-9]*)?")


def rate_of(value: Any, where: str = "cost: rate") -> Rate:
    """ "400G", "1.6T", "400 Gb/s" as a Rate. Raises UnitError, beginning with `where`."""
    if isinstance(value, str) and (short := _SHORT.fullmatch(value)) and len(value) < 40:
        value = f"{short[1]} {short[2]}b/s"
    elif isinstance(value, str) and _BARE.fullmatch(value):
        raise UnitError(
            f"{where}: {in_quotes(value)} has no unit: write {value.strip()}G or "
            f'"{value.strip()} Gb/s"'
        )
    return Rate.given(where, value)


def rate_name(rate: Rate) -> str:
    """ "400G": as vendors and the publication name a rate."""
    gigabits = Fraction(rate.count, 10**9)
    return f"{gigabits.numerator}G" if gigabits.denominator == 1 else str(rate)


class Prices:
    """Rate -> part -> price of one piece, in whole cents. `source` is where they are from."""

    def __init__(self, cents: Mapping[Rate, Mapping[str, int]], source: str) -> None:
        self._cents = {rate: dict(cents[rate]) for rate in sorted(cents)}
        self.source = source

    @property
    def rates(self) -> list[Rate]:
        """All rates that have prices, the lowest first."""
        return list(self._cents)

    def cents(self, rate: Rate, part: str) -> int:
        """Of one piece. Raises UsageError for a rate or part without a price."""
        row = self._cents.get(rate)
        if row is None:
            raise UsageError(
                f"cost: rate {rate_name(rate)} is not in the {self.source}; there are "
                f"{', '.join(map(rate_name, self.rates))}"
            )
        if part not in row:
            raise UsageError(
                f"cost: the {self.source} have no price of {part} at {rate_name(rate)}"
            )
        return row[part]

    def has(self, rate: Rate, part: str) -> bool:
        return part in self._cents.get(rate, {})

    def with_part(self, part: str, dollars: Any) -> Prices:
        """The same with one price more, or another one, at every rate. Raises UsageError."""
        _part(self.source, part)
        price = _cents(f"cost: price of {part}", dollars)
        return Prices(
            {rate: {**row, part: price} for rate, row in self._cents.items()}, self.source
        )

    def rows(self) -> list[dict[str, Any]]:
        """A row per rate, in dollars; as prices() reads them."""
        return [
            {
                "rate": rate_name(rate),
                **{part: in_dollars(row[part]) for part in KNOWN if part in row},
            }
            for rate, row in self._cents.items()
        ]

    def csv(self) -> str:
        """The table as text for a file of one's own."""
        rows, out = self.rows(), io.StringIO()
        names = ["rate", *(part for part in KNOWN if any(part in row for row in rows))]
        writer = csv.DictWriter(out, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return out.getvalue()

    def __repr__(self) -> str:
        return f"Prices({self.source}: {', '.join(map(rate_name, self.rates))})"


def in_dollars(cents: int) -> int | float:
    """Whole dollars as an integer, so that totals stay exact."""
    return cents // 100 if cents % 100 == 0 else cents / 100


def _cents(where: str, value: Any) -> int:
    """A price in dollars as whole cents. Raises UsageError."""
    text = str(value).strip() if isinstance(value, (int, float, str, Decimal)) else ""
    if isinstance(value, bool) or len(text) > 30 or not _DOLLARS.fullmatch(text.removeprefix("-")):
        raise UsageError(
            f"{where}: {quoted(value)} is not a price; write dollars, for example 1499 or 99.50"
        )
    if text.startswith("-"):
        raise UsageError(f"{where}: {quoted(value)} is negative")
    cents = Fraction(text) * 100
    if cents.denominator != 1:
        raise UsageError(f"{where}: {quoted(value)} is not whole cents")
    if cents > MOST_DOLLARS * 100:
        raise UsageError(f"{where}: {quoted(value)} is more than 10^9 dollars")
    return int(cents)


def _part(where: str, part: Any) -> str:
    if part not in KNOWN:
        raise UsageError(
            f"{where}: {in_quotes(part)} is not a part; there are {', '.join(KNOWN)}"
            f"{did_you_mean(part, KNOWN)}"
        )
    return part


def _table(where: str, source: str, table: Mapping[Any, Any]) -> Prices:
    """Checks a whole table: each of its rates needs each part, but for DAC cables."""
    if not table:
        raise UsageError(f"{where}: no rate has a price")
    found: dict[Rate, dict[str, int]] = {}
    for name, row in table.items():
        rate = rate_of(name, where)
        place = f"{where}: {rate_name(rate)}"
        if rate in found:
            raise UsageError(f"{place} is there twice")
        if not isinstance(row, Mapping):
            raise UsageError(f"{place}: {quoted(row)} is not a table of prices by part")
        prices = {
            _part(place, part): _cents(f"{place}: {part}", price) for part, price in row.items()
        }
        if missing := [part for part in PARTS if part not in prices]:
            raise UsageError(f"{place}: no price of {', '.join(missing)}")
        found[rate] = prices
    return Prices(found, source)


def _csv(text: str, where: str) -> dict[str, dict[str, str]]:
    """Rate -> part -> text of a CSV file with the columns `rate` and one for each part."""
    try:
        rows = [
            [cell.strip() for cell in row]
            for row in csv.reader(io.StringIO(text), strict=True)
            if any(cell.strip() for cell in row)
        ]
    except csv.Error as error:
        raise UsageError(f"{where}: not CSV: {error}") from None
    head = rows[0] if rows else []
    if "rate" not in head:
        raise UsageError(f"{where}: no column rate; begin with rate,{','.join(PARTS)}")
    if twice := [name for name in head if head.count(name) > 1]:
        raise UsageError(f"{where}: column {in_quotes(twice[0])} is there twice")
    found: dict[str, dict[str, str]] = {}
    for number, row in enumerate(rows[1:], 2):
        if len(row) != len(head):
            raise UsageError(
                f"{where}: row {number} has {len(row)} cells, the head has {len(head)}"
            )
        cells = dict(zip(head, row, strict=True))
        rate = cells.pop("rate")
        if rate in found:
            raise UsageError(f"{where}: {rate} is there twice")
        # A part's cell may be left empty; a part that every rate needs is asked for below.
        found[rate] = {part: cell for part, cell in cells.items() if cell or part not in KNOWN}
    return found


def _once(where: str) -> Any:
    def hook(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        if twice := [name for name in names if names.count(name) > 1]:
            raise UsageError(f"{where}: {in_quotes(twice[0])} is there twice")
        return dict(pairs)

    return hook


@checked_call
def prices(source: str | Path | Mapping[Any, Any] | Prices | None = None) -> Prices:
    """Prices to calculate with: the published ones, or those of a JSON file, a CSV file or a dict,
    which replace them as a whole.

    A dict or JSON file is {"400G": {"nic": 1499, "transceiver": 659, "electrical_port": 1090,
    "ocs_port": 520, "panel_port": 100, "fibre": 150}, …}; a CSV file has a column `rate` and one
    for each part. Prices are in dollars, of one piece. Raises UsageError.
    """
    if source is None:
        return PRICES
    if isinstance(source, Prices):
        return source
    if isinstance(source, Mapping):
        return _table("prices", "given prices", source)
    if not isinstance(source, (str, Path)) or not str(source):
        raise UsageError(f"prices: {quoted(source)} is neither a path nor a table")
    where = f"prices: {source}"
    try:
        text = read_text(source, MOST_FILE).removeprefix("\N{BYTE ORDER MARK}")
    except UsageError as error:
        raise UsageError(f"prices: {error}") from None
    if text.lstrip()[:1] in ("{", "["):
        table = parse_json(text, where)
        json.loads(text, object_pairs_hook=_once(where))  # a name given twice is a slip of the pen
    else:
        table = _csv(text, where)
    if not isinstance(table, Mapping):
        raise UsageError(f"{where}: not a table of rates")
    return _table(where, f"prices of {source}", table)


# MixNet, SIGCOMM 2025, and the data of https://mixnet-project.github.io; a fibre is 0.30 $/m for
# 500 m. No price of DAC cables is published.
_PUBLISHED = {
    "100G": (659, 99, 187, 520, 100, 150),
    "200G": (1079, 239, 374, 520, 100, 150),
    "400G": (1499, 659, 1090, 520, 100, 150),
    "800G": (2248, 1399, 1400, 520, 100, 150),
}
PRICES = _table(
    "prices",
    "published prices",
    {rate: dict(zip(PARTS, row, strict=True)) for rate, row in _PUBLISHED.items()},
)
