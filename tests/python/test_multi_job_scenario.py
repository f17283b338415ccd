"""scenarios/ina/multi_job.py at a fraction of its size: what it reports, that systems meet the same
arrivals, and its figures."""

import csv
from pathlib import Path

import pytest

import loomnet as ln

FILE = Path(__file__).parents[2] / "scenarios" / "ina" / "multi_job.py"
SMALL = {"jobs": 5, "iterations": 1, "draws": 2, "scale": 600.0, "window": 32}


def go(tmp_path, **values):
    return ln.load(FILE).run(seed=1, directory=tmp_path / "run", **{**SMALL, **values})


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small")
    return go(folder), folder / "run"


def value(report, name):
    found = [row.value for row in report.rows if row.dotted == name]
    assert len(found) == 1, name
    return found[0]


def test_every_system_sums_everything_exactly(small):
    report, _ = small
    assert value(report, "sum_errors") == 0
    held = {check.name: check.ok for check in report.checks}
    assert held["no-sum-error"] and held["no-error"]
    assert held["each-sum-once.esa"] and held["each-sum-once.atp"]
    assert report.deterministic


def test_its_metrics_are_of_all_systems_and_models(small):
    report, _ = small
    for system, slots in (("ring", 0), ("switchml", 40), ("atp", 40), ("esa_ack", 40), ("esa", 40)):
        mean = value(report, f"jct_s.{system}.{slots}.5")
        models = [
            value(report, f"jct_s.{system}.{model}")
            for model in ("resnet50", "vgg16", "vgg11", "alexnet", "bert_large")
        ]
        assert min(models) < mean < max(models)
        assert 0 < value(report, f"iteration_s.{system}") < mean
    for system in ("atp", "esa", "esa_ack"):
        assert 0.3 < value(report, f"switch_share.{system}") <= 1
        assert value(report, f"server_bytes.{system}") > 1e6
        assert 0 < value(report, f"occupancy.{system}") < 1
        assert 0 < value(report, f"useful_occupancy.{system}") < 1
    assert value(report, "switch_share.switchml") == 1
    assert value(report, "server_bytes.switchml") == 0
    for name in ("esa_over_atp", "atp_over_switchml"):
        least, mean, most = (
            value(report, f"{name}.{which}") for which in ("least", "mean", "most")
        )
        assert 0 < least <= mean <= most


def test_systems_meet_the_same_arrivals_and_draws_differ(small):
    _, folder = small
    rows = list(csv.DictReader((folder / "jct.csv").open()))
    assert len(rows) == 5 * 2 * 5  # systems, draws, jobs
    seen = {}
    for row in rows:
        arrival = tuple(row[name] for name in ("draw", "job", "model", "iterations", "arrival_s"))
        seen.setdefault(row["system"], []).append(arrival)
        assert float(row["jct_s"]) > float(row["iteration_s"]) * (int(row["iterations"]) - 0.001)
    assert len({tuple(each) for each in seen.values()}) == 1
    draws = [[each[1:] for each in seen["esa"] if each[0] == draw] for draw in "01"]
    assert draws[0] != draws[1]
    for draw in draws:
        times = [float(each[-1]) for each in draw]
        assert times[0] == 0 and times == sorted(times) and len(set(times)) == 5


def test_the_report_has_what_each_job_held_and_the_figures_are_there(small):
    report, folder = small
    for job in range(5):
        mean, peak = (
            value(report, f"esa.job{job}.slots_{which}.p0.leaf0") for which in ("mean", "peak")
        )
        assert 0 <= mean <= peak <= 40
    assert (folder / "esa" / "pools.csv").exists()
    for name in ("pool_by_owner", "timeline"):
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (folder / f"{name}.svg").stat().st_size > 10_000


def test_two_levels_and_no_jitter(tmp_path):
    report = go(tmp_path, levels=2, jitter=0.0, draws=1, systems="esa_atp", memory="1/8")
    assert value(report, "sum_errors") == 0
    held = {check.name: check.ok for check in report.checks}
    assert held["no-error"] and held["each-sum-once.esa"] and held["each-sum-once.atp"]
    assert value(report, "switch_share.esa") > 0.3
    assert not [row for row in report.rows if "switchml" in row.name or "ring" in row.name]
    value(report, "esa.job0.slots_peak.p0.leaf1")


def test_the_same_seed_gives_the_same_report(tmp_path):
    values = {"draws": 1, "systems": "esa_atp", "jobs": 3}
    first, again = (go(tmp_path / name, **values) for name in ("first", "again"))
    assert first.rows == again.rows
    texts = [(tmp_path / name / "run" / "jct.csv").read_bytes() for name in ("first", "again")]
    assert texts[0] == texts[1]


def test_switchml_without_slots_for_all_jobs_is_left_out(tmp_path):
    report = go(tmp_path, draws=1, jobs=2, window=8, memory="1/8")  # two slots
    assert not [row for row in report.rows if "switchml" in row.name]
    assert value(report, "sum_errors") == 0


@pytest.mark.parametrize(
    "values, line",
    [
        ({"memory": "1/3"}, "memory"),
        ({"levels": 3}, "levels"),
        ({"jitter": 1.0}, "jitter"),
        ({"jobs": 1}, "jobs"),
        ({"gap": "5"}, "gap"),
        ({"systems": "esa"}, "systems"),
    ],
)
def test_what_it_cannot_run_is_one_line(tmp_path, values, line):
    with pytest.raises(ln.UsageError, match=line) as refused:
        go(tmp_path, **values)
    assert "\n" not in str(refused.value)


def test_jobs_may_arrive_all_at_once(tmp_path):
    report = go(tmp_path, gap="0 s", draws=1, systems="esa_atp")
    assert value(report, "sum_errors") == 0
    with open(tmp_path / "run" / "jct.csv") as file:
        rows = list(csv.DictReader(file))
    assert rows and {float(row["arrival_s"]) for row in rows} == {0.0}
