"""Performance per dollar: the training that a dollar of network buys, to that of another fabric."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loomnet.base.arguments import checked_call
from loomnet.base.errors import UsageError
from loomnet.base.names import quoted
from loomnet.base.units import Rate
from loomnet.systems.cost.bills import Bill, bill
from loomnet.systems.cost.parts import check_fabric
from loomnet.systems.cost.price_table import Prices, rate_name, rate_of
from loomnet.systems.cost.price_table import prices as prices_of
from loomnet.systems.cost.published import ALPHA, GPUS, TIMES


@checked_call
def performance_per_dollar(time: float, base_time: float, cost: float, base_cost: float) -> float:
    """(base_time / time) * (base_cost / cost): that of a fabric in units of a base fabric's. Times
    are of one iteration, in any one unit. Raises UsageError for what is not above zero."""
    for name, value in (
        ("time", time),
        ("base_time", base_time),
        ("cost", cost),
        ("base_cost", base_cost),
    ):
        if (
            isinstance(value, bool)
            or not isinstance(value, (int, float))
            or not 0 < value < float("inf")
        ):
            raise UsageError(
                f"performance_per_dollar: {name}={quoted(value)} is not a number above 0"
            )
    return base_time / time * (base_cost / cost)


@checked_call
def performance(
    fabric: str,
    *,
    base: str = "fattree",
    rate: Rate | str | None = None,
    prices: str | Path | Mapping[Any, Any] | Prices | None = None,
    formula: str = "textbook",
) -> list[dict[str, Any]]:
    """A row for each published iteration time of a fabric, with its performance per dollar to
    `base`, in the order S1 to S16; at one rate, or at all that are published and have prices.

    Times are published for 1,024 GPUs and alpha = 6, and bills are of that size. A fabric without
    published times has no rows. Raises UsageError.
    """
    for each in (fabric, base):
        check_fabric(each)
    table = prices_of(prices)
    wanted = None if rate is None else rate_of(rate)
    found, bills = [], {}
    for point in TIMES:
        speed = rate_of(point.rate)
        if wanted not in (None, speed) or not {fabric, base} <= point.times.keys():
            continue
        if wanted is None and speed not in table.rates:
            continue
        if speed not in bills:
            bills[speed] = [_bill(each, speed, table, formula) for each in (fabric, base)]
        own, other = bills[speed]
        if not own.cents or not other.cents:
            continue  # a network that costs nothing has no performance per dollar
        value = performance_per_dollar(
            point.times[fabric], point.times[base], own.cents, other.cents
        )
        found.append(
            {
                "point": point.name,
                "model": point.model,
                "rate": rate_name(speed),
                "fabric": fabric,
                "base": base,
                "time": point.times[fabric],
                "base_time": point.times[base],
                "performance_per_dollar": value,
            }
        )
    return found


def _bill(fabric: str, rate: Rate, table: Prices, formula: str) -> Bill:
    return bill(fabric, gpus=GPUS, alpha=ALPHA, rate=rate, prices=table, formula=formula)
