"""A bottleneck for learners of PettingZoo, which is imported when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loomnet.base.errors import UnavailableError
from loomnet.base.installing import install_line

if TYPE_CHECKING:
    from loomnet.learning.batch import Reward, RewardFunction
    from loomnet.learning.bottleneck import Bottleneck
    from loomnet.learning.parallel import SharedBottleneck


def parallel_env(
    bottleneck: Bottleneck, *, reward: Reward | RewardFunction | None = None, waiting: bool = False
) -> SharedBottleneck:
    """A bottleneck as PettingZoo's ParallelEnv, an agent for each flow that learns: see
    SharedBottleneck. `waiting`: agents are there before their flows join."""
    try:
        from loomnet.learning.parallel import SharedBottleneck
    except ImportError as error:
        raise UnavailableError(
            f"parallel_env needs PettingZoo ({error}): {install_line('rl')}"
        ) from None
    return SharedBottleneck(bottleneck, reward=reward, waiting=waiting)
