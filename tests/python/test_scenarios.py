"""Scenarios: the signature is the only list of parameters, and what does not fit is refused."""

import json
import textwrap
from pathlib import Path
from typing import Literal

import pytest
from scripted import ScriptedRunner
from synthetic import steady_run

import loomnet as ln
from loomnet.base.errors import UsageError
from loomnet.labs.scenario import Scenario, scenarios_in

SCENARIOS = Path(__file__).parents[2] / "scenarios"
seen = {}


@ln.scenario
def sample(
    lab: ln.Lab,
    transport: Literal["mrc", "roce"] = "mrc",
    planes: int = 4,
    rate: ln.Rate = "400 Gb/s",
    note: str = "",
    reroute: ln.Time | Literal["off"] = "1 s",
):
    """Says what it was given."""
    seen.update(transport=transport, planes=planes, rate=rate, note=note, reroute=reroute)
    lab.metric("planes", planes)
    lab.run(ln.clos.star(hosts=2, rate="10 Gb/s", delay="1 us"), ln.SendRecv("8 B"))


def test_a_signature_is_the_list_of_parameters():
    assert isinstance(sample, Scenario) and sample.doc == "Says what it was given."
    assert [(p.name, p.default) for p in sample.parameters] == [
        ("transport", "mrc"),
        ("planes", "4"),
        ("rate", "400 Gb/s"),
        ("note", ""),
        ("reroute", "1 s"),
    ]
    assert {p.name: p.type for p in sample.parameters}["rate"] == "Rate"


def test_values_are_converted_and_recorded_with_their_units(tmp_path):
    report = sample.run(planes="8", rate="40 Mb/s", reroute="off", directory=tmp_path)
    assert seen["planes"] == 8 and seen["rate"] == ln.Rate("40 Mb/s") and seen["reroute"] == "off"
    assert report.parameters == {
        "transport": "mrc",
        "planes": 8,
        "rate": "40 Mb/s",
        "note": "",
        "reroute": "off",
    }
    assert json.loads((tmp_path / "report.json").read_text())["metrics"][0]["value"] == 8
    assert (tmp_path / "test_scenarios.py").is_file()  # a copy of the scenario
    sample.run(directory=tmp_path)
    assert seen["rate"] == ln.Rate("400 Gb/s") and seen["reroute"] == ln.Time("1 s")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"plane": 3}, 'unknown name "plane"; nearest: planes, '),
        ({"rate": 40}, "sample.rate: 40 has no unit"),
        ({"rate": "40"}, 'sample.rate: rate "40" has no unit'),
        ({"planes": "many"}, "sample.planes: .*integer.*'many'"),
        ({"transport": "mcr"}, 'sample.transport: "mcr" is not one of mrc or roce; nearest: mrc, '),
        ({"reroute": "1"}, "sample.reroute: .*no unit"),
    ],
)
def test_values_that_do_not_fit_are_one_line(values, message, tmp_path):
    with pytest.raises(UsageError, match=message) as caught:
        sample.run(directory=tmp_path / "run", **values)
    assert "\n" not in str(caught.value) and not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["plane=3"], 'no parameter "plane"; nearest: planes, '),
        (["planes"], "write name=value"),
        (["planes=1,2"], "loomnet sweep"),
        (["planes=1", "planes=2"], "set twice"),
    ],
)
def test_settings(texts, message):
    with pytest.raises(UsageError, match=message):
        sample.settings(texts)


def test_text_may_hold_commas_and_equal_signs():
    assert sample.settings(["note=a, b=c", "planes = 2"]) == {"note": "a, b=c", "planes": "2"}


def _no_lab(): ...
def _untyped(lab, x=1): ...
def _star(lab, *, seed: int = 1): ...
def _args(lab, *args: int): ...


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (_no_lab, "first argument must be the lab"),
        (_untyped, "x needs a type"),
        (_star, 'cannot be named "seed"'),
        (_args, "list every parameter"),
    ],
)
def test_functions_that_make_no_scenario(function, message):
    with pytest.raises(UsageError, match=message):
        ln.scenario(function)


def write(path, body):
    path.write_text("import loomnet as ln\n" + textwrap.dedent(body))
    return path


def test_discovery(tmp_path):
    two = write(
        tmp_path / "two.py",
        """
        @ln.scenario
        def first(lab): ...
        @ln.scenario
        def second(lab, n: int):
            lab.metric("n", n)
            lab.run(ln.clos.star(hosts=2, rate="10 Gb/s", delay="1 us"), ln.SendRecv("8 B"))
        """,
    )
    assert [s.name for s in scenarios_in(two)] == ["first", "second"]
    assert ln.load(f"{two}::second").run(n=3, directory=tmp_path / "x")["n"] == 3
    with pytest.raises(UsageError, match=r"second.n is missing"):
        ln.load(f"{two}::second").run(directory=tmp_path / "y")
    with pytest.raises(UsageError, match=r"holds 2 scenarios: .*first, second"):
        ln.load(two)
    with pytest.raises(UsageError, match=r'no scenario "secnd"; nearest: second'):
        ln.load(f"{two}::secnd")
    with pytest.raises(UsageError, match=r'no file ".*tow.py"; nearest: .*two.py'):
        ln.load(tmp_path / "tow.py")
    with pytest.raises(UsageError, match="holds no scenario"):
        ln.load(write(tmp_path / "none.py", "x = 1"))
    with pytest.raises(UsageError, match=r"bad.py:2: "):
        ln.load(write(tmp_path / "bad.py", "def"))


