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
        1,
        5_000,
        10_000,
        15_000,
        30_000_000,
    ]
    points = [
        (0, 0),
        (10_000, 15),
        (20_000, 20),
        (30_000, 30),
        (50_000, 40),
        (80_000, 53),
        (200_000, 60),
        (30_000_000, 100),
    ]
    mean = sum((b - a) / 100 * (x + y) / 2 for (x, a), (y, b) in itertools.pairwise(points))
    assert sizes.mean == pytest.approx(mean)
    assert ln.Flows(str(tmp_path / "web.txt")).distribution.points == sizes.points


def test_spreadsheets_and_sums_of_shares_are_read(tmp_path):
    plain = from_csv(written(tmp_path, "bytes,share\n1000,0\n2000,0.5\n10000,1\n")).points
    for text in (
        "\ufeffbytes,share\n1000,0\n2000,0.5\n10000,1\n",  # Excel's UTF-8
        "\ufeff1000,0\n2000,0.5\n10000,0.9999999999\n",
        "1000,0,\n2000,0.5,\n10000,1,\n",
        "1000 0\n2000\t50\n10000 100.0000001\n",
        "1000, 0%\n 2000 , 50%\n10000,100%\n",
        "\ufeff1000 0  \n  2000 0.5\n\n10000 1",
    ):
        read = from_csv(written(tmp_path, text)).points
        assert [size for size, _ in read] == [size for size, _ in plain]
        assert [share for _, share in read] == pytest.approx([share for _, share in plain])
    assert from_csv(written(tmp_path, "5,0.9999999999\n")).points[-1][1] == 1


# The form of Homa's simulator: the mean alone in the first row, then bytes and shares.
HOMA = "352.0\n10 0.2\n100 0.7\n1000 1\n"


def test_homas_sizes_are_drawn_as_homa_draws_them(tmp_path):
    """The sizes of the rows and none between them: the first whose share is no less."""
    sizes = from_csv(written(tmp_path, HOMA, "homa.txt"))
    draw = random.Random(3)
    for _ in range(500):
        share = draw.random()
        expected = 10 if share <= 0.2 else 100 if share <= 0.7 else 1000
        assert sizes.at(share) == expected
    assert sizes.mean == pytest.approx(0.2 * 10 + 0.5 * 100 + 0.3 * 1000)
    # The same rows without the mean are a line.
    line = from_csv(written(tmp_path, HOMA.partition("\n")[2], "line.txt"))
    assert line.at(0.45) == 55 and line.mean != pytest.approx(sizes.mean)
    assert ln.Flows(tmp_path / "homa.txt").distribution.points == sizes.points
    # What is stated must be what is there; and sizes in packets would be 1,460 times too small.
    with pytest.raises(
        UsageError,
        match=r"its first row is one number, 400, and so the mean .* "
        "but that is 352; a row is two numbers, bytes,share",
    ):
        from_csv(written(tmp_path, HOMA.replace("352.0", "400")))
    with pytest.raises(UsageError, match=r'its sizes are packets, .* give "websearch"'):
        from_csv(written(tmp_path, HOMA, "DCTCP_MsgSizeDist.txt"))


def test_a_file_of_sizes_has_any_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plain = from_csv(written(tmp_path, HPCC, "web.txt")).points
    for given in (written(tmp_path, HPCC, "WebSearch_distribution"), "WebSearch_distribution"):
        assert ln.Flows(given).distribution.points == plain
    with pytest.raises(
        UsageError,
        match='"websaerch" is no size, no file, and no known distribution; nearest: websearch',
    ):
        ln.Flows("websaerch")


