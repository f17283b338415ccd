"""What all tests share: `--soak` turns the long ones on, and some slow ones take turns."""

import os

import pytest

import turns


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", action="store_true", help="run tests marked `soak` too: hours")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--soak"):
        return
    seed = os.environ.get(turns.SEED)
    for item in items:
        if "soak" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="long; --soak runs it"))
        elif seed and "in_turns" in item.keywords and not turns.has_turn(item.nodeid, seed):
            item.add_marker(pytest.mark.skip(reason=f"slow; not drawn at {seed}; --soak runs it"))
