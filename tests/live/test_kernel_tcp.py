"""Kernel TCP over live links: flows over sockets in the hosts' namespaces, and the TCP model held
against the kernel's own congestion controls on the same scenario."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import loomnet as ln
from loomnet.base.errors import EXIT_FIDELITY, EXIT_OK
from loomnet.labs.lab import Lab
from loomnet.live import doctor

_REASON = doctor.why_not_live()
pytestmark = pytest.mark.skipif(_REASON is not None, reason=str(_REASON))
SCENARIO = Path(__file__).parents[2] / "scenarios" / "tcp_two_flows.py"
KNOWN = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
TRIES = 2  # a run that fell behind or was held up is no result: one more try, then it is an error

# Figures are medians of seven bottlenecks side by side: whose packet a full queue drops is chance,
# and so is every draw. Largest ratio between model and kernel, either way, with what the kernel's
# draws and their medians spread over on two cores with compilers beside them:
RATE = 1.05  # of the sum of rates: draws 2 %, medians 0.5 %
QUEUE = 1.3  # of the mean queue: draws 15 %, medians 8 %
# Of what a flow keeps in the queue while it is alone. A lone CUBIC flow keeps 15 ms (draws 13.3 to
# 15.9), but about one in ten 9: where the queue is still full when the first recovery begins, a
# packet behind its end is lost too, and Linux reduces again. Four of seven do so once in four
# hundred runs. BBR's keeps 2.1 to 2.8 ms; more, up to 8, where the machine holds its ACKs back.
ALONE = {"cubic": 1.3, "bbr": 2.0, "astraea": 1.6}
# Of the time until shares are fair: draws of CUBIC 1.5 to 10 s, medians 1.8 to 6.1. BBR's get there
# with the ProbeRTT that both enter 10 s after they were connected, or some seconds later, or not in
# the 15 s that both send (medians 8 to 13 s), so its earlier draws are compared.
FAIR = {
    "cubic": ("until_fair", 6.0),
    "bbr": ("until_fair_q1", 3.0),
    "astraea": ("until_fair", 2.0),
}
JAIN = {"cubic": 0.9, "bbr": 0.8, "astraea": 0.98}
# BBR's flows must both send for some time after that ProbeRTT.
SIZE = {"cubic": "40 MB", "bbr": "60 MB", "astraea": "40 MB"}


@pytest.fixture
def live(tmp_path):
    """A live Lab that does not judge lateness."""
    return Lab("live", clock="live", directory=tmp_path / "lab")


def dumbbell(rate="20 Mb/s", buffer="100 kB"):
    fabric = ln.clos.dumbbell(
        left=2, right=2, rate="40 Mb/s", delay="1 ms", bottleneck=rate, bottleneck_delay="3 ms"
    )
    fabric.override("p0.leaf0->p0.leaf1", data_limit=buffer)
    return fabric


def two_flows(clock, cc, folder):
    """The scenario's figures by name."""
    for _ in range(TRIES if clock == "live" else 1):
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "loomnet",
                "run",
                str(SCENARIO),
                "--clock",
                clock,
                "--set",
                f"cc={cc}",
                "--set",
                f"size={SIZE[cc]}",
                "--json",
                str(folder / f"{clock}.json"),
            ],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=120,
        )
        if done.returncode != EXIT_FIDELITY:
            break
    assert done.returncode == EXIT_OK, done.stdout + done.stderr
    report = json.loads((folder / f"{clock}.json").read_text())
    return {row["name"]: row["value"] for row in report["metrics"]}, json.dumps(report["fidelity"])


