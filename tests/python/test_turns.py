"""Tests that take turns: every other commit draws one, and each has its turn."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import turns

NAMES = [f"tests/python/test_a.py::test_{n}" for n in range(40)]
SEEDS = [f"{n:08x}" for n in range(40)]


def test_half_of_them_at_each_commit_and_none_never():
    drawn = [[turns.has_turn(name, seed) for name in NAMES] for seed in SEEDS]
    assert 0.45 < sum(map(sum, drawn)) / (len(NAMES) * len(SEEDS)) < 0.55
    assert all(any(row) for row in zip(*drawn, strict=True))
    assert len({tuple(row) for row in drawn}) == len(SEEDS)  # no two commits draw the same half


def test_wherever_the_clone_lies():
    assert turns.has_turn("tests/python/" + "t.py::a", "1") == turns.has_turn("t.py::a", "1")


def test_pytest_runs_what_is_drawn_and_says_why_it_skips_the_rest(tmp_path):
    tests = Path(__file__).parent.parent
    for name in ("conftest.py", "turns.py"):
        shutil.copy(tests / name, tmp_path)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nmarkers =\n    soak\n    in_turns\npythonpath = .\n"
    )
    names = [f"test_{n}" for n in range(12)]
    marked = [f"@pytest.mark.in_turns\ndef {name}(): pass\n" for name in names]
    long = "@pytest.mark.soak\ndef test_long(): pass\n"
    (tmp_path / "test_a.py").write_text("import pytest\n" + "".join(marked) + long)

    def passed(seed: str | None, *options: str) -> tuple[set[str], str]:
        environment = {k: v for k, v in os.environ.items() if k != turns.SEED}
        if seed:
            environment[turns.SEED] = seed
        command = [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider", *options, "."]
        ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return set(re.findall(r"^PASSED test_a\.py::(\w+)", ran.stdout, re.M)), ran.stdout

    drawn, said = passed("12345678")
    assert drawn == {n for n in names if turns.has_turn(f"test_a.py::{n}", "12345678")}
    assert 0 < len(drawn) < 12 and "slow; not drawn at 12345678; --soak runs it" in said
    assert passed(None)[0] == set(names)
    assert passed("12345678", "--soak")[0] == {*names, "test_long"}
