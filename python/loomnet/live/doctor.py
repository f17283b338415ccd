"""What this machine can do for a live run: each kernel feature, privilege and tool, tried for real.

`loomnet doctor` prints :func:`checks`; :func:`why_not_live` is the one line a live run refuses with
and a live test is skipped with. Takes well under 3 s and leaves nothing behind.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import os
import resource
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loomnet.base.installing import install_line
from loomnet.live import openvswitch

_PROBE = Path(__file__).with_name("kernel_probe.py")
_SBIN = ("/usr/sbin", "/sbin", "/usr/local/sbin")  # not on every user's PATH
_CAPABILITIES = {
    "CAP_NET_ADMIN": 12,
    "CAP_NET_RAW": 13,
    "CAP_SYS_ADMIN": 21,
    "CAP_SYS_NICE": 23,
    "CAP_BPF": 39,
}
_IN_CONTAINER = "this is root without its rights: run the container with --privileged"


@dataclass(frozen=True)
class Check:
    """One thing looked for.

    Attributes:
        group: ``kernel``, ``privilege``, ``tool`` or ``python``.
        name: what it is.
        found: True, False, or None where it cannot be told without root.
        detail: what was seen; where it is missing, what it is for.
        fix: the line that mends it; empty if found.
        required: False if a live run works without it, with less.
    """

    group: str
    name: str
    found: bool | None
    detail: str
    fix: str = ""
    required: bool = True


_KERNEL = {
    # probe: (name, what it is for, what mends it, required)
    "netns": ("network namespaces", "hosts and switches", "CONFIG_NET_NS", True),
    "veth": ("veth pairs", "links", "CONFIG_VETH (modprobe veth)", True),
    "bpf": ("BPF programs", "XDP switches", "CONFIG_BPF_SYSCALL", True),
    "bpf_maps": ("BPF devmap and xskmap", "XDP switches", "CONFIG_XDP_SOCKETS", True),
    "xdp_native": ("native XDP on veth", "XDP switches", "Linux 5.9 or later", True),
    "memlock": (
        "AF_XDP memory of 64 MiB",
        "the engine's packet buffers",
        "ulimit -l unlimited, or CAP_IPC_LOCK",
        True,
    ),
    "af_xdp": ("AF_XDP on veth", "the engine's links", "CONFIG_XDP_SOCKETS", True),
    "multipath": (
        "IPv6 multipath and link-down sysctls",
        "ECMP of kernel TCP (transport gloo)",
        "CONFIG_IP_ROUTE_MULTIPATH, Linux 4.17 or later",
        True,
    ),
    "next_csid": (
        "seg6 next-csid",
        "Linux switches, the independent reference",
        "CONFIG_IPV6_SEG6_LWTUNNEL, Linux 6.1, iproute2 6.1",
        False,
    ),
    "sched_fifo": (
        "SCHED_FIFO",
        "an engine that is on time; without it nice -20",
        "CAP_SYS_NICE; under cgroup v1: no RT group limit",
        False,
    ),
}

_TOOLS = (
    # command, package, what it is for, required
    ("ip", "iproute2", "links, addresses and routes", True),
    ("mnexec", "mininet", "Mininet's namespaces", True),
    ("ifconfig", "net-tools", "Mininet refuses to start without it", True),
    ("ethtool", "ethtool", "looking at offloads", False),
    ("tcpdump", "tcpdump", "loomnet capture", False),
    ("tshark", "tshark", "reading captures, the wire tests", False),
    ("iperf3", "iperf3", "kernel TCP on the fabric by hand", False),
    ("clang", "clang", "building the live part", False),
    ("bpftool", "bpftool", "building the live part", False),
)


def checks() -> list[Check]:
    """Every check, in the order to read and to mend them. Safe to call at any time, by anybody."""
    return [*privileges(), *_kernel(), *tools(), *_open_vswitch(), *_python()]


def why_not_live(found: Iterable[Check] | None = None) -> str | None:
    """The first reason why this process cannot run live, with the line that mends it, else None."""
    return first_missing(checks() if found is None else found)


def cannot_start(error: BaseException) -> str:
    """Why the machine refused a bring-up: the line above where it finds what is missing."""
    from loomnet.programs.c_file import verifier_refusal

    said = " ".join(str(error).split())
    if (why := verifier_refusal(str(error))) is not None:  # with the options of this switch
        return f"the live run cannot start: {said.partition(': Permission denied')[0]}: {why}"
    return why_not_live() or f"the live run cannot start: {said}; see loomnet doctor"


def first_missing(found: Iterable[Check]) -> str | None:
    """The first of these checks that a live run cannot do without and that does not hold; what was
    not tried for want of another comes after that other."""
    missing = [check for check in found if check.required and not check.found]
    for check in sorted(missing, key=lambda check: "not tried" in check.detail):
        return f"{check.name}: {check.detail}; {check.fix}"
    return None


def as_root() -> str:
    """The line that types this very command again, as root."""
    program = Path(sys.argv[0])
    if program.name in ("loomnet", "__main__.py"):
        return _sudo(*sys.argv[1:])
    return shlex.join(["sudo", sys.executable, *sys.argv])


def _sudo(*words: str) -> str:
    """The line that types a Loomnet command as root. Nothing in it puts the current folder on
    root's path of modules, where any file could stand for a module of Python's."""
    entry = Path(sys.executable).with_name("loomnet")
    if os.access(entry, os.X_OK):
        return shlex.join(["sudo", str(entry), *words])
    return shlex.join(["sudo", sys.executable, "-P", "-m", "loomnet", *words])


def privileges() -> list[Check]:
    """The capabilities and limits alone: two looks at /proc."""
    held = _effective_capabilities()
    fix = _IN_CONTAINER if os.geteuid() == 0 else f"run as root: {_sudo('doctor')}"
    result = []
    for name, bit in _CAPABILITIES.items():
        have = bool(held >> bit & 1)
        # CAP_SYS_ADMIN holds what CAP_BPF was split off from.
        have = have or (name == "CAP_BPF" and bool(held >> _CAPABILITIES["CAP_SYS_ADMIN"] & 1))
        required = name != "CAP_SYS_NICE"
        detail = "held" if have else "not held"
        result.append(Check("privilege", name, have, detail, "" if have else fix, required))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = hard == resource.RLIM_INFINITY or hard >= 4096 or os.geteuid() == 0
    detail = f"{soft}, at most {hard}"
    fix = "" if enough else "ulimit -Hn 65536"
    result.append(Check("privilege", "open files", enough, detail, fix, False))
    return result


def _effective_capabilities() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return int(line.split()[1], 16)
    return 0


def _kernel() -> list[Check]:
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(_PROBE)],
            capture_output=True,
            text=True,
            timeout=10,
            env={**os.environ, "PATH": tool_path()},
        )
        reasons: dict[str, str | None] = json.loads(done.stdout)
    except (subprocess.SubprocessError, ValueError, OSError) as error:
        reasons = dict.fromkeys(_KERNEL, f"the probe did not finish: {error}")
    # Without root a refusal says nothing about the kernel.
    unprivileged = not _effective_capabilities() >> _CAPABILITIES["CAP_SYS_ADMIN"] & 1
    result = []
    for key, (name, purpose, mend, required) in _KERNEL.items():
        reason = reasons.get(key, "not tried")
        if reason is None:
            result.append(Check("kernel", name, True, "works", "", required))
        elif unprivileged and key != "sched_fifo":
            detail = f"for {purpose}; cannot be tried without root"
            result.append(Check("kernel", name, None, detail, _sudo("doctor"), required))
        else:
            detail = f"for {purpose}; {reason}"
            result.append(Check("kernel", name, False, detail, f"needs {mend}", required))
    return result


def tool_path() -> str:
    """The caller's PATH and, behind it, where root's tools are."""
    folders = os.environ.get("PATH", "").split(os.pathsep)
    return os.pathsep.join([*folders, *(folder for folder in _SBIN if folder not in folders)])


def _which(command: str) -> str | None:
    return shutil.which(command, path=tool_path())


def tools() -> list[Check]:
    result = []
    for command, package, purpose, required in _TOOLS:
        path = _which(command)
        fix = "" if path else f"sudo apt-get install {package}"
        detail = path or f"for {purpose}"
        result.append(Check("tool", command, path is not None, detail, fix, required))
    return result


def _open_vswitch() -> list[Check]:
    daemon = _which("ovs-vswitchd")
    install = "sudo apt-get install openvswitch-switch"
    if daemon is None:
        return [Check("tool", "Open vSwitch", False, "for the management network", install)]
    instance = openvswitch.running()
    if instance is None:
        if os.geteuid() == 0:
            detail = f"{daemon}; not running, a live run starts its own"
            return [Check("tool", "Open vSwitch", True, detail)]
        start = f"sudo {shlex.quote(sys.executable)} {openvswitch.__file__} ensure"
        return [Check("tool", "Open vSwitch", False, f"{daemon} is not running", start)]
    whose = "Loomnet's own" if instance.own else "the system's"
    path = {"netdev": "userspace", "system": "kernel"}[instance.datapath]
    if os.geteuid() == 0:
        if (daemon := instance.silent()) is not None:  # An answer, not only a pid file.
            return [
                Check(
                    "tool",
                    "Open vSwitch",
                    False,
                    f"{daemon} runs but does not answer",
                    instance.restart,
                )
            ]
        try:
            instance.vsctl("list-br", timeout=2)
        except openvswitch.OpenVSwitchError as error:
            return [Check("tool", "Open vSwitch", False, str(error), instance.restart)]
    detail = f"{whose}, in {instance.directory}, {path} datapath"
    return [Check("tool", "Open vSwitch", True, detail)]


_EXTRAS = (
    # distribution, extra, purpose
    ("scikit-learn", "torch", "the PyTorch scenarios' data"),
    ("distributed", "sweep", "loomnet sweep"),
    ("polars", "sweep", "a sweep's table"),
    ("jupyterlab", "notebook", "scenarios/quickstart.ipynb"),
    ("gymnasium", "rl", "loomnet/OneFlow-v0"),
)


def _python() -> list[Check]:
    result = []
    try:
        importlib.import_module("mininet.node")
        found, detail = True, importlib.metadata.version("mininet")
    except ImportError as error:
        found, detail = False, f"for hosts; {error}"
    result.append(Check("python", "mininet", found, detail, "" if found else install_line("live")))
    # Never a bare `torch`: the default wheel brings gigabytes of CUDA.
    torch = (
        f"{shlex.quote(sys.executable)} -m pip install torch "
        "--index-url https://download.pytorch.org/whl/cpu"
    )
    result.append(_distribution("torch", "training jobs", torch))
    result += [_distribution(name, why, install_line(extra)) for name, extra, why in _EXTRAS]
    result += [_compiled(), *_steering()]
    return result


def _distribution(name: str, purpose: str, fix: str) -> Check:
    try:
        return Check("python", name, True, importlib.metadata.version(name), required=False)
    except importlib.metadata.PackageNotFoundError:
        return Check("python", name, False, f"for {purpose}", fix, required=False)


def _compiled() -> Check:
    name = "loomnet._core, live part"
    fix = "sudo apt-get install clang llvm libbpf-dev libxdp-dev bpftool, then script/bootstrap"
    try:
        core = importlib.import_module("loomnet._core")
    except ImportError as error:
        return Check("python", name, False, str(error), "script/bootstrap, or pip install .")
    if hasattr(core, "LiveRun"):
        return Check("python", name, True, "built in")
    return Check("python", name, False, "built without the live part", fix)


def why_not_steered() -> str | None:
    """Why the kernel's TCP cannot have a congestion control of ours, in one line, else None."""
    for check in _steering():
        if not check.found:
            return f"{check.name}: {check.detail}; {check.fix}"
    return None


