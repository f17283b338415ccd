"""README.md and docs/ keep their word on the live clock too: every command and block of code for
it, as it stands there."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import TRAFFIC

from loomnet.cli.new import SWITCH_FILES, SWITCH_TEMPLATES
from loomnet.live import doctor

sys.path.insert(0, str(Path(__file__).parents[1] / "python"))
import pages

_REASON = doctor.why_not_live()
pytestmark = pytest.mark.skipif(_REASON is not None, reason=str(_REASON))
LIVE = [command for command in pages.all_commands() if pages.is_live(command)]
# Those that take minutes: with --soak.
LONG = re.compile(r"tcp_two_flows|astraea/stair3|ina/ddp|mrc_ddp_link_failure")
# test_crosscheck.py runs the crosschecks of these scenarios.
ELSEWHERE = re.compile(r"crosscheck scenarios/(crosscheck_|mrc_ddp_link_failure)")
ALONE = [
    each
    for each in LIVE
    if re.search(r"loomnet (run|crosscheck) ", each) and not ELSEWHERE.search(each)
]
TRIES = 2  # a run that fell behind is no result: one more try, then it is an error


@pytest.fixture
def clone(loomnet):
    shutil.copytree(pages.ROOT / "scenarios", loomnet.directory / "scenarios")
    for name in SWITCH_FILES:  # docs/switch-programs.md: after `loomnet new --switch heavy`
        shutil.copy(SWITCH_TEMPLATES / name, loomnet.directory)
    return loomnet


def words(command: str) -> list[str]:
    """What follows `loomnet`."""
    return pages.shell_line(command).partition(" ")[2].split()


def does_what_it_says(clone, command, seconds):
    for _ in range(TRIES):
        run = clone.start(*words(command))
        status = run.wait(seconds)
        if status != 3:
            break
    assert status == 0, run.output
    assert "kept up" in run.output and "FAIL" not in run.output
    assert not re.search(r" NO$", run.output, re.M)


@pytest.mark.parametrize("command", [each for each in ALONE if not LONG.search(each)])
def test_a_live_command_does_what_it_says(clone, command):
    does_what_it_says(clone, command, 90)  # the README promises some 20 s


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("command", [each for each in ALONE if LONG.search(each)])
def test_a_long_live_command_does_what_it_says(clone, command):
    does_what_it_says(clone, command, 1700)


def test_a_capture_and_a_command_while_a_live_run_lasts(clone):
    (live,) = [each for each in pages.commands("README.md") if "--clock live" in each]
    (capture,) = [each for each in LIVE if "capture " in each]
    (inside,) = [each for each in pages.commands("docs/live.md") if " exec " in each]
    command, sign, reader = capture.partition(" | ")
    assert sign and reader.startswith("wireshark -k -i -")
    run = clone.start(*words(live))
    run.until(TRAFFIC)
    with subprocess.Popen(
        ["bash", "-c", "exec " + pages.shell_line(command)],
        stdout=subprocess.PIPE,
        env=pages.environment(),
    ) as tapped:
        head = tapped.stdout.read(100_000)
        tapped.stdout.close()
        tapped.wait(20)
    assert head[:4] == b"\x0a\x0d\x0d\x0a" and len(head) == 100_000
    done = pages.typed(inside, clone.directory, timeout=30)
    assert done.returncode == 0 and "lo" in done.stdout, done.stderr
    assert run.wait(90) in (0, 3), run.output


def test_a_shell_inside_a_host(clone):
    """It ends with its input."""
    (live,) = [each for each in pages.commands("README.md") if "--clock live" in each]
    (shell,) = [each for each in LIVE if " shell " in each]
    run = clone.start(*words(live))
    run.until(TRAFFIC)
    done = subprocess.run(
        ["bash", "-c", pages.shell_line(shell)],
        input="echo $LOOMNET_NODE\n",
        capture_output=True,
        text=True,
        timeout=30,
        env=pages.environment(),
    )
    assert "h0" in done.stdout, done.stdout + done.stderr
    run.interrupt()
    assert run.wait(30) == 130, run.output


def test_the_open_lab(clone, monkeypatch, capsys):
    monkeypatch.chdir(clone.directory)
    (code,) = pages.python_blocks("docs/live.md")
    exec(compile(code, "docs/live.md", "exec"), {})
    out = capsys.readouterr().out
    assert "3 packets transmitted" in out and "packets" in out
