"""Shared bottlenecks whose congestion control a learner decides for."""

from loomnet.learning.batch import TERMS, Batch, Reward, Step
from loomnet.learning.bottleneck import Bottleneck, Flow

__all__ = ["TERMS", "Batch", "Bottleneck", "Flow", "Reward", "Step"]
