"""What a live run records: the same hooks as on the virtual clock, real frames in the captures, and
captures begun from another process while it runs."""

import shutil
import subprocess
import sys
import textwrap
import time

import pytest

from loomnet.live import doctor

_REASON = doctor.why_not_live()
pytestmark = [
    pytest.mark.skipif(_REASON is not None, reason=str(_REASON)),
    pytest.mark.skipif(shutil.which("tshark") is None, reason="no tshark: apt-get install tshark"),
]

SCENARIO = textwrap.dedent('''
    import loomnet as ln

    @ln.scenario
    def steady(lab: ln.Lab):
        """An all-reduce over and over."""
        fabric = ln.clos.two_tier(planes=2, leaves=2, spines=2, hosts_per_leaf=1, rate="20 Mb/s",
                                  delay="0.5 ms")
        r = lab.run(fabric, ln.AllReduce(size="200 kB", repeat=150, transport="mrc"), payload=True)
        lab.check("no-error", r["errors"], eq=0)
''')


def decoded(path):
    """(seconds, direction, captured bytes, all bytes, protocols) of every packet, by tshark."""
    fields = ["frame.time_relative", "frame.packet_flags_direction", "frame.cap_len", "frame.len"]
    command = ["tshark", "-r", str(path), "-T", "fields", "-e", "frame.protocols"]
    for name in fields:
        command += ["-e", name]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert found.returncode == 0, found.stderr
    rows = [line.split("\t") for line in found.stdout.splitlines()]
    return [(float(at), way, int(some), int(all_), what) for what, at, way, some, all_ in rows]


def test_a_live_run_is_recorded_and_captured_from_outside(tmp_path):
    (tmp_path / "steady.py").write_text(SCENARIO)
    command = [sys.executable, "-m", "loomnet"]
    run = subprocess.Popen(
        [
            *command,
            "run",
            "steady.py",
            "--clock",
            "live",
            "--trace",
            "t.pftrace",
            "--pcap",
            "h0:0=port.pcapng",
            "--pcap",
            "p0.spine0:p0.leaf1=spine.pcapng",
        ],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        while run.poll() is None:  # until it is up: then to its end
            asked = subprocess.run(
                [*command, "capture", "h1:p1.leaf1"], cwd=tmp_path, timeout=120, capture_output=True
            )
            if asked.returncode == 0:
                break
            time.sleep(0.2)
        (tmp_path / "asked.pcapng").write_bytes(asked.stdout)
        output, _ = run.communicate(timeout=120)
    finally:
        run.kill()
        run.wait()
    assert "no-error: 0" in output, output
    for name in ("port", "spine", "asked"):
        rows = decoded(tmp_path / f"{name}.pcapng")
        assert len(rows) > 200
        assert [row[0] for row in rows] == sorted(row[0] for row in rows)
        assert {row[1] for row in rows} == {"0x00000001", "0x00000002"}
        assert all(row[4].startswith("eth:ethertype:ipv6:ipv6:udp") for row in rows)
        assert all(captured == whole for _, _, captured, whole, _ in rows)  # real bytes
    trace = (tmp_path / "t.pftrace").read_bytes()
    for name in (b"all_reduce 149", b"message to h1", b"p0.leaf0->p0.spine0", b"queue "):
        assert name in trace