def _steering() -> list[Check]:
    """The program of each such control is loaded and taken out again: no kernel's version says
    whether it will be."""
    try:
        core = importlib.import_module("loomnet._core")
    except ImportError:
        return []
    if not hasattr(core, "KernelControl"):
        return []  # _compiled() has said that the live part is missing
    controls = [name for name, row in core.congestion_controls().items() if row["in_kernel"]]
    return [_steered(core, control) for control in controls]


def _steered(core: Any, control: str) -> Check:
    name, purpose = "struct_ops congestion control", f'for tcp={{"cc": "{control}"}}'
    if not _effective_capabilities() >> _CAPABILITIES["CAP_SYS_ADMIN"] & 1:
        detail = f"{purpose}; cannot be tried without root"
        return Check("kernel", name, None, detail, _sudo("doctor"), False)
    if reason := core.try_kernel_control(control):
        fix = "needs Linux 6.4 or later with CONFIG_BPF_JIT and CONFIG_DEBUG_INFO_BTF"
        return Check("kernel", name, False, f"{purpose}; {' '.join(reason.split())}", fix, False)
    detail = f"works, {purpose}; cong_control has {core.cong_control_arguments()} arguments"
    if reason := core.try_kernel_control(control, decides=True):
        detail += f'; agent="kernel" does not: {" ".join(reason.split())}'
    return Check("kernel", name, True, detail, "", False)


