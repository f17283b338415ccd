"""What a notebook shows of jobs, panels, pools, series, sweeps, reports and comparisons."""

import itertools
import re
import textwrap
from types import SimpleNamespace

import pytest

import loomnet as ln
from loomnet.base.notebook import time_unit
from loomnet.base.table import MOST_HTML_ROWS, Table
from loomnet.fabrics.circuit_drawing import joined_hosts
from loomnet.fabrics.drawing import fabric_figure, positions, tiers
from loomnet.results.circuit_plots import Strip, strips_of
from loomnet.results.drawing import Scale, new_picture
from loomnet.sweeps import picture
from loomnet.sweeps.picture import _vertical

DARK = 25_000_000  # ps


def four(profile="25 us"):
    fabric = ln.Fabric("four")
    fabric.add_panel("ocs0", profile=profile)
    for number in range(4):
        fabric.add_host(f"h{number}")
        fabric.add_link(f"h{number}", "ocs0", rate="100 Gb/s", delay="1 us")
    fabric.panel("ocs0").circuits([("h0", "h1"), ("h2", "h3")])
    return fabric


def patched(tmp_path, profile="25 us"):
    lab = ln.Lab(directory=tmp_path / profile)
    lab.circuits("ocs0", [("h0", "h2"), ("h1", "h3")], at="100 us")
    return lab.run(four(profile), ln.Flows(pairs=[(0, 2)], sizes="1 MiB"))


# --- circuits over time ---------------------------------------------------------------------------
def test_strips_say_where_each_ports_light_goes_and_when_it_is_dark(tmp_path):
    run = patched(tmp_path)
    [panel] = run.plan.panels
    until = 300_000_000
    of_first = [strip for strip in strips_of(run, panel, until) if strip.port == 0]
    at = 100_000_000
    assert [(strip.far, strip.status) for strip in of_first] == [
        (1, "tuned"),
        (2, "tuning"),
        (2, "tuned"),
    ]
    assert of_first[0].start_ps == 0 and of_first[-1].end_ps == until
    told, lit = of_first[1].start_ps, of_first[1].end_ps
    assert told == at and DARK <= lit - told <= DARK + 1000  # rounded up to nanoseconds
    # The strips of a port touch: it always has a circuit here.
    assert all(a.end_ps == b.start_ps for a, b in itertools.pairwise(of_first))


def test_a_panel_without_dark_time_is_never_dark(tmp_path):
    run = patched(tmp_path, "ideal")
    [panel] = run.plan.panels
    of_first = [strip for strip in strips_of(run, panel, 300_000_000) if strip.port == 0]
    assert [(strip.far, strip.status) for strip in of_first] == [(1, "tuned"), (2, "tuned")]


def test_the_picture_has_a_strip_for_each_port_and_says_what_is_dark(tmp_path):
    run = patched(tmp_path)
    [axes] = run.plot("circuits").axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["h0", "h1", "h2", "h3"]
    assert len(axes.patches) >= 12  # three strips each
    legend = [each.get_text() for each in axes.get_legend().get_texts()]
    assert legend == ["to h0", "to h1", "to h2", "to h3", "dark: the panel switches"]
    [bare] = patched(tmp_path, "ideal").plot("circuits").axes
    assert "dark: the panel switches" not in [t.get_text() for t in bare.get_legend().get_texts()]


def test_a_run_without_panels_has_no_such_picture(tmp_path):
    run = ln.run(
        ln.star(hosts=2, rate="10 Gb/s", delay="1 us"),
        ln.AllReduce("8 kB"),
        directory=tmp_path / "r",
    )
    with pytest.raises(ln.UsageError, match="plot: circuits: the run has no panel"):
        run.plot("circuits")


def test_strips_are_told_by_their_ports_alone():
    assert Strip(0, 1, 0, 5, "tuned") == Strip(0, 1, 0, 5, "tuned") != Strip(0, 2, 0, 5, "tuned")


# --- fabrics and jobs -----------------------------------------------------------------------------
def test_a_fabric_draws_the_circuits_that_its_panel_has():
    fabric = four()
    assert dict(joined_hosts(fabric, fabric.panel("ocs0"))) == {("h0", "h1"): 1, ("h2", "h3"): 1}
    [axes] = fabric_figure(fabric).axes
    assert axes.get_title() == "four: 4 hosts, 1 panel, 2 circuits"
    fabric.panel("ocs0").circuits([])
    [bare] = fabric_figure(fabric).axes
    assert len(axes.patches) == len(bare.patches) + 2 and "0 circuits" in bare.get_title()


