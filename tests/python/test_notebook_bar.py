"""The bar of a run in a notebook: one output that is written anew and ends empty, none where nobody
watches, and no widget."""

import contextlib
import textwrap

import pytest
from notebooks import check_clean, code_cells, executed

from loomnet.base.units import Time
from loomnet.labs import notebook_bar as bars
from loomnet.labs.notebook_bar import Bar, notebook_bar, notebook_count
from loomnet.running.request import Progress

RUNS = textwrap.dedent("""
    import sys
    sys.modules["ipywidgets"] = None                # as where it is not installed
    import loomnet as ln
    import loomnet.labs.notebook_bar as bars
    bars.FIRST_S = bars.EVERY_S = 0.0
    fabric = ln.clos.two_tier(planes=1, leaves=2, spines=1, hosts_per_leaf=2, rate="100 Gb/s",
                              delay="1 us")
    print("before")
    for seed in range(RUNS):
        r = ln.run(fabric, ln.AllReduce(size="8 MiB", repeat=REPEAT), seed=seed, write=False)
    print("after")
""")


def many(runs, repeat):
    return RUNS.replace("RUNS", str(runs)).replace("REPEAT", str(repeat))


class Place:
    def __init__(self):
        self.shown = []

    def update(self, data, raw):
        assert raw
        self.shown.append(data)


def progress(step, of=10):
    return Progress(now=Time(f"{step} ms"), step=step, total=of)


def test_it_waits_is_drawn_four_times_a_second_and_ends_empty():
    now, place, places = [0.0], Place(), []
    bar = Bar(lambda: now[0], lambda: places.append(place) or place)
    for step in range(100):
        now[0] = step / 50
        bar.show(step / 100, lambda step=step: f"step <{step}>")
    assert len(places) == 1 and 5 <= len(place.shown) <= 7
    assert place.shown[0] == {
        "text/html": '<progress max="1" value="0.250"></progress> <code>step &lt;25&gt;</code>',
        "text/plain": "step <25>",
    }
    bar.end()
    assert place.shown[-1] == {"text/html": "", "text/plain": ""}


def test_a_short_run_shows_nothing():
    now, places = [0.0], []
    bar = Bar(lambda: now[0], lambda: places.append(1))
    now[0] = 0.4
    bar.show(0.5, lambda: "half")
    bar.end()
    assert not places


def test_without_a_known_end_the_bar_has_no_length():
    now, place = [0.0], Place()
    bar = Bar(lambda: now[0], lambda: place)
    now[0] = 1.0
    bar.show(None, lambda: "12 ms")
    assert place.shown[0]["text/html"].startswith('<progress max="1"></progress>')


@pytest.mark.parametrize("watched", [True, False])
def test_runs_and_sweeps_are_told_where_somebody_watches(monkeypatch, watched):
    place = Place()
    monkeypatch.setattr(bars, "is_watched", lambda: watched)
    monkeypatch.setattr(bars, "_place_of_cell", lambda: place)
    monkeypatch.setattr(bars, "FIRST_S", 0.0)
    monkeypatch.setattr(bars, "EVERY_S", 0.0)
    with notebook_bar("ring") as told:
        assert (told is not None) == watched
        if told is not None:
            told("ring", progress(4))
    with notebook_count("sweep s") as counted:
        counted(3, 12, 1)
    texts = [each["text/plain"] for each in place.shown]
    assert texts == (
        ["ring: 4 ms  step 4 of 10 (40 %)", "", "sweep s: 3 of 12, 1 failed", ""] if watched else []
    )


def test_a_sweep_has_its_bar_from_the_begin_on(monkeypatch):
    place = Place()
    monkeypatch.setattr(bars, "is_watched", lambda: True)
    monkeypatch.setattr(bars, "_place_of_cell", lambda: place)
    with notebook_count("sweep s") as counted:
        counted(0, 12)  # before its processes have started
        assert [each["text/plain"] for each in place.shown] == ["sweep s: 0 of 12, 0 failed"]
    place.shown.clear()
    with notebook_count("sweep s") as counted:
        counted(12, 12)  # all were there
    assert not place.shown


def test_it_ends_empty_on_the_way_out_of_an_error(monkeypatch):
    place = Place()
    monkeypatch.setattr(bars, "is_watched", lambda: True)
    monkeypatch.setattr(bars, "_place_of_cell", lambda: place)
    monkeypatch.setattr(bars, "FIRST_S", 0.0)
    with contextlib.suppress(KeyboardInterrupt), notebook_bar("ring") as told:
        told("ring", progress(1))
        raise KeyboardInterrupt
    assert place.shown[-1] == bars.NOTHING and len(place.shown) == 2


def test_many_runs_in_a_cell_leave_nothing_where_nobody_watches(tmp_path):
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("nbclient")
    cells = [nbformat.v4.new_code_cell(many(12, 1)), nbformat.v4.new_code_cell("r.summary")]
    book = executed(nbformat.v4.new_notebook(cells=cells), tmp_path)
    check_clean(book)
    first, second = code_cells(book)
    assert "".join(output.text for output in first.outputs) == "before\nafter\n"
    assert [output.output_type for output in second.outputs] == ["execute_result"]


def test_many_runs_in_a_cell_share_one_empty_output_where_somebody_watches(tmp_path):
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("nbclient")
    # Runs report four times a second, so each is as long as that.
    cells = [
        nbformat.v4.new_code_cell(many(2, 20)),
        nbformat.v4.new_code_cell(
            'bars.FIRST_S = 0.0\nr = ln.run(fabric, ln.AllReduce("8 MiB", 20), write=False)\n'
            "bars._place[0] == get_ipython().execution_count"
        ),
    ]
    book = executed(nbformat.v4.new_notebook(cells=cells), tmp_path, watched=True)
    first, second = code_cells(book)
    shown = [output for output in first.outputs if output.output_type == "display_data"]
    assert [dict(output.data) for output in shown] == [bars.NOTHING]
    assert "".join(o.text for o in first.outputs if o.output_type == "stream") == "before\nafter\n"
    # The next cell has a place of its own.
    assert [output.output_type for output in second.outputs] == ["display_data", "execute_result"]
    assert second.outputs[1].data["text/plain"] == "True"
