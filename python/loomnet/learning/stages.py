"""What a training file says: by which bottlenecks a policy is trained, stage by stage, when a stage
ends, and which bottlenecks choose and judge the policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from loomnet.base.errors import UsageError
from loomnet.learning.bottleneck import Bottleneck, Flow
from loomnet.learning.grid import Point, Ranges

if TYPE_CHECKING:
    from loomnet.learning.batch import Reward, RewardFunction
    from loomnet.learning.td3 import Td3
    from loomnet.learning.training import Pace

MOST_FLOWS = 1024  # of a bottleneck; an episode has a row for each
TEACHER = "teacher"  # Astraea's rule
BOUNDS = ("contested_jain", "steady_jain", "utilisation", "least_to_most", "score")


@dataclass(frozen=True)
class Cloning:
    """Before it learns by rewards, the policy imitates Astraea's rule (policy="teacher").

    Attributes:
        draw: of bottlenecks.
        below: mean squared error on episodes that are not learned from, at which cloning ends.
        most: steps of the actor at most.
    """

    draw: Callable[[np.random.Generator], Bottleneck]
    below: float = 0.02
    most: int = 20_000


@dataclass(frozen=True)
class Stage:
    """Bottlenecks to learn on, until the policy does well on others like them.

    Attributes:
        name: short, as "S1".
        draw: makes a bottleneck of a generator; flows without `cc` learn.
        most: updates of the learner at most.
        leave: least values of scores, all of which end the stage: BOUNDS. They are means over
            `held` bottlenecks of `draw` that are not learned from. Empty: none ends it.
        held: how many.
    """

    name: str
    draw: Callable[[np.random.Generator], Bottleneck]
    most: int
    leave: Mapping[str, float] = field(default_factory=dict)
    held: int = 6

    def __post_init__(self) -> None:
        if self.most < 1 or self.held < 1:
            raise UsageError(f"Stage {self.name}: most and held: give 1 or more")
        for name in self.leave:
            if name not in BOUNDS:
                raise UsageError(
                    f"Stage {self.name}: leave: no score {name!r}; there are {', '.join(BOUNDS)}"
                )


@dataclass(frozen=True)
class Curriculum:
    """One training, whatever its seed: what @curriculum returns.

    Attributes:
        stages: in order. In the last one the policy is chosen.
        flows: the most that any of their bottlenecks has.
        looks: updates from one look at the policy to the next.
        patience: looks of the last stage without a better score, after which the training ends.
        watched: points that are scored at each look; the policy with the best mean is kept.
        selection: points by whose mean the seeds are compared, each scored once.
        sealed: points by which the chosen policy is judged, once.
        ranges: what the policy is trained for; sealed points within and beyond are told apart.
        beside: controls that are scored on the selection grid as well: names of congestion
            controls, and "teacher".
        judged: controls that are scored on the sealed grid as well.
        cloning: what precedes the first stage; None: nothing.
        constants, pace, reward: of the learner; None: those of `Td3()`, `Pace()`, `Reward()`.
        tcp: options of Astraea's control, as Bottleneck.tcp; all bottlenecks have them.
    """

    stages: Sequence[Stage]
    flows: int
    looks: int = 10_000
    patience: int = 10
    watched: Sequence[Point] = ()
    selection: Sequence[Point] = ()
    sealed: Sequence[Point] = ()
    ranges: Ranges = field(default_factory=Ranges)
    beside: Sequence[str] = ()
    judged: Sequence[str] = ()
    cloning: Cloning | None = None
    constants: Td3 | None = None
    pace: Pace | None = None
    reward: Reward | RewardFunction | None = None
    tcp: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, kind in (
            ("stages", Stage),
            ("watched", Point),
            ("selection", Point),
            ("sealed", Point),
        ):
            for each in getattr(self, name):
                if not isinstance(each, kind):
                    raise UsageError(
                        f"Curriculum.{name}: a {type(each).__name__} among them; give "
                        f"{kind.__name__}s"
                    )
        if not self.stages or not self.watched or not self.selection:
            raise UsageError("Curriculum: give a stage, watched points and selection points")
        names = [each.name for each in self.stages]
        if len(set(names)) < len(names):
            raise UsageError(f"Curriculum.stages: two have one name: {', '.join(names)}")
        if self.cloning is not None and self.tcp.get("action") in ("absolute", "factor"):
            raise UsageError(
                "Curriculum.cloning: the rule's actions are factors of the window or the rate, "
                f"those of action={self.tcp['action']!r} are not; leave cloning out"
            )
        if self.looks < 1 or self.patience < 1 or not 1 <= self.flows <= MOST_FLOWS:
            raise UsageError(
                "Curriculum: looks, patience and flows: give 1 or more; flows: at most "
                f"{MOST_FLOWS}"
            )
        for name in ("watched", "selection"):
            if not any(each.counts for each in getattr(self, name)):
                raise UsageError(
                    f"Curriculum.{name}: on no point do the least windows of all flows fit on the "
                    "path and in the queue; give some with larger links or fewer flows"
                )
        for name in ("beside", "judged"):
            for control in getattr(self, name):
                self._check_control(name, control)
        known = set(self.selection) | set(self.watched)
        if both := [str(each) for each in self.sealed if each in known]:
            raise UsageError(f"Curriculum.sealed: {both[0]} is a point that chooses, too")

    def _check_control(self, name: str, control: str) -> None:
        """Before the training: it is scored at its end, hours later."""
        if control == TEACHER:
            return
        try:
            Bottleneck(flows=[Flow(cc=control)]).world()
        except UsageError as error:
            raise UsageError(f"Curriculum.{name}: {error}") from None

    @property
    def updates(self) -> int:
        """At most, in all."""
        return sum(each.most for each in self.stages)
