"""Transports side by side keep their own marks and trims on the links that they share."""

import numpy as np
import pytest

import loomnet as ln


def fabric(**values):
    return ln.clos.two_tier(
        planes=1,
        leaves=4,
        spines=2,
        hosts_per_leaf=2,
        order="block",
        rate="25 Gb/s",
        uplink_rate="10 Gb/s",
        delay="1 us",
        **values,
    )


def permutation(transport, hosts, name):
    # Ranks are placed on hosts in order; a job of the first four takes half of the leaves.
    return ln.Permutation("2 MB", 3, transport, shift=2, ranks=len(hosts), name=name)


def notes(r):
    return r.data.fidelity.notes


def test_a_neighbour_of_another_transport_on_other_links_changes_no_mark(tmp_path):
    """MRC marked at DCQCN's thresholds beside RoCE, before each had its own."""
    made = fabric().override("*--*", pfc=False)
    dcqcn = {"dcqcn": True}
    jobs = [permutation("mrc", range(4), "a"), permutation("roce", range(4), "b")]
    both = ln.run(made, jobs, seed=1, directory=tmp_path, roce=dcqcn)
    alone = ln.run(made, permutation("mrc", range(4), "a"), seed=1, directory=tmp_path)
    own = both.job("a").data.flows.columns
    assert np.array_equal(own, alone.data.flows.columns)
    # They do queue and are marked: without a mark the run is another one.
    dark = ln.run(
        fabric().override("*--*", pfc=False, ecn=False),
        permutation("mrc", range(4), "a"),
        seed=1,
        directory=tmp_path,
    )
    assert not np.array_equal(own, dark.data.flows.columns)
    assert "marks by transport" not in notes(alone)
    said = notes(both)["marks by transport"]
    assert said.startswith(
        "p0.leaf0->h0 and 7 like it: mrc marks nothing and trims to 128 B, roce marks from "
    )
    assert "(up to 0.01)" in said and said.count(";") == 1


@pytest.mark.parametrize(
    "stated", [{"ecn": ln.Ecn("20 kB", "80 kB")}, {"ecn": False, "trim": False}]
)
def test_what_a_link_states_holds_for_all(tmp_path, stated):
    made = fabric().override("*--*", pfc=False, **stated)
    jobs = [permutation("mrc", range(4), "a"), permutation("roce", range(4), "b")]
    said = notes(ln.run(made, jobs, seed=1, directory=tmp_path, roce={"dcqcn": True}))
    if "trim" in stated:
        assert "marks by transport" not in said
    else:
        both = "mrc marks from 20 kB to 80 kB and trims to 128 B, roce marks from 20 kB to 80 kB"
        assert both in said["marks by transport"]


def test_marks_shrink_with_the_rate_of_a_link_for_each(tmp_path):
    """A link at a tenth of its rate marks MRC beside RoCE as it does alone."""
    made = fabric().override("*--*", pfc=False)
    slow = ln.degrade("p0.leaf0--p0.spine0", 0.1, at="50 us", phase="slow")
    jobs = [permutation("mrc", range(4), "a"), permutation("roce", range(4), "b")]
    both = ln.run(made, jobs, [slow], seed=2, directory=tmp_path, roce={"dcqcn": True})
    alone = ln.run(made, jobs[:1], [slow], seed=2, directory=tmp_path)
    assert np.array_equal(both.job("a").data.flows.columns, alone.data.flows.columns)
