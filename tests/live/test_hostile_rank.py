"""A rank that breaks its contract with the NIC on the live clock: cut off by name, its peers told,
the engine and the machine unharmed."""

import re
from pathlib import Path

import pytest

HOSTILE = Path(__file__).parent / "rank_scripts" / "hostile.py"
PLAIN = Path(__file__).parents[1] / "python" / "plain_ranks" / "hostile.py"


def logs(loomnet) -> dict[int, str]:
    return {int(path.stem): path.read_text() for path in loomnet.directory.glob("runs/*/ranks/*")}


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("garbage", ""),  # whichever of its checks comes first
        # Its own completions may overrun first.
        ("requests", "flood of work requests or marks|completion queue overrun"),
        ("marks", "flood of work requests or marks"),
    ],
)
def test_it_is_cut_off_and_its_peer_gets_a_named_error(loomnet, kind, why):
    run = loomnet.live("ranks", f"script={HOSTILE}", f"args={kind}")
    assert run.wait(90) in (1, 3), run.output
    assert re.search(rf"rank 1: cut off: ({why})", run.output), run.output
    log = logs(loomnet)
    assert "first ok" in log[0] and "all ok" not in log[0], log
    assert "error: " in log[0] and "rank 1 was cut off" in log[0], log[0]
    fidelity = loomnet.report()["fidelity"][0]
    assert fidelity["ended"] == "failed" and fidelity["unexplained"] == 0


@pytest.mark.parametrize("kind", ["blocking_writes", "stolen_reads"])
def test_it_cannot_block_the_engine_by_flags_of_what_it_inherited(loomnet, kind):
    run = loomnet.live("ranks", f"script={PLAIN}", f"args={kind}")
    assert run.wait(60) in (1, 3), run.output
    assert "rank 1 ended with exit status 7" in run.output
    assert "first ok" in logs(loomnet)[0]


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("meet", "malformed mark"),  # requests for groups of no member
        ("work_begin", "flood of work requests or marks"),
        ("arrivals_consumed", "ring index corrupted"),
        ("notices_consumed", "ring index corrupted"),
    ],
)
def test_without_a_framework_too_it_is_cut_off(loomnet, kind, why):
    run = loomnet.live("ranks", f"script={PLAIN}", f"args={kind}")
    assert run.wait(60) in (1, 3), run.output
    assert re.search(rf"rank 1: cut off: ({why})", run.output), run.output
    assert "rank 1 was cut off" in logs(loomnet)[0]


def test_its_memory_cannot_be_resized_and_nobody_notices_the_attempt(loomnet):
    run = loomnet.live("ranks", f"script={HOSTILE}", "args=shrink")
    assert run.wait(90) in (0, 3), run.output  # 3: a busy machine, not this test's matter
    log = logs(loomnet)
    assert log[1].count("refused: Operation not permitted") == 3, log[1]
    assert "all ok" in log[0] and "all ok" in log[1]
    assert "ok   no-error" in run.output
