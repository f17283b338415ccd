"""Quantities at the ends of their range: long-haul links run; what the engine's whole numbers
cannot hold is refused in one line before anything starts."""

import pytest

import loomnet as ln
from loomnet.base.errors import LoomnetError

pytest.importorskip("loomnet._core")


def two_tier(rate="400 Gb/s", delay="1 us", **more):
    return ln.clos.two_tier(
        planes=2, leaves=2, spines=2, hosts_per_leaf=2, rate=rate, delay=delay, **more
    )


@pytest.mark.parametrize("transport", ["mrc", "roce", "tcp"])
@pytest.mark.parametrize("build", [two_tier, lambda **links: ln.clos.fat_tree(k=4, **links)])
def test_long_haul_links_run(lab, build, transport):
    # 400 Gb/s x 100 ms: a bandwidth-delay product of 40 GB, and more on the whole way.
    job = ln.AllReduce(size="1 MiB", repeat=2, transport=transport, ranks=4)
    if transport == "mrc":  # its 16-bit time stamps take a longer round trip for a shorter one
        with pytest.raises(ln.UsageError, match=r"transport mrc: .* is above 32.768 ms"):
            lab.run(build(rate="400 Gb/s", delay="100 ms"), job, label="far")
        r = lab.run(build(rate="400 Gb/s", delay="2 ms"), job, payload=True)
        assert (r.data.ended, r["errors"], r.data.wrong) == ("finished", 0, 0)
        return
    r = lab.run(build(rate="400 Gb/s", delay="100 ms"), job, payload=True)
    assert (r.data.ended, r["errors"], r.data.wrong) == ("finished", 0, 0)
    assert r.data.iterations[-1].end_ps > 10 * 100 * 10**9


REFUSED = {
    "rate": (
        lambda: (two_tier(rate="9e9 Gb/s"), ln.AllReduce("1 MB")),
        "rate: 9000000 Tb/s is above",
    ),
    "delay": (
        lambda: (two_tier(delay="100 h"), ln.AllReduce("1 MB")),
        "delay: the longest round trip",
    ),
    "bdp": (
        lambda: (two_tier(rate="600 Tb/s", delay="250 s"), ln.AllReduce("1 MB")),
        "lower control_limit, the rate or the delay",
    ),
    "data_limit": (
        lambda: (two_tier().override("*--*", data_limit="9e18 B"), ln.AllReduce("1 MB")),
        "data_limit: 9e+18 B",
    ),
    "buffer": (
        lambda: (
            ln.star(hosts=60, rate="1 Gb/s", delay="1 us").override(
                "*--*", data_limit="1e18 B", control_limit="1e18 B"
            ),
            ln.AllReduce("1 MB"),
        ),
        "add up to 1.2e+20 B",
    ),
    "compute": (lambda: (two_tier(), ln.AllReduce("1 MB", compute="9e6 s")), "AllReduce.compute"),
    "pauses": (
        lambda: (two_tier(), ln.AllReduce("1 MB", 10**6, compute="1 h")),
        "1000000 times 3600 s is more than",
    ),
    "repeat": (lambda: (two_tier(), ln.AllReduce("1 MB", 10**18)), "AllReduce.repeat"),
    "rounds": (lambda: (two_tier(), ln.Incast("1 MB", 10**18)), "Incast.repeat"),
    "collective": (
        lambda: (two_tier(), ln.AllReduce("1e18 B")),
        "AllReduce.size: 1000000 TB is above",
    ),
    "flow": (lambda: (two_tier(), ln.Permutation("9e18 B")), "Permutation.size"),
    "sizes": (lambda: (two_tier(), ln.Flows(["1e18 B"], count=2)), "Flows.sizes"),
    "gap": (lambda: (two_tier(), ln.Flows("1 MB", gap="9e6 s")), "Flows.gap"),
    "gaps": (
        lambda: (two_tier(), ln.Flows("1 MB", count=1000, gap="1 h")),
        "Flows.gap: 1000 times",
    ),
    "starts": (lambda: (two_tier(), ln.Flows("1 MB", starts=["9e6 s"])), "Flows.starts"),
    "stall": (lambda: (two_tier(), ln.AllReduce("1 MB", stall_timeout="9e6 s")), "stall_timeout"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_counted_is_one_line(lab, case):
    make, words = REFUSED[case]
    with pytest.raises(LoomnetError) as refused:
        fabric, job = make()
        lab.run(fabric, job)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("faults", "words"),
    [
        (
            [
                ln.delay("h0--p0.leaf0", "9e6 s", at="0 s"),
                ln.delay("h0--p0.leaf0", "9e6 s", at="0 s"),
            ],
            "extra",
        ),
        ([ln.delay("h0--p0.leaf0", "300 h", at="0 s")] * 3, "delays together are 900 h"),
        ([ln.down("h0--p0.leaf0", at="9e6 s")], "at"),
        ([ln.down("h0--p0.leaf0", at="1 s", duration="9e6 s")], "duration"),
        ([ln.down("h0--p0.leaf0", at="500 h", duration="500 h")], "at + duration are 1000 h"),
    ],
)
def test_so_are_faults(lab, faults, words):
    with pytest.raises(LoomnetError, match="fault") as refused:
        lab.run(two_tier(), ln.AllReduce("1 MB"), faults)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"reroute_delay": "9e6 s"}, "reroute_delay"),
        ({"gaps_ps": [10**30]}, "gaps_ps"),
        ({"gaps_ps": [-5]}, "gaps_ps"),
        ({"gaps_ps": 7}, "gaps_ps"),
        ({"mrc": {"rto_ps": 10**30}}, "rto_ps"),
        ({"mrc": {"evs_per_qp": -1}}, "evs_per_qp"),
    ],
)
def test_so_are_options(lab, options, words):
    with pytest.raises(LoomnetError, match=words) as refused:
        lab.run(two_tier(), ln.AllReduce("1 MB"), **options)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "row",
    [
        '{"at": "9e6 s", "source": 0, "destination": 1, "size": "1 MB"}',
        '{"at": "1 s", "source": 0, "destination": 1, "size": "9e18 B"}',
    ],
)
def test_so_are_rows_of_a_trace(lab, tmp_path, row):
    (tmp_path / "flows.jsonl").write_text(row)
    with pytest.raises(LoomnetError, match=r"flows\.jsonl") as refused:
        lab.run(two_tier(), ln.Trace(tmp_path / "flows.jsonl"))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("transport", ["mrc", "roce", "tcp"])
def test_the_largest_of_all_that_is_allowed_is_no_traceback(lab, transport):
    job = ln.AllReduce("1 MB", transport=transport)
    assert lab.run(two_tier(rate="672 Tb/s", delay="1 us"), job, label="rate")["errors"] == 0
    if transport == "mrc":
        with pytest.raises(ln.UsageError, match="round trip"):
            lab.run(two_tier(rate="1 Gb/s", delay="250 s"), job, label="delay")
        return
    # Timers of a transport may give up long before an answer can be there: an error by name.
    far = lab.run(two_tier(rate="1 Gb/s", delay="250 s"), job, label="delay")
    assert far.data.ended in ("finished", "failed", "stalled")
    assert far.data.fidelity.unexplained == 0
