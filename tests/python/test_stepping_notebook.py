"""scenarios/stepping.ipynb: every cell runs, and what it says of windows and queues is so."""

import re
import sys
import tomllib

import pytest
from notebooks import ROOT, code_cells, executed

nbformat = pytest.importorskip("nbformat")
matplotlib = pytest.importorskip("matplotlib")
BOOK = ROOT / "scenarios" / "stepping.ipynb"


@pytest.fixture
def names():
    """What the cells but the slider define."""
    matplotlib.use("Agg")
    book, found = nbformat.read(BOOK, as_version=4), {}
    nbformat.validate(book)
    for cell in code_cells(book):
        if "interact" not in cell.source:
            exec(cell.source, found)
    yield found
    found["plt"].close("all")


def test_half_the_pipe_each_has_no_queue_and_more_has(names):
    late = {
        windows: found[found[:, 1] > 2]
        for windows in ((190, 190), (380, 380), (380, 190))
        for found in [names["shared"](*windows)]
    }
    queue = {windows: found[:, 3].mean() for windows, found in late.items()}
    rates = {
        windows: [found[found[:, 0] == flow, 2].mean() for flow in (0, 1)]
        for windows, found in late.items()
    }
    assert queue[190, 190] < 3 < 20 < queue[380, 380]
    assert sum(rates[190, 190]) == pytest.approx(sum(rates[380, 380]), rel=0.05)
    assert rates[380, 190][0] == pytest.approx(2 * rates[380, 190][1], rel=0.1)
    drawn = names["show"](100, 200).axes
    assert [len(axes.lines) for axes in drawn] == [2, 2]


def test_the_slider_draws(names):
    [slider] = [
        cell.source
        for cell in code_cells(nbformat.read(BOOK, as_version=4))
        if "interact" in cell.source
    ]
    before = len(names["plt"].get_fignums())
    exec(slider, names)
    assert len(names["plt"].get_fignums()) > before


def test_it_runs_headless_as_it_lies_there(tmp_path):
    pytest.importorskip("nbclient")
    book = nbformat.read(BOOK, as_version=4)
    for cell in code_cells(book):
        cell.source = cell.source.replace('until="3 s"', 'until="1.2 s"')
    executed(book, tmp_path, timeout=60)
    errors = [
        output
        for cell in code_cells(book)
        for output in cell.outputs
        if output.output_type == "error"
    ]
    assert not errors


def test_the_extra_notebook_has_what_notebooks_import():
    """With the package's dependencies and those of `sweep`, which it takes in."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    given = [*project["dependencies"], *extras["notebook"], *extras["sweep"]]
    packages = {re.match(r"[\w-]+", each)[0] for each in given}
    imported = {
        match
        for book in (ROOT / "scenarios").rglob("*.ipynb")
        for cell in code_cells(nbformat.read(book, as_version=4))
        for match in re.findall(r"^(?:import|from) (\w+)", cell.source, re.M)
    }
    assert "ipywidgets" in imported
    assert not imported - packages - set(sys.stdlib_module_names)
