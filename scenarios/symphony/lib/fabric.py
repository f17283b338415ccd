"""The fabric of Symphony's experiments: two leaves, and a ring whose hops all cross the uplinks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loomnet.base.arguments import checked_call
from loomnet.base.errors import FabricError
from loomnet.base.names import quoted
from loomnet.base.units import Rate, Size, Time
from loomnet.fabrics.clos import two_tier
from loomnet.fabrics.ecn import Ecn
from loomnet.fabrics.pfc import Pfc

if TYPE_CHECKING:
    from loomnet.fabrics.model import Fabric

# The directions that carry a ring's steps from leaf to leaf, for ln.bursts and ln.degrade.
UPLINKS = "p0.leaf*->p0.spine*"
_MOST_HOSTS = 512
_XOFF = "4 MB"  # of a port: an eighth of the 32 MB that the simulators of DCQCN give a switch
_DEEP = "64 MB"  # of a queue without PFC: nothing is lost
# Marking of DCQCN's simulators at this rate; thresholds grow with the rate.
_RATE, _LOW, _HIGH, _SHARE = 100 * 10**9, 400_000, 1_600_000, 0.2


@checked_call
def ring_fabric(
    hosts: int = 16,
    *,
    oversubscription: int = 1,
    rate: Rate | str = "100 Gb/s",
    delay: Time | str = "1 us",
    payload: Size | str = "4096 B",
    pfc: Pfc | bool = True,
    ecn: Ecn | bool | None = None,
    queue: str = "priority",
    **options: Any,
) -> Fabric:
    """Hosts in turn on two leaves, so that both neighbours of a rank are on the other leaf, and
    hosts / oversubscription uplinks between them, half of them above each leaf, a spine for each.

    A step's flow crosses one uplink, which its hash chooses. The link from the spine down carries
    the flows of one uplink alone, and the last link one flow: flows of a ring meet on uplinks only.
    fluid_gain(leaves=2) is the fluid model of it.

    Args:
        hosts: an even number, from 4; a multiple of 2 x `oversubscription`.
        rate, delay: of each link.
        payload: of a full packet of RoCE, a power of two up to 4096 B.
        pfc: True: PFC with xoff 4 MB, for which marks come before pauses; False: queues of 64 MB,
            which lose nothing either; or an ln.Pfc.
        ecn: None: from 400 kB to 1,600 kB with 0.2 at 100 Gb/s, other rates in proportion.
        queue, options: discipline of the switches' ports, "laggard_first" for the oracle.

    Raises:
        FabricError: a number that makes no such fabric.
    """
    if type(oversubscription) is not int or oversubscription < 1:
        raise FabricError(
            f"ring_fabric: oversubscription={quoted(oversubscription)} must be a "
            "whole number, 1 or more"
        )
    if type(hosts) is not int or not 4 <= hosts <= _MOST_HOSTS or hosts % (2 * oversubscription):
        over = "" if oversubscription == 1 else f" with oversubscription={oversubscription}"
        raise FabricError(
            f"ring_fabric: hosts={quoted(hosts)} must be a multiple of "
            f"{2 * oversubscription} from {max(4, 2 * oversubscription)} to "
            f"{_MOST_HOSTS}{over}"
        )
    each = Rate.given("ring_fabric: rate", rate)
    if ecn is None:
        low, high = (Size.of(max(at * each.count // _RATE, 1)) for at in (_LOW, _HIGH))
        ecn = Ecn(low, high, share=_SHARE)
    fabric = two_tier(
        planes=1,
        leaves=2,
        spines=hosts // (2 * oversubscription),
        hosts_per_leaf=hosts // 2,
        rate=each,
        delay=delay,
        payload=payload,
        pfc=Pfc(_XOFF) if pfc is True else pfc,
    )
    deep = {} if pfc is not False else {"data_limit": _DEEP}
    fabric.override("*--*", ecn=ecn, queue=queue, **deep, **options)
    fabric.name = f"ring-{hosts}" + (f"-{oversubscription}to1" if oversubscription > 1 else "")
    return fabric
