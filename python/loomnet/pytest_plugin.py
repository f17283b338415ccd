"""pytest's `lab` fixture: the same Lab a scenario gets, its output in tmp_path. Imports nothing
heavy: it is loaded in every pytest run of whoever has Loomnet installed."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from loomnet.labs.lab import Lab

_MARK = ("clock", "seed", "max_wall")
_replay_key = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("loomnet")
    group.addoption(
        "--loomnet-clock",
        choices=("virtual", "live"),
        default=None,
        help="clock of the lab fixture where the test does not name one",
    )
    group.addoption(
        "--loomnet-seed",
        type=_seed,
        default=None,
        help="seed of the lab fixture where the test does not name one (0)",
    )
    group.addoption(
        "--loomnet-max-wall",
        metavar="TIME",
        default=None,
        help='wall time after which a run of the lab fixture is ended: "2 min"',
    )
    group.addoption(
        "--loomnet-update-baselines",
        action="store_true",
        help="write what assert_matches() is given as the new baselines",
    )


def _seed(text: str) -> int:
    seed = int(text)
    if not 0 <= seed < 2**64:
        raise ValueError
    return seed


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "loomnet(clock, seed, max_wall): run the `lab` fixture so; on the live clock it is "
        "skipped by probe where the machine cannot",
    )
    if (limit := config.getoption("--loomnet-max-wall")) is not None:
        _seconds(limit, "--loomnet-max-wall")


def _seconds(limit: str | None, where: str) -> float | None:
    """Seconds of a time with a unit. Raises pytest.UsageError for another."""
    if limit is None:
        return None
    from loomnet.base.errors import UnitError
    from loomnet.base.units import Time

    try:
        return Time(limit).seconds
    except UnitError as error:
        raise pytest.UsageError(f"{where}: {error}") from None


def _settings(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What the mark says, else the options, else the defaults."""
    mark = request.node.get_closest_marker("loomnet")
    given = dict(mark.kwargs) if mark else {}
    if (mark and mark.args) or not set(given) <= set(_MARK):
        words = [*map(repr, mark.args), *(name for name in given if name not in _MARK)]
        pytest.fail(
            f"mark loomnet({', '.join(words)}): write {', '.join(f'{n}=' for n in _MARK)}",
            pytrace=False,
        )
    option = request.config.getoption
    clock = given.get("clock") or option("--loomnet-clock") or "virtual"
    if clock not in ("virtual", "live"):
        pytest.fail(f'mark loomnet: clock="{clock}" is not one of virtual, live', pytrace=False)
    seed = given.get("seed", option("--loomnet-seed"))
    limit = given.get("max_wall") or option("--loomnet-max-wall")
    return {"clock": clock, "seed": 0 if seed is None else seed, "max_wall": limit}


def _replay_line(request: pytest.FixtureRequest, settings: dict[str, Any]) -> str:
    """The command that runs this very test again, from where pytest was started."""
    start = request.config.invocation_params.dir
    _, sign, inner = request.node.nodeid.partition("::")
    file = os.path.relpath(request.node.path, start)
    words = [
        "pytest",
        f"{file}{sign}{inner}",
        "--loomnet-clock",
        settings["clock"],
        "--loomnet-seed",
        str(settings["seed"]),
    ]
    if settings["max_wall"]:
        words += ["--loomnet-max-wall", str(settings["max_wall"])]
    return " ".join(map(shlex.quote, words))


@pytest.fixture
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lab]:
    """A Lab on the virtual clock, or on the one that the mark `loomnet(clock=…)` or
    --loomnet-clock names; seed and longest wall time likewise. Reports are written to tmp_path. An
    engine that fell behind is an error, never a pass, whether the test looked or not."""
    from loomnet.labs.lab import Lab

    settings = _settings(request)
    if settings["clock"] == "live":
        from loomnet.live.doctor import why_not_live

        if (reason := why_not_live()) is not None:
            pytest.skip(reason)
    request.node.stash[_replay_key] = [
        _replay_line(request, settings),
        f"output: {tmp_path / 'lab'}",
    ]
    made = Lab(
        request.node.name,
        clock=settings["clock"],
        seed=settings["seed"],
        base=Path(request.node.path).parent,
        directory=tmp_path / "lab",
        max_wall_s=_seconds(settings["max_wall"], "max_wall"),
    )
    yield made
    if made.results:
        made.write()
    behind = [line for report in (made.report, *made.file_reports) for line in report.behind]
    if behind:
        pytest.fail("the engine did not keep up: " + "; ".join(behind), pytrace=False)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Tells assert_matches() where the test lies and whether baselines are to be written."""
    from loomnet.results import baselines

    before = baselines.folder, baselines.update
    baselines.folder = item.path.parent
    baselines.update = item.config.getoption("--loomnet-update-baselines")
    yield
    baselines.folder, baselines.update = before


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Adds to a failure the line that replays it."""
    outcome = yield
    report = outcome.get_result()
    if report.failed and (lines := item.stash.get(_replay_key, None)):
        report.sections.append(("loomnet: replay", "\n".join(lines)))
