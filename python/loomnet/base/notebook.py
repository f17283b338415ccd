"""Jupyter: whether this is its kernel, and axes that it shows."""

from __future__ import annotations

import sys
from typing import Any


def in_notebook() -> bool:
    """Whether this is a Jupyter kernel, which shows what pyplot has drawn below the cell."""
    if "ipykernel" not in sys.modules:
        return False
    from IPython import get_ipython

    return type(get_ipython()).__name__ == "ZMQInteractiveShell"


def new_axes() -> Any:
    """Axes of a figure of their own; pyplot's, with its state, in a notebook alone."""
    if in_notebook():
        from matplotlib import pyplot

        return pyplot.subplots(figsize=(7, 2.6), layout="constrained")[1]
    from matplotlib.figure import Figure

    return Figure(figsize=(7, 2.6), layout="constrained").subplots()
