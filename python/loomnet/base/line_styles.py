"""Looks of lines in pictures, told apart by colour, by marker and by dashes, each alone: as many as
there are lines in any picture of Loomnet's own."""

from __future__ import annotations

from typing import Any

# Okabe and Ito's palette without yellow, then five of Tol's and black: told apart by colour-blind
# readers; markers, or dashes where a curve has no markers, say it a second time.
STYLES = (
    ("#0072b2", "o"),
    ("#d55e00", "s"),
    ("#009e73", "^"),
    ("#cc79a7", "D"),
    ("#525252", "v"),
    ("#56b4e9", "P"),
    ("#e69f00", "X"),
    ("#882255", "<"),
    ("#999933", ">"),
    ("#332288", "p"),
    ("#44aa99", "*"),
    ("#000000", "h"),
)
LINES: tuple[Any, ...] = (
    "-",
    (0, (5, 1.5)),
    (0, (1, 1)),
    (0, (6, 1.5, 1, 1.5)),
    (0, (3, 1, 1, 1, 1, 1)),
    (0, (12, 2)),
    (0, (1, 3)),
    (0, (8, 2, 3, 2)),
    (0, (2.5, 2.5)),
    (0, (12, 2, 1, 2, 1, 2)),
    (0, (5, 5)),
    (0, (3, 1.5, 3, 1.5, 1, 1.5)),
)


def style(number: int) -> dict[str, Any]:
    """Colour, marker and line of the `number`th thing in a picture."""
    colour, marker = STYLES[number % len(STYLES)]
    return {"color": colour, "marker": marker, "linestyle": LINES[number % len(LINES)]}


def line_style(number: int) -> dict[str, Any]:
    """The same without a marker, for curves of many points."""
    return {key: value for key, value in style(number).items() if key != "marker"}
