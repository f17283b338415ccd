"""Checks of a report as a picture: in words what is checked, and where the measured value lies
beside what its bound allows and what was published. Each row has a scale of its own."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from loomnet.base.errors import UsageError
from loomnet.base.number_text import number_text
from loomnet.measures.rows import Check
from loomnet.results.drawing import WIDTH, Size, inches

HOLDS, MISSES, ALLOWED = "#0072b2", "#b3261e", "#cfe3cf"
WORDS_WIDTH, MOST_ROWS = 54, 60  # characters of a line of words; rows of a picture
ROW_HEIGHT, LINE_HEIGHT = 0.24, 0.15  # inches
LEFT, MIDDLE = 0.45, 0.23  # of the width: words, the lanes; numbers have the rest


def checks_figure(
    checks: Sequence[Check], *, title: str | None = None, size: Size | None = None
) -> Any:
    """A matplotlib Figure. Green: what a bound allows; a blue point: a value that holds; a red
    cross: one that misses; a black diamond: what was published. A value that is null says why.
    Raises UsageError without checks."""
    from loomnet.results.picture import Picture

    if not checks:
        raise UsageError("checks_figure: no check; a scenario makes them by lab.check(…)")
    shown, left = list(checks[:MOST_ROWS]), len(checks) - MOST_ROWS
    words = [_words(check) for check in shown]
    heights = [ROW_HEIGHT + LINE_HEIGHT * text.count("\n") for text in words]
    head = 0.55 if title else 0.30
    figure = Picture(figsize=inches(size) or (WIDTH, sum(heights) + head + 0.1))
    total = sum(heights) + head + 0.1
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, 1), ylim=(total, 0))
    axes.axis("off")
    _head(axes, title, head, left)
    y = head
    for number, (check, text, height) in enumerate(zip(shown, words, heights, strict=True)):
        if number % 2:
            axes.axhspan(y, y + height, color="#f4f4f4", zorder=0)
        middle = y + height / 2
        axes.text(LEFT - 0.01, middle, text, fontsize=8, ha="right", va="center", linespacing=1.1)
        _lane(axes, check, middle, min(height, ROW_HEIGHT))
        axes.text(
            LEFT + MIDDLE + 0.02,
            middle,
            _numbers(check),
            fontsize=8,
            va="center",
            color="#222222" if check.ok else MISSES,
        )
        y += height
    return figure


def _head(axes: Any, title: str | None, head: float, left: int) -> None:
    if title:
        axes.text(0.01, 0.16, title, fontsize=10, va="center")
    y = head - 0.14
    x = LEFT
    for draw, text in (
        (_allowed, "allowed"),
        (_point, "measured, holds"),
        (_cross, "misses"),
        (_diamond, "published"),
    ):
        draw(axes, x, y)
        axes.text(x + 0.018, y, text, fontsize=7.5, va="center")
        x += 0.045 + 0.0092 * len(text)
    if left > 0:
        axes.text(
            0.01,
            y,
            f"the first {MOST_ROWS}; {left} more are in report.json",
            fontsize=7.5,
            va="center",
        )


def _allowed(axes: Any, x: float, y: float) -> None:
    axes.plot([x - 0.008, x + 0.010], [y, y], color=ALLOWED, linewidth=8, solid_capstyle="butt")


def _point(axes: Any, x: float, y: float) -> None:
    axes.plot([x], [y], marker="o", markersize=6, color=HOLDS, zorder=4)


def _cross(axes: Any, x: float, y: float) -> None:
    axes.plot([x], [y], marker="x", markersize=7, markeredgewidth=2.2, color=MISSES, zorder=4)


def _diamond(axes: Any, x: float, y: float) -> None:
    axes.plot(
        [x],
        [y],
        marker="D",
        markersize=6,
        color="#000000",
        markerfacecolor="none",
        markeredgewidth=1.2,
        zorder=3,
    )


def _words(check: Check) -> str:
    """What is checked, and its code; of a check without words the code alone."""
    text = check.name if check.what is None else f"{check.what} ({check.name})"
    return "\n".join(textwrap.wrap(text, WORDS_WIDTH, break_on_hyphens=False)) or check.name


def allowed(check: Check) -> tuple[float | None, float | None]:
    """The least and the largest value that hold; None: no such bound."""
    bound = check.bound
    if "approx" in bound:
        return bound["approx"] - bound["tolerance"], bound["approx"] + bound["tolerance"]
    if "eq" in bound:
        return bound["eq"], bound["eq"]
    return bound.get("ge"), bound.get("le")


def extent(check: Check) -> tuple[float, float]:
    """What a row's lane spans: the value, what was published and the bounds, with an edge."""
    low, high = allowed(check)
    points = [at for at in (check.value, check.published, low, high) if at is not None]
    least, most = min(points), max(points)
    if least == most:
        edge = abs(least) or 1.0
        return least - edge, most + edge
    edge = 0.18 * (most - least)
    return least - edge, most + edge


def _lane(axes: Any, check: Check, y: float, height: float) -> None:
    least, most = extent(check)
    low, high = allowed(check)

    def place(value: float) -> float:
        return LEFT + MIDDLE * (value - least) / (most - least)

    begin = LEFT if low is None else place(low)
    end = LEFT + MIDDLE if high is None else place(high)
    axes.plot([LEFT, LEFT + MIDDLE], [y, y], color="#c8c8c8", linewidth=0.8, zorder=1)
    # A bound of one value still has a width on paper.
    begin, end = (begin, end) if end - begin > 0.004 else (begin - 0.002, end + 0.002)
    axes.fill_between(
        [begin, end], y - 0.32 * height, y + 0.32 * height, color=ALLOWED, zorder=1, linewidth=0
    )
    if least < 0 < most:
        axes.plot(
            [place(0)] * 2,
            [y - 0.38 * height, y + 0.38 * height],
            color="#777777",
            linewidth=0.7,
            zorder=2,
        )
        axes.text(
            place(0),
            y + 0.36 * height,
            "0",
            fontsize=5.5,
            ha="center",
            va="bottom",
            color="#777777",
            zorder=2,
        )
    if check.published is not None:
        _diamond(axes, place(check.published), y)
    if check.value is not None:
        (_point if check.ok else _cross)(axes, place(check.value), y)


def _numbers(check: Check) -> str:
    """The value and beside it the bound, and what was published."""
    if check.value is None:
        return textwrap.shorten(f"not measured: {check.reason}", 46)
    published = (
        ""
        if check.published is None
        else (f"  (published {number_text(check.published, check.unit)})")
    )
    value = number_text(check.value, check.unit)
    if "eq" in check.bound and check.ok:  # a count, or yes and no
        return f"{value}, as it must be{published}"
    return f"{value}  [{check.bound_text}]{published}"