@pytest.mark.parametrize("order", ["spread", "block"])
def test_hosts_stand_under_their_leaf_and_their_links_do_not_cross(order):
    fabric = ln.clos.two_tier(
        planes=1, leaves=4, spines=4, hosts_per_leaf=4, order=order, rate="100 Gb/s", delay="1 us"
    )
    place = positions(fabric)
    ends = sorted(
        (place[link.a][0], place[link.b][0])
        if link.a in fabric.hosts
        else (place[link.b][0], place[link.a][0])
        for link in fabric.all_links()
        if {link.a, link.b} & set(fabric.hosts)
    )
    assert len(ends) == 16 and [leaf for _, leaf in ends] == sorted(leaf for _, leaf in ends)
    assert len({at for at, _ in ends}) == 16


def test_names_of_a_fabric_are_large_stand_on_white_and_do_not_meet():
    fabric = ln.clos.two_tier(
        planes=1, leaves=4, spines=4, hosts_per_leaf=4, rate="100 Gb/s", delay="1 us"
    )
    figure = fabric_figure(fabric)
    figure.draw_without_rendering()
    names = figure.axes[0].texts
    assert {text.get_text() for text in names} == set(positions(fabric))
    assert all(text.get_fontsize() >= 9 for text in names)
    assert all(text.get_bbox_patch().get_facecolor()[:3] == (1, 1, 1) for text in names)
    boxes = [text.get_window_extent() for text in names]
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))


def test_names_of_many_ports_are_large(tmp_path):
    """Of 48 rows, as many as a region of eight servers has."""
    fabric = ln.Fabric("many")
    fabric.add_panel("ocs0", profile="25 us")
    for number in range(48):
        fabric.add_host(f"h{number}")
        fabric.add_link(f"h{number}", "ocs0", rate="100 Gb/s", delay="1 us")
    fabric.panel("ocs0").circuits([(f"h{i}", f"h{i + 1}") for i in range(0, 48, 2)])
    run = ln.run(fabric, ln.Flows(pairs=[(0, 1)], sizes="1 MiB"), write=False)
    figure = run.plot("circuits")
    figure.draw_without_rendering()
    labels = figure.axes[0].get_yticklabels()
    boxes = [label.get_window_extent() for label in labels]
    assert len(labels) == 48 and all(label.get_fontsize() >= 9 for label in labels)
    assert not any(a.overlaps(b) for a, b in itertools.pairwise(boxes))


def arrows(job):
    return job._repr_html_().count("<line")


def test_a_job_draws_who_sends_to_whom():
    assert arrows(ln.AllReduce("1 MB")) == 8 and arrows(ln.AllReduce("1 MB", ranks=5)) == 5
    assert arrows(ln.Incast("1 MB", ranks=6)) == 5
    assert arrows(ln.AllToAll("1 MB", ranks=4)) == 6  # an arrow with two heads for each pair
    flows = ln.Flows(pairs=[(0, 1), (1, 0), (2, 1)], sizes="1 MB", name="mine")._repr_html_()
    assert flows.count("<line") == 2 and flows.count("marker-start") == 1
    assert "<td>pairs</td><td>(0, 1), (1, 0), (2, 1)</td>" in flows and "<td>mine</td>" in flows
    summed = ln.AllReduce("1 MB", ranks=4, allreduce="ina")._repr_html_()
    assert summed.count("<line") == 4 and ">switch</text>" in summed
    assert ">switch</text>" not in ln.AllReduce("1 MB", ranks=4)._repr_html_()


def test_a_job_is_drawn_with_what_was_given_on_as_many_hosts_as_it_needs():
    shown = ln.Permutation("2 MB", shift=1)._repr_html_()
    assert "<td>shift</td><td>1</td>" in shown  # though it is the default
    assert "as on 8 hosts; the job takes all there are" in shown
    assert "as on 12 hosts" in ln.Permutation("2 MB", shift=5)._repr_html_()
    flows = ln.Flows(pairs=[(0, 1), (0, 3), (0, 5)], sizes="1 MB")._repr_html_()
    assert flows.count("<circle") == 6 and "as on 6 hosts" in flows
    assert '<rect width="100%" height="100%" rx="4" fill="white"/>' in flows  # of a dark page, too


