"""Outputs that cannot be written: no folder, no room, a limit of size; what ran is kept."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from test_users_files import RUN, as_root, loomnet_in

from loomnet.base.errors import UsageError
from loomnet.processes.folder import Output


@pytest.mark.parametrize("path", ["/nonexistent/x", "/", ".", "a\0b"])
def test_an_output_that_cannot_be_is_refused_before_the_run(tmp_path, path):
    if "\0" in path:
        with pytest.raises(UsageError, match="--json"):
            Output(Path(path), "--json")
        return
    done = loomnet_in(tmp_path, "run", "short.py", "--json", path, environment={})
    assert done.returncode == 2 and done.stderr.startswith("loomnet: --json: cannot write")
    assert done.stderr.count("\n") == 1 and not (tmp_path / "runs").exists()


def test_a_full_output_is_told_after_the_figures(tmp_path):
    done = loomnet_in(tmp_path, "run", "short.py", "--json", "/dev/full", environment={})
    assert done.returncode == 2 and "ok   it ran" in done.stdout
    assert done.stderr == "loomnet: --json: cannot write /dev/full: No space left on device\n"


@pytest.mark.parametrize("option", ["--trace", "--pcap"])
def test_a_full_recording_leaves_the_figures(tmp_path, option):
    file = "/dev/full" if option == "--trace" else "h0:0=/dev/full"
    done = loomnet_in(tmp_path, "run", "short.py", option, file, environment={})
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    assert "ok   it ran" in done.stdout and "report: runs/" in done.stdout
    (line,) = (each for each in done.stdout.splitlines() if each.startswith("not written: "))
    assert option in line and "No space left" in line
    (report,) = tmp_path.glob("runs/*/report.json")
    assert json.loads(report.read_text())["checks"][0]["ok"]


def test_an_output_keeps_what_was_there_where_nothing_ran(tmp_path):
    (tmp_path / "kept").write_text("before")
    for name in ("kept", "new"):
        done = loomnet_in(
            tmp_path, "run", "short.py", "--json", name, "--pcap", "nowhere:0=x", environment={}
        )
        assert done.returncode == 2, done.stderr
    assert (tmp_path / "kept").read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "short.py"]


@as_root
@pytest.mark.parametrize("options", ["ro", "size=64k", "nr_inodes=2"])
def test_a_file_system_without_room_is_refused_before_traffic(tmp_path, options):
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size=1m,{options}", "none", disk], check=True)
    try:
        (tmp_path / "short.py").write_text(textwrap.dedent(RUN).format(before="pass"))
        if "size" in options:
            (disk / "fill").write_bytes(bytes(60 * 1024))
        done = subprocess.run(
            [sys.executable, "-m", "loomnet", "run", "../short.py"],
            cwd=disk,
            text=True,
            capture_output=True,
            timeout=60,
        )
        left = [path.name for path in disk.iterdir() if path.name != "fill"]
    finally:
        subprocess.run(["umount", disk], check=True)
    assert done.returncode == 2 and left == [], (done, left)
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("loomnet: cannot "), done.stderr


def test_a_file_size_limit_is_refused_before_traffic(tmp_path):
    (tmp_path / "short.py").write_text(textwrap.dedent(RUN).format(before="pass"))
    done = subprocess.run(
        ["prlimit", "--fsize=2000", sys.executable, "-B", "-m", "loomnet", "run", "short.py"],
        cwd=tmp_path,
        text=True,
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 2 and "File too large" in done.stderr, done.stderr
    assert not (tmp_path / "runs").exists()


def test_figures_are_printed_where_the_report_cannot_be_written(tmp_path):
    gone = "import shutil; shutil.rmtree('runs')"
    scenario = (
        textwrap.dedent(RUN)
        .format(before="pass")
        .replace('    lab.check("it ran"', f'    {gone}\n    lab.check("it ran"')
    )
    (tmp_path / "short.py").write_text(scenario)
    done = subprocess.run(
        [sys.executable, "-m", "loomnet", "run", "short.py"],
        cwd=tmp_path,
        text=True,
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    assert "ok   it ran" in done.stdout and "not written: cannot write" in done.stdout
