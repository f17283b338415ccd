"""python/loomnet_build.py, the build backend: what it says of a build, and to whom."""

import importlib.util
import os
import pty
import subprocess
import sys
import textwrap
import types
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def backend():
    """The module with a stand-in of scikit-build-core, which tests need not have."""
    made = types.ModuleType("scikit_build_core")
    made.build = types.SimpleNamespace(get_requires_for_build_wheel=lambda *_: ["ninja"])
    before = sys.modules.get("scikit_build_core")
    sys.modules["scikit_build_core"] = made
    try:
        spec = importlib.util.spec_from_file_location(
            "loomnet_build", ROOT / "python/loomnet_build.py"
        )
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.modules.pop("scikit_build_core")
        if before is not None:
            sys.modules["scikit_build_core"] = before
    return module


def said_of(backend, events):
    """The lines for outputs of Ninja and waits of seconds, in turn."""
    clock, lines = [0.0], []
    progress = backend.Progress(lines.append, lambda: clock[0])
    for event in events:
        if isinstance(event, bytes):
            progress.read(event)
        for _ in range(0 if isinstance(event, bytes) else event):
            clock[0] += 1
            progress.tick()
    progress.end()
    return lines


def test_a_line_every_half_minute_with_what_is_left(backend):
    lines = said_of(
        backend,
        [
            b"[0/1] Re-checking globbed directories...\n",
            40,
            b"[1/200] Building CXX object a.o\n[2/2",
            b"00] b.o\n",
            30,
            b"[50/200] c.o\nwarning: [99/100] in a text\n",
            30,
            30,
            30,
        ],
    )
    assert lines == [
        f"200 steps of compiling on {os.cpu_count()} cores; "
        "a line every 30 s says how far they are",
        "2 of 200 steps in 30 s, about 49 min 30 s left",
        "50 of 200 steps in 1 min 00 s, about 3 min 00 s left",
        "50 of 200 steps in 1 min 30 s, about 4 min 30 s left",
        "50 of 200 steps in 2 min 00 s, about 6 min 00 s left",
        "compiled in 2 min 00 s",
    ]


@pytest.mark.parametrize("events", [[b"[1/3] a.o\n", 70], [70], [b"no step\n", 70]])
def test_a_build_of_a_few_steps_says_nothing(backend, events):
    assert said_of(backend, events) == []


def test_other_hooks_are_scikit_build_cores(backend):
    assert backend.get_requires_for_build_wheel() == ["ninja"]
    with pytest.raises(AttributeError):
        backend.prepare_metadata_for_build_wheel  # noqa: B018


BUILD = """
import os, sys, types
made = types.ModuleType("scikit_build_core")
def build_wheel(folder):
    print("from Python", flush=True)
    os.system("echo '[1/30] a.o'; echo '[30/30] z.o'")
    if folder == "bad":
        raise SystemExit(1)
    return "made.whl"
made.build = types.SimpleNamespace(build_wheel=build_wheel)
sys.modules["scikit_build_core"] = made
import loomnet_build
print(loomnet_build.build_wheel(sys.argv[1]))
"""


def built(folder="good", **environment):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(BUILD), folder],
        capture_output=True,
        text=True,
        timeout=60,
        start_new_session=True,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "python"), **environment},
    )


OUTPUT = "from Python\n[1/30] a.o\n[30/30] z.o\n"


def test_without_a_terminal_a_build_is_as_it_was():
    done = built()
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{OUTPUT}made.whl\n", "")


@pytest.mark.parametrize("folder", ["good", "bad"])
def test_standard_output_has_the_lines_where_it_is_asked_to(folder):
    done = built(folder, LOOMNET_BUILD_PROGRESS="stdout")
    assert (done.returncode, done.stderr) == (folder == "bad", "")
    lines = done.stdout.splitlines()
    ours = [line for line in lines if line.startswith("loomnet: ")]
    assert ours[0].startswith("loomnet: 30 steps of compiling")
    assert ours[1:] == (["loomnet: compiled in 0 s"] if folder == "good" else [])
    assert [line for line in lines if line not in ours] == [
        *OUTPUT.splitlines(),
        *(["made.whl"] if folder == "good" else []),
    ]


@pytest.mark.parametrize("foreground", [True, False])
def test_a_terminal_has_the_lines_if_it_is_this_builds_to_write_to(foreground):
    """Under pip, whose own pipe takes the output; a background job would be stopped by writing."""
    child, terminal = pty.fork()
    if child == 0:
        if not foreground:
            if job := os.fork():
                os._exit(os.waitstatus_to_exitcode(os.waitpid(job, 0)[1]))
            os.setpgid(0, 0)
        os.environ["PYTHONPATH"] = str(ROOT / "python")
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(BUILD), "good"],
            stdout=subprocess.PIPE,
            text=True,
        )
        os._exit(done.stdout != f"{OUTPUT}made.whl\n")
    shown = b""
    try:
        while piece := os.read(terminal, 4096):
            shown += piece
    except OSError:  # the terminal's last user is gone
        pass
    os.close(terminal)
    assert os.waitpid(child, 0)[1] == 0
    assert (b"\n  loomnet: 30 steps of compiling" in shown) == foreground
    assert (b"\r\x1b[K  loomnet: compiled in 0 s" in shown) == foreground
