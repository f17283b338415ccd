"""Pictures of runs: units, faults, equal axes, what is summed, stalls, distributions, greyscale;
tables as data frames."""

import itertools
import math
import re
import sys

import numpy as np
import pytest
from matplotlib.colors import to_rgb

import loomnet as ln
from loomnet.results.distributions import OF, distribution_figure
from loomnet.results.drawing import LINES, STYLES, Scale, style
from loomnet.results.plots import change_figure, goodput_figure, iteration_figure, save
from loomnet.results.speed_plots import speed_figure, usual_ps
from loomnet.results.time_span import TimeSpan

FAULT = ln.down("h0--p0.leaf0", at=ln.step(8), duration=ln.iterations(10), phase="link_down")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The same job on two transports; RoCE stalls for seconds, MRC ends within milliseconds."""
    fabric = ln.clos.two_tier(
        planes=2, leaves=2, spines=2, hosts_per_leaf=2, rate="400 Gb/s", delay="1 us"
    )
    looks = {"mrc": {"sample": "10 us", "links": ["p0.leaf0->*"]}, "roce": {}}
    return {
        name: ln.run(
            fabric,
            ln.AllReduce("4 MiB", 22, name),
            [FAULT],
            seed=1,
            directory=tmp_path_factory.mktemp(name),
            **options,
        )
        for name, options in looks.items()
    }


@pytest.fixture(scope="module")
def flows(tmp_path_factory):
    fabric = ln.star(hosts=4, rate="100 Gb/s", delay="1 us")
    return ln.run(
        fabric,
        ln.Flows(["10 kB", "1 MB"], count=40, load=0.3),
        seed=1,
        directory=tmp_path_factory.mktemp("flows"),
    )


def bands(axes):
    """(begin, end) of what is shaded over the axes' whole height, in the axes' own unit."""
    return [
        (patch.get_x(), patch.get_x() + patch.get_width())
        for patch in axes.patches
        if patch.get_transform() == axes.get_xaxis_transform() + axes.figure.transSubfigure
        or (hasattr(patch, "get_height") and patch.get_height() == 1)
    ]


def texts(axes):
    return [text.get_text() for text in axes.texts]


@pytest.mark.parametrize(
    ("largest", "unit", "name", "factor"),
    [
        (4.3, "s", "s", 1.0),
        (0.25, "s", "ms", 1e-3),
        (3e-5, "s", "µs", 1e-6),
        (0.0, "s", "ns", 1e-9),
        (3.1e12, "b/s", "Tb/s", 1e12),
        (4e10, "b/s", "Gb/s", 1e9),
        (20e6, "b/s", "Mb/s", 1e6),
        (2048, "B", "kB", 1e3),
        (0.7, "ratio", "ratio", 1.0),
    ],
)
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
    assert texts(goodput) == ["fault: link down"] and len(figure.legends) == 1
    (line,) = [line for line in iterations.lines if line.get_label() == "mrc"]
    assert line.get_ydata()[0] == pytest.approx(runs["mrc"].data.iterations[0].length_ps / 1e6)


def on_paper(axes, seconds):
    """Where a time is drawn, as a share of the axes' width."""
    factor = {"ms": 1e-3, "s": 1.0, "µs": 1e-6}[re.search(r"\((\w+)\)", axes.get_xlabel())[1]]
    place = axes.transData.transform((seconds / factor, 0))[0]
    return (place - axes.bbox.x0) / axes.bbox.width


def test_panels_have_the_same_axes_and_bins_by_the_length_of_what_is_shown(runs):
    figure = goodput_figure(runs)
    figure.draw_without_rendering()
    panels = figure.axes
    assert len({axes.get_ylim() for axes in panels}) == 1
    assert len({axes.get_xlim() for axes in panels}) == 1
    assert len({axes.get_xscale() for axes in panels}) == 1
    end = panels[0].get_xlim()[1] * 1e9  # ps; the axis is in ms
    short, long = (runs[name].data.end_ps for name in ("mrc", "roce"))
    assert end >= long > 100 * short and end < 1.001 * long
    (gap,) = TimeSpan.of(runs).gaps
    shown = end - 1e12 * (gap[1] - gap[0])
    stairs = next(p for p in panels[0].patches if hasattr(p, "get_data")).get_data()
    widths = stairs.edges[1:] - stairs.edges[:-1]  # equal bins side by side are one
    assert shown / 300 < min(widths) * 1e9 < shown / 150
    assert [text for text in texts(panels[0]) if "finished at" in text]
    whole = goodput_figure(runs, until="5 s").axes[0]
    assert whole.get_xlabel() == "" and whole.get_xlim()[1] == 5
    assert whole.get_xscale() == "linear"


