"""Where the sockets of live runs' panels lie: what the runs and those who ask them agree on."""

from __future__ import annotations

from pathlib import Path

STATE = Path("/run/loomnet")  # of root's runs
FOLDER = "ocs"  # STATE/FOLDER/<run>/<panel>
_MOST_NAME = 60  # characters: a socket's path has 108 at most


def socket_name(panel: str, index: int) -> str:
    """Of a panel's socket in its run's folder."""
    return panel if len(panel) <= _MOST_NAME else f"panel{index}"