# For each refusal, inputs that are wrong in that way and in no other.
REFUSALS = {
    "a size is 1 B to 10^15 B": ("-1,0\n5,1\n", "0,0.5\n5,1\n", "1,0\n0,1\n", "1e16,1\n"),
    "a share is 0 to 1, or to 100 in percent": ("1,-0.1\n5,1\n", "1,nan\n5,1\n", "1,101\n"),
    "of the row before; sizes and shares never fall": (
        "5,0\n4,1\n",
        "5,0.5\n6,0.4\n7,1\n",
        "5,90\n6,1\n",
        "0,0\n5,0.5\n4,1\n",
    ),
    "a row is two numbers, bytes,share": (
        "5,1,7\n",
        "5\n6,1\n",
        "5,0\nx,1\n",
        "5;0\n6;1\n",
        "inf,1\n",
        "nan,1\n",
        "5,1%%\n",
        "7\n8\n5 1\n",
        "5 0.5\n7\n9 1\n",
        "-3\n5 1\n",
    ),
    "the last row's share is": (
        "5,0.5\n",
        "5,0\n6,0.999\n",
        "5,10\n6,90\n",
        "5,1%\n",
        "185.0\n1 0.00583\n15 0.47\n",
    ),
    "no row; a row is bytes,share": ("", "\n\n", "# none\n", "bytes,share\n"),
}


@pytest.mark.parametrize(
    ("line", "text"), [(line, text) for line, texts in REFUSALS.items() for text in texts]
)
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
        text = "".join(
            f"{size}{',' if comma else ' '}{share * (100 if percent else 1)!r}\n"
            for size, share in zip(sizes, shares, strict=True)
        )
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


@pytest.mark.parametrize(
    "name",
    [
        "bandwidth",
        "capacity",
        "bw",
        "speed",
        "LinkSpeed",
        "Gbps",
        "latency",
        "delay_ms",
        "loss",
        "queue_size",
        "throughput",
    ],
)
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
def test_a_directed_graph_is_refused_without_every_way_back(kind):
    with pytest.raises(
        UsageError,
        match=r"a directed graph; every link is full duplex: add an "
        "edge s0->h0 to h0->s0, one of each",
    ):
        ln.from_networkx(kind([("h0", "s0"), ("h1", "s0")]), **DEFAULTS)
    both = kind([("h0", "s0"), ("s0", "h0"), ("h1", "s0"), ("s0", "h1")])
    assert ln.from_networkx(both, **DEFAULTS).counts == (2, 1, 2)


@pytest.mark.parametrize("kind", [nx.DiGraph, nx.MultiDiGraph])
def test_a_way_back_may_be_another(kind):
    graph = kind()
    for host in ("h0", "h1"):
        graph.add_edge(host, 0, rate="1 Gb/s")
        graph.add_edge(0, host, rate="10 Gb/s", delay="3 us")
    fabric = ln.from_networkx(graph, delay="1 us")
    assert len(fabric.links) == 2
    there = ln.run(fabric, ln.Flows(["125 kB"], pairs=[(0, 1)])).flows[0]["fct_s"]
    assert 1.0e-3 < there < 1.2e-3, "the slow way up sets the pace"
    with pytest.raises(UsageError, match="exists already"):
        ln.from_networkx(nx.MultiDiGraph([(0, "h0"), ("h0", 0), (0, "h0"), ("h0", 0)]), **DEFAULTS)


def test_whole_numbers_of_generators_get_a_letter():
    graph = nx.cycle_graph(4)
    graph.add_node(7, kind="host")
    graph.add_edge(7, 0)
    graph.add_edge("h1", 2)
    fabric = ln.from_networkx(graph, **DEFAULTS)
    names = {end for row in fabric.links for end in (row["a"], row["b"])}
    assert names == {"n0", "n1", "n2", "n3", "h7", "h1"}
    with pytest.raises(UsageError, match="node n0 exists already"):
        ln.from_networkx(nx.Graph([("n0", 0)]), **DEFAULTS)


