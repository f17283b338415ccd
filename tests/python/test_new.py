"""`loomnet new`: what it writes runs as it is, in the order in which it says to type it."""

import importlib.util
import json
import subprocess
import sys

import nbclient
import nbformat
import pytest

from loomnet.cli import main
from loomnet.cli.new import FILES


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("new") / "first"
    assert main(["new", str(folder)]) == 0
    return folder


def test_new_writes_three_files_and_says_what_to_type(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["new"]) == 0
    out = capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} == set(FILES)
    assert all(f"{name} " in out for name in FILES)
    assert "    loomnet run flap.py\n" in out and "    pytest\n" in out and "cd " not in out
    assert main(["new", "other place"]) == 0
    assert "    cd 'other place'\n" in capsys.readouterr().out


@pytest.mark.parametrize("gone", ["pytest", "jupyterlab"])
def test_what_is_missing_for_a_line_that_it_says_to_type_is_named(
    tmp_path, monkeypatch, capsys, gone
):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == gone else find(name, *rest)
    )
    assert main(["new", str(tmp_path / "made")]) == 0
    missing = [line for line in capsys.readouterr().out.splitlines() if "is missing: " in line]
    assert any(line.startswith(f"{gone.removesuffix('lab')} is missing: ") for line in missing)


def test_nothing_is_overwritten(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "test_flap.py").write_text("mine")
    assert main(["new"]) == 2
    assert "test_flap.py is there already, and nothing is overwritten" in capsys.readouterr().err
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


def test_a_switch_program_gets_its_name_everywhere(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["new", "--switch", "tally"]) == 0
    out = capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} == {"tally.c", "tally.py", "test_tally.py"}
    assert "    loomnet run tally.py\n    pytest" in out and "jupyter" not in out
    assert not any(
        "heavy" in path.read_text().replace("heaviest", "") for path in tmp_path.iterdir()
    )
    assert main(["new", "--switch", "tally"]) == 2
    assert "tally.c is there already" in capsys.readouterr().err
    for name in ("Tally", "2d", "class", "../x"):
        assert main(["new", "elsewhere", "--switch", name]) == 2, name
    assert 'new: --switch: "../x" is no name for a program' in capsys.readouterr().err


@pytest.mark.parametrize("planes", ["4", "8"])
def test_its_scenario_runs_and_its_checks_hold(made, monkeypatch, capsys, planes):
    monkeypatch.chdir(made)
    assert main(["run", "flap.py", "--set", f"planes={planes}", "--set", "size=2 MB"]) == 0
    out = capsys.readouterr().out
    assert "ok   capacity" in out and "ok   no-error" in out and "note:" not in out
    assert main(["list"]) == 0
    assert "flap.py  One of a host's links dies under an all-reduce;" in capsys.readouterr().out


def test_its_test_passes(made):
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."],
        cwd=made,
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout


def test_its_notebook_runs(made):
    notebook = nbformat.read(made / "flap.ipynb", as_version=4)
    nbformat.validate(notebook)
    before = set((made / "runs").iterdir()) if (made / "runs").exists() else set()
    nbclient.NotebookClient(
        notebook, timeout=250, kernel_name="python3", resources={"metadata": {"path": str(made)}}
    ).execute()
    shown = json.dumps([cell.get("outputs", []) for cell in notebook.cells])
    assert "image/png" in shown and "down" in shown and "ok   capacity 0.5" in shown
    after = set((made / "runs").iterdir())
    assert len(after - before) == 1, "the scenario's run alone is written"
