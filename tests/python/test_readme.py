"""README.md keeps its word: what it shows is what a run prints, its sample is right at every value,
and it is short. All its commands are run by test_pages.py."""

import json
import re
import shutil
from pathlib import Path

import pages
import pytest

import loomnet as ln

TEXT = pages.PAGES[pages.README]
FIRST = "loomnet run scenarios/flap.py"
NUMBER = r"-?\d+(?:\.\d+)?"
FLAP = pages.ROOT / "scenarios" / "flap.py"


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """What of the clone the commands need, in a folder that they may write to."""
    folder = tmp_path_factory.mktemp("clone")
    shutil.copytree(pages.ROOT / "scenarios", folder / "scenarios")
    return folder


@pytest.fixture(scope="module")
def first(clone):
    """The first command: its output, and the directory of its run."""
    done = pages.typed(FIRST, clone)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, clone / re.search(r"^report: (.*)/report.json$", done.stdout, re.M)[1]


def test_it_is_short_and_says_what_it_is_first():
    lines = TEXT.splitlines()
    assert len(lines) <= 120
    assert lines[0] == "# Loomnet" and all(lines[2:7]) and not lines[7]
    start = TEXT.index("## Start without root")
    assert TEXT.index("![") < start < TEXT.index("script/demo")
    # Both ways, the wheel's first, each with its time, before the first output.
    head = TEXT[start : TEXT.index("The last command prints")]
    wheel, source = head.index("pip install dist/loomnet-"), head.index("pip install '.[torch")
    assert wheel < source and re.search(r"\d+ s", head[:wheel])
    assert re.search(r"\d+ min", head[wheel:source])
    assert FIRST in pages.commands(pages.README)


def test_what_it_links_to_is_there():
    """Files of the package are the installed ones: the suite also runs from a wheel."""
    package = Path(ln.__file__).parent
    for target in re.findall(r"\]\(([^)]+)\)", TEXT):
        if not target.startswith("http"):
            inside = package / target.removeprefix("python/loomnet/")
            assert (pages.ROOT / target).exists() or inside.exists(), target


def test_the_sample_is_the_file_that_is_run():
    (sample,) = [block for block in pages.python_blocks(pages.README) if "@ln.scenario" in block]
    assert sample == FLAP.read_text()


def test_the_output_shown_is_the_commands(first):
    """Words and layout are the same, and figures that the text speaks of within 2 %."""
    shown = pages.output_after(pages.README, "The last command prints")
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


def test_a_run_writes_what_first_scenario_says(first):
    files = {path.name for path in first[1].iterdir()}
    assert files == {"report.json", "counters.json", "environment.json", "flap.py"}
    rows = set(re.findall(r"^\| `([^`]+)` \|", pages.PAGES["docs/first-scenario.md"], re.M))
    assert rows == files | {"ranks/"}
    assert json.loads((first[1] / "report.json").read_text())["scenario"] == "flap"


@pytest.mark.parametrize("planes", range(1, 9))
def test_the_sample_is_right_for_any_number_of_planes(tmp_path, planes):
    report = ln.load(FLAP).run(planes=planes, directory=tmp_path)
    assert report.ok, report.failed
    assert report["down.expected_capacity"] == pytest.approx(1 - 1 / planes, abs=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_the_sample_is_right_with_any_seed_at_the_live_commands_values(tmp_path, seed):
    """On the virtual clock, which the live one is held against."""
    (command,) = [each for each in pages.commands(pages.README) if "--clock live" in each]
    scenario = ln.load(FLAP)
    values = scenario.settings(re.findall(r"--set (\S+)", command))
    report = scenario.run(seed=seed, directory=tmp_path, **values)
    assert report.ok, report.failed
    assert report.results[None].data.end_ps < 20 * 10**12  # emulated, so live it is as long


def test_the_job_in_the_text_is_one():
    (code,) = re.findall(r"`(ln\.TorchJob\(.*?\))`", TEXT)
    assert isinstance(eval(code, {"ln": ln}), ln.TorchJob)
