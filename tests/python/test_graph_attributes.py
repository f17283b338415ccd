"""What from_networkx makes of attributes that mean something else, or are misspelt."""

import networkx
import pytest

import loomnet as ln
from loomnet.base.errors import FabricError


def graph(role="server", switch_role="tor", name="h"):
    made = networkx.Graph(name="net")
    made.add_node("tor1", role=switch_role)
    for number in range(4):
        made.add_node(f"{name}{number}", **({"role": role} if role else {}))
        made.add_edge(f"{name}{number}", "tor1", rate="25 Gb/s", delay="1 us")
    return made


@pytest.mark.parametrize("ranks", [{}, {"ranks": 4}])
def test_hosts_that_a_graph_gave_a_role_without_ranks_are_named(ranks):
    fabric = ln.from_networkx(graph())
    with pytest.raises(
        ln.UsageError,
        match='net has 4 hosts, all of role "server", which have no '
        "rank; the roles are from the graph's attribute role",
    ):
        ln.run(fabric, ln.AllReduce("1 MB", **ranks), write=False)
    assert fabric.passed == ["role of a switch (1 node)"]
    assert ln.run(ln.from_networkx(graph(role="rank")), ln.AllReduce("10 kB"), write=False)


def test_a_graph_without_hosts_says_how_a_node_is_one():
    with pytest.raises(ln.UsageError, match=r'has no host: .* kind="host" or a name such as h0'):
        ln.run(ln.from_networkx(graph(role=None, name="gpu")), ln.AllReduce("1 MB"), write=False)


@pytest.mark.parametrize(
    ("slip", "meant"), [("rat", "rate"), ("dealy", "delay"), ("delya", "delay")]
)
def test_a_slip_for_an_attribute_that_is_read_is_refused(slip, meant):
    made = graph(role=None)
    values = made.edges["h0", "tor1"]
    values[slip] = values.pop(meant)
    with pytest.raises(FabricError, match=f"{slip}.* is not read"):
        ln.from_networkx(made, rate="1 Gb/s", delay="1 us")


def test_other_attributes_are_counted():
    made = graph(role=None)
    made.edges["h0", "tor1"]["date"] = "2024"
    assert "date (1 edge)" in ln.from_networkx(made).passed
