"""The command `cost`: what a fabric's network costs, and its performance per dollar."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loomnet.base.errors import EXIT_OK
from loomnet.cli.completion import PRICED, priced

if TYPE_CHECKING:
    from loomnet.base.units import Rate
    from loomnet.systems.cost import Bill, Prices


def cost(
    fabrics: Annotated[
        list[str],
        typer.Argument(metavar="FABRIC", autocompletion=priced, help=f"{', '.join(PRICED)}."),
    ],
    gpus: Annotated[
        int, typer.Option(metavar="N", help="A multiple of 8: a server has 8 GPUs.")
    ] = 1024,
    alpha: Annotated[
        str,
        typer.Option(
            metavar="N|N..M|N,M",
            help="NICs of a server on MixNet's optical switch; of several, each is priced.",
        ),
    ] = "6",
    rate: Annotated[
        str,
        typer.Option(
            metavar="RATE", help='Of a NIC: 400G or "400 Gb/s"; several as 100G,400G; all.'
        ),
    ] = "400G",
    formula: Annotated[
        str,
        typer.Option(
            metavar="FORMULA", help="textbook, or site: the published calculator's own count."
        ),
    ] = "textbook",
    prices: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="JSON or CSV in place of the published prices."),
    ] = None,
    show_prices: Annotated[
        bool, typer.Option("--show-prices", help="Print the prices as CSV and leave.")
    ] = False,
    json_out: Annotated[
        Path | None,
        typer.Option("--json", metavar="OUT", help="Also write all as JSON; - is standard output."),
    ] = None,
) -> int:
    """Price the network of fabrics part by part, and show performance per dollar to a fat-tree.

    Prices are the published ones of MixNet (SIGCOMM 2025), in US dollars.
    """
    from loomnet.processes.folder import Output
    from loomnet.systems import cost as model

    table = model.prices(prices)
    if show_prices:
        print(table.csv(), end="")
        return EXIT_OK
    speeds = _rates(rate, table)
    more: dict[str, Any] = {"gpus": gpus, "prices": table, "formula": formula}
    values = model.alphas(alpha)
    names = list(dict.fromkeys(fabrics))
    bills = [
        model.bill(name, alpha=each, rate=speed, **more)
        for speed in speeds
        for name in names
        for each in (values if name == "mixnet" else values[:1])
    ]
    trees = {speed: model.bill("fattree", rate=speed, **more) for speed in speeds}
    rows = [
        row
        for each in bills
        if _published_size(each)
        for row in model.performance(each.fabric, rate=each.rate, prices=table, formula=formula)
    ]
    shown = json_out != Path("-")
    text = json.dumps(_plain(bills, trees, rows, table, formula), indent=2) + "\n"
    # The file is opened first: where it cannot be written, nothing is printed.
    with Output(json_out, "--json") if json_out and shown else contextlib.nullcontext() as out:
        if shown:
            _print(bills, trees, rows, table, formula)
        else:
            print(text, end="")
        if out is not None:
            out.fill(text.encode())
    return EXIT_OK


def _rates(text: str, table: Prices) -> list[Rate]:
    """The rates of --rate, each once; `all` are those that have prices."""
    from loomnet.systems.cost.price_table import rate_of

    if text.strip() == "all":
        return table.rates
    found = list(dict.fromkeys(rate_of(each, "--rate") for each in text.split(",")))
    for speed in found:
        table.cents(speed, "nic")  # a rate without prices is refused before anything is printed
    return found


def _published_size(bill: Bill) -> bool:
    """Whether iteration times are published for such a network."""
    from loomnet.systems.cost import published

    return bill.gpus == published.GPUS and bill.alpha in (None, published.ALPHA)


def _print(
    bills: list[Bill],
    trees: dict[Rate, Bill],
    rows: list[dict[str, Any]],
    table: Prices,
    formula: str,
) -> None:
    from loomnet.base.table import Table
    from loomnet.systems.cost.bills import ratio
    from loomnet.systems.cost.price_table import rate_name

    print(f"{bills[0].gpus} GPUs, {table.source}, US$")
    for bill in bills:
        counted = "" if bill.formula == formula else f", formula {bill.formula}"
        print(f"\n{bill.name}, {rate_name(bill.rate)}{counted}")
        print(
            Table(
                ("part", "price", "quantity", "dollars", "share"),
                [
                    *(
                        {
                            **row,
                            "price": _dollars(row["price"]),
                            "quantity": f"{row['quantity']:,}",
                            "dollars": _dollars(row["dollars"]),
                            "share": f"{row['share']:.1%}",
                        }
                        for row in bill.table()
                    ),
                    {"part": "total", "dollars": _dollars(bill.total)},
                ],
            )
        )
    print()
    print(
        Table(
            ("fabric", "rate", "total", "per GPU", "fat-tree cost / this"),
            [
                {
                    "fabric": bill.name,
                    "rate": rate_name(bill.rate),
                    "total": _dollars(bill.total),
                    "per GPU": f"{bill.per_gpu:,.2f}",
                    "fat-tree cost / this": _number(ratio(trees[bill.rate], bill)),
                }
                for bill in bills
            ],
        )
    )
    if any(bill.formula != formula for bill in bills):
        print(
            "railonly is counted by the calculator's formula, the others are not: compare it "
            "with --formula site"
        )
    _print_performance(bills, rows)


def _print_performance(bills: list[Bill], rows: list[dict[str, Any]]) -> None:
    from loomnet.base.table import Table
    from loomnet.systems.cost import published

    compared = [row for row in rows if row["fabric"] != "fattree"]
    print()
    if compared:
        print("performance per dollar, fat-tree = 1; times as published, in their own units")
        print(
            Table(
                ("model", "rate", "fabric", "time", "fat-tree's", "performance per dollar"),
                [
                    {
                        "model": row["model"],
                        "rate": row["rate"],
                        "fabric": row["fabric"],
                        "time": f"{row['time']:.3f}",
                        "fat-tree's": f"{row['base_time']:.3f}",
                        "performance per dollar": f"{row['performance_per_dollar']:.2f}",
                    }
                    for row in compared
                ],
            )
        )
        print(f"times: {published.SOURCE}")
    without = sorted(
        {bill.name for bill in bills if bill.fabric != "fattree" and not _has_times(bill, rows)}
    )
    if without:
        print(
            f"no published times: {', '.join(without)}; there are some for "
            f"{', '.join(published.FABRICS)} at {published.GPUS} GPUs, 100G to 800G, "
            f"alpha={published.ALPHA}"
        )


def _has_times(bill: Bill, rows: list[dict[str, Any]]) -> bool:
    from loomnet.systems.cost.price_table import rate_name

    return _published_size(bill) and any(
        row["fabric"] == bill.fabric and row["rate"] == rate_name(bill.rate) for row in rows
    )


def _plain(
    bills: list[Bill],
    trees: dict[Rate, Bill],
    rows: list[dict[str, Any]],
    table: Prices,
    formula: str,
) -> dict[str, Any]:
    from loomnet.systems.cost import published
    from loomnet.systems.cost.bills import ratio

    return {
        "formula": formula,
        "prices": {"source": table.source, "rows": table.rows()},
        "bills": [{**bill.row(), "fattree_over": ratio(trees[bill.rate], bill)} for bill in bills],
        "performance_per_dollar": rows,
        "times": published.SOURCE,
    }


def _dollars(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"
