"""Bursts: seeded timetables of links that lose a part of their rate."""

import itertools

import pytest

import loomnet as ln

pytest.importorskip("loomnet._core")


@pytest.fixture
def fabric():
    return ln.clos.two_tier(
        planes=1, leaves=2, spines=4, hosts_per_leaf=4, rate="100 Gb/s", delay="1 us"
    )


def spans(rows, target=None):
    return [
        (row.at.count, row.at.count + row.duration.count)
        for row in rows
        if target in (None, row.target)
    ]


UPLINKS = "p0.leaf*->p0.spine*"


def test_a_timetable_follows_from_the_seed_and_the_links_name(fabric):
    def rows(links=UPLINKS, seed=1, **more):
        return ln.bursts(fabric, links, until="50 ms", mean="1 ms", seed=seed, **more)

    assert rows() == rows()
    assert spans(rows()) != spans(rows(seed=2))
    one = rows("p0.leaf1->p0.spine2")
    assert spans(rows(), "p0.leaf1->p0.spine2") == spans(one)
    assert {row.target for row in rows()} == {
        f"p0.leaf{leaf}->p0.spine{spine}" for leaf in range(2) for spine in range(4)
    }
    # What is left of the link changes no time: runs with different capacities are paired.
    assert spans(rows(to=0.5)) == spans(rows())
    assert [row.at for row in rows()] == sorted(row.at for row in rows())


@pytest.mark.parametrize("lengths", ["random", "fixed"])
def test_bursts_take_their_share_of_the_time(fabric, lengths):
    rows = ln.bursts(fabric, UPLINKS, until="1 s", mean="2 ms", share=0.3, to=0.2, lengths=lengths)
    assert all(row.kind == "degrade" and row.to == 0.2 and row.keep_thresholds for row in rows)
    for link in {row.target for row in rows}:
        own = spans(rows, link)
        assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(own))
        assert own[-1][1] <= 10**12
        assert sum(end - begin for begin, end in own) / 1e12 == pytest.approx(0.3, abs=0.06)
    lasts = [end - begin for begin, end in spans(rows)]
    assert sum(lasts) / len(lasts) == pytest.approx(2e9, rel=0.1)
    # At the begin, about as many links are in a burst as at any other time.
    begins = [
        sum(
            row.at.count == 0
            for row in ln.bursts(
                fabric, UPLINKS, until="1 ms", mean="2 ms", seed=seed, lengths=lengths
            )
        )
        for seed in range(50)
    ]
    assert sum(begins) / (50 * 8) == pytest.approx(0.3, abs=0.07)


def test_bursts_of_fixed_length_begin_anywhere(fabric):
    rows = ln.bursts(fabric, UPLINKS, until="50 ms", mean="1 ms", share=0.5, lengths="fixed")
    begins = {link: spans(rows, link)[1][0] for link in {row.target for row in rows}}
    assert len(begins) == 8
    assert len({begin % (2 * 10**9) for begin in begins.values()}) == 8, "links are not in step"


def test_both_directions_of_a_link_burst_together(fabric):
    rows = ln.bursts(fabric, "p0.leaf0--p0.spine*", until="20 ms", mean="1 ms", start="5 ms")
    assert {row.target for row in rows} == {f"p0.leaf0--p0.spine{spine}" for spine in range(4)}
    assert min(begin for begin, _ in spans(rows)) >= 5 * 10**9


def test_bursts_slow_a_job_the_same_way_each_time(lab, fabric):
    job = ln.AllReduce("16 MB", repeat=3, transport="roce")

    def seconds(label, to=0.2, seed=1, **more):
        rows = (
            []
            if to == 1
            else ln.bursts(fabric, UPLINKS, until="100 ms", mean="500 us", to=to, seed=seed)
        )
        r = lab.run(fabric, job, rows, label=label, **more)
        assert r["errors"] == 0 and len(r.data.iterations) == 3
        return r.data.iterations[-1].end_ps / 1e12

    for model in ("packets", "fluid"):
        plain = seconds(f"{model}-plain", 1, model=model)
        slow = seconds(f"{model}-slow", model=model)
        assert slow > 1.2 * plain
        assert seconds(f"{model}-again", model=model) == slow
        assert seconds(f"{model}-other", seed=2, model=model) != slow


@pytest.mark.parametrize(
    "wrong, says",
    [
        ({"share": 1}, "bursts: share=1 must be between 0 and 1"),
        ({"mean": "1"}, "bursts: mean"),
        ({"mean": "1 us", "share": 0.9}, "below 1 us; give a longer mean or another share"),
        ({"until": "0 s"}, "bursts: until=0 s must be after start=0 s"),
        ({"until": "100 s", "mean": "10 us"}, "are too many for one run, 50,000"),
        ({"lengths": "fix"}, "lengths='fix' is none of random, fixed"),
        ({"seed": 1.5}, "seed=1.5 must be a whole number"),
        ({"links": "p0.leaf0->p0.core*"}, 'no link "p0.leaf0->p0.core*"'),
        ({"to": 2.0}, "degrade to 2.0"),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(fabric, wrong, says):
    values = {"links": UPLINKS, "until": "10 ms", "mean": "1 ms"} | wrong
    with pytest.raises(ln.UsageError) as refused:
        ln.bursts(fabric, **values)
    assert says in str(refused.value) and "\n" not in str(refused.value)
