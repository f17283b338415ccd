"""What a relation is: a function of a trial, which runs a world and changed worlds and returns a
line for each thing that does not hold."""

from __future__ import annotations

import contextlib
import random
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from . import jobs
from .facts import facts
from .worlds import TORCH, Outcome, Refused, TooLong, Wants, World, a_world, run


class Unfit(Exception):
    """The relation says nothing of this world; the text is why."""


class Excepted(Exception):
    """The relation does not hold of this world, and need not: the text is the reason."""


class Trial:
    """One world under one relation. `draw`: of what the relation chooses itself."""

    def __init__(self, world: World, draw: random.Random) -> None:
        self.world, self.draw = world, draw

    @cached_property
    def base(self) -> Outcome:
        """The world as it was drawn. Raises Unfit where it is refused."""
        try:
            return run(self.world)
        except Refused as refused:
            raise Unfit(f"refused: {refused}") from None

    @cached_property
    def facts(self) -> dict[tuple[str, ...], Any]:
        return facts(self.base)

    def finished(self) -> Outcome:
        """The base, which must have come to its end."""
        if not self.base.finished:
            raise Unfit("a job did not finish")
        return self.base

    def run(self, world: World, **options: Any) -> Outcome:
        _ = self.base  # a world that is refused is no trial
        return run(world, **options)


Found = list[str] | None
Function = Callable[[Trial], Found]


@dataclass(frozen=True)
class Relation:
    """`nearly`: it has a tolerance, and is broken where most of five seeds break it."""

    name: str
    says: str
    function: Function
    wants: Wants
    nearly: bool = False

    def world(self, token: str) -> World:
        """The world of a token."""
        wants = _of_ranks(self.wants) if token.startswith(TORCH) else self.wants
        return a_world(self.name, token, wants)


def _of_ranks(wants: Wants) -> Wants:
    """The same for real PyTorch ranks, of which each run takes seconds."""
    return replace(
        wants,
        kinds=jobs.TORCH,
        transports=("mrc", "roce", "gloo"),
        more=0,
        fabrics=("star", "two_tier"),
        simple=True,
        settings=False,
    )


RELATIONS: dict[str, Relation] = {}


def relation(
    wants: Wants | None = None, *, nearly: bool = False, **changes: Any
) -> Callable[[Function], Function]:
    """Registers a function under its own name; its docstring is what it says. `changes` of
    Wants."""

    def register(function: Function) -> Function:
        name = function.__name__
        assert name not in RELATIONS and function.__doc__
        RELATIONS[name] = Relation(
            name,
            " ".join(function.__doc__.split()),
            function,
            replace(wants or Wants(), **changes),
            nearly,
        )
        return function

    return register


@dataclass(frozen=True)
class Verdict:
    """Of one trial. `kind`: "held", "broken", "excepted" or "unfit"; `reason` of the last two."""

    relation: str
    token: str
    kind: str
    lines: tuple[str, ...] = ()
    reason: str = ""

    @property
    def replay(self) -> str:
        return f"python tests/python/relations {self.relation} {self.token}"


OTHER_SEEDS = 4


def _by_chance(each: Relation, token: str, world: World) -> bool:
    """Whether most of five seeds hold where this one does not."""
    held = 0
    for more in range(1, OTHER_SEEDS + 1):
        with contextlib.suppress(Unfit, Excepted):
            held += not each.function(_trial(each, token, world.but(seed=world.seed + more)))
    return held > OTHER_SEEDS / 2


def _trial(each: Relation, token: str, world: World) -> Trial:
    return Trial(world, random.Random(f"{each.name} {token} chooses"))


def judge(name: str, token: str, world: World | None = None) -> Verdict:
    """Tries a relation on the world of a token, or on one that was made of it."""
    each = RELATIONS[name]
    try:
        world = world or each.world(token)
        lines = each.function(_trial(each, token, world))
        if lines and each.nearly and _by_chance(each, token, world):
            raise Excepted("most other seeds hold")
    except Unfit as unfit:
        return Verdict(name, token, "unfit", reason=str(unfit))
    except TooLong as long:
        return Verdict(name, token, "unfit", reason=f"a run took longer than {long}")
    except Excepted as excepted:
        return Verdict(name, token, "excepted", reason=str(excepted))
    except Refused as refused:
        return Verdict(name, token, "broken", (f"the changed world is refused: {refused}",))
    except Exception:
        return Verdict(name, token, "broken", tuple(traceback.format_exc().splitlines()[-8:]))
    return Verdict(name, token, "broken" if lines else "held", tuple(lines or ()))