@pytest.mark.parametrize(
    "cc", ["cubic", *(pytest.param(cc, marks=pytest.mark.soak) for cc in ("bbr", "astraea"))]
)
def test_the_model_does_as_the_kernel(cc, tmp_path, uses_machine):
    if cc == "astraea" and (lacks := doctor.why_not_steered()):
        pytest.skip(lacks)
    if cc not in (*KNOWN, "astraea"):
        pytest.skip(f"this kernel has no {cc}: {', '.join(KNOWN)}")
    model, of_model = two_flows("virtual", cc, tmp_path)
    # What holds the machine up holds all seven bottlenecks of a run up at once: BBR's lone queue
    # was 11 ms in the medians of one run of thirty. Figures that disagree are measured once more.
    for _ in range(TRIES):
        kernel, of_kernel = two_flows("live", cc, tmp_path)
        assert "kernel: Linux" in of_kernel and f"model: TCP, {cc}" in of_model
        unlike = [line for line in compared(kernel, model, cc) if line]
        if not unlike:
            break
    assert not unlike, "\n".join(unlike)


def compared(kernel, model, cc):
    """A line for each figure of the two that is not alike, else None."""
    for name, factor in (
        ("total_rate", RATE),
        ("queue_delay", QUEUE),
        ("queue_alone_delay", ALONE[cc]),
        FAIR[cc],
    ):
        line = f"{cc} {name}: kernel {kernel[name]}, model {model[name]}"
        print(line)
        # Shares that were never fair while both sent have no time until they were.
        never = kernel[name] is None or model[name] is None
        yield line if never or not 1 / factor <= model[name] / kernel[name] <= factor else None
    same_buffer = kernel["queue_max"] == pytest.approx(model["queue_max"], rel=0.02)
    yield None if same_buffer else f"queue_max: {kernel['queue_max']}, {model['queue_max']}"
    least = min(kernel["jain"], model["jain"])
    yield None if least >= JAIN[cc] else f"jain: {least}"


def test_rounds_of_flows_go_over_the_hosts_own_sockets(live, uses_machine):
    job = ln.Permutation("500 kB", repeat=3, shift=2, transport="tcp")
    r = live.run(
        dumbbell(),
        job,
        tcp={"cc": "reno", "mtu": 1500},
        sample="20 ms",
        queues=["p0.leaf0->p0.leaf1"],
    )
    assert r["errors"] == 0, r.data.errors
    assert len(r.data.iterations) == 3 and len(r.flow_records) == 12
    # Four hosts send 500 kB three times; retransmissions may arrive twice.
    arrived = sum(int(sum(host.payload)) for host in r.data.hosts.values())
    assert 6_000_000 <= arrived < 6_300_000
    assert all(flow.completion_ps > flow.ideal_ps for flow in r.flow_records)
    assert "reno" in r.data.fidelity.notes["tcp"] and r.data.fidelity.unexplained == 0
    states = [state for flow in r.data.samples.senders.values() for state in flow]
    assert states and all(14_280 <= state.cwnd for state in states if state.acked == 0)
    assert min(state.min_rtt_ps for state in states) >= 10 * 10**9  # twice 1 + 3 + 1 ms


def test_a_kernels_packets_are_marked_where_it_asked_for_ecn(live, uses_machine):
    job = ln.Flows("4 MB", count=2, pairs=((0, 2), (1, 3)), transport="tcp")
    fabric = dumbbell(buffer="1 MB")
    r = live.run(fabric, job, tcp={"cc": "reno", "mtu": 1500, "ecn": True})
    assert r["errors"] == 0, r.data.errors
    assert r.data.totals["link p0.leaf0->p0.leaf1"]["marked"] > 0
    assert r["before.retransmitted"] == 0


def test_what_the_kernel_cannot_be_told_is_refused_before_anything_starts(live, uses_machine):
    job = ln.Flows("1 MB", pairs=((0, 2),), transport="tcp")
    for options, message in (
        ({"cc": "dctpc"}, "tcp.cc: this kernel has no"),
        ({"rto_min_ps": 10**9}, "tcp.rto_min_ps: live, the kernel's TCP takes cc, mtu, ecn"),
        ({"mtu": 9000}, "tcp.mtu: 9000 must be 1280 to 3400"),
    ):
        with pytest.raises(ln.UsageError, match=message):
            live.run(dumbbell(), job, tcp=options)
    with pytest.raises(ln.UsageError, match="D = 1"):
        live.run(dumbbell(), job, dilation=2)
