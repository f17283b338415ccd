"""What a run captures as pcapng, read with tshark."""

import collections
import json
import shutil
import subprocess

import pytest
from recorded import fabric, recorded

import loomnet as ln
from loomnet.plans.make import make_plan

pytest.importorskip("loomnet._core")
needs_tshark = pytest.mark.skipif(
    shutil.which("tshark") is None, reason="no tshark: apt-get install tshark"
)


def tshark(path, *fields, only=None):
    """Rows of these fields of every packet, as tshark decodes them."""
    command = [
        "tshark",
        "-r",
        str(path),
        "-T",
        "fields",
        "-E",
        "occurrence=a",
        "-E",
        "separator=\t",
    ]
    for name in fields:
        command += ["-e", name]
    found = subprocess.run(
        command + (["-Y", only] if only else []), capture_output=True, text=True, timeout=120
    )
    assert found.returncode == 0, found.stderr
    return [line.split("\t") for line in found.stdout.splitlines()]


@needs_tshark
def test_mrc_packets_are_ipv6_in_ipv6_with_usids_and_no_routing_header(tmp_path):
    job = ln.AllReduce(size="64 KiB", repeat=1, transport="mrc")
    result = recorded(tmp_path, job, pcap=["h0:0", "p0.leaf0:h0"])
    rows = tshark(
        tmp_path / "0.pcapng",
        "frame.protocols",
        "ipv6.src",
        "ipv6.dst",
        "ipv6.nxt",
        "udp.dstport",
        "frame.len",
        "frame.cap_len",
        "frame.packet_flags_direction",
        "frame.time_relative",
    )
    totals = result.data.totals
    leaving = totals["link h0->p0.leaf0"]["packets"]
    coming = totals["link p0.leaf0->h0"]["packets"]
    ways = collections.Counter(row[7] for row in rows)
    assert ways["0x00000001"] == coming
    assert leaving <= ways["0x00000002"] <= leaving + 2  # the last ones are still under way
    assert len(rows) == ways.total()
    last = -1.0
    for protocols, sources, destinations, following, port, length, captured, way, at in rows:
        assert protocols.startswith("eth:ethertype:ipv6:ipv6:udp")
        assert following == "41,17"  # a tunnel, then UDP: nothing between
        outer, inner = destinations.split(",")
        # Plane 0's block fc00:0000::/32, then uSIDs: leaf 0, a spine, leaf 1, the port of h1; of a
        # packet that has come all the way only h0's port is left.
        if way == "0x00000002":
            assert outer in {f"fc00:0:2000:{spine}:2001:4000::" for spine in (1000, 1001)}
        else:
            assert outer == "fc00:0:4000::"
        assert inner == ("fd00::1" if way == "0x00000002" else "fd00::")
        assert sources.split(",")[1] == ("fd00::" if way == "0x00000002" else "fd00::1")
        assert port == "4971"
        assert int(captured) <= int(length)
        assert float(at) >= last
        last = float(at)
    # Lengths only: snapped behind the headers, the original length kept.
    assert max(int(row[5]) for row in rows) == make_plan(fabric()).frame_bytes
    assert max(int(row[6]) for row in rows) < 192

    # The other end of the same link saw the same packets, later and the other way.
    there = tshark(tmp_path / "1.pcapng", "frame.packet_id", "frame.packet_flags_direction")
    here = tshark(tmp_path / "0.pcapng", "frame.packet_id", "frame.packet_flags_direction")
    flip = {"0x00000001": "0x00000002", "0x00000002": "0x00000001"}
    seen_there, seen_here = {(uid, flip[way]) for uid, way in there}, {(u, w) for u, w in here}
    assert seen_there <= seen_here and len(seen_here - seen_there) <= 2
    assert len(seen_here) == len(rows)


