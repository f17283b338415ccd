"""The Lab: what it asks of an engine, what it makes of the answer, and bad input starts nothing."""

import json
from types import SimpleNamespace

import pytest
from fabrics import main_job as fabric
from scripted import ScriptedRunner
from synthetic import S, steady_run

import loomnet as ln
from loomnet.base.errors import UsageError
from loomnet.faults.timetable import Window
from loomnet.measures.rows import Measured
from loomnet.measures.run_data import Fidelity, Iteration
from loomnet.results.plots import goodput_figure, iteration_figure, save
from loomnet.running.request import Progress, Runner, get_runner

FAULTS = [
    ln.down("h0--p0.leaf0", at="8 s", duration="8 s", phase="nic_link_down"),
    ln.kill("p1.spine0", at="20 s", duration="8 s", phase="leaf_spine_down"),
]


def played(request):
    """Drives the request's timetable to its end, as an engine does."""
    while (now := request.timetable.next_time()) is not None:
        request.timetable.advance(now)
    return _with(request.timetable.windows)


def _with(windows):
    data = steady_run(hosts=4)
    data.windows = list(windows)
    return data


def lab(tmp_path, make=played, **options):
    return ln.Lab("test", runner=ScriptedRunner(make), directory=tmp_path / "run", **options)


def test_the_scripted_engine_is_a_runner():
    assert isinstance(ScriptedRunner(played), Runner)


def test_a_run_becomes_figures_by_name(tmp_path):
    made = lab(tmp_path)
    result = made.run(fabric(), ln.AllReduce("4 MB", 10), FAULTS, label="mrc")
    assert result["nic_link_down.goodput_ratio"] == pytest.approx(0.75, abs=0.01)
    assert isinstance(result["errors"], Measured) and result["errors"] == 0
    assert result["nic_link_down.readmitted"] is None
    assert result.metric("nic_link_down.expected_capacity").value == pytest.approx(0.75)
    assert result.metric("leaf_spine_down.expected_capacity").value == pytest.approx(1)
    with pytest.raises(
        UsageError, match=r'no number "nic_down.blip_s"; nearest: nic_link_down.blip_s'
    ):
        result["nic_down.blip_s"]
    assert made.report["mrc.nic_link_down.iteration_s"] == pytest.approx(0.6)


def test_what_the_engine_is_asked(tmp_path):
    made = lab(tmp_path, seed=9)
    made.run(
        fabric(),
        ln.AllReduce("4 MB", ranks=3),
        FAULTS,
        label="a",
        reroute_delay="off",
        queue_pairs=2,
    )
    (request,) = made._runner.requests
    assert request.lead.placement == (0, 1, 2) and request.seed == request.plan.seed == 9
    assert request.reroute_delay is None and request.options == {"queue_pairs": 2}
    assert request.lead.stall_after == ln.Time("24 s")
    assert request.directory == made.directory / "a"
    assert not request.directory.exists(), "a labelled run that wrote nothing leaves no folder"
    made.run(fabric(), ln.AllReduce("4 MB"), label="b")
    assert made._runner.requests[1].reroute_delay == ln.Time("1 s")


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda made: made.run("fabric", ln.AllReduce("1 MB")), "is not a fabric"),
        (lambda made: made.run(fabric(), "job"), "is not a job"),
        (lambda made: made.run(fabric(), ln.AllReduce("1 MB", ranks=5)), "5 ranks but 4 hosts"),
        (
            lambda made: made.run(fabric(), ln.AllReduce("1 MB"), [ln.down("h0--x", at="1 s")]),
            'no link "h0--x"',
        ),
        (lambda made: made.run(fabric(), ln.AllReduce("1 MB"), ["down"]), "is not a fault"),
        (
            lambda made: made.run(fabric(), ln.TorchJob("none.py", compute="1 ms")),
            "no file none.py",
        ),
        (lambda made: made.run(fabric(), ln.TorchJob("none.py")), "TorchJob.compute"),
        (
            lambda made: made.run(fabric(), ln.AllReduce("1 MB"), reroute_delay=1),
            "run: reroute_delay: 1 has no unit",
        ),
        (lambda made: made.run(fabric(), ln.AllReduce("1 MB"), dilation=0.5), "dilation 0.5"),
        (lambda made: made.run(fabric(), ln.AllReduce("1 MB"), seed=-1), "seed -1"),
        (lambda _: ln.Lab(clock="sundial"), '"sundial" is not one of virtual, live'),
    ],
)
def test_bad_input_starts_nothing(tmp_path, act, message):
    made = lab(tmp_path)
    with pytest.raises(UsageError, match=message):
        act(made)
    assert made._runner.requests == [] and not (tmp_path / "run").exists()


def test_an_engine_that_refuses_leaves_no_folder(tmp_path):
    def refuses(request):
        raise UsageError("offered load 900 k crossings/s, this machine's budget is 150 k")

    made = lab(tmp_path, refuses)
    with pytest.raises(UsageError, match="budget"):
        made.run(fabric(), ln.AllReduce("1 MB"), label="mrc")
    assert not (tmp_path / "run").exists() and made.report.rows == []