def test_a_stall_does_not_squeeze_the_rest(runs):
    """MRC ends after 2 ms, RoCE stands still for 4.3 s in the midst of 4 ms."""
    figure = iteration_figure(runs)
    figure.draw_without_rendering()
    (axes,) = figure.axes
    assert re.search(
        r"\(ms\); the axis is broken: 4\.29 s in which nothing moved are drawn narrow",
        axes.get_xlabel(),
    )
    assert "4.29 s" in texts(axes)  # in the gap, too
    assert on_paper(axes, runs["mrc"].data.end_ps / 1e12) > 0.25
    roce = runs["roce"].data.iterations
    stalled = max(roce, key=lambda each: each.length_ps)
    assert on_paper(axes, stalled.start_ps / 1e12) > 0.15
    assert on_paper(axes, stalled.end_ps / 1e12) < 0.75 < on_paper(axes, roce[-1].end_ps / 1e12)
    # Whatever happened is on a part of the axis that is not narrow.
    ((begin, end),) = TimeSpan.of(runs).gaps
    for result in runs.values():
        for each in result.data.iterations:
            assert not any(begin < at / 1e12 < end for at in (each.start_ps, each.end_ps))
        for host in result.data.hosts.values():
            first, last = int(begin * 1e12 / host.bin_ps) + 1, int(end * 1e12 / host.bin_ps)
            assert not np.any(host.payload[first:last])
    # Numbers behind the gap are in the same unit, ms, and rise.
    labels = [float(label.get_text().replace(",", "")) for label in axes.get_xticklabels()]
    far = [label for label in labels if label > 1000]
    assert far and all(4290 < label < 4310 for label in far) and labels == sorted(labels)
    single = runs["roce"].plot()
    assert "broken" in single.axes[-1].get_xlabel() and len(single.axes) == 2


def test_a_run_without_a_stall_has_a_whole_axis(runs):
    for axes in (*runs["mrc"].plot().axes, iteration_figure({"mrc": runs["mrc"]}).axes[0]):
        assert axes.get_xscale() == "linear" and "broken" not in axes.get_xlabel()


def test_no_line_is_drawn_across_a_stall(runs):
    (axes,) = iteration_figure(runs).axes
    (line,) = [line for line in axes.lines if line.get_label() == "roce"]
    usual = min(i.length_ps for i in runs["roce"].data.iterations) / 1e12
    assert axes.get_yscale() == "log" and "log scale" in axes.get_ylabel()
    assert max(y for y in line.get_ydata() if not math.isnan(y)) < 3 * usual
    assert any(math.isnan(y) for y in line.get_ydata())
    for axes in (*iteration_figure(runs).axes, *iteration_figure(runs, until="10 s").axes):
        # A bar over the time it took.
        (bar,) = [each for each in axes.lines if each.get_label() == "roce: stalled iteration"]
        assert bar.get_ydata()[0] == bar.get_ydata()[1] > 4
        assert bar.get_marker() == line.get_marker()
    # Where the picture ends before the stall does, the bar's label says so.
    (axes,) = iteration_figure(runs, until="3 ms").axes
    labels = [line.get_label() for line in axes.lines]
    (stalled,) = [label for label in labels if "which ends outside" in label]
    assert re.match(r"roce: an iteration of 4\.\d+ s", stalled)


def test_a_stalls_time_is_written_once(runs):
    panel = speed_figure(runs).axes[1]
    shown = [text.get_text() for text in panel.texts if text.get_visible()]
    assert [text for text in shown if "took" in text] and "4.29 s" not in shown


