"""Flow lists of HPCC's simulator for ns-3: read as it reads them, or refused with the line at
fault."""

import random

import pytest

import loomnet as ln
from loomnet.base.errors import UsageError
from loomnet.jobs.ns3_flows import read_flows

FABRIC = ln.star(hosts=4, rate="100 Gb/s", delay="1 us")
LIST = "3\n0 1 3 100 100000 2.000000000\n2 1 3 100 50000 2.000001000\n3 0 3 100 2000 2.00002\n"


def written(tmp_path, text):
    (tmp_path / "flow.txt").write_text(text, encoding="utf-8")
    return tmp_path / "flow.txt"


def flows(tmp_path, text, **options):
    job = ln.Flows.from_ns3(written(tmp_path, text), transport="roce")
    return ln.run(FABRIC, job, directory=tmp_path / "run", **options)


def test_flows_have_their_ends_sizes_and_starts(tmp_path):
    r = flows(tmp_path, LIST, jitter="0 s")
    assert [(row["source"], row["destination"], row["bytes"]) for row in r.flows] == [
        ("h0", "h1", 100_000),
        ("h2", "h1", 50_000),
        ("h3", "h0", 2_000),
    ]
    assert [row["start_s"] for row in r.flows] == [2.0, 2.000001, 2.00002]
    assert all(row["fct_s"] > 0 for row in r.flows) and r["errors"] == 0
    # Two that meet at one host are slower than alone; nothing waits for anything.
    assert r.flows[1]["slowdown"] > 1.3 > 1.05 > r.flows[2]["slowdown"]


def test_they_are_what_the_same_flows_of_htsim_are(tmp_path):
    (tmp_path / "flows.cm").write_text(
        "Nodes 4\nConnections 3\n0->1 start 2000000000000 size 100000\n"
        "2->1 start 2000001000000 size 50000\n3->0 start 2000020000000 size 2000\n"
    )
    other = ln.run(
        FABRIC,
        ln.Flows.from_htsim(tmp_path / "flows.cm", transport="roce"),
        directory=tmp_path / "htsim",
    ).flows
    assert list(flows(tmp_path, LIST).flows) == list(other)


@pytest.mark.parametrize(
    "text",
    [
        LIST.replace(" 100 ", " "),  # ConWeave's, without a port
        "\ufeff" + LIST.replace("\n", "\r\n"),  # of Windows
        LIST.replace("3\n", " 3 \n\n", 1).replace(" ", "\t"),
        LIST + "src dst priority port bytes start\n9 9 9\n",  # not read by ns-3 either
    ],
)
def test_other_forms_are_the_same_flows(tmp_path, text):
    def transfers(graph):
        return [
            (task.source, task.destination, task.bytes) for task in graph.tasks if task.source >= 0
        ], [task.duration_ps for task in graph.tasks if task.source < 0]

    assert transfers(read_flows(written(tmp_path, text))) == transfers(
        read_flows(written(tmp_path, LIST))
    )


def test_what_has_no_effect_is_in_the_notes(tmp_path):
    r = flows(tmp_path, LIST.replace("3 0 3", "3 0 1") + "one line more\n")
    (note,) = [text for name, text in r.data.fidelity.notes.items() if "passed over" in name]
    assert note == ("priority groups (3 flows of 2); 1 line after the number of flows that it says")
    quiet = ln.run(FABRIC, ln.Flows.from_ns3(written(tmp_path, LIST)), directory=tmp_path / "q")
    assert not [name for name in quiet.data.fidelity.notes if "passed over" in name]


