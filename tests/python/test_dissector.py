"""Wireshark's view of captures through the dissector that the package ships: nothing malformed, and
the fields that the engine has written."""

import collections
import shutil
import subprocess
import sys

import pytest
from recorded import fabric, recorded

import loomnet as ln
from loomnet.cli import main

pytest.importorskip("loomnet._core")


def _reads_lua():
    if shutil.which("tshark") is None:
        return False
    return "with Lua" in " ".join(
        subprocess.run(
            ["tshark", "--version"], capture_output=True, text=True, timeout=60
        ).stdout.split()
    )


pytestmark = pytest.mark.skipif(
    not _reads_lua(), reason="no tshark that reads Lua: apt-get install tshark"
)

SMALL = {"size": "64 KiB", "repeat": 1}


@pytest.fixture(scope="module")
def script():
    found = subprocess.run(
        [sys.executable, "-m", "loomnet", "capture", "--dissector"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return found.stdout.strip()


def tshark(script, path, *options):
    found = subprocess.run(
        ["tshark", "-X", f"lua_script:{script}", "-r", str(path), *options],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert found.returncode == 0, found.stderr
    assert "Lua" not in found.stdout + found.stderr.replace("Running as", ""), found.stderr
    return found.stdout


def fields(script, path, *names, only="frame"):
    options = [word for name in names for word in ("-e", name)]
    rows = tshark(script, path, "-Y", only, "-T", "fields", *options).splitlines()
    return [row.split("\t") for row in rows]


def clean(script, path):
    """What tshark prints of all packets in full, once it is seen to complain of nothing."""
    text = tshark(script, path, "-V")
    for complaint in (
        "malformed",
        "illegal",
        "invalid packet length",
        "expert info (error",
        "expert info (warning",
    ):
        assert complaint not in text.lower(), complaint
    return text


def test_mrc(tmp_path, script):
    recorded(tmp_path, ln.AllReduce(transport="mrc", **SMALL), pcap=["h0:0", "h0:1"])
    path = tmp_path / "0.pcapng"
    text = clean(script, path)
    assert "Multipath Reliable Connection" in text and "Data (" not in text
    rows = fields(
        script,
        path,
        "mrc.opcode",
        "mrc.psn",
        "mrc.qp",
        "mrc.ev",
        "mrc.ev.plane",
        "udp.srcport",
        "mrc.payload_length",
        only="mrc.dma_length && ipv6.src == fd00::",
    )
    assert len(rows) > 10
    sent = sorted(int(row[1]) for row in rows)
    # Every other packet goes by the other plane, whose port is another capture.
    assert len(set(sent)) == len(sent) and sent[-1] > len(sent)
    for opcode, _, pair, ev, plane, port, payload in rows:
        assert 0xC6 <= int(opcode, 0) <= 0xCB and int(pair) > 2
        assert int(ev, 0) == int(port) and int(plane) == 0
        assert 0 < int(payload) <= 2048
    # Acknowledgements of all packets come back, by either plane, and each echoes an entropy value
    # of the sender.
    sacks = [
        row
        for number in (0, 1)
        for row in fields(
            script,
            tmp_path / f"{number}.pcapng",
            "mrc.cack",
            "mrc.echo",
            only="mrc.opcode == 0xdc && ipv6.dst == fd00::",
        )
    ]
    assert sacks and max(int(row[0]) for row in sacks) >= sent[-1]
    assert any(int(row[1], 0) & 7 == 0 for row in sacks)


def test_mrc_nacks_of_trimmed_packets(tmp_path, script):
    fab = fabric(planes=1, leaves=2, spines=1, hosts_per_leaf=3)
    recorded(tmp_path, ln.Incast("1 MB", repeat=1, transport="mrc"), fab=fab, pcap=["p0.leaf0:h0"])
    path = tmp_path / "0.pcapng"
    reasons = fields(script, path, "mrc.reason", "mrc.nack_psn", only="mrc.reason")
    assert {int(row[0], 0) for row in reasons} <= {1, 2} and reasons
    text = tshark(script, path, "-V")
    assert "Malformed" not in text and "ILLEGAL" not in text.upper()


@pytest.mark.parametrize("payload", [False, True])
def test_roce_with_and_without_payload(tmp_path, script, payload):
    recorded(tmp_path, ln.AllReduce(transport="roce", **SMALL), pcap=["h0:0"], payload=payload)
    path = tmp_path / "0.pcapng"
    clean(script, path)
    rows = fields(
        script,
        path,
        "infiniband.bth.opcode",
        "infiniband.bth.psn",
        "infiniband.bth.destqp",
        "frame.len",
        "frame.cap_len",
        only="ipv6.src == fd00::",
    )
    assert all(row[0] for row in rows)
    assert any(row[3] != row[4] for row in rows) is not payload
    psns = [int(row[1]) for row in rows if row[0] in {"6", "7", "8", "9", "10", "11"}]
    assert psns == list(range(psns[0], psns[0] + len(psns)))
    lines = tshark(script, path).splitlines()
    assert any("RC RDMA Write First" in line for line in lines)


def test_tcp(tmp_path, script):
    job = ln.Flows(sizes=["64 kB"], count=3, gap="1 ms", transport="tcp")
    recorded(tmp_path, job, pcap=["h0:0"])
    clean(script, tmp_path / "0.pcapng")


@pytest.mark.parametrize("transport", ["roce", "mrc"])
def test_step_headers(tmp_path, script, transport):
    result = recorded(
        tmp_path,
        ln.AllReduce(transport=transport, **SMALL),
        pcap=["h0:0"],
        fab=fabric(planes=1),
        **{transport: {"identity": "hdr"}},
    )
    path = tmp_path / "0.pcapng"
    clean(script, path)
    psn = "infiniband.bth.psn" if transport == "roce" else "mrc.psn"
    rows = fields(
        script,
        path,
        "loomnet_step.step",
        "loomnet_step.share",
        "loomnet_step.rank",
        "loomnet_step.ranks",
        psn,
        only="loomnet_step.other == 0 && ipv6.src == fd00::",
    )
    assert result["errors"] == 0
    assert {int(row[0]) for row in rows} == {0, 1}  # an all-reduce of two ranks
    assert {row[2] for row in rows} == {"0"} and {row[3] for row in rows} == {"2"}
    shares = collections.defaultdict(list)
    for step, share, *_ in sorted(rows, key=lambda row: int(row[4])):
        shares[step].append(float(share))
    for each in shares.values():
        assert each == sorted(each) and each[0] < 0.1 < 0.8 < each[-1] < 1


def test_aggregation(tmp_path, script):
    fab = ln.star(hosts=5, rate="100 Gb/s", delay="1 us").program(
        "*", "aggregate", policy="esa", pool="64 KiB"
    )
    job = ln.ModelJob("vgg16", workers=4, scale=4096, iterations=1, allreduce="ina")
    lab = ln.Lab("ina", directory=tmp_path / "lab")
    lab.run(fab, job, pcap={"h0:0": tmp_path / "h0.pcapng"})
    clean(script, tmp_path / "h0.pcapng")
    rows = fields(
        script,
        tmp_path / "h0.pcapng",
        "loomnet_ina.type",
        "loomnet_ina.scheme",
        "loomnet_ina.sequence",
        "loomnet_ina.workers",
        only="loomnet_ina",
    )
    kinds = collections.Counter(int(row[0]) for row in rows)
    assert kinds[0] > 0 and kinds[6] > 0  # DATA there, RESULT back
    assert {row[1] for row in rows} == {"2"}  # ESA
    data = [row for row in rows if row[0] == "0"]
    assert len({int(row[3], 0) for row in data}) == 1  # this worker's bit
    assert {int(row[2]) for row in data} == set(range(len({row[2] for row in data})))


def test_addresses_are_those_of_the_links_ports(tmp_path, script):
    job = ln.AllReduce(transport="roce", **SMALL)
    recorded(tmp_path, job, pcap=["h0:0", "p0.leaf0:h0"])
    there, here = (
        {tuple(row) for row in fields(script, tmp_path / f"{n}.pcapng", "eth.src", "eth.dst")}
        for n in range(2)
    )
    assert here == there and len(here) == 2
    (one, other), back = sorted(here)
    assert back == (other, one) and one != other
    assert one.startswith("02:") and other.startswith("02:")  # locally administered, unicast


@pytest.mark.parametrize("transport", ["mrc", "roce"])
def test_a_fault_lies_at_its_time_in_the_capture(tmp_path, script, transport):
    job = ln.AllReduce(size="256 KiB", repeat=40, transport=transport)
    fault = ln.down("h0--p0.leaf0", at="200 us", duration="300 us", phase="cut")
    fab = fabric(planes=1 if transport == "roce" else 2)
    recorded(tmp_path, job, [fault], pcap=["h0:0"], fab=fab)
    rows = fields(script, tmp_path / "0.pcapng", "frame.time_epoch", "frame.comment")
    drops = [float(at) for at, comment in rows if "link_down" in comment]
    assert drops and min(drops) == pytest.approx(200e-6, abs=2e-6)
    sent = [float(at) for at, comment in rows if not comment]
    assert not [at for at in sent if 210e-6 < at < 495e-6]
    # The first data packet leaves when the job starts: no wait of the engine lies before it.
    data = fields(
        script,
        tmp_path / "0.pcapng",
        "frame.time_epoch",
        only="ipv6.src == fd00:: && (infiniband || mrc.dma_length)",
    )
    assert 0 <= float(data[0][0]) < 2e-6


def test_a_port_and_the_dissector_are_not_asked_for_together(capsys):
    assert main(["capture", "h0:0", "--dissector"]) == 2
    assert "leave out h0:0" in capsys.readouterr().err
    assert main(["capture"]) == 2
    assert "NODE:PORT" in capsys.readouterr().err
