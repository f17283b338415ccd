"""Ranks that hang, at every point of their life and in every way: what each clock must say."""

from itertools import product
from pathlib import Path

SCRIPT = Path(__file__).parent / "plain_ranks" / "hangs.py"
STAGES = (
    "before_init",
    "rendezvous",
    "first_collective",
    "before_step",
    "after_step",
    "no_optimizer",
)
WAYS = ("receive", "missing", "sleep", "file")
CASES = [
    (stage, way)
    for stage, way in product(STAGES, WAYS)
    if way != "receive" or stage not in ("before_init", "rendezvous")
]  # there is no group yet


def check(result, stage: str, way: str) -> None:
    """The job has ended, and its error names what each rank waits for."""
    assert result.data.ended in ("stalled", "failed"), result.data.ended
    message = result.data.errors[0].message
    assert "--max-wall" not in message, message
    ranks = message.split("\n  rank ")[1:]
    assert len(ranks) == 2, message
    first, second = ranks
    if stage == "before_init":
        # Without PyTorch a rank cannot write its stack.
        assert "not imported torch.distributed yet" in first, message
        assert way == "missing" or "not imported torch.distributed yet" in second, message
        return
    if way == "missing":
        assert second.splitlines()[0] == "1 has ended", message
    else:
        assert f"{SCRIPT.name}:" in second and "in hang" in second, message
    assert f"{SCRIPT.name}:" in first, message
    if way == "receive":
        assert ", in recv" in first.splitlines()[0] and ", in recv" in second.splitlines()[0]
    elif stage not in ("before_init", "rendezvous"):
        assert ", in all_reduce" in first.splitlines()[0], message
