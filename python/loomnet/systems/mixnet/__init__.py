"""MixNet (SIGCOMM 2025, doi 10.1145/3718958.3750465): a fabric whose optical circuits are patched
anew while a mixture of experts trains. This module
has the demand of a region, the rules that assign circuits, and models of expert loads."""

from typing import TYPE_CHECKING

from loomnet.base.late_names import late_names
from loomnet.systems.mixnet.run import Experts

if TYPE_CHECKING:  # read by type checkers and editors; a run needs few of them
    from loomnet.systems.mixnet.assignment import RULES as RULES
    from loomnet.systems.mixnet.assignment import Assignment as Assignment
    from loomnet.systems.mixnet.assignment import assign as assign
    from loomnet.systems.mixnet.assignment import map_ports as map_ports
    from loomnet.systems.mixnet.assignment import pair_demand as pair_demand
    from loomnet.systems.mixnet.drift import Drift as Drift
    from loomnet.systems.mixnet.fabric import NETWORKS as NETWORKS
    from loomnet.systems.mixnet.weights import PUBLISHED as PUBLISHED
    from loomnet.systems.mixnet.weights import read_weights as read_weights

RUN_PARTS = (Experts,)

if not TYPE_CHECKING:  # to type checkers a module with __getattr__ has every name
    __getattr__ = late_names(
        __name__,
        {
            "assignment": ("RULES", "Assignment", "assign", "map_ports", "pair_demand"),
            "drift": ("Drift",),
            "fabric": ("NETWORKS",),
            "weights": ("PUBLISHED", "read_weights"),
        },
    )