REFUSALS = {
    "empty; the first line is the number of flows": ("", "\n \n"),
    ":1: the first line is the number of flows alone": ("0 1 3 100 1000 2.0\n", "3 flows\n"),
    ':1: number of flows "x" is not a number': ("x\n",),
    ":1: 0 flows; there must be 1 to": ("0\n", "0\n0 1 3 100 1000 2\n"),
    ":1: 99999999999 flows": ("99999999999\n0 1 3 100 1000 2\n",),
    ":1: says 4 flows, the file holds 3": ("4" + LIST[1:],),
    ":2: 4 words; a flow is source, destination": ("1\n0 1 100 2\n",),
    ":2: 7 words; a flow is": ("1\n0 1 3 4 100 2 9\n",),
    ":2: node 1 sends to itself": ("1\n1 1 3 100 1000 2\n",),
    ":2: node 99999999 is above": ("1\n0 99999999 3 100 1000 2\n",),
    ':2: node "h0" is not a number': ("1\nh0 1 3 100 1000 2\n",),
    ':3: start "-2" is not a number': ("2\n0 1 3 100 1000 2\n0 1 3 100 1000 -2\n",),
    ':2: start "nan" is not a number': ("1\n0 1 3 100 1000 nan\n",),
    ':2: start "2.0000000000001" is not whole in units of': (
        "1\n0 1 3 100 1000 2.0000000000001\n",
    ),
    ":2: a flow has 1 B to 10^15 B, not 0": ("1\n0 1 3 100 0 2\n",),
    ':2: bytes "1.5" is not whole': ("1\n0 1 3 100 1.5 2\n",),
    ':2: port "a" is not a number': ("1\n0 1 3 a 1000 2\n",),
}


@pytest.mark.parametrize(
    ("line", "text"), [(line, text) for line, texts in REFUSALS.items() for text in texts]
)
def test_a_refusal_names_the_line(tmp_path, line, text):
    path = written(tmp_path, text)
    with pytest.raises(UsageError) as error:
        ln.Flows.from_ns3(path)
    said = str(error.value)
    assert line in said and said.startswith(f"Ns3Flows: {path}:")
    assert "\n" not in said and len(said) < 300


def test_a_node_that_the_fabric_has_not_is_refused(tmp_path):
    job = ln.Flows.from_ns3(written(tmp_path, "1\n0 7 3 100 1000 2\n"))
    with pytest.raises(UsageError, match="8 ranks but 4 hosts"):
        ln.run(FABRIC, job, directory=tmp_path / "run")


def test_lists_drawn_at_random_are_read_as_they_were_written(tmp_path):
    draw = random.Random(11)
    for _ in range(30):
        rows = [
            (*draw.sample(range(64), 2), draw.randrange(1, 10**9), draw.randrange(10**12))
            for _ in range(draw.randrange(1, 40))
        ]
        text = f"{len(rows)}\n" + "".join(
            f"{a} {b} 3 100 {size} {at / 1e9:.9f}\n" for a, b, size, at in rows
        )
        graph = read_flows(written(tmp_path, text))
        found = [
            (task.source, task.destination, task.bytes, graph.tasks[graph.after[i][0]].duration_ps)
            for i, task in enumerate(graph.tasks)
            if task.source >= 0
        ]
        assert found == [
            (a, b, size, round(float(f"{at / 1e9:.9f}") * 1e9) * 1000) for a, b, size, at in rows
        ]


def test_starts_are_exact_but_of_flows_that_start_together(tmp_path):
    text = "3\n0 1 3 100 1000 2.00001\n2 3 3 100 1000 2.00002\n3 2 3 100 1000 2.00002\n"
    starts = [row["start_s"] for row in flows(tmp_path, text, jitter="0 s").flows]
    assert starts == [2.00001, 2.00002, 2.00002]
    # Those that start together are moved by less than the time of a packet.
    moved = flows(tmp_path, text)
    assert moved.flows[0]["start_s"] == 2.00001
    apart = [row["start_s"] - 2.00002 for row in moved.flows][1:]
    assert all(0 <= each < 2200 * 8 / 100e9 for each in apart) and len(set(apart)) == 2
    assert moved.data.fidelity.notes["start jitter"].startswith("below ")