def test_labels_are_not_shared(tmp_path):
    made = lab(tmp_path)
    made.run(fabric(), ln.AllReduce("1 MB"), FAULTS)
    with pytest.raises(UsageError, match="a second run needs a label"):
        made.run(fabric(), ln.AllReduce("1 MB"), FAULTS)
    made.run(fabric(), ln.AllReduce("1 MB"), FAULTS, label="x")
    with pytest.raises(UsageError, match='label "x" is taken'):
        made.run(fabric(), ln.AllReduce("1 MB"), FAULTS, label="x")


def test_a_stalled_run_counts_an_error_and_is_a_failed_run(tmp_path):
    def stalled(request):
        request.timetable.advance(20 * S)
        data = _with(request.timetable.windows)
        data.ended, data.reason, data.end_ps = "stalled", "no progress for 24 s", 24 * S
        return data

    made = lab(tmp_path, stalled)
    result = made.run(fabric(), ln.AllReduce("1 MB"), FAULTS, label="roce")
    assert result["errors"] == 1 and result["leaf_spine_down.blip_s"] is None
    assert "no progress" in result.metric("leaf_spine_down.blip_s").reason
    assert made.report.exit_code == 1 and not made.report.failed
    assert made.report.broken_off == ["roce stalled: no progress for 24 s"]
    assert (
        not made.check("blip", result["leaf_spine_down.blip_s"], le=1)
        and made.report.exit_code == 1
    )


def test_a_figure_below_the_engines_lateness_does_not_stand(tmp_path):
    def late(request):
        data = played(request)
        data.fidelity = Fidelity(
            lateness_p50_ps=S, lateness_p99_ps=S, lateness_max_ps=2 * S, packets=1
        )
        return data

    made = lab(tmp_path, late, clock="live")
    result = made.run(fabric(), ln.AllReduce("1 MB"), FAULTS, label="mrc")
    assert not result.metric("nic_link_down.goodput_ratio").stands  # 5 s of work, 100 s needed
    made.check("goodput", result["nic_link_down.goodput_ratio"], ge=0.5)
    assert made.report.exit_code == 3 and made.report.deterministic is False


def test_reports_of_equal_runs_are_equal_bytes(tmp_path):
    texts = []
    for name in ("a", "b"):
        made = lab(tmp_path / name, seed=3)
        made.run(fabric(), ln.AllReduce("1 MB"), FAULTS, label="mrc")
        texts.append(made.write().read_bytes())
    assert texts[0] == texts[1] and json.loads(texts[0])["deterministic"] is True


def test_no_engine_no_run():
    with pytest.raises(UsageError, match='"lve" is not a clock; nearest: live'):
        get_runner("lve")


def test_series_and_figures(tmp_path):
    made = lab(tmp_path)
    result = made.run(fabric(), ln.AllReduce("1 MB"), FAULTS, label="mrc")
    for series in result.data.hosts.values():
        series.payload, series.bin_ps = [125_000] * 4000, 10**9
    goodput = result.series("goodput", every="100 ms")
    assert goodput.values == pytest.approx([4.0] * 40) and goodput.times[1] == pytest.approx(0.1)
    assert result.series("iteration_s").values[0] == pytest.approx(0.5)
    with pytest.raises(UsageError, match='no series "godput"; nearest: goodput'):
        result.series("godput")
    stalled = made.run(fabric(), ln.AllReduce("1 MB"), FAULTS, label="gloo")
    stalled.data.ended = "stalled"
    both = {"mrc": result, "gloo": stalled}
    paths = save(iteration_figure(both), tmp_path / "iteration_time")
    text = paths[1].read_text()
    assert "nic link down" in text and "gloo: stalled" in text and paths[0].stat().st_size > 10_000
    first = paths[1].read_bytes()
    assert save(iteration_figure(both), tmp_path / "again")[1].read_bytes() == first
    assert save(goodput_figure(both), tmp_path / "goodput")[0].is_file()


def test_progress_is_what_is_known_and_a_loss_that_is_no_number_is_not():
    table = SimpleNamespace(windows=[Window("first", 1, 2), Window("second", 3, None)])
    counters = {"paths_good": 3, "paths_total": 4}
    iterations = [Iteration(1, 0, S), Iteration(2, S, 3 * S)]
    log = [{"step": "1", "loss": "0.5"}]
    seen = Progress.of(4 * S, iterations, table, counters, log)
    assert (seen.step, seen.loss, str(seen.iteration), seen.phase) == (2, 0.5, "2 s", "second")
    assert (seen.paths_good, seen.paths_total) == (3, 4)
    for line in ({"step": "2", "loss": "0.4,"}, {"step": "2"}):
        assert Progress.of(0, iterations, table, counters, [*log, line]).loss is None
    empty = Progress.of(0, [], SimpleNamespace(windows=[]), {"paths_good": 0, "paths_total": 0})
    assert empty == Progress(ln.Time("0 s"))


@pytest.mark.parametrize("label", ["report.json", "counters.json", "environment.json"])
def test_a_label_is_not_the_name_of_a_runs_own_file(tmp_path, label):
    """A label names a folder beside these files."""
    fabric = ln.clos.star(hosts=2, rate="1 Gb/s", delay="1 us")
    with pytest.raises(ln.UsageError, match="is the name of a run's own file"):
        ln.Lab("demo", directory=tmp_path).run(fabric, ln.SendRecv("8 B"), label=label)
