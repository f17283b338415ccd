"""Files and graphs of other tools: read as their producers mean them, and refused in words that
hold for each input that meets them."""

import itertools
import random

import networkx as nx
import pytest

import loomnet as ln
from loomnet.base.errors import UsageError
from loomnet.jobs.flow_sizes import from_csv

# The form of HPCC's traffic generator: sizes in bytes, shares in percent, a first row of 0 and 0.
HPCC = "0 0\n10000 15\n20000 20\n30000 30\n50000 40\n80000 53\n200000 60\n30000000 100\n"


def written(tmp_path, text, name="sizes.csv"):
    (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path / name


# --- sizes of flows -------------------------------------------------------------------------------
def test_hpccs_sizes_are_drawn_as_hpcc_draws_them(tmp_path):
    sizes = from_csv(written(tmp_path, HPCC, "web.txt"))
    # Straight lines between the points, from size 0 on, and never a flow of nothing.
    assert [sizes.at(share) for share in (0.0, 0.075, 0.15, 0.175, 1.0)] == [
        1, 5_000, 10_000, 15_000, 30_000_000]
    points = [(0, 0), (10_000, 15), (20_000, 20), (30_000, 30), (50_000, 40), (80_000, 53),
              (200_000, 60), (30_000_000, 100)]
    mean = sum((b - a) / 100 * (x + y) / 2
               for (x, a), (y, b) in itertools.pairwise(points))
    assert sizes.mean == pytest.approx(mean)
    assert ln.Flows(str(tmp_path / "web.txt")).distribution.points == sizes.points


def test_spreadsheets_and_sums_of_shares_are_read(tmp_path):
    plain = from_csv(written(tmp_path, "bytes,share\n1000,0\n2000,0.5\n10000,1\n")).points
    for text in ("\ufeffbytes,share\n1000,0\n2000,0.5\n10000,1\n",  # Excel's UTF-8
                 "\ufeff1000,0\n2000,0.5\n10000,0.9999999999\n",
                 "1000,0,\n2000,0.5,\n10000,1,\n", "1000 0\n2000\t50\n10000 100.0000001\n"):
        read = from_csv(written(tmp_path, text)).points
        assert [size for size, _ in read] == [size for size, _ in plain]
        assert [share for _, share in read] == pytest.approx([share for _, share in plain])
    assert from_csv(written(tmp_path, "5,0.9999999999\n")).points[-1][1] == 1


# For each refusal, inputs that are wrong in that way and in no other.
REFUSALS = {
    "a size is 1 B to 10^15 B": ("-1,0\n5,1\n", "0,0.5\n5,1\n", "1,0\n0,1\n", "1e16,1\n"),
    "a share is 0 to 1, or to 100 in percent": ("1,-0.1\n5,1\n", "1,nan\n5,1\n", "1,101\n"),
    "of the row before; sizes and shares never fall": (
        "5,0\n4,1\n", "5,0.5\n6,0.4\n7,1\n", "5,90\n6,1\n", "0,0\n5,0.5\n4,1\n"),
    "a row is two numbers, bytes,share": ("5,1,7\n", "5\n6,1\n", "5,0\nx,1\n", "5;0\n6;1\n",
                                          "inf,1\n", "nan,1\n"),
    "the last row's share is": ("5,0.5\n", "5,0\n6,0.999\n", "5,10\n6,90\n"),
    "no row; a row is bytes,share": ("", "\n\n", "# none\n", "bytes,share\n"),
}


@pytest.mark.parametrize(("line", "text"), [
    (line, text) for line, texts in REFUSALS.items() for text in texts])
def test_a_refusal_of_sizes_says_what_is_wrong(tmp_path, line, text):
    with pytest.raises(UsageError) as error:
        from_csv(written(tmp_path, text))
    assert line in str(error.value) and "\n" not in str(error.value)


def test_sizes_drawn_at_random_are_read_as_they_were_written(tmp_path):
    draw = random.Random(7)
    for _ in range(50):
        sizes = sorted(draw.sample(range(1, 10**6), 5))
        shares = [*sorted(draw.random() for _ in range(4)), 1.0]
        percent, comma = draw.random() < 0.5, draw.random() < 0.5
        text = "".join(f"{size}{',' if comma else ' '}{share * (100 if percent else 1)!r}\n"
                       for size, share in zip(sizes, shares, strict=True))
        read = from_csv(written(tmp_path, text)).points
        assert [size for size, _ in read] == sizes
        assert [share for _, share in read] == pytest.approx(shares)


# --- networkx -------------------------------------------------------------------------------------
DEFAULTS = {"rate": "100 Gb/s", "delay": "1 us"}


def star(**edge):
    graph = nx.Graph(name="star")
    graph.add_edge("h0", "s0", **edge)
    graph.add_edge("h1", "s0", **edge)
    return graph


@pytest.mark.parametrize("name", ["bandwidth", "capacity", "bw", "speed", "LinkSpeed", "Gbps",
                                  "latency", "delay_ms", "loss", "queue_size", "throughput"])
def test_an_attribute_that_speaks_of_a_link_is_refused(name):
    with pytest.raises(UsageError, match=rf"link h0--s0: attribute '{name}' is not read; name it"):
        ln.from_networkx(star(**{name: "10 Gb/s"}), **DEFAULTS)


def test_other_attributes_are_counted_in_the_notes_of_a_run():
    graph = star(weight=3, LinkLabel="OC-3")
    nx.set_node_attributes(graph, {"s0": {"Country": "CH", "plane": 0}})
    fabric = ln.from_networkx(graph, **DEFAULTS)
    r = ln.run(fabric, ln.SendRecv("1 kB", 1), write=False)
    said = r.data.fidelity.notes["passed over in star"]
    assert said == "Country (1 node); weight (2 edges); LinkLabel (2 edges)"
    rows = {row["number"]: row["value"] for row in fabric.describe().rows}
    assert rows["attributes passed over"] == 5


def test_an_edge_carries_what_a_link_takes():
    fabric = ln.from_networkx(star(rate="10 Gb/s", delay="3 us", data_limit="1 MB", trim=False))
    link = fabric.all_links()[0]
    assert str(link.forward.rate) == "10 Gb/s" and str(link.backward.delay) == "3 us"
    assert str(link.forward.data_limit) == "1 MB" and not link.backward.trim


def test_what_a_fabric_writes_is_read_without_a_word():
    fabric = ln.clos.two_tier(planes=2, leaves=2, spines=2, hosts_per_leaf=2, **DEFAULTS)
    again = ln.from_networkx(fabric.to_networkx())
    assert again.passed == [] and again.counts == fabric.counts


@pytest.mark.parametrize("kind", [nx.DiGraph, nx.MultiDiGraph])
def test_a_directed_graph_is_refused(kind):
    with pytest.raises(UsageError, match="a directed graph; every link is full duplex"):
        ln.from_networkx(kind([("h0", "s0"), ("h1", "s0")]), **DEFAULTS)


# --- names and links ------------------------------------------------------------------------------
def build(act):
    fabric = ln.Fabric("x")
    fabric.add_host("h0"), fabric.add_host("h1"), fabric.add_switch("s0")
    return act(fabric)


# A name that is refused, and the words that must hold of it.
@pytest.mark.parametrize("name", ["3", "0host", "_a", "a..b", "a.", "a b", "a-b", "", "é"])
def test_a_node_name_is_refused_by_the_whole_rule(name):
    rule = "a letter, then letters, digits and _, with single dots between them"
    with pytest.raises(UsageError, match=rule):
        build(lambda fabric: fabric.add_switch(name))
    graph = nx.Graph([(int(name) if name.isdecimal() else name, "s0")])
    with pytest.raises(UsageError, match=rule):
        ln.from_networkx(graph, **DEFAULTS)


@pytest.mark.parametrize(("ends", "line"), [
    (("s0", "s0"), "link s0--s0: it joins s0 to itself"),
    (("h0", "h0"), "link h0--h0: it joins h0 to itself"),
    (("h0", "h1"), "link h0--h1: it joins two hosts; put a switch between them"),
])
def test_a_link_that_cannot_be_is_refused_for_what_it_is(ends, line):
    with pytest.raises(UsageError, match=line):
        build(lambda fabric: fabric.add_link(*ends, **DEFAULTS))


@pytest.mark.parametrize("name", ["x\n\x1b[31m", "", "a\tb", "a\x00b", "a" * 101, "a\u202eb"])
def test_a_fabrics_name_is_one_printable_line(name):
    with pytest.raises(UsageError, match=r"Fabric.name: .* is not one line of 1 to 100 printable"):
        ln.Fabric(name)
    fabric = ln.Fabric("complete_graph(4), Zürich")
    with pytest.raises(UsageError, match=r"Fabric\.name"):
        fabric.name = name


def test_kinds_that_no_node_has_are_named():
    graph = star()
    nx.set_node_attributes(graph, {"s0": {"kind": "router"}})
    with pytest.raises(UsageError, match="node s0: kind 'router' is not one of host, switch"):
        ln.from_networkx(graph, **DEFAULTS)


@pytest.mark.parametrize(("row", "line"), [
    ('"size": "1 kB", "prio": 3', "unknown name 'prio'"),
    ('"size": "1 kB", "Size": "2 kB"', "unknown name 'Size'; nearest: size"),
    ('"sise": "1 kB"', "size is missing"),
])
def test_a_row_of_flows_says_nothing_in_vain(tmp_path, row, line):
    path = written(tmp_path, f'{{"at": "0 s", "source": 0, "destination": 1, {row}}}\n', "f.jsonl")
    with pytest.raises(UsageError, match=rf"f.jsonl:1: {line}"):
        ln.Trace(path).rows()


# --- the page -------------------------------------------------------------------------------------
def test_the_page_of_foreign_files_runs(tmp_path, monkeypatch, capsys):
    pytest.importorskip("google.protobuf")
    import chakra_writer as chakra
    import pages

    (code,) = pages.python_blocks("docs/foreign-files.md")
    written(tmp_path, "Nodes 8\nTiers 2\nPodsize 8\nTier 0\nDownlink_speed_Gbps 100\nRadix_Down 4\n"
            "Radix_Up 4\nDownlink_Latency_ns 1000\nTier 1\nDownlink_speed_Gbps 100\nRadix_Down 4\n"
            "Bundle 2\nDownlink_Latency_ns 1000\n", "fabric.topo")
    written(tmp_path, "Nodes 8\nConnections 1\n0->7 start 0 size 10000\n", "flows.cm")
    written(tmp_path, "0 0\n1000 50\n20000 100\n", "web.txt")
    (tmp_path / "trace").mkdir()
    chakra.write(tmp_path / "trace", [[
        chakra.node(1, chakra.COMPUTE, num_ops=7 * 10**10, tensor_size=10**6),
        chakra.node(2, chakra.COLLECTIVE, after=[1], comm_type=chakra.ALL_REDUCE, comm_size=8000,
                    involved_dim=[True, False])]] * 8)
    (tmp_path / "page.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    from loomnet.cli.entry import main

    assert main(["run", "page.py"]) == 0
    out = capsys.readouterr().out
    # 7 * 10^10 operations at 700 * 10^12 per second are 100 us; then 8 kB between two ranks.
    (trace,) = (float(line.split()[1]) for line in out.splitlines() if line.startswith("Trace "))
    assert 100 < trace < 110
