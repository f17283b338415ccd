"""Reports: rows, checks, the published schema, equal bytes for equal content, and who owns them."""

import json
import math

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomnet.base.errors import UsageError
from loomnet.measures import rows as metrics
from loomnet.measures.rows import Measured, stands
from loomnet.measures.run_data import Fidelity
from loomnet.processes.folder import Folder
from loomnet.results.report import Report, RunFidelity, report_schema
from loomnet.results.run_directory import new_run_directory, write_run

NUMBERS = st.one_of(st.none(), st.integers(-(10**6), 10**6), st.floats())


def filled():
    report = Report("demo", {"rate": "400 Gb/s", "planes": 4}, seed=7)
    report.rows = [
        metrics.metric("blip_s", 0.25, unit="s", label="mrc", phase="down", published=1),
        metrics.metric("x", math.nan),
        metrics.metric("y", None, reason="never recovered"),
    ]
    report.checks = [metrics.check("N3", 0.75, ge=0.7, le=0.8, published=0.75)]
    report.fidelity = [RunFidelity("mrc", Fidelity(packets=10, notes={"wire": "0"}), "finished")]
    return report


def around(bound):
    return math.nextafter(bound, -math.inf), bound, math.nextafter(bound, math.inf)


@pytest.mark.parametrize(
    ("value", "bound", "ok"),
    [
        (0.75, {"ge": 0.7, "le": 0.8}, True),
        (0.81, {"ge": 0.7, "le": 0.8}, False),
        (0.7, {"ge": 0.7}, True),
        (0, {"eq": 0}, True),
        (1, {"eq": 0}, False),
        (0.79, {"approx": 0.75, "abs": 0.05}, True),
        (0.81, {"approx": 0.75, "abs": 0.05}, False),
        (103, {"approx": 100, "rel": 0.03}, True),
        (-103, {"approx": -100, "rel": 0.03}, True),
        # One step of a float below, on and above each bound.
        *((value, {"ge": 2.5}, value >= 2.5) for value in around(2.5)),
        *((value, {"le": 2.5}, value <= 2.5) for value in around(2.5)),
        *((value, {"eq": 2.5}, value == 2.5) for value in around(2.5)),
        *((value, {"ge": 2.5, "le": 4}, 2.5 <= value <= 4) for value in (*around(2.5), *around(4))),
        *(
            (value, {"approx": 8, "abs": 0.5}, 7.5 <= value <= 8.5)
            for value in (*around(7.5), *around(8.5))
        ),
        *(
            (value, {"approx": 8, "rel": 0.0625}, 7.5 <= value <= 8.5)
            for value in (*around(7.5), *around(8.5))
        ),
        *(
            (value, {"approx": -8, "rel": 0.0625}, -8.5 <= value <= -7.5)
            for value in (*around(-7.5), *around(-8.5))
        ),
        (3, {"ge": 4}, False),
        (4, {"ge": 4}, True),
        (5, {"le": 4}, False),
        (None, {"ge": -1e9}, False),
        (math.nan, {"ge": -1e9}, False),
        (math.nan, {"eq": math.pi}, False),
        (math.inf, {"ge": 0}, False),
        (True, {"eq": 1}, True),
    ],
)
def test_checks(value, bound, ok):
    assert metrics.check("c", value, **bound).ok is ok


@pytest.mark.parametrize(
    ("bound", "message"),
    [
        ({}, "give a bound"),
        ({"ge": 1, "eq": 1}, "do not go together"),
        ({"approx": 1}, "rel= or abs="),
        ({"ge": 1, "rel": 0.1}, "rel= or abs="),
        ({"ge": math.nan}, "is no bound"),
        ({"ge": "much"}, "is not a number"),
    ],
)
def test_bounds_that_mean_nothing_are_refused(bound, message):
    with pytest.raises(UsageError, match=message):
        metrics.check("c", 1, **bound)


def test_null_and_nan_become_null_with_a_reason():
    rows = filled().rows
    assert rows[1].value is None and "nan" in rows[1].reason
    assert rows[2].reason == "never recovered" and rows[0].dotted == "mrc.down.blip_s"
    with pytest.raises(UsageError, match="'fast' is not a number"):
        metrics.metric("speed", "fast")


