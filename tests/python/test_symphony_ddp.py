"""scenarios/symphony/ddp.py and mrc.py on the virtual clock, in small: real ranks whose ring steps
switches see and the run notes."""

from pathlib import Path

import pytest

import loomnet as ln
from loomnet.base.errors import UsageError

SCENARIOS = Path(__file__).parents[2] / "scenarios" / "symphony"


@pytest.mark.in_turns
def test_ddp_computes_the_same_with_extra_marks(tmp_path):
    pytest.importorskip("torch")
    report = ln.load(SCENARIOS / "ddp.py").run(directory=tmp_path, steps=3, hidden=512)
    assert report.ok, report.failed
    marks = {row.label: row.value for row in report.rows if row.name == "extra_marks"}
    assert marks["off"] == 0 and marks["on"] > 0
    for r in report.results.values():
        steps = r.ring_steps
        assert steps.ranks == list(range(8)) and steps.unnoted == 0
        # DDP compares the ranks' parameters by an all-gather of 7 steps; then each gradient has 14.
        assert {len(times) for times in steps.completions().values()} == {7 + 3 * 14}
        assert 0 < steps.gap() < 7, "a rank cannot be a lap of the ring ahead"


@pytest.mark.in_turns
def test_a_run_whose_hosts_cannot_slow_down_has_no_figures(tmp_path):
    pytest.importorskip("torch")
    report = ln.load(SCENARIOS / "ddp.py").run(
        directory=tmp_path, ranks=4, steps=3, hidden=64, rate="100 Mb/s", slow=1.0
    )
    rows = {row.dotted: row for row in report.rows}
    for name in ("off.iteration", "on.iteration", "gain"):
        assert rows[name].value is None
    assert rows["on.iteration"].reason.startswith("the rate floor of the hosts, 100 Mb/s, is at")


def test_ranks_whose_steps_nobody_looks_for_report_none(tmp_path):
    pytest.importorskip("torch")
    job = ln.TorchJob(
        Path(__file__).parent / "torch_ranks" / "learn.py",
        args=["2"],
        ranks=2,
        transport="roce",
        compute="1 ms",
    )
    fabric = ln.star(hosts=2, rate="10 Gb/s", delay="5 us")
    r = ln.run(fabric, job, directory=tmp_path)
    with pytest.raises(UsageError, match=r"this job has none.*TorchJob"):
        _ = r.ring_steps


@pytest.mark.parametrize("transport", ["mrc", "dctcp", "cubic"])
def test_extra_marks_on_other_transports_are_told(tmp_path, transport):
    report = ln.load(SCENARIOS / "mrc.py").run(
        directory=tmp_path, transport=transport, hosts=8, seeds=2, step="500 kB"
    )
    assert report.ok, report.failed
    rows = {(row.name, row.label): row for row in report.rows}
    assert rows["extra_marks", "on"].value > 0 and rows["extra_marks", "off"].value == 0
    [gain] = [row for (name, _), row in rows.items() if name == "gain"]
    assert gain.reason.startswith(("helps", "hurts", "does nothing"))