@pytest.mark.parametrize("order", [("mrc", "roce"), ("roce", "mrc")])
def test_each_runs_fault_is_shaded_where_it_was(runs, order):
    """A fault counted in iterations lasts longer in a slower run."""
    (axes,) = iteration_figure({name: runs[name] for name in order}).axes
    faults = [
        next(each for each in runs[name].phases if each.name == "link_down") for name in order
    ]
    assert faults[0].end_ps != faults[1].end_ps
    wanted = [(each.start_ps / 1e9, each.end_ps / 1e9) for each in faults]
    assert all(any(band == pytest.approx(each) for band in bands(axes)) for each in wanted)
    names = [text for text in axes.texts if text.get_text().startswith("fault: ")]
    # One name for all, whatever their number: names of each would lie over one another.
    assert [text.get_text() for text in names] == ["fault: link down, of each line in its colour"]
    colours = {to_rgb(line.get_color()) for line in axes.lines if line.get_label() in order}
    assert {to_rgb(patch.get_facecolor()) for patch in axes.patches} >= colours
    # Where all have one fault at the same time it is everybody's.
    (axes,) = iteration_figure({"a": runs["mrc"], "b": runs["mrc"]}).axes
    assert len(bands(axes)) == 1 and "fault: link down" in texts(axes)


def test_texts_of_marks_do_not_lie_over_one_another():
    from loomnet.results.drawing import Scale, draw_marks, new_picture

    _, (axes,) = new_picture()
    axes.set_xlim(0, 100)
    taken = []
    for number in range(4):
        draw_marks(
            axes,
            [
                {"time_s": 20 + number, "mark": "saved"},
                {"time_s": 60.2 + 0.1 * number, "mark": f"saved {number}"},
            ],
            Scale("s", 1.0),
            taken=taken,
        )
    assert [text.get_text() for text in axes.texts] == ["saved", "saved 0", "saved 1"]
    heights = [text.get_position()[1] for text in axes.texts]
    assert heights[1] == heights[0] and heights[2] > heights[1] + 0.4
    assert len(axes.lines) == 8  # the ticks are all there


def test_speed_may_have_one_common_whole(runs):
    usual = {name: usual_ps(result) for name, result in runs.items()}
    fastest = min(usual, key=usual.get)
    slower = max(usual, key=usual.get)
    figure = speed_figure(runs, common=True)
    assert f"100 % is {fastest} before the first fault" in figure.axes[0].get_title(loc="left")
    for axes, name in zip(figure.axes, runs, strict=True):
        steps = next(each for each in axes.patches if hasattr(each, "get_data")).get_data().values
        first = runs[name].data.iterations[0].length_ps
        assert steps[0] == pytest.approx(min(100 * usual[fastest] / first, 125))
    assert usual[slower] > usual[fastest]
    with pytest.raises(ln.UsageError, match="common=1 must be True or False"):
        speed_figure(runs, common=1)


def test_speed_is_of_the_jobs_own_without_faults(runs):
    figure = speed_figure(runs, faults={"link_down": "a link dies"}, title="Speed")
    assert figure.axes[0].get_title(loc="left") == "Speed"
    for axes, (name, result) in zip(figure.axes, runs.items(), strict=True):
        assert axes.get_ylabel() == name and axes.get_ylim()[0] == 0
        speeds = next(p for p in axes.patches if hasattr(p, "get_data")).get_data().values
        done = result.data.iterations
        assert len(speeds) == len(done)
        assert speeds[0] == pytest.approx(100, abs=3)  # before the fault
        average = (
            100
            * len(done)
            * (1e12 * result["before.iteration_s"])
            / (done[-1].end_ps - done[0].start_ps)
        )
        assert f"average\n{average:.0f} %" in texts(axes)
    assert "a link dies" in texts(figure.axes[0]) and "a link dies" not in texts(figure.axes[1])
    took = [text for text in texts(figure.axes[1]) if "took" in text]
    assert took == ["one step\ntook 4.3 s"] and not any("took" in t for t in texts(figure.axes[0]))
    with pytest.raises(ln.UsageError, match="no speed: it needs a job that ended an iteration"):
        speed_figure({})


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
    looks = [style(i) for i in range(12)]
    for one, other in itertools.combinations(looks, 2):
        assert one["marker"] != other["marker"] and one["linestyle"] != other["linestyle"]
        assert one["color"] != other["color"]
    colours = {
        bar.get_hatch()
        for bar in change_figure(
            [("a", 1.0, "worse"), ("b", -0.5, "better"), ("c", 0.2, "changed")]
        )
        .axes[0]
        .patches
    }
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