def test_ctrl_c_leaves_a_partial_report(tmp_path):
    stop = ln.load(
        write(
            tmp_path / "stop.py",
            """
        @ln.scenario
        def stop(lab):
            lab.metric("seen", 1)
            raise KeyboardInterrupt
        """,
        )
    )
    report = stop.run(directory=tmp_path / "run")
    assert report.exit_code == 130 and report["seen"] == 1
    assert json.loads((tmp_path / "run" / "report.json").read_text())["interrupted"] is True


def engine(request):
    while (now := request.timetable.next_time()) is not None:
        request.timetable.advance(now)
    for number in range(1, 200):
        request.timetable.on_iteration(number, number * 5 * 10**11, (number + 1) * 5 * 10**11)
    data = steady_run(hosts=4, end=request.lead.job.until.seconds if request.lead.job.until else 64)
    data.windows = list(request.timetable.windows)
    return data


def test_one_link_is_the_script_of_the_manual(tmp_path):
    runner = ScriptedRunner(engine)
    report = ln.load(SCENARIOS / "one_link.py").run(
        runner=runner, directory=tmp_path, transport="roce"
    )
    (request,) = runner.requests
    assert request.lead.script == SCENARIOS / "train.py" and len(request.lead.placement) == 4
    assert [fault.phase for fault in request.faults] == ["nic_link_down", "silent_loss"]
    assert [check.name for check in report.checks] == ["capacity", "no-rank-error"]


def test_main_job_runs_its_transports_under_the_four_faults(tmp_path):
    runner = ScriptedRunner(engine)
    report = ln.load(SCENARIOS / "mrc_ddp_link_failure.py").run(
        runner=runner, directory=tmp_path, clock="live"
    )
    assert [request.label for request in runner.requests] == ["mrc", "roce", "gloo"]
    for request in runner.requests:
        assert [(f.phase, f.at) for f in request.faults] == [
            ("nic_link_down", ln.Time("8 s")),
            ("leaf_spine_down", ln.Time("20 s")),
            ("silent_loss", ln.Time("32 s")),
            ("spine_down", ln.Time("44 s")),
        ]
        lead = request.lead
        assert lead.stall_after == ln.Time("24 s") and lead.job.until == ln.Time("64 s")
    expected = [report[f"mrc.{f.phase}.expected_capacity"] for f in runner.requests[0].faults]
    assert expected == pytest.approx([0.75, 1, 1, 1])
    names = [check.name for check in report.checks]
    assert {
        "mrc-nic_link_down-goodput",
        "mrc-spine_down-blip",
        "mrc-no-rank-error",
        "loss-mrc-roce",
        "loss-mrc-gloo",
        "gloo-parameters-equal",
    } <= set(names)
    assert report.ok, report.failed
    assert (tmp_path / "iteration_time.svg").is_file()


def test_main_job_notices_losses_that_differ(tmp_path):
    def drifting(request):
        data = engine(request)
        if request.label == "roce":
            data.log = [
                (at, {**row, "loss": str(float(row["loss"]) * 1.01)}) for at, row in data.log
            ]
        return data

    report = ln.load(SCENARIOS / "mrc_ddp_link_failure.py").run(
        runner=ScriptedRunner(drifting), directory=tmp_path
    )
    assert [check.name for check in report.failed] == ["loss-mrc-roce"]


def test_two_tcp_flows_share_the_bottleneck(tmp_path):
    pytest.importorskip("loomnet._core")
    report = ln.load(SCENARIOS / "tcp_two_flows.py").run(size="30 MB", directory=tmp_path)
    assert report.ok, report.failed
    assert 90_000 < report["queue_max"] <= 100_000
    assert report["until_fair"] < 8
    assert 0.5 < report["queue_delay"] / 0.02 < 1  # of a full buffer


def test_a_scenario_without_a_docstring_has_that_of_its_file(tmp_path):
    path = tmp_path / "told.py"
    path.write_text(
        '"""What the file shows.\n\nMore."""\nimport loomnet as ln\n\n\n'
        "@ln.scenario\ndef told(lab: ln.Lab):\n    pass\n"
    )
    (found,) = scenarios_in(path)
    assert found.doc == "What the file shows.\n\nMore."
