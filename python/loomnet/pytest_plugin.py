"""pytest's `lab` fixture: the same Lab a scenario gets, its output in tmp_path."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from loomnet.laboratory import Lab


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("loomnet")
    group.addoption(
        "--loomnet-clock",
        choices=("virtual", "live"),
        default=None,
        help="clock of the lab fixture where the test does not name one",
    )
    group.addoption("--loomnet-seed", type=int, default=0, help="seed of the lab fixture")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "loomnet(clock): run the `lab` fixture on this clock; "
        "skipped by probe where the machine cannot",
    )


@pytest.fixture
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lab]:
    """A Lab on the virtual clock, or on the one that the mark `loomnet(clock=…)` or
    --loomnet-clock names. An engine that fell behind is an error, never a pass."""
    from loomnet.laboratory import Lab

    mark = request.node.get_closest_marker("loomnet")
    clock = mark.kwargs.get("clock") if mark else None
    clock = clock or request.config.getoption("--loomnet-clock") or "virtual"
    if clock == "live":
        from loomnet.live.doctor import why_not_live

        if (reason := why_not_live()) is not None:
            pytest.skip(reason)
    seed = request.config.getoption("--loomnet-seed")
    replay = f"pytest '{request.node.nodeid}' --loomnet-clock {clock} --loomnet-seed {seed}"
    request.node.stash[_replay_key] = replay
    made = Lab(
        request.node.name,
        clock=clock,
        seed=seed,
        base=Path(request.node.path).parent,
        directory=tmp_path / "lab",
    )
    yield made
    if made.results:
        made.write()
        if made.report.behind:
            pytest.fail("the engine did not keep up: " + "; ".join(made.report.behind))


_replay_key = pytest.StashKey[str]()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Adds to a failure the line that replays it."""
    outcome = yield
    report = outcome.get_result()
    if report.failed and (line := item.stash.get(_replay_key, None)):
        report.sections.append(("loomnet: replay", line))