@settings(deadline=None)
@given(value=NUMBERS, bound=st.floats(allow_nan=False, allow_infinity=False), published=st.none())
def test_any_report_validates_against_the_published_schema(value, bound, published):
    report = filled()
    report.rows.append(metrics.metric("any", value, published=published))
    report.checks.append(metrics.check("any", value, ge=bound))
    jsonschema.validate(json.loads(report.to_json()), report_schema())


@pytest.mark.parametrize(
    "damage",
    [
        lambda r: r.pop("seed"),
        lambda r: r.update(extra=1),
        lambda r: r.update(schema_version=2),
        lambda r: r["metrics"][1].update(reason=None),
        lambda r: r["checks"][0].update(bound={}),
        lambda r: r["checks"][0].update(value=None, reason="null"),
        lambda r: r.update(clock="sundial"),
    ],
)
def test_the_schema_refuses_what_is_not_a_report(damage):
    content = json.loads(filled().to_json())
    damage(content)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(content, report_schema())


def test_equal_content_is_equal_bytes(tmp_path):
    paths = [
        write_run(Folder.at(tmp_path / name), filled(), started=started)
        for name, started in (("a", 0.0), ("b", 1e9))
    ]
    assert paths[0].read_bytes() == paths[1].read_bytes()
    text = paths[0].read_text()
    assert (
        "NaN" not in text
        and str(tmp_path) not in text
        and list(json.loads(text)) == sorted(json.loads(text))
    )
    environment = json.loads((tmp_path / "a" / "environment.json").read_text())
    assert {"host", "versions", "paths", "wall_s", "started"} <= environment.keys()


def test_exit_status():
    report = filled()
    assert report.exit_code == 0 and report.ok
    report.checks.append(metrics.check("bad", None, ge=0))
    assert report.exit_code == 1 and [check.name for check in report.failed] == ["bad"]
    report.fidelity.append(RunFidelity("late", Fidelity(fell_behind="p99 900 us"), "finished"))
    assert report.exit_code == 3 and report.behind == ["late: p99 900 us"]
    report.interrupted = True
    assert report.exit_code == 130


def test_unexplained_packets_are_exit_3():
    report = filled()
    report.fidelity = [RunFidelity("mrc", Fidelity(packets=10, unexplained=2), "finished")]
    assert report.exit_code == 3 and "2 packets unexplained" in report.behind[0]


def test_a_check_on_a_figure_below_resolution_is_exit_3():
    report = filled()
    row = metrics.metric("blip_s", 1e-6, unit="s", stands=False)
    report.checks.append(metrics.check("blip", Measured(row), le=1))
    assert report.checks[-1].ok and report.exit_code == 3


@pytest.mark.parametrize(
    ("value", "unit", "span", "p99", "verdict"),
    [
        (0.75, "ratio", 100 * 10**6, 10**6, True),
        (0.75, "ratio", 100 * 10**6 - 1, 10**6, False),
        (0.75, "ratio", 99 * 10**6, 10**6, False),
        (20e-6, "s", None, 10**6, True),
        (19_999_999e-12, "s", None, 10**6, False),
        (19e-6, "s", None, 10**6, False),
        (5, "packets", None, 10**6, True),
        (1e-9, "s", None, None, True),
        (None, "s", None, 10**6, True),
    ],
)
def test_what_stands_against_lateness(value, unit, span, p99, verdict):
    assert stands(value, unit, span, p99) is verdict


def test_metrics_are_a_table_and_are_found_by_name():
    report = filled()
    assert report.metrics.column("name") == ["blip_s", "x", "y"]
    assert report["mrc.down.blip_s"] == 0.25 and report["x"] is None
    with pytest.raises(KeyError, match=r"nearest: mrc\.down\.blip_s"):
        report["mrc.dwn.blip_s"]


def test_run_directories_are_named_and_never_shared(tmp_path):
    one, two = (new_run_directory("a/b c", 5, tmp_path).path for _ in range(2))
    assert one != two and one.is_dir()
    name = one.name.split("-")
    assert name[0] == "a_b_c" and name[2] == "5" and len(name[3]) == 6
