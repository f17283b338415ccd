"""What a live run cannot do is refused: one clear line with what mends it, exit 2, nothing left."""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from command_line import SCENARIOS
from unprivileged import NOBODY, open_directory, python_for_nobody

import loomnet as ln

WITHOUT = [sys.executable, Path(__file__).with_name("without_feature.py")]
SCRIPTS = Path(__file__).parent / "rank_scripts"


def refused(loomnet, run, *words: str) -> str:
    """The line it was refused with."""
    assert run.wait(40) == 2, run.output
    assert "Traceback" not in run.output, run.output
    said = [line for line in run.lines if line.startswith("loomnet: ")]
    assert len(said) == 1 and said[0] == run.lines[-1], run.output
    # Alone, or behind the three lines that say what would have run.
    before = run.lines[:-1]
    assert not before or (len(before) == 3 and "; live, D = " in before[0]), run.output
    for word in words:
        assert word in said[0], said[0]
    assert not (loomnet.directory / "runs").exists()
    return said[0]


# --- privilege ----------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["net_admin", "net_raw", "sys_admin"])
def test_root_without_a_capability(loomnet, missing):
    run = loomnet.live("flow", prefix=["setpriv", f"--bounding-set=-{missing}"])
    refused(loomnet, run, f"CAP_{missing.upper()}: not held", "--privileged")


def test_without_root_the_line_to_type(loomnet):
    python, environment = python_for_nobody()
    home = loomnet.directory
    loomnet.directory = open_directory()
    try:
        scenario = loomnet.directory / "short.py"
        shutil.copyfile(SCENARIOS, scenario)
        scenario.chmod(0o644)
        loomnet.directory.chmod(0o777)
        run = loomnet.start(
            "run",
            "short.py::flow",
            "--clock",
            "live",
            "--set",
            "size=1 MB",
            python=python,
            environment=environment,
            prefix=["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"],
        )
        line = refused(loomnet, run, "needs root", "sudo ")
        words = "run short.py::flow --clock live --set 'size=1 MB'"
        assert line.endswith((f"/bin/loomnet {words}", f" -P -m loomnet {words}")), line
    finally:
        shutil.rmtree(loomnet.directory)
        loomnet.directory = home


def test_without_sys_nice_it_runs_and_says_so(loomnet):
    run = loomnet.live("flow", prefix=["setpriv", "--bounding-set=-sys_nice"])
    assert run.wait(40) in (0, 3), run.output
    assert "CAP_SYS_NICE" in loomnet.report()["fidelity"][0]["notes"]["scheduling"]


# --- kernel features and tools ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("feature", "words"),
    [
        ("af_xdp", ["AF_XDP on veth", "Address family not supported", "needs CONFIG_XDP_SOCKETS"]),
        ("bpf", ["BPF programs", "needs CONFIG_BPF_SYSCALL"]),
        ("netns", ["network namespaces", "needs CONFIG_NET_NS"]),
    ],
)
def test_a_kernel_without(loomnet, feature, words):
    run = loomnet.live("flow", prefix=[*WITHOUT, feature])
    refused(loomnet, run, *words)


def test_too_little_memory_may_be_locked(loomnet):
    run = loomnet.live(
        "flow", prefix=["prlimit", "--memlock=65536:65536", "setpriv", "--bounding-set=-ipc_lock"]
    )
    refused(loomnet, run, "AF_XDP memory of 64 MiB", "ulimit -l unlimited")


@pytest.mark.parametrize(
    "most", [20, *(pytest.param(most, marks=pytest.mark.soak) for most in (40, 70, 80)), 64, 100]
)
def test_few_descriptors(loomnet, most):
    """One clear line, wherever in the bring-up they run out; root alone may have more."""
    few = ["prlimit", f"--nofile={most}:{most}"]
    run = loomnet.live("flow", prefix=[*few, "setpriv", "--bounding-set=-sys_resource"])
    refused(loomnet, run)
    assert "ValueError" not in run.output


@pytest.mark.skipif(
    not int(re.search(r"CapEff:\s*(\w+)", Path("/proc/self/status").read_text())[1], 16) >> 24 & 1,
    reason="CAP_SYS_RESOURCE is not held: the limit of open files cannot be raised",
)
def test_few_descriptors_are_raised_by_root(loomnet):
    run = loomnet.live("flow", prefix=["prlimit", "--nofile=64:64"])
    assert run.wait(40) in (0, 3), run.output


def test_a_tool_that_is_not_installed(loomnet):
    tools = loomnet.directory / "bin"
    tools.mkdir()
    for folder in os.environ["PATH"].split(os.pathsep):
        for path in Path(folder).glob("*") if Path(folder).is_dir() else ():
            if path.name != "mnexec" and not (tools / path.name).exists():
                (tools / path.name).symlink_to(path)
    run = loomnet.live("flow", environment={"PATH": str(tools)})
    refused(loomnet, run, "mnexec", "sudo apt-get install mininet")


# --- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scenario", "setting", "words"),
    [
        (
            "flow",
            "rate=10 Gb/s",
            ["offered load", "that this machine was measured to carry", "lower the links' rate="],
        ),
        ("flow", "rate=40", ["rate", "no unit"]),
        ("flow", "transport=mcr", ["transport", "mrc"]),
        ("flow", "link=h0--p0.laef0", ['no link "h0--p0.laef0"', "nearest: h0--p0.leaf0"]),
        ("flow", "sise=1 MB", ['"sise"', "size"]),
        ("ranks", "ranks=5", ["5 ranks", "2 hosts"]),
        ("ranks", "script=nowhere.py", ["nowhere.py"]),
    ],
)
def test_bad_input(loomnet, scenario, setting, words):
    settings = [setting]
    if scenario == "ranks" and not setting.startswith("script"):
        settings.append(f"script={SCRIPTS / 'waits.py'}")
    refused(loomnet, loomnet.live(scenario, *settings), *words)


def test_packets_longer_than_links_in_the_kernel_carry_are_refused():
    fabric = ln.Fabric("long", payload="4096 B")
    fabric.add_switch("p0.leaf0", plane=0)
    for host in ("h0", "h1"):
        fabric.add_host(host)
        fabric.add_link(host, "p0.leaf0", rate="100 Mb/s", delay="1 ms")
    job = ln.AllReduce("1 MB", transport="roce")
    with pytest.raises(ln.UsageError, match=r"Fabric.payload: .*p0.leaf0 .* carry 3414 B"):
        ln.run(fabric, job, clock="live")
