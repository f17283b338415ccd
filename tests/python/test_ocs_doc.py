"""docs/ocs.md does what it says."""

import json
import re
import shlex
import socket
from pathlib import Path

import pytest

import loomnet as ln
from loomnet.cli import main
from loomnet.ocs import StandaloneSwitch, client
from loomnet.ocs.access import Access
from loomnet.ocs.json_server import JsonServer
from loomnet.ocs.tl1 import Session
from loomnet.ocs.tl1_commands import VERBS, State

TEXT = (Path(__file__).parents[2] / "docs" / "ocs.md").read_text()
COMMANDS, TALK = re.findall(r"```\n((?:sudo \.venv/bin/)?loomnet .*?)```", TEXT, re.S)
SOCKET, SCRIPTED, ALONE = re.findall(r"```python\n(.*?)```", TEXT, re.S)


@pytest.fixture
def panel(tmp_path, monkeypatch):
    """A panel as a run would have it."""
    monkeypatch.setattr(client, "STATE", tmp_path)
    folder = tmp_path / "ocs" / "k3f9"
    folder.mkdir(parents=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / "ocs0"))
    listener.listen()
    with JsonServer(Access(StandaloneSwitch(8, "ideal").operate), listener):
        yield str(folder / "ocs0")


def test_the_commands_run(panel, capsys):
    lines = COMMANDS.splitlines()
    assert len(lines) == 13
    for line in lines:
        assert main(shlex.split(line)[1:]) == 0, line + capsys.readouterr().err
    assert "added 1A-2B, 3A-4B\ntuned" in capsys.readouterr().out


def test_the_socket_example_runs(panel, capsys):
    exec(SOCKET.replace("/run/loomnet/ocs/k3f9/ocs0", panel), {})
    assert (
        json.loads(capsys.readouterr().out.replace("'", '"').replace("True", "true"))["ok"]["tuned"]
        is True
    )


def test_the_scripted_run(tmp_path):
    (tmp_path / "scripted.py").write_text(SCRIPTED)
    report = ln.load(tmp_path / "scripted.py").run(directory=tmp_path / "run")
    assert report.ok, report.failed


def test_without_a_run(capsys):
    exec(ALONE, {})
    assert "cross-connect add: 1 succeeded" in capsys.readouterr().out


def test_tl1_as_it_is_written():
    session = Session(Access(StandaloneSwitch(8, "ideal").operate), State(), lambda at: None)
    for command in TALK.splitlines()[1:]:
        assert b"COMPLD" in session.answer(command.rstrip(";")), command
    written = re.findall(r"`([A-Z]+-[A-Z-]+:[^`]*);`", TEXT)
    assert len(written) >= 17
    for command in written:
        session.answer("ACT-USER::admin:1::root")
        assert b"COMPLD" in session.answer(command), command
    assert all(f"`{verb}" in TEXT for verb in VERBS)