def test_a_directed_graph_both_ways_has_links_that_may_differ():
    graph = nx.DiGraph([("h0", "s0", {"rate": "10 Gb/s"}), ("s0", "h0", {"rate": "5 Gb/s"})])
    (link,) = ln.from_networkx(graph, delay="1 us").links
    assert str(link["rate"]) == "10 Gb/s / 5 Gb/s" and str(link["delay"]) == "1 us"


def test_whole_numbers_get_a_letter_in_graphs_and_graphml(tmp_path):
    graph = nx.Graph([(0, 1), (1, 2)])
    graph.nodes[0]["kind"] = graph.nodes[2]["kind"] = "host"
    nx.write_graphml(graph, tmp_path / "g.graphml")
    for given in (graph, nx.read_graphml(tmp_path / "g.graphml")):
        made = ln.from_networkx(given, **DEFAULTS)
        assert list(made.hosts) == ["h0", "h2"] and list(made.switches) == ["n1"]


# --- names and links ------------------------------------------------------------------------------
def build(act):
    fabric = ln.Fabric("x")
    fabric.add_host("h0"), fabric.add_host("h1"), fabric.add_switch("s0")
    return act(fabric)


# A name that is refused, and the words that must hold of it.
@pytest.mark.parametrize("name", ["3x", "0host", "_a", "a..b", "a.", "a b", "a-b", "", "é"])
def test_a_node_name_is_refused_by_the_whole_rule(name):
    rule = "a letter, then letters, digits and _, with single dots between them"
    with pytest.raises(UsageError, match=rule):
        build(lambda fabric: fabric.add_switch(name))
    with pytest.raises(UsageError, match=rule):
        ln.from_networkx(nx.Graph([(name, "s0")]), **DEFAULTS)
    with pytest.raises(UsageError, match=rule):
        build(lambda fabric: fabric.add_switch("3"))


@pytest.mark.parametrize(
    ("ends", "line"),
    [
        (("s0", "s0"), "link s0--s0: it joins s0 to itself"),
        (("h0", "h0"), "link h0--h0: it joins h0 to itself"),
        (("h0", "h1"), "link h0--h1: it joins two hosts; put a switch between them"),
    ],
)
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


@pytest.mark.parametrize(
    ("row", "line"),
    [
        ('"size": "1 kB", "prio": 3', "unknown name 'prio'"),
        ('"size": "1 kB", "Size": "2 kB"', "unknown name 'Size'; nearest: size"),
        ('"sise": "1 kB"', "size is missing"),
    ],
)
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
    written(
        tmp_path,
        "Nodes 8\nTiers 2\nPodsize 8\nTier 0\nDownlink_speed_Gbps 100\nRadix_Down 4\n"
        "Radix_Up 4\nDownlink_Latency_ns 1000\nTier 1\nDownlink_speed_Gbps 100\nRadix_Down 4\n"
        "Bundle 2\nDownlink_Latency_ns 1000\n",
        "fabric.topo",
    )
    written(tmp_path, "Nodes 8\nConnections 1\n0->7 start 0 size 10000\n", "flows.cm")
    written(tmp_path, "0 0\n1000 50\n20000 100\n", "web.txt")
    (tmp_path / "trace").mkdir()
    chakra.write(
        tmp_path / "trace",
        [
            [
                chakra.node(1, chakra.COMPUTE, num_ops=7 * 10**10, tensor_size=10**6),
                chakra.node(
                    2,
                    chakra.COLLECTIVE,
                    after=[1],
                    comm_type=chakra.ALL_REDUCE,
                    comm_size=8000,
                    involved_dim=[True, False],
                ),
            ]
        ]
        * 8,
    )
    (tmp_path / "page.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    from loomnet.cli.entry import main

    assert main(["run", "page.py"]) == 0
    out = capsys.readouterr().out
    # 7 * 10^10 operations at 700 * 10^12 per second are 100 us; then 8 kB between two ranks.
    (trace,) = (float(line.split()[1]) for line in out.splitlines() if line.startswith("Trace "))
    assert 100 < trace < 110
