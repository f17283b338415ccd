"""
What only tests use.
"""

from __future__ import annotations

__all__: list[str] = ["LoopbackNic"]

class LoopbackNic:
    """
    A NIC for tests: moves writes between local ranks by memcpy, at once.
    """

    def __init__(self, world: int, channels: int = 1, sums: bool = False) -> None: ...
    def fault(self, rank: int) -> str: ...
    def fds(self, rank: int) -> tuple[int, int]:
        """
        (memory, engine's eventfd) of one rank; the NIC owns them.
        """

    def gone(self, rank: int, killed: bool) -> None: ...
    def last_step(self, step: int) -> None:
        """
        Asks all ranks to end after a training step.
        """

    def lose(self, packet: int, every: int) -> None:
        """
        Each `every`-th packet of `packet` bytes that may be lost is; 0: none.
        """

    def set_stalled(self, stalled: bool) -> None: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def take_marks(self, rank: int) -> list[tuple[int, int, int, int, int, int]]:
        """
        [(kind, status, at_ns, value, a, b)] since the last call.
        """

    def take_sum_attributes(self, rank: int) -> list[tuple[int, int, int]]:
        """
        [(sequence, layer, priority)] of the rank's parts of sums since the last call.
        """

    @property
    def all_waiting(self) -> bool: ...
    @property
    def bytes(self) -> int: ...
    @property
    def sums(self) -> int:
        """
        Parts of sums that were added.
        """
