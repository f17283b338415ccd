"""scenarios/quickstart.ipynb: every cell runs, in under a minute, without root, and shows what it
says; and it is kept without outputs."""

import re
import time
from pathlib import Path

import pytest
from notebooks import ROOT, check_clean, executed

pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")
pytest.importorskip("distributed")
QUICKSTART = ROOT / "scenarios" / "quickstart.ipynb"


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
    started = time.monotonic()
    executed(made, folder)
    made.metadata["wall_s"], made.metadata["folder"] = time.monotonic() - started, str(folder)
    return made


def test_it_is_kept_without_outputs():
    kept = nbformat.read(QUICKSTART, as_version=4)
    nbformat.validate(kept)
    code = [c for c in kept.cells if c.cell_type == "code"]
    assert code and all(not c.outputs and c.execution_count is None for c in code)


@pytest.mark.in_turns
def test_every_cell_runs_in_under_a_minute(book):
    code = [c for c in book.cells if c.cell_type == "code"]
    assert all(c.execution_count for c in code)
    assert book.metadata["wall_s"] < 60


def test_things_draw_themselves(book):
    assert "<svg" in shown(book, "import loomnet")["image/svg+xml"]
    assert "p0.leaf0" in shown(book, "fabric.links")["text/html"]
    compared = shown(book, "ln.compare")["text/html"]
    assert "<table>" in compared and "image/png" in compared and "down.goodput_ratio" in compared
    assert "goodput_ratio" in shown(book, "mrc.metrics")["text/html"]
    for picture in ("mrc.plot()", 'mrc.plot("latency")', "mrc.series"):
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
    metrics = dict(
        re.findall(
            r"<td>down</td><td>(\w+)</td><td>([-\d.e]*)</td>",
            shown(book, "mrc.metrics")["text/html"],
        )
    )
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


def test_no_bar_is_left(book):
    check_clean(book)
    assert not shown(book, "fault =")


def test_its_runs_are_written_where_it_ran(book):
    runs = Path(book.metadata["folder"]) / "runs"
    names = sorted(path.name.partition("-")[0] for path in runs.iterdir())
    assert names == ["all_reduce", "all_reduce", "sweep"]
