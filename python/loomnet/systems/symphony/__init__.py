"""Symphony (arXiv 2604.16880): switches that keep the steps of a ring together. This module has the
fabric of its experiments and the bounds that its results stand beside."""

from loomnet.systems.symphony.bound import CASES as CASES
from loomnet.systems.symphony.bound import EARLIER as EARLIER
from loomnet.systems.symphony.bound import FluidGain as FluidGain
from loomnet.systems.symphony.bound import SeedGain as SeedGain
from loomnet.systems.symphony.bound import fluid_gain as fluid_gain
from loomnet.systems.symphony.fabric import UPLINKS as UPLINKS
from loomnet.systems.symphony.fabric import ring_fabric as ring_fabric
