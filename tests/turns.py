"""Which of the tests marked `in_turns` a commit draws, so that the whole suite ends in time."""

import hashlib

SEED = "LOOMNET_RELATIONS_SEED"  # of the commit, where script/test runs the whole suite


def has_turn(nodeid: str, seed: str) -> bool:
    """Every other commit draws a test, another half of them each."""
    name = nodeid.rpartition("/")[2]
    return hashlib.sha256(f"{seed} {name}".encode()).digest()[0] % 2 == 0