def test_a_fabric_has_each_switch_in_the_row_of_its_tier_and_fits_its_page():
    fabric = ln.clos.two_tier(
        planes=1, leaves=2, spines=1, hosts_per_leaf=2, rate="10 Gb/s", delay="1 us"
    )
    fabric.add_link(
        fabric.add_host("ps0", role="server"), "p0.spine0", rate="10 Gb/s", delay="1 us"
    )
    assert tiers(fabric) == {"p0.leaf0": 1, "p0.leaf1": 1, "p0.spine0": 2}
    place = positions(fabric)
    assert place["p0.spine0"][1] > place["p0.leaf0"][1] == place["p0.leaf1"][1]
    tree = tiers(ln.clos.fat_tree(4, rate="10 Gb/s", delay="1 us"))
    assert [tree[f"p0.{name}0"] for name in ("leaf", "agg", "core")] == [1, 2, 3]
    row = ln.Fabric("row")  # of three: a link from end to end runs behind the one in the midst
    for number in range(3):
        row.add_switch(f"s{number}")
        for host in (f"a{number}", f"b{number}"):
            row.add_link(row.add_host(host), f"s{number}", rate="10 Gb/s", delay="1 us")
    for a, b in (("s0", "s1"), ("s1", "s2"), ("s0", "s2")):
        row.add_link(a, b, rate="10 Gb/s", delay="1 us")
    assert set(tiers(row).values()) == {1}
    arcs = fabric_figure(row).axes[0].patches
    assert len(arcs) == 3 and all("Arc3" in repr(arc.get_connectionstyle()) for arc in arcs)
    assert 'style="max-width:100%;height:auto"' in row._repr_html_()


def test_a_job_that_no_picture_holds_has_its_table():
    shown = ln.ModelJob("mixtral_8x22b", iterations=2)._repr_html_()
    assert "<svg" not in shown and "<td>mixtral_8x22b</td>" in shown
    assert "<svg" not in ln.AllReduce("1 MB", ranks=512)._repr_html_()


# --- tables, series, pools ------------------------------------------------------------------------
def test_a_long_table_says_how_many_rows_it_leaves_out():
    table = Table(("n",), ({"n": n} for n in range(MOST_HTML_ROWS + 25)))
    shown = table._repr_html_()
    assert shown.count("<tr>") == MOST_HTML_ROWS + 1 and "… and 25 rows more" in shown
    assert len(repr(table).splitlines()) == MOST_HTML_ROWS + 26
    assert "more" not in Table(("n",), table.rows[:MOST_HTML_ROWS])._repr_html_()


@pytest.mark.parametrize(
    ("seconds", "unit"), [(2.0, "s"), (0.02, "ms"), (3e-6, "µs"), (1e-9, "ns"), (0.0, "ns")]
)
def test_axes_are_in_a_unit_of_their_length(seconds, unit):
    assert time_unit(seconds)[0] == unit


def test_series_and_pools_are_pictures(tmp_path):
    fabric = ln.star(hosts=4, rate="10 Gb/s", delay="1 us").program("*", "aggregate", pool="16 KiB")
    run = ln.run(
        fabric,
        ln.AllReduce("256 kB", repeat=3, allreduce="ina"),
        pools="20 us",
        sample="20 us",
        links=["h0->p0.leaf0"],
        directory=tmp_path / "r",
    )
    for shown, rows in (
        (run.pool("p0.leaf0"), "time, job, held, summing, done"),
        (run.series("goodput"), "time, value"),
        (run.series("link_use"), "time, where, name, value"),
    ):
        html = shown._repr_html_()
        assert html.count("<img") == 1 and "<table" not in html and f"rows of {rows}" in html
    assert repr(run.series("goodput")).startswith("Series(goodput of ")
    counted = run.switch("p0.leaf0")._repr_html_()
    assert "program aggregate" in counted and "<td>complete</td>" in counted


# --- reports, comparisons, sweeps -----------------------------------------------------------------
def flows(transport, tmp_path, **more):
    fabric = ln.clos.two_tier(
        planes=1, leaves=2, spines=2, hosts_per_leaf=4, rate="100 Gb/s", delay="1 us"
    )
    return ln.run(
        fabric,
        ln.Permutation("256 kB", transport=transport, **more),
        directory=tmp_path / f"{transport}{more}",
    )


