"""The bill of a fabric: parts, quantities, dollars, and how it compares with a fat-tree's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loomnet.base.arguments import checked_call
from loomnet.base.errors import UsageError
from loomnet.base.names import quoted
from loomnet.base.table import Table
from loomnet.base.units import Rate
from loomnet.systems.cost.parts import (
    ALPHA,
    DAC,
    GPUS,
    check_alpha,
    formula_of,
    quantities,
)
from loomnet.systems.cost.price_table import Prices, in_dollars, rate_name, rate_of
from loomnet.systems.cost.price_table import prices as prices_of

_RANGE = re.compile(r"\s*([0-9]{1,4})\s*\.\.\s*([0-9]{1,4})\s*")
_NUMBER = re.compile(r"\s*[0-9]{1,4}\s*")


@dataclass(frozen=True)
class Item:
    """One line of a bill. Money is in whole cents; `dollars` and `price` are for people."""

    part: str
    quantity: int
    price_cents: int

    @property
    def cents(self) -> int:
        return self.quantity * self.price_cents

    @property
    def price(self) -> int | float:
        return in_dollars(self.price_cents)

    @property
    def dollars(self) -> int | float:
        return in_dollars(self.cents)


@dataclass(frozen=True)
class Bill:
    """What the network of a fabric costs. `alpha` is None where the fabric has no optical switch.
    `formula` is the one that counted its parts."""

    fabric: str
    gpus: int
    alpha: int | None
    rate: Rate
    formula: str
    items: tuple[Item, ...]

    @property
    def cents(self) -> int:
        return sum(item.cents for item in self.items)

    @property
    def total(self) -> int | float:
        """US dollars; an integer where they are whole."""
        return in_dollars(self.cents)

    @property
    def per_gpu(self) -> float:
        return self.cents / 100 / self.gpus

    @property
    def dollars(self) -> dict[str, int | float]:
        """Part -> dollars, without parts of which there are none."""
        return {item.part: item.dollars for item in self.items if item.quantity}

    @property
    def quantities(self) -> dict[str, int]:
        """Part -> pieces, without parts of which there are none."""
        return {item.part: item.quantity for item in self.items if item.quantity}

    @property
    def name(self) -> str:
        """ "mixnet alpha=6"."""
        return self.fabric if self.alpha is None else f"{self.fabric} alpha={self.alpha}"

    def share(self, item: Item) -> float:
        """Of the total; 0 where nothing costs anything."""
        return item.cents / self.cents if self.cents else 0.0

    def table(self) -> Table:
        """Part, price, quantity, dollars, share; parts of which there are none are left out."""
        return Table(
            ("part", "price", "quantity", "dollars", "share"),
            [
                {
                    "part": item.part,
                    "price": item.price,
                    "quantity": item.quantity,
                    "dollars": item.dollars,
                    "share": self.share(item),
                }
                for item in self.items
                if item.quantity
            ],
        )

    def row(self) -> dict[str, Any]:
        """All of it as plain values, for JSON."""
        return {
            "fabric": self.fabric,
            "gpus": self.gpus,
            "alpha": self.alpha,
            "rate": rate_name(self.rate),
            "formula": self.formula,
            "parts": self.table().rows,
            "total": self.total,
            "per_gpu": self.per_gpu,
        }


@checked_call
def bill(
    fabric: str,
    *,
    gpus: int = 1024,
    alpha: int = ALPHA,
    rate: Rate | str = "400G",
    prices: str | Path | Mapping[Any, Any] | Prices | None = None,
    formula: str = "textbook",
) -> Bill:
    """The bill of one of FABRICS for so many GPUs, eight to a server, a NIC each.

    `prices`: a table, or the path of one, in place of the published prices. One with the part "dac"
    has NICs joined to edge switches by copper. Raises UsageError.
    """
    table = prices_of(prices)
    speed = rate_of(rate)
    # A rate without prices is refused before parts are counted.
    table.cents(speed, "nic")
    dac = table.has(speed, DAC)
    counted = quantities(fabric, gpus=gpus, alpha=alpha, formula=formula, dac=dac)
    return Bill(
        fabric,
        gpus,
        alpha if fabric == "mixnet" else None,
        speed,
        formula_of(fabric, formula),
        tuple(Item(part, count, table.cents(speed, part)) for part, count in counted.items()),
    )


@checked_call
def sweep(
    alpha: str | int | Iterable[int] = "1..6",
    *,
    gpus: int = 1024,
    rate: Rate | str = "400G",
    prices: str | Path | Mapping[Any, Any] | Prices | None = None,
    formula: str = "textbook",
) -> Table:
    """MixNet's total, dollars per GPU and cost of a fat-tree to its own, a row for each alpha."""
    more = {"gpus": gpus, "rate": rate, "prices": prices_of(prices), "formula": formula}
    tree = bill("fattree", **more)
    bills = [bill("mixnet", alpha=each, **more) for each in alphas(alpha)]
    return Table(
        ("alpha", "total", "per_gpu", "fattree_over"),
        [
            {
                "alpha": each.alpha,
                "total": each.total,
                "per_gpu": each.per_gpu,
                "fattree_over": ratio(tree, each),
            }
            for each in bills
        ],
    )


def ratio(base: Bill, other: Bill) -> float | None:
    """Cost of `base` to that of `other`; None where the other is free."""
    return base.cents / other.cents if other.cents else None


def alphas(value: str | int | Iterable[int]) -> list[int]:
    """6, "6", "1..6", "1,3,6" or a list, each alpha once, in the order given. Raises UsageError."""
    if isinstance(value, str):
        found = [each for part in value.split(",") for each in _alphas_of(value, part)]
    elif isinstance(value, Iterable):
        found = list(value)
    else:
        found = [value]
    if not found:
        raise UsageError("cost: alpha is an empty list")
    return list(dict.fromkeys(check_alpha(each) for each in found))


def _alphas_of(whole: str, part: str) -> list[int]:
    if _NUMBER.fullmatch(part):
        return [int(part)]
    if (found := _RANGE.fullmatch(part)) is None:
        raise UsageError(
            f"cost: alpha {quoted(whole)}: write a number from 0 to {GPUS}, a range "
            "such as 1..6, or a list such as 1,3,6"
        )
    first, last = int(found[1]), int(found[2])
    if first > last:
        raise UsageError(f"cost: alpha {quoted(whole)}: {first} is above {last}")
    check_alpha(last)
    return list(range(first, last + 1))
