"""Assigns the circuits of a region to pairs of servers, and to ports of its panel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loomnet.base.errors import UsageError
from loomnet.base.names import quoted
from loomnet.plugins.assignments import RULES as RULES
from loomnet.plugins.assignments import assigner_made, check_rule, circuits_of

_MOST = 2**63


@dataclass(frozen=True, eq=False)
class Assignment:
    """circuits: the number of circuits of each pair of servers, a symmetrical array (servers,
    servers) with zeros on the diagonal. order: the pair of each circuit, in the order in which the
    rule granted them; empty where a plug-in assigned them."""

    circuits: np.ndarray
    order: tuple[tuple[int, int], ...]

    @property
    def count(self) -> int:
        """The number of circuits. Each is two cross-connects."""
        return int(self.circuits.sum()) // 2

    def covered(self, demand: Any) -> float:
        """The share of the demand between servers that have a circuit, 0 to 1; 1 without any.
        Raises UsageError for a demand of another region."""
        wanted = _matrix("demand", demand)
        if wanted.shape != self.circuits.shape:
            raise UsageError(
                f"mixnet.Assignment.covered: demand of {len(wanted)} servers, and "
                f"circuits of {len(self.circuits)}"
            )
        total = int(wanted.sum())
        return int(wanted[self.circuits > 0].sum()) / total if total else 1.0


def assign(
    demand: Any,
    free: int | Sequence[int],
    *,
    rule: str = "skip",
    seed: int = 0,
    ties: str = "free",
    previous: Any = None,
) -> Assignment:
    """Circuits for a region's demand.

    Args:
        demand: of each pair of servers, (servers, servers), whole numbers, symmetrical, zeros on
            the diagonal.
        free: optical ports of every server, or of each; a server that has failed has 0.
        rule: one of RULES, or the name of a plug-in (`@ln.plugin.assignment`).
        seed: of the rule "random".
        ties: which of equal pairs comes first, as CircuitControl has it: "free" or "index".
        previous: circuits that there are, as a plug-in is told; None: there are none.

    Raises:
        UsageError: the demand is no such matrix, or no rule has that name.
        PluginError: a plug-in does not keep its contract.
    """
    import loomnet._core as _core  # imported here, because `loomnet cost` does not need the engine

    wanted = _matrix("demand", demand)
    check_rule("mixnet.assign", rule)
    servers = len(wanted)
    ports = list(free) if isinstance(free, Iterable) else [free] * servers
    if not all(isinstance(each, (int, np.integer)) and 0 <= each < 2**16 for each in ports):
        raise UsageError(
            f"mixnet.assign: free: {quoted(free)} is not a number of ports, or one "
            "for each server, from 0"
        )
    plugin = assigner_made(rule)
    try:
        # The engine checks the demand for a plug-in too.
        found, order = _core.assign_circuits(
            wanted.ravel().tolist(), ports, rule if plugin is None else "skip", seed, ties
        )
    except (ValueError, TypeError) as error:
        raise UsageError(f"mixnet.assign: {error}") from None
    if plugin is not None:
        before = np.zeros_like(wanted) if previous is None else _matrix("previous", previous)
        if before.shape != wanted.shape:
            raise UsageError("mixnet.assign: previous: circuits of another region")
        return Assignment(circuits_of(rule, plugin, wanted, np.array(ports), before), ())
    return Assignment(np.array(found, dtype=np.int64).reshape(servers, servers), tuple(order))


def map_ports(
    circuits: Any, demand: Any, *, alpha: int, nics: int = 8, previous: Sequence[int] = ()
) -> list[int]:
    """For each port of the panel the port that it is joined to, or -1. Optical NIC k of server i is
    at port i * alpha + k.

    Ports that join two servers in `previous` are kept as far as the two still have circuits;
    parallel circuits take NICs of different NUMA nodes. Raises UsageError.
    """
    import loomnet._core as _core

    try:
        joined = _matrix("circuits", circuits)
        if (joined != joined.T).any() or joined.diagonal().any():
            raise UsageError(
                "circuits: an array with zeros on the diagonal, the same both ways, is needed"
            )
        before = list(previous)
        if before and not _are_ports(before, len(joined) * alpha):
            raise UsageError(
                f"previous: {quoted(previous)} is not the port, or -1, that each of "
                f"{len(joined) * alpha} ports is joined to"
            )
        return _core.map_ports(
            joined.ravel().tolist(), _matrix("demand", demand).ravel().tolist(), nics, alpha, before
        )
    except (ValueError, TypeError) as error:
        raise UsageError(f"mixnet.map_ports: {error}") from None


def _are_ports(given: list[Any], ports: int) -> bool:
    return len(given) == ports and all(
        isinstance(each, (int, np.integer)) and -1 <= each < ports for each in given
    )


def pair_demand(
    tokens: Any, *, tensor_parallel: int = 1, gpus_per_server: int = 8, duplex: str = "sum"
) -> np.ndarray:
    """What pairs of servers exchange in one all-to-all of experts: both directions added
    (`duplex="sum"`) or the busier one ("max"). The unit is the part of a token that is on one GPU.
    tokens: the tokens of each source rank for each expert, an array (experts, experts) whose rows
    have equal sums. Raises UsageError."""
    import loomnet._core as _core

    counts = _matrix("tokens", tokens)
    try:
        found = _core.pair_demand(
            len(counts), counts.ravel().tolist(), tensor_parallel, gpus_per_server, duplex
        )
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