def test_a_comparison_shows_both_runs(tmp_path):
    a, b = flows("mrc", tmp_path), flows("roce", tmp_path)
    [axes] = ln.compare(a, b).figure().axes
    legend = [each.get_text().partition(":")[0] for each in axes.get_legend().get_texts()]
    assert legend == ["mrc", "roce"] and "slowdown" in axes.get_xlabel()
    fabric = ln.star(hosts=4, rate="10 Gb/s", delay="1 us")
    rings = [
        ln.run(fabric, ln.AllReduce(size, 6), directory=tmp_path / size)
        for size in ("64 kB", "128 kB")
    ]
    panels = ln.compare(*rings).figure().axes
    assert [axes.get_ylabel().partition("\n")[0] for axes in panels] == [
        "size=64 kB",
        "size=128 kB",
    ]


def test_runs_are_told_apart_by_the_field_in_which_their_controls_differ(tmp_path):
    def trained(**control):
        job = ln.ModelJob(
            "mixtral_8x22b",
            iterations=1,
            pipeline=1,
            layers=1,
            micro_batches=1,
            circuits=ln.CircuitControl(**control),
        )
        return ln.run(ln.mixnet(servers=8, region=8), job, model="fluid", write=False)

    lines = ln.compare(trained(repatch="layer"), trained(repatch="never")).lines
    assert lines == ["A: circuits.repatch=layer", "B: circuits.repatch=never"]


SCENARIO = textwrap.dedent("""
    import loomnet as ln

    @ln.scenario
    def own(lab: ln.Lab, hosts: int = 2, kind: str = "a"):
        \"\"\"Waits.\"\"\"
        lab.run(ln.star(hosts=hosts, rate="10 Gb/s", delay="1 us"), ln.AllReduce("8 kB", 6))
        lab.metric("wait", 1e-3 * hosts * (1, 3, 8)[lab.seed] * (1 + (kind == "b")), unit="s")
        lab.check("few", hosts, le=4)
""")


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    pytest.importorskip("distributed")
    folder = tmp_path_factory.mktemp("sweep")
    (folder / "own.py").write_text(SCENARIO)
    return ln.sweep(
        folder / "own.py",
        hosts=[2, 4, 8],
        kind=["a", "b"],
        seeds=3,
        jobs=1,
        out=folder / "out",
        watch=lambda *counts: None,
    )


def lines_of(figure):
    """(label, x, y, least, greatest) of each line with bars."""
    [axes] = figure.axes
    found = []
    for made in axes.containers:
        points, _, [bars] = made
        ends = [(segment[0][1], segment[1][1]) for segment in bars.get_segments()]
        found.append((made.get_label(), list(points.get_xdata()), list(points.get_ydata()), ends))
    return axes, found


def test_a_sweep_draws_its_first_number_with_the_spread_over_seeds(sweep):
    axes, [a, b] = lines_of(sweep.plot("wait"))
    assert (a[0], b[0]) == ("kind=a", "kind=b") and axes.get_xlabel() == "hosts"
    assert a[1] == [2, 4, 8] and axes.get_ylabel() == "wait (ms), log scale"
    for line, factor in ((a, 1), (b, 2)):
        assert line[2] == pytest.approx([3 * hosts * factor for hosts in (2, 4, 8)])
        assert [round(end, 9) for ends in line[3] for end in ends] == [
            end for hosts in (2, 4, 8) for end in (hosts * factor, 8 * hosts * factor)
        ]
    assert "median of 3 seeds, bars from the least to the greatest" in axes.get_title(loc="left")
    [legend] = axes.figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["kind=a", "kind=b"]
    [first] = sweep.plot().axes
    assert first.get_ylabel() == "few"  # checks come first


def test_a_sweep_over_seeds_or_names_has_places_in_their_order(sweep):
    axes, lines = lines_of(sweep.plot("wait", over="seed"))
    assert len(lines) == 6 and [t.get_text() for t in axes.get_xticklabels()] == ["0", "1", "2"]
    axes, lines = lines_of(sweep.plot("wait", over="kind"))
    assert [t.get_text() for t in axes.get_xticklabels()] == ["a", "b"] and len(lines) == 3


def test_lines_lead_between_amounts_and_not_between_names(sweep):
    """Nothing lies between a policy and the next."""

    def drawn(over):
        [axes] = sweep.plot("wait", over=over).axes
        return [made[0].get_linestyle() for made in axes.containers]

    assert set(drawn("kind")) == set(drawn("seed")) == {"None"}
    assert "None" not in drawn("hosts")


