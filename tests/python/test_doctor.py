"""The doctor tells the truth: what is taken away from a process is reported, with its remedy."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from loomnet.live import doctor

PACKAGE = Path(doctor.__file__).parents[2]
PROBE = Path(doctor.__file__).with_name("kernel_probe.py")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="takes privileges away: run as root")


def probe_without(*setpriv: str) -> dict[str, str | None]:
    """The kernel probe's answer in a process that lacks what `setpriv` arguments take away."""
    python = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable
    with open(PROBE, "rb") as source:  # By descriptor: another user may not enter this directory.
        done = subprocess.run(
            ["setpriv", *setpriv, "--", python, "-I", "-S", "-"],
            stdin=source,
            capture_output=True,
            text=True,
            timeout=20,
            cwd="/",
        )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_check_is_found_or_says_how_to_mend_it():
    found = doctor.checks()
    assert {"kernel", "privilege", "tool", "python"} == {check.group for check in found}
    assert len({check.name for check in found}) == len(found)
    for check in found:
        assert check.detail, check
        assert bool(check.fix) == (check.found is not True), check


def test_the_lines_count_what_they_show_as_missing_and_say_first_what_works():
    checks = [
        doctor.Check("tool", "ip", False, "for links", "apt ip"),
        doctor.Check("tool", "tshark", False, "for captures", "apt tshark", required=False),
        doctor.Check("kernel", "veth", False, "for links", "modprobe veth"),
        doctor.Check("python", "mininet", True, "2.3"),
    ]
    first, *shown, last = doctor.lines(checks)
    assert first.startswith("virtual clock: ready")
    assert last == "live clock: not possible here, 2 missing"
    words = [line.split()[0] for line in shown if not line.lstrip().startswith("->")]
    assert words == ["missing", "optional", "missing", "found"]
    unknown = [doctor.Check("kernel", "veth", None, "cannot be told", "sudo it")]
    assert list(doctor.lines(unknown))[-1] == "live clock: cannot be told, 1 unknown without root"
    assert list(doctor.lines(checks[3:]))[-1] == "live clock: ready"


def test_every_extra_is_looked_at_with_an_install_that_works_from_here():
    """An extra that is missing is no reason against a live run."""
    found = {check.name: check for check in doctor.checks() if check.group == "python"}
    assert {"torch", "scikit-learn", "distributed", "polars", "jupyterlab"} <= set(found)
    for name in ("scikit-learn", "distributed", "polars", "jupyterlab"):
        assert not found[name].required
        assert found[name].found or re.search(r"pip install .*\[\w+\]'?$", found[name].fix)


def test_first_missing_requirement_is_the_reason_not_to_run():
    good = doctor.Check("tool", "ip", True, "/sbin/ip")
    optional = doctor.Check("tool", "tshark", False, "captures", "apt tshark", required=False)
    unknown = doctor.Check("kernel", "veth", None, "cannot be tried", "sudo it")
    assert doctor.why_not_live([good, optional]) is None
    assert doctor.why_not_live([good, optional, unknown]) == "veth: cannot be tried; sudo it"


def test_missing_tool_is_named_with_its_package(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(doctor, "_SBIN", ())
    tools = {check.name: check for check in doctor.checks() if check.group == "tool"}
    assert tools["mnexec"].found is False and tools["mnexec"].required
    assert tools["mnexec"].fix == "sudo apt-get install mininet"
    assert tools["Open vSwitch"].found is False
    # Nothing but `ip` makes a veth: without it the kernel's features are reported as not tried.
    assert not [c for c in doctor.checks() if c.name == "native XDP on veth" and c.found]


@needs_root
def test_privileges_that_are_gone_are_reported_gone():
    assert probe_without("--bounding-set=-sys_nice")["sched_fifo"] is not None
    everything = probe_without()
    missing = {name for name, reason in everything.items() if reason}
    without_admin = probe_without("--bounding-set=-net_admin,-sys_admin")
    assert without_admin["netns"] and without_admin["veth"] and without_admin["af_xdp"]
    assert {name for name, reason in without_admin.items() if reason} > missing


@needs_root
@pytest.mark.skipif(not shutil.which("prlimit"), reason="needs util-linux's prlimit")
def test_memory_limit_is_tried_with_a_buffer_as_large_as_a_runs():
    if probe_without()["af_xdp"]:
        pytest.skip("this machine has no AF_XDP")
    done = subprocess.run(
        [
            "prlimit",
            "--memlock=2097152:2097152",
            "setpriv",
            "--bounding-set=-ipc_lock",
            sys.executable,
            "-I",
            "-S",
            str(PROBE),
        ],
        capture_output=True,
        text=True,
        timeout=20,
    )
    answer = json.loads(done.stdout)
    assert answer["af_xdp"] is None  # A small buffer fits under 2 MiB,
    assert answer["memlock"] is not None  # a run's does not.


@needs_root
def test_unprivileged_doctor_does_not_blame_the_kernel():
    script = (
        "import os, sys; os.setgroups([]); os.setresgid(*[65534]*3); os.setresuid(*[65534]*3)\n"
        "from loomnet.live import doctor\n"
        "for c in doctor.privileges() + doctor._kernel(): print(c.name, c.found, sep='|')\n"
    )
    # Imports first, as root: the package may lie where user 65534 cannot read.
    script = "import loomnet.live.doctor, json\n" + script
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=30,
        env={**os.environ, "PYTHONPATH": str(PACKAGE)},
    )
    found = dict(line.split("|") for line in done.stdout.splitlines())
    assert found["CAP_NET_ADMIN"] == "False", done.stderr
    assert found["native XDP on veth"] == "None"


def test_probe_leaves_nothing_behind():
    before = set(os.listdir("/sys/class/net"))
    subprocess.run([sys.executable, "-I", "-S", str(PROBE)], check=True, capture_output=True)
    assert not {"v0", "v1"} & (set(os.listdir("/sys/class/net")) - before)
