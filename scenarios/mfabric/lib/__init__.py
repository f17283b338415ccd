"""What the experiments with MixNet (SIGCOMM 2025, doi 10.1145/3718958.3750465) need beside Loomnet:
its baselines, demands, TopoOpt's links, Copilot, closed forms of when to patch, and pictures."""

from .closed_form import CHOICES as CHOICES
from .closed_form import Game as Game
from .closed_form import game as game
from .closed_form import played as played
from .comparison import BASELINES as BASELINES
from .comparison import compared as compared
from .constants import MODELS as MODELS
from .constants import PEAK as PEAK
from .constants import SIMULATOR as SIMULATOR
from .constants import Fit as Fit
from .constants import compute_of as compute_of
from .constants import fitted as fitted
from .constants import operations_per_second as operations_per_second
from .copilot import Copilot as Copilot
from .demands import bursts as bursts
from .demands import mixed as mixed
from .demands import moving_pairs as moving_pairs
from .demands import recorded as recorded
from .figures import circuits_figure as circuits_figure
from .figures import strip_figure as strip_figure
from .readings import ASSIGNMENTS as ASSIGNMENTS
from .readings import DELAY_TEXT as DELAY_TEXT
from .readings import DELAYS as DELAYS
from .readings import Reading as Reading
from .readings import agreement_table as agreement_table
from .readings import near as near
from .readings import ratio_table as ratio_table
from .readings import readings as readings
from .topoopt import topoopt_links as topoopt_links
