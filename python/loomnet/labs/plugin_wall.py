"""A plug-in that does not come back is ended by the wall time of the run that called it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from loomnet.base.wall_time import suspended

P = ParamSpec("P")
T = TypeVar("T")


def plugins_end_with_it(run: Callable[P, T]) -> Callable[P, T]:
    """Decorator of Lab.run: where each run of a lab has a wall time of its own, it ends a plug-in
    that does not come back, as a scenario's does."""

    @functools.wraps(run)
    def wrapper(*args: P.args, **values: P.kwargs) -> T:
        lab: Any = args[0]
        with lab.wall_of_one_run, suspended():
            return run(*args, **values)

    return wrapper
