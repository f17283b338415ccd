"""Shared bottlenecks whose congestion control a learner decides for."""

from __future__ import annotations

import contextlib
import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loomnet.learning.batch import FEATURES as FEATURES
    from loomnet.learning.batch import TERMS as TERMS
    from loomnet.learning.batch import Batch as Batch
    from loomnet.learning.batch import Reward as Reward
    from loomnet.learning.batch import RewardFunction as RewardFunction
    from loomnet.learning.batch import Step as Step
    from loomnet.learning.bottleneck import Bottleneck as Bottleneck
    from loomnet.learning.bottleneck import Flow as Flow
    from loomnet.learning.cc_v1 import CC_V1 as CC_V1
    from loomnet.learning.evaluation import evaluate as evaluate
    from loomnet.learning.faces import parallel_env as parallel_env
    from loomnet.learning.grid import Point as Point
    from loomnet.learning.grid import Ranges as Ranges
    from loomnet.learning.stages import Cloning as Cloning
    from loomnet.learning.stages import Curriculum as Curriculum
    from loomnet.learning.stages import Stage as Stage
    from loomnet.learning.training_file import curriculum as curriculum

# Imported when asked for.
_EXPORTS = {
    "FEATURES": "batch",
    "TERMS": "batch",
    "Batch": "batch",
    "Reward": "batch",
    "RewardFunction": "batch",
    "Step": "batch",
    "Bottleneck": "bottleneck",
    "Flow": "bottleneck",
    "CC_V1": "cc_v1",
    "evaluate": "evaluation",
    "parallel_env": "faces",
    "Point": "grid",
    "Ranges": "grid",
    "Cloning": "stages",
    "Curriculum": "stages",
    "Stage": "stages",
    "curriculum": "training_file",
}
__all__ = [*_EXPORTS]  # pyright: ignore[reportUnsupportedDunderAll]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _EXPORTS:
            raise AttributeError(f"module 'loomnet.learning' has no attribute {name!r}")
        value = getattr(importlib.import_module(f"loomnet.learning.{_EXPORTS[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)


# Where Gymnasium is, its make() knows the environments once this package has been imported.
with contextlib.suppress(ImportError):
    import gymnasium

    gymnasium.register("loomnet/OneFlow-v0", entry_point="loomnet.learning.one_flow:OneFlow")
    gymnasium.register(
        "loomnet/SharedBottleneck-v0",
        vector_entry_point="loomnet.learning.shared:SharedBottleneckVector",
    )
    gymnasium.register(
        "loomnet/CC-v1",
        entry_point="loomnet.learning.cc_v1:one_flow",
        vector_entry_point="loomnet.learning.cc_v1:side_by_side",
    )
