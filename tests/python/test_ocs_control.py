"""The scenario of the control interfaces' bars, and circuits that are scripted before a run."""

from pathlib import Path

import pytest

import loomnet as ln
from loomnet.labs.lab import Lab

SCENARIO = Path(__file__).parents[2] / "scenarios" / "mfabric" / "control.py"


def test_bars_hold(tmp_path):
    report = ln.load(SCENARIO).run(directory=tmp_path / "run")
    assert [check.name for check in report.checks if not check.ok] == []
    names = {check.name for check in report.checks}
    assert {"E6", "E7", "E8", "P2-1", "P2-4", "P2-16", "P3", "P3-p99"} <= names


@pytest.mark.parametrize(("name", "verb"), [("E8", "RTRV-PATCH"), ("E8", "ED-PORT-LABEL")])
def test_a_verb_that_is_missing_is_seen(name, verb, tmp_path, monkeypatch):
    from loomnet.ocs.tl1_commands import VERBS

    monkeypatch.delitem(VERBS, verb)
    report = ln.load(SCENARIO).run(directory=tmp_path / "run", samples=10)
    assert name in {check.name for check in report.checks if not check.ok}


def test_the_session_has_every_verb():
    from loomnet.ocs.tl1_commands import VERBS

    rows = ln.load(SCENARIO).function.__globals__["SESSION"]
    assert {*VERBS, "ACT-USER", "CANC-USER"} <= {row[0].split(":")[0].upper() for row in rows}
    codes = {row[1].split()[0] for row in rows}
    assert codes == {
        "COMPLD",
        "ICNV",
        "IICT",
        "IITA",
        "IIAC",
        "IDNV",
        "IPNV",
        "IPMS",
        "PICC",
        "SRCN",
        "SSTP",
    }


# --- scripted circuits ----------------------------------------------------------------------------


def star(profile="sim25"):
    fabric = ln.Fabric("star")
    fabric.add_panel("ocs0", ports=8, profile=profile)
    for host in range(4):
        fabric.add_host()
        fabric.add_link(f"h{host}", "ocs0", rate="100 Gb/s", delay="1 us")
    return fabric


def flow(*pairs):
    return ln.Flows(pairs=list(pairs), sizes="1 MiB", transport="mrc")


def test_circuits_come_when_they_are_scripted(tmp_path):
    lab = Lab(directory=tmp_path)
    lab.circuits("ocs0", [("h1", "h2")], at="30 ms")  # in any order
    lab.circuits("ocs0", [("h0", "h1")], at="2 ms")
    r = lab.run(star(), flow((0, 1)), label="a")
    tuning = [(row["time"], row["where"]) for row in r.events.rows if row["value"] == "tuning"]
    assert {time for time, _ in tuning} == {0.002}
    assert {where for _, where in tuning} == {"ocs0 1A", "ocs0 1B", "ocs0 2A", "ocs0 2B"}
    assert r.flows[0]["fct_s"] > 0.027
    assert "circuits of ocs0 at 2 ms" in r.data.fidelity.notes["controllers"]
    fabric = star()
    fabric.panel("ocs0").circuits([("h0", "h1")])
    again = lab.run(fabric, flow((0, 1)), label="b")
    assert again.flows[0]["fct_s"] < 0.001 and again.events.rows == [], "of one run alone"


def test_an_open_lab_scripts_its_next_run(tmp_path):
    with ln.lab(star("ideal"), directory=tmp_path) as lab:
        lab.circuits("ocs0", [("h0", "h3")], at="1 ms")
        assert lab.run(flow((0, 3))).flows[0]["fct_s"] > 0.001
        with pytest.raises(ln.UsageError, match='say when in the next one, as at="2 ms"'):
            lab.circuits("ocs0", [("h0", "h3")])


def test_bad_scripts_are_one_line(tmp_path):
    lab = Lab(directory=tmp_path)
    with pytest.raises(ln.UsageError, match="circuits: at"):
        lab.circuits("ocs0", [("h0", "h1")], at="2")
    lab.circuits("ocs1", [("h0", "h1")], at="2 ms")
    with pytest.raises(ln.UsageError, match='no panel "ocs1"; nearest: ocs0'):
        lab.run(star(), flow((0, 1)))
