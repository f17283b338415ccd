"""The lengths of frames, numbers of ports and addresses on docs/switch-programs.md are what a
switch program sees."""

import re
import shutil

import pages
import pytest

import loomnet as ln
from loomnet.programs import compiler

TEXT = pages.PAGES["docs/switch-programs.md"]
pytestmark = pytest.mark.skipif(
    not any(map(shutil.which, compiler.ENGINE.compilers)), reason="no C compiler"
)
PROGRAM = """
#define LN_CONTRACT 1
#define LN_ROWS 4096
#define LN_ROW(FIELD, BYTES) \\
  FIELD(ln_u64, packets) BYTES(source, 16) FIELD(ln_u64, port) FIELD(ln_u64, from)
#include <loomnet/switch_program.h>
struct ln_verdict ln_on_packet(const struct ln_options* options, struct ln_host* host,
                               struct ln_packet* packet, const struct ln_meta* meta) {
  struct ln_row* row = ln_row(host->state, packet->length % LN_ROWS);
  ln_u8* ip = ln_ipv6(packet);
  int i;
  if (!row || !ip) return ln_route(host, packet);
  if (ip[6] == 41 && packet->end >= ip + 80) ip += 40;
  row->packets += 1;
  row->from = meta->ingress;
  for (i = 0; i < 16; i++) row->source[i] = ip[8 + i];
  if (ip[6] == 17 && packet->end >= ip + 44) row->port = ln_load_be16(ip + 42);
  return ln_route(host, packet);
}
"""
SIZES = {"roce": 2048, "mrc": 2048, "tcp": 3328}
IN_FRONT = {"roce": 0, "mrc": 0, "tcp": 32}  # of a message
LOSSY = ln.loss("*--*", 0.02, at="0 s")


def layouts():
    """(transport, packet, lengths without n, whether it has n) of each row of the table."""
    table = re.search(r"<!-- frames -->\n(.*?)<!-- end -->", TEXT, re.S)[1]
    rows = [
        [cell.strip() for cell in line.strip("|\n").split("|")] for line in table.splitlines()[2:]
    ]
    return [
        (
            over.lower(),
            packet,
            [int(each) for each in re.findall(r"\d+", length)],
            length.endswith("+ n"),
            made,
        )
        for over, packet, made, length in rows
    ]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("frames") / "lengths.c"
    path.write_text(PROGRAM)
    return str(path)


def seen(program, job, faults=(), **options):
    """Lengths of the frames that switches have seen, each with a row of the program's."""
    fabric = ln.clos.two_tier(
        planes=1, leaves=2, spines=1, hosts_per_leaf=2, rate="100 Gb/s", delay="1 us"
    )
    fabric.override("*--*", data_limit="60 kB", ecn=ln.Ecn("5 kB", "20 kB"))
    fabric.program("*", program)
    r = ln.run(fabric, job, faults, write=False, **options)
    assert r["errors"] == 0
    return {
        row["row"]: row for switch in fabric.switches for row in r.switch(switch).snapshot()["rows"]
    }


@pytest.mark.parametrize("transport", SIZES)
def test_each_packet_of_the_table_is_seen_and_no_other(program, transport):
    lengths = {}
    for size in (1, 2048, 10_002):
        lengths |= seen(program, ln.Flows(f"{size} B", pairs=[(0, 1)], transport=transport))
    many = ln.Flows("200 kB", count=6, pairs=[(0, 1), (2, 1)], transport=transport)
    quick = {"roce": {"timeout_exponent": 6}}.get(transport, {})
    options = [{"preset": "D"}, {"cc": "dcqcn"}] if transport == "roce" else [{}]
    for each in options:
        lengths |= seen(program, many, **{transport: each})
    lengths |= seen(program, many, [LOSSY], **{transport: quick})
    payloads, most = set(), SIZES[transport]
    for size in (1, 2048, 10_002, 200_000):
        whole = size + IN_FRONT[transport]
        payloads |= {min(most, whole), whole % most or most}
    if transport == "roce":
        payloads = {n + -n % 4 for n in payloads}
    may, must = set(), []
    for over, packet, bytes_, has_n, _ in layouts():
        if over == transport:
            found = {each + n for each in bytes_ for n in (payloads if has_n else {0})}
            may |= found
            must.append((packet, found))
    assert set(lengths) <= may, sorted(set(lengths) - may)
    for packet, found in must:
        assert found & set(lengths), packet
    ports = {row["port"] for row in lengths.values()}
    named = set(
        re.findall(r"to port (\d+)", " ".join(row[-1] for row in layouts() if row[0] == transport))
    )
    assert ports == {int(each) for each in named} if named else ports == {0}


def test_the_parts_of_a_frame_add_up():
    for over, packet, lengths, _, made in layouts():
        if not made.startswith("the "):
            parts = re.sub(r"to port \d+", "", made)
            assert sum(map(int, re.findall(r" (\d+)", parts))) == lengths[0], (over, packet)


@pytest.mark.parametrize("transport", ["roce", "mrc"])
def test_immediates_and_step_headers_are_longer_as_the_page_says(program, transport):
    base = {"roce": 94, "mrc": 142}[transport]
    job = ln.AllReduce("1 kB", transport=transport, ranks=2)
    plain = seen(program, job)
    assert base + 4 in plain  # a message without bytes, by which a receiver lets a sender go on
    marked = seen(program, job, **{transport: {"identity": "hdr"}})
    longest = max(marked)
    assert longest == max(plain) + 16 and marked[longest]["port"] == 18771


@pytest.mark.parametrize("transport", SIZES)
def test_a_host_has_the_address_of_its_number(program, transport):
    rows = seen(program, ln.Flows("10 kB", pairs=[(3, 0)], transport=transport))
    longest = rows[max(rows)]["source"]
    assert longest == bytes([0xFD]) + bytes(14) + bytes([3])


def test_the_ports_on_the_page_are_those_of_the_engine(program):
    fabric = ln.clos.two_tier(
        planes=1, leaves=2, spines=2, hosts_per_leaf=2, rate="100 Gb/s", delay="1 us"
    )
    shown = re.search(r"```text\n(port .*?)```", TEXT, re.S)[1]
    ports = fabric.ports("p0.leaf0")
    assert str(ports).split() == shown.split()
    fabric.program("p0.leaf0", program)
    r = ln.run(fabric, ln.Flows("1 B", pairs=[(2, 0)], transport="roce"), write=False)
    rows = {row["row"]: row for row in r.switch("p0.leaf0").snapshot()["rows"]}
    by_name = {row["to"]: row["port"] for row in ports}
    assert rows[98]["from"] == by_name["h2"] == 1 and rows[82]["from"] == by_name["h0"] == 0
    with pytest.raises(ln.UsageError, match=r"no node \"p0\.leaf7\"; nearest: p0\.leaf"):
        fabric.ports("p0.leaf7")
