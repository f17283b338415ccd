"""How many parts of each kind a fabric needs: NICs, transceivers, ports, fibres.

Source: MixNet, SIGCOMM 2025, doi 10.1145/3718958.3750465, and its authors' public calculator,
https://mixnet-project.github.io (`src/utils/cost.js`)."""

from __future__ import annotations

from typing import Any

from loomnet.base.arguments import checked_call
from loomnet.base.errors import UsageError
from loomnet.base.names import did_you_mean, in_quotes, quoted

GPUS = 8  # of a server; each has a NIC of its own
MOST_GPUS = 2**40
ALPHA = 6  # NICs of a server on the optical switch, as published
# Switch ports that one NIC of a non-blocking three-tier folded Clos needs: edge down, edge up,
# aggregation down, aggregation up, core down. A transceiver is in each port and in the NIC.
PORTS_PER_NIC = 5

PARTS = ("nic", "transceiver", "electrical_port", "ocs_port", "panel_port", "fibre")
DAC = "dac"  # a copper cable of a NIC to its edge switch, in place of two transceivers and a fibre
FABRICS = {
    "fattree": "non-blocking three-tier fat-tree",
    "rail": "rail-optimised, non-blocking: the parts of the fat-tree",
    "fattree31": "fat-tree, 3:1 oversubscribed at the edge",
    "mixnet": "MixNet: alpha NICs of each server on an optical switch, the others on a fat-tree",
    "topoopt": "TopoOpt: all NICs on a static patch panel",
    "railonly": "rails without a spine; counted by the calculator's formula alone",
}
FORMULAS = ("textbook", "site")
# The calculator counts a sixth port, core up, which a folded Clos does not have, and two tiers for
# rail-only.
_SITE_PORTS_PER_NIC, _SITE_RAIL_ONLY_PORTS = 6, 4


def check_fabric(fabric: Any) -> str:
    """Raises UsageError, with the nearest names, for a fabric without a cost row."""
    if not isinstance(fabric, str) or fabric not in FABRICS:
        raise UsageError(
            f"cost: {in_quotes(fabric)} is not one of {', '.join(FABRICS)}"
            f"{did_you_mean(fabric, FABRICS)}"
        )
    return fabric


def check_gpus(gpus: Any) -> int:
    """Raises UsageError where the GPUs are not those of whole servers."""
    if not isinstance(gpus, int) or isinstance(gpus, bool) or not 0 < gpus <= MOST_GPUS:
        raise UsageError(f"cost: gpus={quoted(gpus)} is not a whole number from {GPUS} to 2^40")
    if gpus % GPUS:
        raise UsageError(
            f"cost: gpus={gpus} is not a multiple of {GPUS}: a server has {GPUS} GPUs;"
            f" nearest: {', '.join(str(n) for n in _around(gpus))}"
        )
    return gpus


def _around(gpus: int) -> list[int]:
    below = gpus // GPUS * GPUS
    return [n for n in (below, below + GPUS) if n]


def check_alpha(alpha: Any) -> int:
    """Raises UsageError for an alpha that a server of eight NICs cannot have."""
    if not isinstance(alpha, int) or isinstance(alpha, bool) or alpha < 0:
        raise UsageError(f"cost: alpha={quoted(alpha)} is not a whole number from 0 to {GPUS}")
    if alpha > GPUS:
        raise UsageError(f"cost: alpha={quoted(alpha)} is above the {GPUS} NICs of a server")
    return alpha


def check_formula(formula: Any) -> str:
    """Raises UsageError for a formula that there is not."""
    if not isinstance(formula, str) or formula not in FORMULAS:
        raise UsageError(f"cost: formula {in_quotes(formula)} is not one of {', '.join(FORMULAS)}")
    return formula


def formula_of(fabric: str, formula: str) -> str:
    """The formula that counts a fabric: rail-only has the calculator's alone."""
    return "site" if fabric == "railonly" else formula


@checked_call
def quantities(
    fabric: str,
    *,
    gpus: int = 1024,
    alpha: int = ALPHA,
    formula: str = "textbook",
    dac: bool = False,
) -> dict[str, int]:
    """Part -> number of pieces, each part of PARTS in this order.

    `alpha`: NICs of each server on the optical switch; only MixNet has one. `formula="site"` counts
    as the authors' calculator does. `dac=True`: copper cables join NICs to edge switches, and are
    the part "dac". Raises UsageError.
    """
    check_fabric(fabric)
    check_gpus(gpus)
    check_alpha(alpha)
    check_formula(formula)
    counted = formula_of(fabric, formula)
    if counted == "site":
        if dac:
            raise UsageError(
                "cost: formula site counts no DAC cables; leave the price of dac out, "
                "or use formula textbook and no railonly"
            )
        found = _site(fabric, gpus, alpha)
    else:
        found = _textbook(fabric, gpus, alpha, dac)
    return {part: found.get(part, 0) for part in (*PARTS, DAC) if part != DAC or dac}


def _textbook(fabric: str, gpus: int, alpha: int, dac: bool) -> dict[str, int]:
    if fabric == "topoopt":
        return {"nic": gpus, "transceiver": gpus, "panel_port": gpus, "fibre": gpus}
    optical = gpus // GPUS * alpha if fabric == "mixnet" else 0
    electrical = gpus - optical
    if fabric == "fattree31":  # a third of the NICs' rate goes up from the edge
        ports = electrical + (PORTS_PER_NIC - 1) * -(-electrical // 3)
    else:
        ports = PORTS_PER_NIC * electrical
    # With copper each NIC of the electrical part saves its own transceiver and its edge port's.
    modules = ports + electrical - (2 * electrical if dac else 0)
    return {
        "nic": gpus,
        "transceiver": modules + optical,
        "electrical_port": ports,
        "ocs_port": optical,
        "fibre": -(-modules // 2) + optical,
        DAC: electrical,
    }


def _site(fabric: str, gpus: int, alpha: int) -> dict[str, int]:
    if fabric == "topoopt":
        return _textbook(fabric, gpus, alpha, dac=False)
    if fabric == "fattree31":
        raise UsageError(
            "cost: formula site has no row for fattree31; it has fattree, rail, "
            "mixnet, topoopt and railonly"
        )
    if fabric == "mixnet":
        optical = gpus // GPUS * alpha
        modules = _SITE_PORTS_PER_NIC * (gpus - optical)
        # No electrical port is priced, and an optical port for every NIC is.
        return {
            "nic": gpus,
            "transceiver": modules + gpus,
            "ocs_port": gpus,
            "fibre": modules // 2 + optical,
        }
    ports = (_SITE_RAIL_ONLY_PORTS if fabric == "railonly" else _SITE_PORTS_PER_NIC) * gpus
    return {
        "nic": gpus,
        "transceiver": ports + gpus,
        "electrical_port": ports,
        "fibre": (ports + gpus) // 2,
    }
