"""README.md keeps its word: every command of the virtual clock is run as it stands there, and does
what the text beside it says. Those of the live clock are in tests/live/test_readme.py."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest
import readme

import loomnet as ln

COMMANDS = [command for command in readme.commands() if not readme.is_live(command)]
FIRST = COMMANDS[0]
NUMBER = r"-?\d+(?:\.\d+)?"


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """What of the clone the commands need, in a folder that they may write to."""
    folder = tmp_path_factory.mktemp("clone")
    shutil.copytree(readme.ROOT / "scenarios", folder / "scenarios")
    return folder


def typed(clone, command, **replacements):
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    return subprocess.run(readme.words(command, **replacements), cwd=clone, capture_output=True,
                          text=True, timeout=280, env=environment)


@pytest.fixture(scope="module")
def first(clone):
    """The first command: its output, and the directory of its run."""
    done = typed(clone, FIRST)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, clone / re.search(r"^report: (.*)/report.json$", done.stdout, re.M)[1]


def test_the_sample_is_the_file_that_is_run():
    (sample,) = [block for block in readme.python_blocks() if "@ln.scenario" in block]
    assert sample == (readme.ROOT / "scenarios" / "flap.py").read_text()


def test_no_command_is_left_out():
    """A new one is tested by being there; those that install are script/test's step `fresh`."""
    found = readme.commands()
    assert len(found) >= 12 and all(command in found for command in COMMANDS)
    for name in ("run", "sweep", "describe", "compare", "replay", "bench"):
        assert any(f"loomnet {name} " in command for command in COMMANDS), name
    named = set(re.findall(r"(?:^    |`)(?:sudo \.venv/bin/)?loomnet ([a-z]+)", readme.TEXT, re.M))
    known = subprocess.run([sys.executable, "-m", "loomnet", "--help"], capture_output=True,
                           text=True, check=True).stdout
    assert all(re.search(rf"^  {name}\b", known, re.M) for name in named), named


def test_commands_that_need_root_say_so():
    for command in readme.commands():
        assert command.startswith("sudo .venv/bin/loomnet") == readme.is_live(command), command


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_does_what_it_says(clone, first, command):
    done = typed(clone, command, RUN=str(first[1]))
    assert done.returncode == 0, done.stdout + done.stderr
    out = done.stdout
    if " run " in command:
        assert "FAIL" not in out and "not a result" not in out and "null:" not in out
        assert re.search(r"^ok   capacity: ", out, re.M)
    for option in re.findall(r"--(?:trace|pcap) (?:\S+=)?(\S+)", command):
        size = (clone / option).stat().st_size
        assert 1e5 < size < 60e6, "a first capture is one that a laptop opens"
        kind = "trace" if "--trace" in command else "capture"
        assert re.search(rf"^{kind} {option}: [\d.]+ [kM]B", out, re.M), out
        if kind == "trace":
            assert re.search(r"1 of \d+ packets is kept \(250,000 hops at most\)", out)
    if " sweep " in command:
        assert "9 points, 0 failed, 0 missing" in out and "do not hold" not in out
        assert ".parquet" in out
    if " compare " in command:
        assert "worse" not in out
    if " replay " in command:
        assert "identical: " in out
    if " bench " in command:
        assert "# Out of bounds values : 0 OK" in out


def test_compare_exits_1_on_a_regression(clone, first):
    worse = typed(clone, f"{FIRST} --set planes=2")
    assert worse.returncode == 0
    run = re.search(r"^report: (.*)/report.json$", worse.stdout, re.M)[1]
    (command,) = [command for command in COMMANDS if " compare " in command]
    assert typed(clone, command.replace("RUN", str(first[1]), 1), RUN=run).returncode == 1


@pytest.mark.parametrize("planes", range(1, 9))
def test_the_sample_is_right_for_any_number_of_planes(tmp_path, planes):
    report = ln.load(readme.ROOT / "scenarios" / "flap.py").run(planes=planes, directory=tmp_path)
    assert report.ok, report.failed
    assert report["down.expected_capacity"] == pytest.approx(1 - 1 / planes, abs=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_the_sample_is_right_with_any_seed_at_the_live_commands_values(tmp_path, seed):
    """On the virtual clock, which the live one is held against."""
    (command,) = [each for each in readme.commands() if "--clock live" in each]
    scenario = ln.load(readme.ROOT / "scenarios" / "flap.py")
    values = scenario.settings(re.findall(r"--set (\S+)", command))
    report = scenario.run(seed=seed, directory=tmp_path, **values)
    assert report.ok, report.failed
    assert report.results[None].data.end_ps < 20 * 10**12  # emulated, so live it is as long


def test_the_output_shown_is_the_commands(first):
    """Words and layout are the same, and figures that the text speaks of within 2 %."""
    shown = readme.output_after("The first prints")
    printed = [line.rstrip() for line in first[0].splitlines() if not line.startswith("flap  ")]
    printed = [line for line in printed if line]
    shown = [line for line in shown if line]
    assert len(shown) == len(printed)
    for ours, theirs in zip(shown, printed, strict=True):
        if ours.startswith("report: "):
            ours = theirs = ""
        words = [re.sub(r"\s+|─+", " ", re.sub(NUMBER, "N", line)) for line in (ours, theirs)]
        assert words[0] == words[1], (ours, theirs)
        if re.match(r"iteration_s|goodput_ratio|expected|ok ", ours):
            numbers = [[float(n) for n in re.findall(NUMBER, line)] for line in (ours, theirs)]
            assert numbers[0] == pytest.approx(numbers[1], rel=0.02), (ours, theirs)


def test_a_run_writes_what_the_readme_says(first):
    files = {path.name for path in first[1].iterdir()}
    assert files == {"report.json", "counters.json", "environment.json", "flap.py"}
    assert json.loads((first[1] / "report.json").read_text())["scenario"] == "flap"


def test_the_job_blocks_are_python():
    for block in readme.python_blocks():
        if "@ln.scenario" in block:
            continue
        names = {"ln": ln}
        exec(block, names)
        assert isinstance(names["job"], ln.TorchJob)
        (table,) = re.findall(r"compute=(\{.*?\})", block)
        exec(block.replace('compute="2 ms"', f"compute={table}"), names)
        assert names["job"].compute is not None
