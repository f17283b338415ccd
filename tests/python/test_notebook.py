"""scenarios/quickstart.ipynb: every cell runs, in under a minute, without root, and shows what it
says; and it is kept without outputs."""

import importlib.util
import os
import re
import time
from pathlib import Path

import pytest

import loomnet as ln

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")
pytest.importorskip("distributed")
QUICKSTART = Path(__file__).parents[2] / "scenarios" / "quickstart.ipynb"


def cell(book, start):
    (found,) = [c for c in book.cells if c.cell_type == "code" and c.source.startswith(start)]
    return found


def shown(book, start):
    """Kinds of output of the cell whose source starts so, and the text of each."""
    found: dict[str, str] = {}
    for output in cell(book, start).outputs:
        found |= {kind: str(text) for kind, text in output.get("data", {}).items()}
    return found


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    folder = tmp_path_factory.mktemp("notebook")
    made = nbformat.read(QUICKSTART, as_version=4)
    root = str(Path(ln.__file__).parents[1])
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (root, before)))
    started = time.monotonic()
    try:
        where = {"metadata": {"path": str(folder)}}
        nbclient.NotebookClient(made, timeout=120, kernel_name="python3", resources=where).execute()
    finally:
        os.environ.pop("PYTHONPATH")
        if before is not None:
            os.environ["PYTHONPATH"] = before
    made.metadata["wall_s"], made.metadata["folder"] = time.monotonic() - started, str(folder)
    return made


def test_it_is_kept_without_outputs():
    kept = nbformat.read(QUICKSTART, as_version=4)
    nbformat.validate(kept)
    code = [c for c in kept.cells if c.cell_type == "code"]
    assert code and all(not c.outputs and c.execution_count is None for c in code)


def test_every_cell_runs_in_under_a_minute(book):
    code = [c for c in book.cells if c.cell_type == "code"]
    assert all(c.execution_count for c in code)
    assert not [o for c in code for o in c.outputs if o.output_type == "error"]
    assert not [o for c in code for o in c.outputs if o.get("name") == "stderr"]
    assert book.metadata["wall_s"] < 60


def test_things_draw_themselves(book):
    assert "<svg" in shown(book, "import loomnet")["image/svg+xml"]
    assert "p0.leaf0" in shown(book, "fabric.links")["text/html"]
    compared = shown(book, "ln.compare")["text/html"]
    assert "<table>" in compared and "image/png" in compared and "down.goodput_ratio" in compared
    assert "goodput_ratio" in shown(book, "mrc.metrics")["text/html"]
    for picture in ("mrc.plot()", "mrc.plot(\"latency\")", "mrc.series"):
        assert "image/png" in shown(book, picture), picture
    assert "<table" in shown(book, "@ln.scenario")["text/html"]
    assert "down.goodput_ratio" in shown(book, "found.frame")["text/html"]


def test_its_texts_are_true(book):
    """What the cells say of the figures below them."""
    text = shown(book, "ln.compare")["text/html"]
    assert "transport: mrc in mrc, roce in roce" in text
    rows = dict(re.findall(r"<tr><td>([\w.]+)</td>(.*?)</tr>", text))
    assert "not measured" in rows["down.readmitted"] and ">4.29" in rows["after.blip_s"]
    assert not [name for name, row in rows.items() if "null" in row and "worse" in row]
    metrics = dict(re.findall(r"<td>down</td><td>(\w+)</td><td>([-\d.e]*)</td>",
                              shown(book, "mrc.metrics")["text/html"]))
    assert metrics["expected_capacity"] == "0.75"
    assert float(metrics["goodput_ratio"]) == pytest.approx(0.75, abs=0.05)
    assert metrics["lost"] == metrics["retransmitted"] != "0"
    table = shown(book, "found.frame")["text/html"]
    rows = re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)[2:]
    assert len(rows) >= 6
    for row in rows:
        planes, _, ok, ratio, expected = re.findall(r"<td>(.*?)</td>", row)
        assert ok == "true" and float(expected) == 1 - 1 / int(planes)
        assert float(ratio) == pytest.approx(float(expected), abs=0.05)


@pytest.mark.skipif(not importlib.util.find_spec("ipywidgets"), reason="no ipywidgets: no bar")
def test_a_run_and_a_sweep_show_a_bar(book):
    for start in ("fault =", "@ln.scenario"):
        kinds = shown(book, start)
        assert "application/vnd.jupyter.widget-view+json" in kinds, kinds


def test_its_runs_are_written_where_it_ran(book):
    runs = Path(book.metadata["folder"]) / "runs"
    names = sorted(path.name.partition("-")[0] for path in runs.iterdir())
    assert names == ["all_reduce", "all_reduce", "sweep"]
