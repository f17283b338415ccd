"""Jupyter: tells its kernel from other interpreters and a reader from a program that executes
notebooks, and makes the pictures that cells show."""

from __future__ import annotations

import base64
import html
import io
import sys
from typing import Any, Protocol

from loomnet.base.names import how_many
from loomnet.base.table import Table

SIZE, DPI = (7, 2.6), 150  # of a quantity over time: inches, and pixels of one


def shell() -> Any:
    """The kernel's shell; None outside of a Jupyter kernel."""
    if "ipykernel" not in sys.modules:
        return None
    from IPython import get_ipython

    found = get_ipython()
    # Hosted notebooks have a class of their own, derived from it.
    names = {each.__name__ for each in type(found).__mro__}
    return found if "ZMQInteractiveShell" in names else None


def in_notebook() -> bool:
    """Whether this is a Jupyter kernel, which shows what pyplot has drawn below the cell."""
    return shell() is not None


def is_watched() -> bool:
    """Whether a reader sees the running cell. Jupyter's page sends with each cell that it can
    answer input(); a program that executes notebooks does not."""
    found = shell()
    if found is None:
        return False
    try:
        asked = found.kernel.get_parent("shell")["content"]
    except (AttributeError, KeyError, TypeError):  # another kernel, or code that is in no cell
        return False
    return bool(asked.get("allow_stdin"))


def new_axes() -> Any:
    """Axes of a figure of their own, which have its savefig(); pyplot's, with its state, in a
    notebook alone."""
    if in_notebook():
        from matplotlib import pyplot

        axes: Any = pyplot.subplots(figsize=SIZE, layout="constrained")[1]
        # The figure is shown below the cell; as the cell's value the axes need no line of text.
        setattr(axes, "_repr_html_", str)  # noqa: B010 (matplotlib's types know no such name)
    else:
        from matplotlib.figure import Figure

        axes = Figure(figsize=SIZE, layout="constrained").subplots()
    setattr(axes, "savefig", axes.figure.savefig)  # noqa: B010 (the same)
    return axes


def time_unit(seconds: float) -> tuple[str, float]:
    """(unit, how many seconds it is) in which an axis up to so many seconds is read."""
    return next(
        (each for each in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)) if seconds >= each[1]),
        ("ns", 1e-9),
    )


def since_text(first_job: str | None) -> str:
    """What an axis of emulated time says of its time 0, where the run had several jobs."""
    return f" since {first_job} began" if first_job else ""


class Drawable(Protocol):
    """What draws itself on axes."""

    def plot(self, axes: Any = None) -> Any: ...


def image_html(figure: Any, name: str) -> str:
    """A matplotlib figure as an element of a page, as wide there as half of its pixels."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI, metadata={"Software": None})
    code = base64.b64encode(buffer.getvalue()).decode()
    return (
        f'<img alt="{html.escape(name)}" width="{round(figure.get_figwidth() * DPI / 2)}" '
        f'src="data:image/png;base64,{code}"/>'
    )


def picture_and_rows(drawn: Drawable, table: Table | None = None) -> str:
    """What a cell shows that ends with a quantity over time: its picture, and what its rows are.
    `table`: its rows, where it is no table itself."""
    from matplotlib.figure import Figure

    rows = drawn if table is None else table
    assert isinstance(rows, Table)
    axes = Figure(figsize=SIZE, layout="constrained").subplots()
    if len(rows):
        drawn.plot(axes)
        picture = image_html(axes.figure, "over time")
    else:
        picture = ""
    said = f"{how_many(len(rows), 'row')} of {', '.join(rows.columns)}"
    return f"{picture}<p>{html.escape(said)}; to_polars() has them</p>"