@needs_tshark
def test_roce_packets_carry_their_payload_where_there_is_one(tmp_path):
    job = ln.AllReduce(size="64 KiB", repeat=1, transport="roce")
    recorded(tmp_path, job, pcap=["h0:0"], payload=True)
    rows = tshark(
        tmp_path / "0.pcapng",
        "frame.protocols",
        "infiniband.bth.opcode",
        "frame.len",
        "frame.cap_len",
        "udp.dstport",
        "udp.length",
    )
    assert rows
    opcodes = collections.Counter()
    for protocols, opcode, length, captured, port, udp in rows:
        assert ":ipv6:udp:infiniband" in protocols
        assert (port, captured) == ("4791", length)
        assert int(udp) == int(length) - 54
        opcodes[int(opcode)] += 1
    assert {0x06, 0x07, 0x09, 0x11} <= set(
        opcodes
    )  # first, middle, last with immediate, acknowledge
    data = subprocess.run(
        [
            "tshark",
            "-r",
            str(tmp_path / "0.pcapng"),
            "-Y",
            "infiniband.bth.opcode == 7",
            "-T",
            "json",
            "-x",
            "-c",
            "60",
        ],
        capture_output=True,
        text=True,
        timeout=120,
    ).stdout
    frames = [packet["_source"]["layers"]["frame_raw"][0] for packet in json.loads(data)]
    assert any(frame[300:700].strip("0") for frame in frames), "all payload is zeros"


@needs_tshark
def test_dropped_packets_say_why(tmp_path):
    job = ln.Incast(size="1 MB", repeat=1, transport="roce")
    fab = fabric(planes=1, leaves=2, spines=1, hosts_per_leaf=3, pfc=False)
    faults = [ln.loss("p0.spine0->p0.leaf0", 0.05, at="1 us", duration="10 ms", phase="loss")]
    result = recorded(
        tmp_path,
        job,
        faults,
        fab=fab,
        pcap=["p0.leaf0:h0", "p0.leaf0:p0.spine0", "p0.spine0:p0.leaf0"],
    )
    totals = result.data.totals
    for number, (half, reason, text) in enumerate(
        [
            ("p0.leaf0->h0", "queue_full", "dropped before sending: queue_full"),
            ("p0.spine0->p0.leaf0", "loss", "never received, lost on the link: loss"),
            ("p0.spine0->p0.leaf0", "loss", "lost on the link: loss"),
        ]
    ):
        rows = tshark(tmp_path / f"{number}.pcapng", "frame.comment", only="frame.comment")
        found = collections.Counter(row[0] for row in rows)
        assert found[text] == totals[f"link {half}"][f"drop_{reason}"] > 0


@needs_tshark
def test_times_are_right_for_as_long_as_a_run_lasts(tmp_path):
    job = ln.Flows(sizes=["4 kB"], count=3, gap="2 s", transport="roce")
    recorded(tmp_path, job, pcap=["h0:0", "h1:0"])
    times = []
    for number in range(2):
        rows = [float(row[0]) for row in tshark(tmp_path / f"{number}.pcapng", "frame.time_epoch")]
        assert rows == sorted(rows)
        times.append(rows)
    assert max(times[0]) > 1.0
    # The last acknowledgement of one port is the other's, a path of four hops later.
    last = max(max(rows) for rows in times) - min(max(rows) for rows in times)
    assert 4e-6 < last < 5e-6


@needs_tshark
def test_a_large_capture_is_written_in_pieces_and_in_order(tmp_path):
    job = ln.AllReduce(size="16 MiB", repeat=1, transport="mrc")
    recorded(tmp_path, job, pcap=["h0:0"], payload=True)
    assert (
        tmp_path / "0.pcapng"
    ).stat().st_size > 12 << 20  # more than fits before it must be written
    found = subprocess.run(
        ["capinfos", "-o", "-c", "-M", str(tmp_path / "0.pcapng")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "Strict time order:   True" in found.stdout, found.stdout


@needs_tshark
def test_pfc_frames_are_what_the_standard_says_and_as_many_as_were_counted(tmp_path):
    fabric = ln.star(hosts=4, rate="400 Gb/s", delay="1 us")
    job = ln.Incast("1 MB", transport="roce")
    made = ln.Lab("pfc", directory=tmp_path / "lab")
    result = made.run(fabric, job, pcap={"h1:0": tmp_path / "h1.pcapng"})
    rows = tshark(
        tmp_path / "h1.pcapng",
        "eth.dst",
        "frame.len",
        "macc.opcode",
        "macc.cbfc.enbv",
        "macc.cbfc.pause_time.c1",
        only="eth.type == 0x8808",
    )
    times = [int(row[4]) for row in rows]
    assert {tuple(row[:4]) for row in rows} == {("01:80:c2:00:00:01", "60", "0x0101", "0x0002")}
    # Pause and end in turn (no pause here lasts long enough to be renewed).
    assert times[::2] == [65535] * len(times[::2]) and times[1::2] == [0] * len(times[1::2])
    assert len(times[::2]) == result.data.totals["link h1->p0.leaf0"]["pfc_pauses"] > 0
