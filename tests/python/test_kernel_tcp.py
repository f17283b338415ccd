"""What a live run tells the hosts' kernels, and what it refuses to."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest

import loomnet as ln
from loomnet.base.errors import PrivilegeError, UnavailableError
from loomnet.faults.timetable import Timetable
from loomnet.live import flow_agent, kernel_flows, kernel_tcp
from loomnet.live.kernel_tcp import KernelTcp
from loomnet.live.run import LiveRunner
from loomnet.plans.job_request import JobRequest
from loomnet.plans.make import make_plan
from loomnet.running.request import RunRequest


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """A machine that ships CUBIC but prefers BBR, as some clouds' images do."""
    for name, value in (("available", "reno bbr cubic"), ("allowed", "reno bbr")):
        (tmp_path / f"tcp_{name}_congestion_control").write_text(f"{value}\n")
    (tmp_path / "tcp_congestion_control").write_text("bbr\n")
    monkeypatch.setattr(kernel_tcp, "_PROC", tmp_path)
    return tmp_path


def test_our_own_sockets_ask_for_what_the_model_has(kernel):
    tcp = KernelTcp.of({}, stock=False)
    assert (tcp.cc, tcp.mtu) == ("cubic", 3400)
    assert "net/ipv4/tcp_congestion_control" not in tcp.sysctls
    assert tcp.sysctls["net/ipv4/tcp_rmem"].endswith(f" {2 * kernel_tcp.RECEIVE_BUFFER}")
    assert (
        KernelTcp.of({"cc": "cubic", "mtu": 1500, "ecn": True}, stock=False).sysctls[
            "net/ipv4/tcp_ecn"
        ]
        == 1
    )


def test_other_programs_get_cubic_where_the_machine_lets_them(kernel):
    assert KernelTcp.of({}, stock=True).cc == "bbr"  # CUBIC is not allowed here
    with pytest.raises(ln.UsageError, match="tcp_allowed_congestion_control='reno bbr cubic'"):
        KernelTcp.of({"cc": "cubic"}, stock=True)
    (kernel / "tcp_allowed_congestion_control").write_text("reno bbr cubic\n")
    tcp = KernelTcp.of({}, stock=True)
    assert tcp.sysctls["net/ipv4/tcp_congestion_control"] == "cubic"
    assert "net/ipv4/tcp_rmem" not in tcp.sysctls


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cc": "cubik"}, 'tcp.cc: this kernel has no "cubik"; nearest: cubic'),
        ({"send_buffer": 1}, "tcp.send_buffer: live, the kernel's TCP takes cc, mtu, ecn"),
        ({"mtu": 1000}, "tcp.mtu: 1000 must be 1280 to 3400"),
        ({"mtu": "1500"}, "tcp.mtu: 1500 must be"),
    ],
)
def test_what_a_kernel_cannot_be_told_is_one_clear_line(kernel, options, message):
    with pytest.raises(ln.UsageError, match=message):
        KernelTcp.of(options, stock=False)


def test_a_live_run_is_not_looked_at_all_the_time(tmp_path):
    plan = make_plan(ln.star(hosts=2, rate="1 Mb/s", delay="1 us"))

    def check(every, dilation):
        LiveRunner().check(
            RunRequest(
                plan=plan,
                jobs=(JobRequest(ln.AllReduce("1 kB", transport="mrc"), (0, 1)),),
                timetable=Timetable(plan, [], reroute_delay=None),
                faults=(),
                label="",
                seed=0,
                directory=tmp_path,
                dilation=dilation,
                options={"sample": every},
            )
        )

    with pytest.raises(ln.UsageError, match="sample=100 us: live, two samples are 1 ms of wall"):
        check("100 us", 1.0)
    for every, dilation in (("100 us", 10.0), ("1 ms", 1.0)):
        with contextlib.suppress(PrivilegeError, UnavailableError):  # who may not be live at all
            check(every, dilation)


def test_an_agent_that_got_no_processor_says_for_how_long():
    control, theirs = socket.socketpair()
    command = [sys.executable, "-I", "-S", flow_agent.__file__, str(theirs.fileno())]
    agent = subprocess.Popen(command, pass_fds=[theirs.fileno()])
    try:
        theirs.close()
        control.sendall(
            json.dumps(
                {"order": "sample", "every_ns": 20_000_000, "first_ns": time.monotonic_ns()}
            ).encode()
            + b"\n"
        )
        reports = control.makefile()
        next(reports)
        agent.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, agent.pid, os.WSTOPPED)
        time.sleep(0.7)
        agent.send_signal(signal.SIGCONT)
        until = time.monotonic() + 10
        late = 0
        while late <= kernel_flows.STANDSTILL_NS and time.monotonic() < until:
            late = json.loads(next(reports))["late_ns"]
        assert late > kernel_flows.STANDSTILL_NS
        assert json.loads(next(reports))["late_ns"] < late, "of this one sample alone"
    finally:
        agent.kill()
        agent.wait()
        control.close()
