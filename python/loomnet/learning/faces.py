"""Where Gymnasium and PettingZoo find the environments; neither is imported before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loomnet.base.errors import UnavailableError
from loomnet.base.installing import install_line

if TYPE_CHECKING:
    from loomnet.learning.batch import Reward
    from loomnet.learning.bottleneck import Bottleneck
    from loomnet.learning.parallel import SharedBottleneck


def register() -> None:
    """Gymnasium calls it as it is imported (entry point `gymnasium.envs`), in the namespace of that
    entry point's name: the environment is `loomnet/OneFlow-v0`."""
    import gymnasium

    gymnasium.register("OneFlow-v0", entry_point="loomnet.learning.one_flow:OneFlow")


def parallel_env(bottleneck: Bottleneck, *, reward: Reward | None = None) -> SharedBottleneck:
    """A bottleneck as PettingZoo's ParallelEnv, an agent for each flow that learns: see
    SharedBottleneck."""
    try:
        from loomnet.learning.parallel import SharedBottleneck
    except ImportError as error:
        raise UnavailableError(
            f"parallel_env needs PettingZoo ({error}): {install_line('rl')}"
        ) from None
    return SharedBottleneck(bottleneck, reward=reward)