def lines(found: Iterable[Check]) -> Iterator[str]:
    """What ``loomnet doctor`` prints: each clock's answer, and between them what was looked for.

    A check that a run can do without is ``optional`` where it does not hold, so that the lines that
    say ``missing`` are as many as the last line counts.
    """
    found = list(found)
    yield virtual_clock()
    for check in found:
        word = "found" if check.found else "unknown" if check.found is None else "missing"
        word = "optional" if not check.found and not check.required else word
        yield f"{word:<8}  {check.group:<9}  {check.name}: {check.detail}"
        if check.fix:
            yield f"{'':<8}  -> {check.fix}"
    missing = sum(check.required and check.found is False for check in found)
    unknown = sum(check.required and check.found is None for check in found)
    if missing:
        yield f"live clock: not possible here, {missing} missing"
    elif unknown:
        yield f"live clock: cannot be told, {unknown} unknown without root"
    else:
        yield "live clock: ready"


def virtual_clock() -> str:
    """Whether the virtual clock works, which needs the compiled module alone."""
    try:
        importlib.import_module("loomnet._core")
    except ImportError as error:
        return f"virtual clock: not possible here, {error}; in a clone of Loomnet: pip install ."
    return "virtual clock: ready, for every user; what follows is for the live clock and for extras"


if __name__ == "__main__":
    print(*lines(checks()), sep="\n")
