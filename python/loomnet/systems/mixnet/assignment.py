"""Which servers of a region circuits join, and by which ports of its panel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loomnet.base.errors import UsageError
from loomnet.base.names import did_you_mean, quoted

# "skip": MixNet's greedy rule, which passes over a pair that lacks a free port. "literal": as
# printed, ending there. "htsim": of its authors' simulator. "share": demand over circuits and one
# more, so that a cold pair does not come before a hot one. "random": whatever the demand.
RULES = ("skip", "literal", "htsim", "share", "random")
_MOST = 2**63


@dataclass(frozen=True, eq=False)
class Assignment:
    """circuits: of each pair of servers, a symmetrical array (servers, servers) with zeros on the
    diagonal; order: the pairs as circuits were granted."""

    circuits: np.ndarray
    order: tuple[tuple[int, int], ...]

    @property
    def count(self) -> int:
        """Circuits in all; each is two cross-connects."""
        return int(self.circuits.sum()) // 2

    def covered(self, demand: Any) -> float:
        """The share of the demand between servers that have a circuit, 0 to 1; 1 without any."""
        wanted = _matrix("demand", demand)
        total = int(wanted.sum())
        return int(wanted[self.circuits > 0].sum()) / total if total else 1.0


def assign(demand: Any, free: int | Sequence[int], *, rule: str = "skip",
           seed: int = 0) -> Assignment:
    """Circuits for a region's demand.

    Args:
        demand: of each pair of servers, (servers, servers), whole numbers, symmetrical, zeros on
            the diagonal.
        free: optical ports of every server, or of each; a server that has failed has 0.
        rule: one of RULES.
        seed: of the rule "random".

    Raises:
        UsageError: the demand is no such matrix, or no rule has that name.
    """
    import loomnet._core as _core  # `loomnet cost` alone needs no engine

    wanted = _matrix("demand", demand)
    if rule not in RULES:
        hint = did_you_mean(rule, RULES) if isinstance(rule, str) else ""
        raise UsageError(f"mixnet.assign: rule {quoted(rule)} is none of {', '.join(RULES)}{hint}")
    servers = len(wanted)
    ports = [free] * servers if isinstance(free, int) else list(free)
    if not all(isinstance(each, (int, np.integer)) and 0 <= each < 2**16 for each in ports):
        raise UsageError(f"mixnet.assign: free: {quoted(free)} is not a number of ports, or one "
                         "for each server, from 0")
    try:
        found, order = _core.assign_circuits(wanted.ravel().tolist(), ports, rule, seed)
    except (ValueError, TypeError) as error:
        raise UsageError(f"mixnet.assign: {error}") from None
    return Assignment(np.array(found, dtype=np.int64).reshape(servers, servers), tuple(order))


def map_ports(circuits: Any, demand: Any, *, alpha: int, nics: int = 8,
              previous: Sequence[int] = ()) -> list[int]:
    """The panel's port that each of its ports is joined to, -1 for none. NIC k of the optical ones
    of server i is at port i * alpha + k.

    Ports that join two servers in `previous` are kept as far as the two still have circuits;
    parallel circuits take NICs of different NUMA nodes. Raises UsageError.
    """
    import loomnet._core as _core

    try:
        return _core.map_ports(_matrix("circuits", circuits).ravel().tolist(),
                               _matrix("demand", demand).ravel().tolist(), nics, alpha,
                               list(previous))
    except (ValueError, TypeError) as error:
        raise UsageError(f"mixnet.map_ports: {error}") from None


def pair_demand(tokens: Any, *, tensor_parallel: int = 1, gpus_per_server: int = 8,
                duplex: str = "sum") -> np.ndarray:
    """What pairs of servers exchange in one all-to-all of experts, both directions together
    (`duplex="sum"`) or the busier one ("max"), in tokens' parts on one GPU. tokens: of each source
    rank for each expert, (experts, experts), all rows of one sum. Raises UsageError."""
    import loomnet._core as _core

    counts = _matrix("tokens", tokens)
    try:
        found = _core.pair_demand(len(counts), counts.ravel().tolist(), tensor_parallel,
                                  gpus_per_server, duplex)
    except (ValueError, TypeError) as error:
        raise UsageError(f"mixnet.pair_demand: {error}") from None
    servers = round(len(found) ** 0.5)
    return np.array(found, dtype=np.int64).reshape(servers, servers)


def _matrix(name: str, value: Any) -> np.ndarray:
    """A square array of whole numbers from 0. Raises UsageError."""
    try:
        found = np.asarray(value)
    except (ValueError, TypeError):
        found = np.empty(0)
    if found.ndim != 2 or len({*found.shape}) != 1 or not found.size:
        raise UsageError(f"mixnet: {name}: a square matrix is needed, not {quoted(value)}")
    if found.dtype.kind not in "iu" or int(found.min()) < 0 or int(found.max()) >= _MOST:
        raise UsageError(f"mixnet: {name}: its entries must be whole numbers from 0")
    return found
