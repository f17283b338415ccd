"""In-network aggregation: switches that sum gradients, and the hosts' half of it, by the rules of
ESA (Wang et al., arXiv 2201.06398), ATP (Lao et al., NSDI 2021) or SwitchML (Sapio et al., NSDI
2021)."""

from loomnet.systems.ina.program import Aggregate
from loomnet.systems.ina.run import Sums
from loomnet.systems.ina.transport import Ina

TRANSPORTS = (Ina(),)
PROGRAMS = (Aggregate(),)
RUN_PARTS = (Sums,)
