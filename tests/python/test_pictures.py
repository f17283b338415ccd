"""Pictures of runs: units, faults, equal axes, what is summed, stalls, distributions, greyscale;
tables as data frames."""

import itertools
import math
import re
import sys

import pytest

import loomnet as ln
from loomnet.results.distributions import OF, distribution_figure
from loomnet.results.drawing import LINES, STYLES, Scale, style
from loomnet.results.plots import change_figure, goodput_figure, iteration_figure, save

FAULT = ln.down("h0--p0.leaf0", at=ln.step(8), duration=ln.iterations(10), phase="link_down")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The same job on two transports; RoCE stalls for seconds, MRC ends within milliseconds."""
    fabric = ln.clos.two_tier(planes=2, leaves=2, spines=2, hosts_per_leaf=2, rate="400 Gb/s",
                              delay="1 us")
    looks = {"mrc": {"sample": "10 us", "links": ["p0.leaf0->*"]}, "roce": {}}
    return {name: ln.run(fabric, ln.AllReduce("4 MiB", 22, name), [FAULT], seed=1,
                         directory=tmp_path_factory.mktemp(name), **options)
            for name, options in looks.items()}


@pytest.fixture(scope="module")
def flows(tmp_path_factory):
    fabric = ln.star(hosts=4, rate="100 Gb/s", delay="1 us")
    return ln.run(fabric, ln.Flows(["10 kB", "1 MB"], count=40, load=0.3), seed=1,
                  directory=tmp_path_factory.mktemp("flows"))


def bands(axes):
    """(begin, end) of what is shaded over the axes' whole height, in the axes' own unit."""
    return [(patch.get_x(), patch.get_x() + patch.get_width()) for patch in axes.patches
            if patch.get_transform() == axes.get_xaxis_transform() + axes.figure.transSubfigure
            or (hasattr(patch, "get_height") and patch.get_height() == 1)]


def texts(axes):
    return [text.get_text() for text in axes.texts]


@pytest.mark.parametrize(("largest", "unit", "name", "factor"), [
    (4.3, "s", "s", 1.0), (0.25, "s", "ms", 1e-3), (3e-5, "s", "µs", 1e-6), (0.0, "s", "ns", 1e-9),
    (3.1e12, "b/s", "Tb/s", 1e12), (4e10, "b/s", "Gb/s", 1e9), (20e6, "b/s", "Mb/s", 1e6),
    (2048, "B", "kB", 1e3), (0.7, "ratio", "ratio", 1.0)])
def test_axes_have_the_unit_of_their_largest_value(largest, unit, name, factor):
    assert Scale.of(largest, unit) == Scale(name, factor)


def test_a_plot_of_rounds_is_goodput_over_iterations(runs):
    figure = runs["mrc"].plot()
    goodput, iterations = figure.axes
    assert goodput.get_ylabel() == "mrc\nsum of 4 hosts\n(Tb/s)"
    assert iterations.get_ylabel() == "iteration time (µs)"
    assert iterations.get_xlabel() == "emulated time (ms)" and goodput.get_title(loc="left")
    phase = next(each for each in runs["mrc"].phases if each.name == "link_down")
    for axes in figure.axes:
        assert axes.get_ylim()[0] == 0
        (band,) = bands(axes)
        assert band == pytest.approx((phase.start_ps / 1e9, phase.end_ps / 1e9))
    assert texts(goodput) == ["fault: link down"] and iterations.get_legend() is not None
    (line,) = [line for line in iterations.lines if line.get_label() == "mrc"]
    assert line.get_ydata()[0] == pytest.approx(runs["mrc"].data.iterations[0].length_ps / 1e6)


def test_panels_have_the_same_axes_and_bins_by_the_length_of_what_is_shown(runs):
    panels = goodput_figure(runs).axes
    assert len({axes.get_ylim() for axes in panels}) == 1
    assert len({axes.get_xlim() for axes in panels}) == 1
    end = panels[0].get_xlim()[1] * 1e9  # ps; the axis is in ms
    short, long = (runs[name].data.end_ps for name in ("mrc", "roce"))
    assert end == pytest.approx(1.5 * short) and long > 100 * short
    assert [text for text in texts(panels[1]) if "goes on to" in text]
    stairs = next(p for p in panels[0].patches if hasattr(p, "get_data")).get_data()
    widths = stairs.edges[1:] - stairs.edges[:-1]  # equal bins side by side are one
    assert end / 300 < min(widths) * 1e9 < end / 150
    whole = goodput_figure(runs, until="5 s").axes[0]
    assert whole.get_xlabel() == "" and whole.get_xlim()[1] == 5


def test_no_line_is_drawn_across_a_stall(runs):
    (axes,) = iteration_figure(runs).axes
    labels = [line.get_label() for line in axes.lines]
    (stalled,) = [label for label in labels if "which ends outside" in label]
    assert re.match(r"roce: an iteration of 4\.\d+ s", stalled)
    (line,) = [line for line in axes.lines if line.get_label() == "roce"]
    usual = min(i.length_ps for i in runs["roce"].data.iterations) / 1e6
    assert max(y for y in line.get_ydata() if not math.isnan(y)) < 3 * usual
    assert any(math.isnan(y) for y in line.get_ydata())
    (axes,) = iteration_figure(runs, until="10 s").axes  # all of it: a bar over the time it took
    assert axes.get_yscale() == "log" and "log scale" in axes.get_ylabel()
    bar, = [each for each in axes.lines if each.get_label() == "roce: stalled iteration"]
    assert bar.get_ydata()[0] == bar.get_ydata()[1] > 4 and bar.get_marker() == line.get_marker()


def test_series_on_the_same_axes_are_told_apart(runs):
    axes = runs["mrc"].series("goodput", every="20 us").plot()
    assert axes.get_ylabel() == "goodput, sum of 4 hosts\n(Tb/s)" and axes.get_legend() is None
    assert len(bands(axes)) == 1 and axes.get_ylim()[0] == 0
    runs["roce"].series("goodput", every="20 us").plot(axes, label="go-back-N")
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["mrc", "go-back-N"]
    one, other = [patch for patch in axes.patches if patch.get_label() in ("mrc", "go-back-N")]
    assert one.get_linestyle() != other.get_linestyle() and one.get_ec() != other.get_ec()
    axes = runs["mrc"].series("iteration_s").plot()
    assert axes.get_ylabel() == "iteration time (µs)" and axes.get_ylim()[0] == 0


def test_styles_differ_without_colour():
    assert len({str(line) for line in LINES}) == len(STYLES) == len({m for _, m in STYLES})
    looks = [style(i) for i in range(5)]
    for one, other in itertools.combinations(looks, 2):
        assert one["marker"] != other["marker"] and one["linestyle"] != other["linestyle"]
    colours = {bar.get_hatch() for bar in change_figure(
        [("a", 1.0, "worse"), ("b", -0.5, "better"), ("c", 0.2, "changed")]).axes[0].patches}
    assert len(colours) == 3


def test_flows_are_shown_by_their_distributions(flows):
    figure = flows.plot()
    fct, slowdown = figure.axes
    assert fct.get_xlabel().startswith("flow completion time") and fct.get_ylim()[0] == 0
    assert slowdown.get_xlabel() == "slowdown against an empty fabric"
    assert fct.get_xlim() != slowdown.get_xlim()
    (line,) = fct.lines
    ended = sorted(flow["fct_s"] for flow in flows.flows)
    scale = 1.0 if fct.get_xscale() == "log" else 1e-6
    assert list(line.get_xdata())[1:] == pytest.approx([value / scale for value in ended])
    assert list(line.get_ydata())[-1] == pytest.approx(1)
    assert re.search(r"mrc: 40 values, p50 [\d.]+ µs, p99 ", line.get_label())


@pytest.mark.parametrize("of", OF)
def test_every_distribution(runs, flows, of):
    result = flows if of in ("fct", "slowdown") else runs["mrc"]
    (axes,) = distribution_figure({"one": result, "two": result}, of).axes
    assert len(axes.lines) == 2 and axes.get_ylabel() == "cumulative share"
    assert axes.lines[0].get_linestyle() != axes.lines[1].get_linestyle()
    assert result.plot(of).axes[0].get_xlabel() == axes.get_xlabel()


def test_what_cannot_be_drawn_is_one_line(runs, flows):
    for result, what, message in (
            (runs["mrc"], "overveiw", 'no picture "overveiw"; nearest: overview'),
            (runs["mrc"], "fct", "no distribution of fct: it needs a job of flows"),
            (flows, "links",
             'the run did not sample link_use; give the run sample="10 us", links=')):
        with pytest.raises(ln.UsageError, match=re.escape(message)):
            result.plot(what)


def test_links_over_time(runs):
    result = runs["mrc"]
    use = result.series("link_use", where="p0.leaf0->h0")
    assert use.columns == ("time", "where", "name", "value") and len(use) > 50
    assert {row["where"] for row in use} == {"p0.leaf0->h0"}
    values = [row["value"] for row in use]
    assert 0.9 < max(values) <= 1.0 and min(values) == 0
    phase = next(each for each in result.phases if each.name == "link_down")
    down = [row["value"] for row in use
            if phase.start_ps / 1e12 + 2e-5 < row["time"] < phase.end_ps / 1e12]
    assert down and max(down) == 0  # the link is dead
    sent = result.data.samples.sent["p0.leaf0->h0"]
    assert sent[-1][1] <= result.data.totals["link p0.leaf0->h0"]["bytes"]
    queue = result.series("queue")
    assert {row["where"] for row in queue} == set(result.data.samples.sent) and len(queue) > 50
    top, below = result.plot("links").axes
    assert top.get_ylabel() == "link use (share of rate)" and "bytes waiting" in below.get_ylabel()
    assert top.get_ylim()[0] == below.get_ylim()[0] == 0 and len(bands(top)) == 1


@pytest.mark.parametrize(("options", "message"), [
    ({"links": ["a->b"]},
     'run: links= needs sample=, the time between two samples; give sample="10 ms" too'),
    ({"links": ["a->b"], "sample": "1 us"}, 'run: links: no direction "a->b"; nearest: '),
    ({"links": 4, "sample": "1 us"}, "run: links=4 is no list of directions"),
])
def test_links_that_are_not_there(tmp_path, options, message):
    with pytest.raises(ln.UsageError, match=re.escape(message)):
        ln.run(ln.star(hosts=2, rate="1 Gb/s", delay="1 us"), ln.AllReduce("1 MB"),
               directory=tmp_path / "run", **options)


def test_pictures_are_written_with_150_dots_per_inch(runs, tmp_path):
    png, svg = save(runs["mrc"].plot(), tmp_path / "picture")
    data = png.read_bytes()
    width = int.from_bytes(data[16:20], "big")
    assert width == 9 * 150 and "iteration time" in svg.read_text()
    assert runs["mrc"].plot()._repr_png_()[:8] == b"\x89PNG\r\n\x1a\n"


def test_tables_as_data_frames(runs):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("polars")
    table = runs["mrc"].metrics
    for frame in (table.to_pandas(), table.to_polars()):
        assert list(frame.columns) == list(table.columns) and len(frame) == len(table)
    assert isinstance(table.to_pandas(), pandas.DataFrame)
    series = runs["mrc"].series("iteration_s")
    assert series.to_pandas()["value"].tolist() == series.values
    assert series.to_polars()["time"].to_list() == series.times


@pytest.mark.parametrize(("name", "extra"), [("pandas", "pandas"), ("polars", "sweep")])
def test_without_the_package_of_frames_the_error_is_one_line(runs, monkeypatch, name, extra):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ln.UsageError, match=rf"to_{name}: {name} is not installed: .*{extra}") as e:
        getattr(runs["mrc"].metrics, f"to_{name}")()
    assert "\n" not in str(e.value)


def test_a_number_of_a_result_is_for_arithmetic(runs):
    r = runs["mrc"]
    assert r.number("before.iteration_s") + 1 == r["before.iteration_s"] + 1
    with pytest.raises(ln.UsageError, match=r'number "final_loss" is null: no loss was read'):
        r.number("final_loss")
    with pytest.raises(ln.UsageError, match=r'no number "before.iteration"; nearest: '):
        r.number("before.iteration")


def test_a_notebook_completes_figures_and_lists_iterations(runs):
    r = runs["mrc"]
    assert "link_down.goodput_ratio" in r._ipython_key_completions_()
    lengths = r.iterations.column("length_s")
    assert lengths == r.series("iteration_s").values and r.iterations[0]["number"] == 1


def test_a_notebook_offers_fabrics_alone():
    assert dir(ln.clos) == ["dumbbell", "fat_tree", "star", "three_tier", "two_tier"]
    assert all(callable(getattr(ln.clos, name)) for name in dir(ln.clos))