def test_sizes_times_and_rates_have_their_places_on_an_axis():
    assert picture._amounts(["128 KiB", "16 KiB"]) == [131072, 16384]
    assert picture._amounts(["1 us", "1 ms"]) == [1e6, 1e9]
    assert picture._amounts([1, 2.5]) == [1, 2.5]
    assert picture._amounts(["esa", "16 KiB"]) is picture._amounts(["1 us", "16 KiB"]) is None
    assert picture._amounts([True, False]) is picture._amounts([None]) is None
    _, [axes] = new_picture()
    lines = {"policy=esa": {each: (each, [1.0, 2.0]) for each in ("128 KiB", "16 KiB", "32 KiB")}}
    picture._draw(axes, lines, ["128 KiB", "16 KiB", "32 KiB"], "jct", "s", "pool", None)
    assert list(axes.containers[0][0].get_xdata()) == [16384, 32768, 131072]
    assert [t.get_text() for t in axes.get_xticklabels()] == ["16 KiB", "32 KiB", "128 KiB"]
    assert axes.get_xscale() == "log"
    points = [
        SimpleNamespace(parameters={"policy": policy, "pool": pool})
        for policy in ("esa", "atp")
        for pool in ("16 KiB", "32 KiB")
    ]
    assert picture._longest(SimpleNamespace(points=points), ["policy", "pool"]) == "pool"


@pytest.mark.parametrize(
    ("low", "high", "scale", "begin"),
    [
        (1.0, 2.0, "linear", 0.9),
        (1.0, 10.0, "linear", 0),
        (1.0, 40.0, "log", None),
        (-1.0, 40.0, "linear", None),
        (0.0, 40.0, "linear", 0),
        (5.0, 5.0, "linear", 4.5),
    ],
)
def test_the_axis_of_a_sweep_leaves_its_bars_to_be_seen(low, high, scale, begin):
    _, [axes] = new_picture()
    _vertical(axes, low, high, Scale("s", 1.0))
    assert axes.get_yscale() == scale and (begin is None or axes.get_ylim()[0] == begin)
    assert ("log scale" in axes.get_ylabel()) is (scale == "log")


def test_a_sweep_names_what_it_cannot_draw(sweep):
    with pytest.raises(ln.UsageError, match='no number "wate"; nearest: wait'):
        sweep.plot("wate")
    with pytest.raises(ln.UsageError, match='over="host" was not varied; nearest: hosts'):
        sweep.plot(over="host")


def test_a_sweep_in_a_notebook_has_its_picture_and_a_row_for_each_combination(sweep):
    shown = sweep._repr_html_()
    assert shown.count("<img") == 1 and shown.count("<tr>") == 7
    assert "<td>6 ms (2 ms–16 ms)</td>" in shown and "medians over the seeds" in shown


def test_a_sweep_of_flows_draws_their_slowdown(tmp_path):
    pytest.importorskip("distributed")
    (tmp_path / "own.py").write_text(
        textwrap.dedent("""
        import loomnet as ln

        @ln.scenario
        def own(lab: ln.Lab, size: ln.Size = "8 kB"):
            lab.run(ln.star(hosts=4, rate="10 Gb/s", delay="1 us"), ln.Permutation(size))
    """)
    )
    made = ln.sweep(
        tmp_path / "own.py",
        size=["8 kB", "1 MB"],
        jobs=1,
        out=tmp_path / "out",
        watch=lambda *counts: None,
    )
    [axes] = made.plot().axes
    assert axes.get_ylabel() == "slowdown_p99 (ratio), not from 0"
    assert [t.get_text() for t in axes.get_xticklabels()] == ["8 kB", "1 MB"]


def test_a_report_and_a_scenario_show_themselves(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(SCENARIO)
    from loomnet.labs.scenario import load

    scenario = load(tmp_path / "own.py")
    shown = scenario._repr_html_()
    assert "scenario own: Waits." in shown and "<td>hosts</td><td>int</td><td>2</td>" in shown
    report = scenario.run(hosts=8)
    assert re.fullmatch(
        r"Report\(own: 1 run, 0 of 1 check hold; all numbers in \.metrics; .*\)", repr(report)
    )
    shown = report._repr_html_()
    assert "6 iterations of " in shown and "<td>wait</td>" in shown
    assert "<td>few</td><td>8</td><td>≤ 4</td><td>no</td>" in shown


def test_rounds_of_experts_are_a_table():
    job = ln.ModelJob("mixtral_8x22b", iterations=1, pipeline=1, layers=1, micro_batches=1)
    run = ln.run(ln.mixnet(servers=8, region=8), job, model="fluid", write=False)
    assert len(repr(run.experts)) < 200
    assert "<td>exposed_s</td>" in run.experts._repr_html_()