@pytest.mark.parametrize(("size", "count"), [(None, 5), ((5, 3), 5), ((9, 6), 5), (None, 12)])
def test_a_legend_of_distributions_covers_no_curve(flows, size, count):
    figure = distribution_figure({f"run {n}": flows for n in range(count)}, "fct", size=size)
    looks = {(line.get_color(), line.get_linestyle()) for line in figure.axes[0].lines}
    assert (
        len(looks)
        == len(
            {
                line._unscaled_dash_pattern[1] and tuple(line._unscaled_dash_pattern[1])
                for line in figure.axes[0].lines
            }
        )
        == count
    )
    figure.draw_without_rendering()
    (axes,) = figure.axes
    legend, title = axes.get_legend().get_window_extent(), axes._left_title.get_window_extent()
    assert not legend.overlaps(axes.bbox) and not legend.overlaps(title)
    assert legend.y0 >= axes.bbox.y1 and title.y1 <= figure.bbox.y1
    if size is not None:
        assert tuple(figure.get_size_inches()) == size


def test_every_picture_has_a_size(runs, flows):
    overtime = (None, "goodput", "iterations", "speed", "links", "latency")
    for result, whats in ((runs["mrc"], overtime), (flows, (None, "fct"))):
        for what in whats:
            assert tuple(result.plot(what, size=(6, 5)).get_size_inches()) == (6, 5), what
    for size in ((9,), "big", (0, 4), (9, 1e9), (9, "4")):
        with pytest.raises(ln.UsageError, match=r"must be \(width, height\) in inches"):
            runs["mrc"].plot(size=size)


def test_distributions_do_not_begin_far_from_their_first_value(flows, tmp_path):
    """Where all flows take about as long, the axis does not begin at 0; slowdowns begin at 1."""
    alike = ln.run(
        ln.star(hosts=4, rate="100 Gb/s", delay="1 us"),
        ln.Permutation("1 MB"),
        directory=tmp_path / "run",
    )
    (axes,) = distribution_figure({"": alike}, "fct").axes
    least = min(row["fct_s"] for row in alike.flows) * 1e6
    assert 0.9 * least < axes.get_xlim()[0] < least
    for result in (alike, flows):
        (axes,) = distribution_figure({"": result}, "slowdown").axes
        assert axes.get_xlim()[0] == 1


def test_what_cannot_be_drawn_is_one_line(runs, flows):
    for result, what, message in (
        (runs["mrc"], "overveiw", 'no picture "overveiw"; nearest: overview'),
        (runs["mrc"], "fct", "no distribution of fct: it needs a job of flows"),
        (flows, "links", 'the run did not sample link_use; give the run sample="10 us", links='),
    ):
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
    down = [
        row["value"]
        for row in use
        if phase.start_ps / 1e12 + 2e-5 < row["time"] < phase.end_ps / 1e12
    ]
    assert down and max(down) == 0  # the link is dead
    sent = result.data.samples.sent["p0.leaf0->h0"]
    assert sent[-1][1] <= result.data.totals["link p0.leaf0->h0"]["bytes"]
    queue = result.series("queue")
    assert {row["where"] for row in queue} == set(result.data.samples.sent) and len(queue) > 50
    top, below, of_use, of_queue = result.plot("links").axes
    assert of_use.get_ylabel() == "link use (share of rate)"
    assert "bytes waiting" in of_queue.get_ylabel() and len(bands(top)) == 1
    # A direction has its strip in the same place of both panels.
    names = [[label.get_text() for label in panel.get_yticklabels()] for panel in (top, below)]
    assert names[0] == names[1] and set(names[0]) == set(result.data.samples.sent)
    strip = top.collections[names[0].index("p0.leaf0->h0")]
    assert strip.get_array().max() == pytest.approx(max(values)) and strip.get_clim() == (0, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"links": ["a->b"]},
            'run: links= needs sample=, the time between two samples; give sample="10 ms" too',
        ),
        ({"links": ["a->b"], "sample": "1 us"}, 'run: links: no direction "a->b"; nearest: '),
        ({"links": 4, "sample": "1 us"}, "run: links=4 is no list of directions"),
    ],
)
def test_links_that_are_not_there(tmp_path, options, message):
    with pytest.raises(ln.UsageError, match=re.escape(message)):
        ln.run(
            ln.star(hosts=2, rate="1 Gb/s", delay="1 us"),
            ln.AllReduce("1 MB"),
            directory=tmp_path / "run",
            **options,
        )


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
    with pytest.raises(ln.UsageError, match=r'number "link_down.iteration_s" is null: '):
        runs["roce"].number("link_down.iteration_s")
    with pytest.raises(ln.UsageError, match=r'no number "before.recovery_s": there is no fault'):
        r.number("before.recovery_s")
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
