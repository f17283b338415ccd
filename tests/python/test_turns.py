"""Tests that take turns: every other commit draws one, and each has its turn."""

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
