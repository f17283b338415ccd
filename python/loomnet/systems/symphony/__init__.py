"""Symphony (arXiv 2604.16880): switches that keep the steps of a ring together. This module has the
fabric of its experiments and the bounds that its results stand beside."""

from loomnet.jobs.flows import RingClaim as RingClaim
from loomnet.systems.symphony.bound import CASES as CASES
from loomnet.systems.symphony.bound import EARLIER as EARLIER
from loomnet.systems.symphony.bound import FluidGain as FluidGain
from loomnet.systems.symphony.bound import SeedGain as SeedGain
from loomnet.systems.symphony.bound import fluid_gain as fluid_gain
from loomnet.systems.symphony.chosen import chosen as chosen
from loomnet.systems.symphony.experiment import RATE_BPS as RATE_BPS
from loomnet.systems.symphony.experiment import Condition as Condition
from loomnet.systems.symphony.experiment import Outcome as Outcome
from loomnet.systems.symphony.experiment import Pair as Pair
from loomnet.systems.symphony.experiment import counted as counted
from loomnet.systems.symphony.experiment import marks_by_switch as marks_by_switch
from loomnet.systems.symphony.experiment import run_pair as run_pair
from loomnet.systems.symphony.fabric import UPLINKS as UPLINKS
from loomnet.systems.symphony.fabric import ring_fabric as ring_fabric
from loomnet.systems.symphony.hostile import liars as liars
from loomnet.systems.symphony.hostile import shared_fabric as shared_fabric
from loomnet.systems.symphony.pictures import PUBLISHED as PUBLISHED
from loomnet.systems.symphony.pictures import GainRow as GainRow
from loomnet.systems.symphony.pictures import gain_figure as gain_figure
from loomnet.systems.symphony.pictures import marks_figure as marks_figure
from loomnet.systems.symphony.pictures import steps_figure as steps_figure
from loomnet.systems.symphony.program import Symphony
from loomnet.systems.symphony.run import Rings
from loomnet.systems.symphony.witness import STEP as STEP
from loomnet.systems.symphony.witness import SeenMark as SeenMark
from loomnet.systems.symphony.witness import departures as departures
from loomnet.systems.symphony.witness import marks_seen as marks_seen

PROGRAMS = (Symphony(),)
RUN_PARTS = (Rings,)
