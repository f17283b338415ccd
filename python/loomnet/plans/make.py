"""From a fabric to its plan: of the whole, or of the part that some hosts can meet."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from loomnet.base.errors import FabricError
from loomnet.base.names import quoted
from loomnet.fabrics.link_settings import LinkDefaults
from loomnet.fabrics.model import Fabric
from loomnet.plans.model import Plan
from loomnet.plans.partial import partial_plan
from loomnet.plans.usid_plan import Style
from loomnet.plans.whole import whole_plan

DEFAULTS = LinkDefaults()


def check_seed(seed: Any) -> None:
    """Raises FabricError for what is no seed."""
    if type(seed) is not int or not 0 <= seed < 2**64:
        raise FabricError(f"seed {quoted(seed)} must be a whole number from 0 to 2^64 - 1")


def make_plan(
    fabric: Fabric,
    *,
    seed: int = 0,
    style: Style = "uN",
    hosts: Iterable[int] | None = None,
    defaults: LinkDefaults = DEFAULTS,
) -> Plan:
    """Checks a fabric and works out every number. Raises FabricError or AddressError.

    `defaults`: how switches queue packets where links do not say.

    `hosts`: only what traffic among these hosts (numbers) can meet, with the numbers, addresses and
    seeds of the whole; the fabric must be regular and without overrides.
    """
    check_seed(seed)
    if hosts is not None:
        return partial_plan(fabric, hosts, seed, style, defaults)
    return whole_plan(fabric, seed, style, defaults)
