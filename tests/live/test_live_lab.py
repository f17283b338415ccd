"""`with ln.lab(fabric, clock="live")`: kernels talk over it, links go down and come back under
them, other terminals reach in, and it leaves nothing behind however it ends."""

import re
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from command_line import AS_FROM_A_TERMINAL

import loomnet as ln


def fabric(planes=2):
    return ln.clos.two_tier(
        planes=planes, leaves=2, spines=2, hosts_per_leaf=1, rate="40 Mb/s", delay="0.5 ms"
    )


def ping(lab, count=2):
    """Round trips in ms of what came back."""
    done = lab.exec("h0", f"ping -6 -c {count} -i 0.05 -W 1 {lab.address('h1')}")
    return [float(ms) for ms in re.findall(r"time=([\d.]+) ms", done.stdout)]


def rerouted(lab):
    """Waits until kernels and switches know of a change, which a busy machine tells them late."""
    deadline = time.monotonic() + 20
    while len(ping(lab)) < 2:
        assert time.monotonic() < deadline, "no way to h1 in 20 s"


def test_links_go_down_and_come_back_under_the_kernels_of_hosts(uses_machine):
    with ln.lab(fabric(), clock="live", reroute_delay="50 ms") as lab:
        assert all(4 <= ms < 40 for ms in ping(lab)), "eight links of 0.5 ms, there and back"
        lab.down("h0--p*.leaf0")
        assert lab.links_down == ["h0--p0.leaf0", "h0--p1.leaf0"]
        assert "down: h0--p0.leaf0, h0--p1.leaf0" in repr(lab)
        assert "unreachable" in lab.exec("h0", ["ping", "-6", "-c1", lab.address("h1")]).stderr
        lab.restore("h0->p0.leaf0")
        assert lab.links_down == ["h0--p1.leaf0"], "carrier is of both directions"
        lab.restore()
        assert lab.links_down == []
        rerouted(lab)
        # Half of all paths is gone.
        lab.down("p*.leaf0--p*.spine0")
        rerouted(lab)
        assert len(ping(lab, 10)) == 10
        counted = lab.counters()
        spines = [counted.get(f"switch p{plane}.spine1", {}) for plane in range(2)]
        assert sum(each.get("received", 0) for each in spines) >= 20, counted
        assert lab.exec("p0.spine1", "ls /sys/class/net").stdout.split() == ["lo", "s0", "s1"]
        assert lab.exec("h1", "cat; exit 3", input="in").stdout == "in"
        with pytest.raises(ln.UsageError, match=r'exec: no node "h9"; nearest: h0'):
            lab.exec("h9", "true")
        with pytest.raises(ln.UsageError, match=r'no link "h0--p0.leaf1"; nearest: h0--p0.leaf0'):
            lab.down("h0--p0.leaf1")
        with pytest.raises(ln.UsageError, match="a fabric of its own"):
            lab.run(ln.AllReduce("1 MB"))
    assert "closed" in repr(lab)
    with pytest.raises(ln.UsageError, match="the lab is closed"):
        lab.exec("h0", "true")


def test_other_terminals_reach_in(loomnet):
    with ln.lab(fabric(planes=1), clock="live") as lab:
        inside = loomnet.start("exec", "h1", "--", "ip", "-6", "addr", "show", "dev", "lo")
        assert inside.wait(20) == 0 and f"{lab.address('h1')}/128" in inside.output
        with subprocess.Popen(
            [sys.executable, "-m", "loomnet", "capture", "h1:0"], stdout=subprocess.PIPE
        ) as capture:
            head = capture.stdout.read(28)  # pcapng's section header: the capture has begun
            assert len(ping(lab, 20)) == 20
            lab.close()  # ends the capture properly
            rest = capture.stdout.read()
            assert capture.wait(20) == 0
    assert head[:4] == b"\x0a\x0d\x0d\x0a"
    assert len(rest) > 40 * 118, "twenty echoes, there and back"


def test_an_exception_and_what_it_had_started_leave_nothing(uses_machine):
    with pytest.raises(ZeroDivisionError), ln.lab(fabric(), clock="live") as lab:
        lab.popen("h0", ["sleep", "300"])
        lab.exec("h1", "setsid sleep 300 >/dev/null 2>&1 &")
        raise ZeroDivisionError
    with lab:  # and it can be opened again
        assert len(ping(lab)) == 2


SCRIPT = """
    import time
    import loomnet as ln
    fabric = ln.clos.two_tier(planes=2, leaves=2, spines=2, hosts_per_leaf=1, rate="40 Mb/s",
                              delay="0.5 ms")
    print("begin", flush=True)
    with ln.lab(fabric, clock="live") as lab:
        lab.popen("h0", "sleep 300")
        print("up", flush=True)
        time.sleep(60)
"""


@pytest.mark.parametrize(
    ("number", "after", "delay", "status"),
    [
        (signal.SIGINT, "up", 0.1, -signal.SIGINT),
        (signal.SIGTERM, "up", 0.1, 128 + signal.SIGTERM),
        (signal.SIGQUIT, "up", 0.1, 128 + signal.SIGQUIT),
        pytest.param(signal.SIGALRM, "up", 0.1, 128 + signal.SIGALRM, marks=pytest.mark.soak),
        (signal.SIGINT, "begin", 1.0, -signal.SIGINT),  # somewhere in bring-up
    ],
)
def test_signals_leave_nothing(uses_machine, tmp_path, number, after, delay, status):
    script = tmp_path / "opens.py"
    script.write_text(textwrap.dedent(SCRIPT))
    with subprocess.Popen(
        [*AS_FROM_A_TERMINAL, sys.executable, script],
        stdout=subprocess.PIPE,
        text=True,
        stderr=subprocess.DEVNULL,
        cwd=tmp_path,
    ) as process:
        while process.stdout.readline().strip() != after:
            assert process.poll() is None
        time.sleep(delay)
        process.send_signal(number)
        assert process.wait(20) == status
    assert list(tmp_path.iterdir()) == [script]
