"""Files and folders as no author of Loomnet would make them: what each is answered with, and what
is left behind."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

import loomnet as ln
from loomnet.cli import main
from loomnet.cli.new import SWITCH_TEMPLATES
from loomnet.processes.folder import Folder
from loomnet.programs import compiler

HEAVY = (SWITCH_TEMPLATES / "heavy.c").read_bytes()
SCENARIO = '''
import loomnet as ln

@ln.scenario
def tiny(lab: ln.Lab, n: int = 1):
    """Sends 8 kB."""
    lab.run(ln.star(hosts=2, rate="10 Gb/s", delay="1 us"), ln.SendRecv("8 kB"))
'''


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path.parent / f"{tmp_path.name}-cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(capsys, *words):
    assert main(list(words)) == 2
    return capsys.readouterr().err


# --- a full disk ----------------------------------------------------------------------------------
def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_sweep_on_a_full_disk_is_one_line_and_leaves_nothing(here, monkeypatch, capsys):
    (here / "tiny.py").write_text(SCENARIO)
    monkeypatch.setattr(Path, "write_bytes", full)
    line = said(capsys, "sweep", "tiny.py", "--set", "n=1,2", "--out", "far/out")
    assert line.startswith("loomnet: cannot write far/out/sweep.json: No space left on device; ")
    assert line.count("\n") == 1 and os.listdir(here) == ["tiny.py"]


def test_a_sweep_keeps_its_points_when_the_disk_is_full_later(here, monkeypatch):
    (here / "tiny.py").write_text(SCENARIO)
    ln.sweep("tiny.py", axes={"n": [1]}, out="out", jobs=1)
    before = sorted(each.name for each in (here / "out").rglob("*"))
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(ln.UsageError, match=r"cannot write out/sweep\.json: No space left"):
        ln.sweep("tiny.py", axes={"n": [1, 2]}, out="out", jobs=1)
    assert sorted(each.name for each in (here / "out").rglob("*")) == before


@pytest.mark.parametrize("words", [("new", "far/new"), ("examples", "far/new")])
def test_new_and_examples_on_a_full_disk_leave_no_folder(here, monkeypatch, capsys, words):
    written = []

    def fails_later(self, name, data):
        if len(written) == 2:
            raise ln.UsageError(f"cannot write {name}: No space left on device")
        written.append(name)
        (self.path / name).write_bytes(data)

    monkeypatch.setattr(Folder, "write", fails_later)
    assert "No space left on device" in said(capsys, *words)
    assert len(written) == 2 and os.listdir(here) == []


# --- names ----------------------------------------------------------------------------------------
NAMES = {
    "numpy": "numpy.py would hide the Python module numpy",
    "json": "would hide the Python m",
    "loomnet": "would hide the Python module loomnet",
    "ln": "Loomnet in the scenario's file",
    "": "it is empty; write --switch heavy",
    "class": "it is a keyword of Python",
    "print": "a name of Python's own",
    "x" * 32: "it has 32 characters, 31 at most",
    "Heavy": "a lower-case letter, then",
}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_cannot_work_is_refused_with_the_reason(here, capsys, name):
    line = said(capsys, "new", "--switch", name)
    assert NAMES[name] in line and os.listdir(here) == []


# --- a scenario's file ----------------------------------------------------------------------------
TEXTS = {
    "UTF-16": (SCENARIO.encode("utf-16"), "odd.py: its text is UTF-16; save it as UTF-8"),
    "UTF-32": (SCENARIO.encode("utf-32"), "odd.py: its text is UTF-32; save it as UTF-8"),
    "syntax": (b"x = 1\ndef f(:\n", "odd.py:2: invalid syntax"),
    "none": (b"x = 1\n", "odd.py holds no scenario: decorate a function"),
}


@pytest.mark.parametrize("case", TEXTS)
def test_a_file_that_holds_no_scenario_says_why(here, capsys, case):
    (here / "odd.py").write_bytes(TEXTS[case][0])
    assert TEXTS[case][1] in said(capsys, "run", "odd.py")


@pytest.mark.parametrize("name", ["tiny.txt", "tiny"])
def test_a_run_of_a_file_of_another_ending_is_replayed(here, capsys, name):
    (here / name).write_text(SCENARIO)
    assert main(["run", name]) == 0
    (run,) = (here / "runs").iterdir()
    assert main(["replay", str(run)]) == 0, capsys.readouterr()


def test_a_file_that_hides_pythons_own_is_named(here):
    (here / "tiny.py").write_text(SCENARIO)
    (here / "json.py").write_text("x = 1\n")
    done = subprocess.run(
        [sys.executable, "-m", "loomnet", "run", "tiny.py"],
        cwd=here,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert f"{here / 'json.py'} hides Python's module json" in done.stderr
    # Where Python looks into its library first, as under the command, the file hides nothing.
    assert ln.load("tiny.py").run().results


def test_a_loop_of_links_beside_a_scenario_is_nothing_to_it(here, capsys):
    (here / "loop").symlink_to("loop")
    (here / "tiny.py").write_text(SCENARIO)
    assert main(["run", "tiny.py"]) == 0


# --- a C file -------------------------------------------------------------------------------------
def program(path="./heavy.c"):
    return ln.star(hosts=2, rate="10 Gb/s", delay="1 us").program("*", path)


def test_a_byte_order_mark_is_no_part_of_the_program(here):
    (here / "heavy.c").write_bytes(b"\xef\xbb\xbf" + HEAVY)
    program()


def test_a_header_beside_it_is_said_to_be_out_of_reach(here):
    (here / "mine.h").write_text("")
    (here / "heavy.c").write_bytes(b'#include "mine.h"\n' + HEAVY)
    with pytest.raises(
        ln.UsageError,
        match=r"mine\.h.*; a switch program is one file, .*: put "
        r"what it needs of mine\.h into it",
    ):
        program()


@pytest.mark.parametrize("target", ["nowhere.c", "heavy.c"])
def test_a_link_that_leads_nowhere_is_called_one(here, target):
    (here / "heavy.c").symlink_to(target)
    with pytest.raises(ln.UsageError, match=rf"heavy\.c is a link to '{target}', and no file is t"):
        program(here / "heavy.c")


def test_a_compiler_that_reads_without_an_end_is_stopped(here, monkeypatch):
    monkeypatch.setattr(compiler, "MOST_MEMORY", 256 << 20)
    (here / "heavy.c").write_bytes(b'#include "/dev/zero"\n' + HEAVY)
    with pytest.raises(ln.UsageError, match=r"heavy\.c: the C compiler refuses it: "):
        program()
