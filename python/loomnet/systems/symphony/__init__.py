"""Symphony (arXiv 2604.16880): switches that keep the steps of a ring together."""

from loomnet.jobs.flows import RingClaim as RingClaim
from loomnet.systems.symphony.program import Symphony
from loomnet.systems.symphony.run import Rings

PROGRAMS = (Symphony(),)
RUN_PARTS = (Rings,)
