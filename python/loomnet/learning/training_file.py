"""A file that says how a policy is trained: a decorated function with typed parameters that returns
a Curriculum, as a scenario's file has one that plays it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from loomnet.base.arguments import checked_call
from loomnet.base.errors import UsageError
from loomnet.base.wall_time import importing
from loomnet.labs.own_modules import modules_beside
from loomnet.labs.typed_function import TypedFunction, called, loaded
from loomnet.learning.stages import Curriculum


class TrainingFile(TypedFunction):
    """What @curriculum makes of a function that returns a Curriculum."""

    kind, mark, command = "training", "@curriculum", "loomnet train"
    takes, shape = "", "def name(…) -> Curriculum"
    taken = ("seed", "seeds", "out", "jobs")
    several = "a training takes one value of each parameter; several are several trainings"
    none = "a scenario is run by `loomnet run FILE`"

    def made(self, values: Mapping[str, Any]) -> Curriculum:
        """Of these parameters. Raises UsageError."""
        typed = self.validate(dict(values))
        given = {name: typed.__dict__[name] for name in type(typed).model_fields}
        with importing(), modules_beside(self.function.__globals__):
            found = called(self.function, **given)
        if not isinstance(found, Curriculum):
            raise UsageError(
                f"training {self.name} returned a {type(found).__name__}; return a Curriculum"
            )
        return found


@checked_call
def curriculum(function: Callable[..., Curriculum]) -> TrainingFile:
    """Decorator: makes a function of typed parameters that returns a Curriculum a training, which
    `loomnet train` finds."""
    return TrainingFile(function)


def load_training(target: str | Path) -> TrainingFile:
    """The training of `FILE` or `FILE::NAME`. Raises UsageError naming what there is."""
    return loaded(target, TrainingFile)
