"""Every relation: importing this registers them all."""

from . import laws as laws
from . import lifetimes as lifetimes
from . import marking as marking
from . import naming as naming
from . import neighbours as neighbours
from . import patching as patching
from . import rounds as rounds
from . import sameness as sameness
from . import scaling as scaling
from . import stepping as stepping
from . import sums as sums
from . import watching as watching
