"""Assigners: which servers of a region circuits join. The engine has rules by name; a class of a
user's takes their place."""

from __future__ import annotations

from typing import Any

import numpy as np

from loomnet.base.errors import PluginError, UsageError
from loomnet.base.names import did_you_mean, quoted
from loomnet.plugins.failures import asked, defined_at
from loomnet.plugins.registry import ASSIGNMENT, registered, registered_names

# "skip": MixNet's greedy rule, which passes over a pair that lacks a free port. "literal": as
# printed, ending there. "htsim": of its authors' simulator. "share": demand over circuits and one
# more, so that a cold pair does not come before a hot one. "random": whatever the demand.
RULES = ("skip", "literal", "htsim", "share", "random")


class Assigner:
    """Base of an assigner; a class without it that has the same method is as good."""

    def assign(self, demand: np.ndarray, free: np.ndarray, previous: np.ndarray) -> np.ndarray:
        """Circuits of each pair of servers: whole numbers (servers, servers), symmetrical, zeros on
        the diagonal, each row's sum at most the server's free ports.

        Args:
            demand: what pairs exchange, (servers, servers), symmetrical, zeros on the diagonal.
            free: optical ports of each server that work, (servers,).
            previous: the circuits that there are, as they are returned.
        """
        raise NotImplementedError


def check_rule(where: str, name: Any) -> None:
    """Raises UsageError where the name is neither a rule of the engine nor a plug-in's."""
    if isinstance(name, str) and (name in RULES or registered(ASSIGNMENT, name)):
        return
    known = (*RULES, *registered_names(ASSIGNMENT))
    hint = did_you_mean(name, known) if isinstance(name, str) else ""
    raise UsageError(f"{where}: rule {quoted(name)} is none of {', '.join(known)}{hint}")


def assigner_made(name: str) -> Any:
    """An object of the class registered by that name; None for a rule of the engine. Raises
    PluginError."""
    made = registered(ASSIGNMENT, name)
    if made is None:
        return None
    with asked(f'assignment "{name}"', "__init__"):
        return made()


def circuits_of(
    name: str, plugin: Any, demand: np.ndarray, free: np.ndarray, previous: np.ndarray
) -> np.ndarray:
    """What the plug-in of that name assigns. Raises PluginError where it does not keep its
    contract."""
    where = f'assignment "{name}"'
    given = [each.copy() for each in (demand, free, previous)]
    with asked(where, "assign"):
        found = np.asarray(plugin.assign(*given))
    at = defined_at(plugin.assign)
    if found.shape != demand.shape or found.dtype.kind not in "iu":
        raise PluginError(
            f"{where}: assign gave {quoted(found.tolist())}, which is no array "
            f"{demand.shape} of whole numbers{at}"
        )
    circuits = found.astype(np.int64)
    if (circuits < 0).any():
        raise PluginError(f"{where}: assign gave less than 0 circuits{at}")
    if (circuits != circuits.T).any() or circuits.diagonal().any():
        raise PluginError(
            f"{where}: assign gave circuits that are not symmetrical with zeros on the diagonal{at}"
        )
    over = np.flatnonzero(circuits.sum(axis=1) > free)
    if over.size:
        server = int(over[0])
        raise PluginError(
            f"{where}: assign gave server {server} {circuits[server].sum()} circuits "
            f"for {free[server]} free ports{at}"
        )
    return circuits
