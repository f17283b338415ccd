"""Use of links over time: what is counted, and the picture of it and of queues."""

import statistics

import pytest

import loomnet as ln
from loomnet.results import link_plots


def collisions(transport, **options):
    made = ln.clos.two_tier(
        planes=1, leaves=4, spines=4, hosts_per_leaf=4, rate="100 Gb/s", delay="1 us"
    )
    return ln.run(made, ln.Permutation("2 MB", shift=1, transport=transport), seed=1, **options)


@pytest.mark.parametrize("transport", ["mrc", "roce", "tcp"])
def test_a_link_is_never_in_use_for_more_than_its_rate(transport):
    """A frame counts over the time that it takes, not whole in the sample in which it ends."""
    r = collisions(transport, sample="1 us", links=["p0.leaf*->p0.spine*"])
    use = r.series("link_use")
    assert 0.95 < max(use.column("value")) <= 1
    carried = dict.fromkeys(r.data.samples.sent, 0.0)
    for row in use:
        carried[row["where"]] += row["value"] * 1e-6 * 100e9 / 8
    for where, looks in r.data.samples.sent.items():
        assert carried[where] == pytest.approx(looks[-1][1] - looks[0][1], rel=1e-9, abs=1e-3)


def test_each_link_has_a_strip_and_the_idle_ones_are_seen():
    r = collisions("roce", sample="5 us", links=["p0.leaf*->p0.spine*"])
    top, below = r.plot("links").axes[:2]
    most = {
        label.get_text(): strip.get_array().max()
        for label, strip in zip(top.get_yticklabels(), top.collections, strict=True)
    }
    assert len(most) == 16 and sum(each > 0.9 for each in most.values()) == 10
    assert sum(each < 0.05 for each in most.values()) == 6
    longest = [strip.get_array().max() for strip in below.collections]
    assert list(most)[longest.index(max(longest))] == "p0.leaf3->p0.spine0"
    top = r.plot("links", until="100 us").axes[0]
    assert top.get_xlim() == pytest.approx((0, 100)) and top.collections[0].get_array().size == 20


def test_of_many_links_the_busiest_have_strips_and_samples_share_columns(monkeypatch):
    r = collisions("mrc", sample="500 ns", links=["*->*"])
    monkeypatch.setattr(link_plots, "MOST_COLUMNS", 50)
    top = r.plot("links").axes[0]
    assert len(top.collections) == 24 and "the 24 busiest of 64 directions" in top.get_title("left")
    sizes = [strip.get_array().size for strip in top.collections]
    use = r.series("link_use")
    where = top.get_yticklabels()[0].get_text()
    mean = statistics.fmean(row["value"] for row in use if row["where"] == where)
    edges = top.collections[0].get_coordinates()[0, :, 0]
    assert 49 <= min(sizes) <= max(sizes) <= 51
    assert sum(top.collections[0].get_array().ravel() * (edges[1:] - edges[:-1])) / (
        edges[-1] - edges[0]
    ) == pytest.approx(mean)
    assert sorted(["p0.leaf10->h1", "p0.leaf2->h1"], key=link_plots.in_order)[0].endswith("2->h1")
