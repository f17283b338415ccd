"""What a fabric's network costs, part by part, and its performance per dollar: `ln.cost`.

The model is that of MixNet (SIGCOMM 2025, doi 10.1145/3718958.3750465)."""

from typing import TYPE_CHECKING

from loomnet.base.late_names import late_names

if TYPE_CHECKING:  # read by type checkers and editors; a run needs few of them
    from loomnet.systems.cost.bills import Bill as Bill
    from loomnet.systems.cost.bills import alphas as alphas
    from loomnet.systems.cost.bills import bill as bill
    from loomnet.systems.cost.bills import sweep as sweep
    from loomnet.systems.cost.figure import performance_figure as performance_figure
    from loomnet.systems.cost.parts import FABRICS as FABRICS
    from loomnet.systems.cost.parts import FORMULAS as FORMULAS
    from loomnet.systems.cost.parts import PARTS as PARTS
    from loomnet.systems.cost.parts import quantities as quantities
    from loomnet.systems.cost.per_dollar import performance as performance
    from loomnet.systems.cost.per_dollar import performance_per_dollar as performance_per_dollar
    from loomnet.systems.cost.price_table import PRICES as PRICES
    from loomnet.systems.cost.price_table import Prices as Prices
    from loomnet.systems.cost.price_table import prices as prices
    from loomnet.systems.cost.published import TIMES as TIMES
    from loomnet.systems.cost.published import Point as Point

if not TYPE_CHECKING:  # to type checkers a module with __getattr__ has every name
    __getattr__ = late_names(
        __name__,
        {
            "bills": ("Bill", "alphas", "bill", "sweep"),
            "figure": ("performance_figure",),
            "parts": ("FABRICS", "FORMULAS", "PARTS", "quantities"),
            "per_dollar": ("performance", "performance_per_dollar"),
            "price_table": ("PRICES", "Prices", "prices"),
            "published": ("TIMES", "Point"),
        },
    )
