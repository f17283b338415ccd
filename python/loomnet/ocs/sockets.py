"""Paths of the UNIX sockets of live runs' panels, for the runs and for their clients."""

from __future__ import annotations

from pathlib import Path

STATE = Path("/run/loomnet")  # of root's runs
FOLDER = "ocs"  # STATE/FOLDER/<run>/<panel>
_MOST_NAME = 60  # characters; the path of a UNIX socket has at most 108


def socket_name(panel: str, index: int) -> str:
    """The name of a panel's socket in its run's folder."""
    return panel if len(panel) <= _MOST_NAME else f"panel{index}"
