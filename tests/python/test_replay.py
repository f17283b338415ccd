"""`loomnet replay`: the same bytes from a run's own copy, and a clear word where they differ."""

import json
import textwrap

import pytest

from loomnet.cli import main

SCENARIO = """
    import loomnet as ln

    @ln.scenario
    def small(lab: ln.Lab, size: ln.Size = "100 kB", hosts: int = 2):
        '''A lossy all-reduce.'''
        fabric = ln.star(hosts=hosts, rate="10 Gb/s", delay="1 us")
        loss = ln.loss("h0--p0.leaf0", 0.02, at="0 s", duration="1 ms", phase="loss")
        r = lab.run(fabric, ln.AllReduce(size, 6), [loss])
        lab.check("errors", r["errors"], eq=0)

    @ln.scenario
    def other(lab: ln.Lab):
        '''Not meant.'''
"""


@pytest.fixture
def ran(tmp_path, monkeypatch):
    """A folder with a scenario and one run of it."""
    (tmp_path / "small.py").write_text(textwrap.dedent(SCENARIO))
    monkeypatch.chdir(tmp_path)
    status = main(
        ["run", "small.py::small", "--seed", "9", "--set", "size=300 kB", "--set", "hosts=3"]
    )
    assert status == 0
    (folder,) = (tmp_path / "runs").iterdir()
    return folder


def test_a_run_replays_to_the_byte(ran, capsys):
    assert main(["replay", str(ran)]) == 0
    assert "identical: " in capsys.readouterr().out
    folders = list(ran.parent.iterdir())
    assert len(folders) == 2
    one, two = ((f / "report.json").read_bytes() for f in folders)
    assert one == two and json.loads(one)["parameters"] == {"size": "300 kB", "hosts": 3}
    assert main(["replay", str(ran / "report.json")]) == 0


def test_the_copy_is_played_not_the_scenario_as_it_is_now(ran, tmp_path, capsys):
    text = (tmp_path / "small.py").read_text()
    (tmp_path / "small.py").write_text(text.replace("0.02", "0.5"))
    assert main(["replay", str(ran)]) == 0
    assert "has changed since; its copy was played" in capsys.readouterr().out
    (tmp_path / "small.py").unlink()
    assert main(["replay", str(ran)]) == 0
    assert "is gone" in capsys.readouterr().out


def test_a_report_that_is_not_reproduced_exits_1_and_says_where(ran, capsys):
    text = (ran / "report.json").read_text()
    content = json.loads(text)
    content["metrics"][0]["value"] = 123.0
    (ran / "report.json").write_text(json.dumps(content))
    assert main(["replay", str(ran)]) == 1
    out = capsys.readouterr().out
    assert "before.iteration_s: " in out or "123" in out
    assert "different: " in out
    (ran / "report.json").write_text(text + " ")  # the same content, another writing
    assert main(["replay", str(ran)]) == 1
    assert "in its writing" in capsys.readouterr().out


def test_what_cannot_be_replayed_is_one_line(ran, tmp_path, capsys):
    (ran / "small.py").unlink()
    assert main(["replay", str(ran)]) == 2
    assert "holds no copy of scenario small" in capsys.readouterr().err
    assert main(["replay", "nowhere"]) == 2
    err = capsys.readouterr().err
    assert "nowhere: No such file" in err and err.count("\n") == 1
    assert len(list(ran.parent.iterdir())) == 1
