"""What the experiments with Symphony (arXiv 2604.16880) need beside Loomnet: fabric, conditions,
the fluid model and pictures, and the witness of marks in a capture."""

from .chosen import chosen as chosen
from .experiment import KINDS as KINDS
from .experiment import RATE_BPS as RATE_BPS
from .experiment import Condition as Condition
from .experiment import Outcome as Outcome
from .experiment import Pair as Pair
from .experiment import Spread as Spread
from .experiment import counted as counted
from .experiment import marks_by_switch as marks_by_switch
from .experiment import run_pair as run_pair
from .fabric import UPLINKS as UPLINKS
from .fabric import ring_fabric as ring_fabric
from .fluid import CASES as CASES
from .fluid import EARLIER as EARLIER
from .fluid import FluidGain as FluidGain
from .fluid import SeedGain as SeedGain
from .fluid import fluid_gain as fluid_gain
from .hostile import RingClaim as RingClaim
from .hostile import liars as liars
from .hostile import shared_fabric as shared_fabric
from .pictures import PUBLISHED as PUBLISHED
from .pictures import GainRow as GainRow
from .pictures import gain_figure as gain_figure
from .pictures import marks_figure as marks_figure
from .pictures import steps_figure as steps_figure
from .witness import STEP as STEP
from .witness import SeenMark as SeenMark
from .witness import departures as departures
from .witness import marks_seen as marks_seen
