"""The switch program "symphony" from a fabric: options, epochs by the fabric's rates, rows and
counters of every egress, and that it changes nothing when it is off."""

import json
from dataclasses import replace

import pytest

import loomnet as ln
from loomnet import _core
from loomnet.base.errors import FabricError
from loomnet.plans.job_request import JobRequest
from loomnet.plans.make import make_plan
from loomnet.systems.registry import program
from loomnet.systems.symphony.run import Rings, epoch_shift

STEP = "125 kB"  # of 1 MB round eight ranks
DCQCN = {"roce": {"cc": "dcqcn"}}  # packets without a congestion control are not ECN-capable


def fabric(rate="10 Gb/s", delay="5 us"):
    return ln.clos.two_tier(planes=1, leaves=2, spines=1, hosts_per_leaf=4, rate=rate, delay=delay)


def job(transport="roce", **more):
    # Hosts are on the leaves in turn, so every hop of the ring passes the spine.
    return ln.AllReduce("1 MB", 6, transport, **more)


def by_sequence(made, **more):
    return made.program(
        "*",
        "symphony",
        **{"identity": "seq", "step": STEP, "tau": "0.25 step", "shift": 14, "gate": 0, **more},
    )


def slow_host():
    return [ln.degrade("h0--p0.leaf0", "2 Gb/s", at="0 s", duration="1 s")]


def go(tmp_path, made, work=None, faults=(), **options):
    return ln.run(made, work or job(), faults, seed=1, directory=tmp_path, **options)


def settings(made):
    return dict(made.switches["p0.leaf0"].options)


def test_options_are_written_as_a_user_thinks_of_them():
    made = fabric().program("*", "symphony", mode="spaced", tau="1 step", jobs=["a", "b"])
    assert settings(made) == {"mode": "spaced", "tau": "1 step", "jobs": "a,b"}
    made = fabric().program(
        "*", "symphony", identity="seq", tau="1 MB", gate_bytes="9 kB", step="2 MB"
    )
    assert settings(made)["tau"] == "1000000"
    assert settings(made)["gate_bytes"] == 9000 and settings(made)["step"] == 2_000_000
    assert settings(fabric().program("*", "symphony", identity="seq", tau=500))["tau"] == "500"


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"tau": "1 lap"}, 'option tau: "1 lap" is no distance'),
        ({"mode": "both"}, 'option mode: must be spaced or prob, not "both"'),
        ({"rows": 100}, "option rows: must be a power of two, not 100"),
        ({"span": "3 step"}, "option span: must be a step by a power of two"),
        ({"identity": "sport", "tau": 5}, "identity sport counts whole steps"),
        ({"cmp": "step", "tau": "0.5 step"}, "cmp=step compares completed steps"),
        ({"jobs": [3]}, "jobs: [3] is no list of jobs' names"),
        ({"window": 3}, 'has no option "window"; it has'),
    ],
)
def test_a_wrong_option_is_refused_in_one_line(options, line):
    with pytest.raises(FabricError) as refused:
        fabric().program("*", "symphony", **options)
    assert line in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("rate", "delay", "shift"),
    [
        ("100 Gb/s", "1 us", 17),  # two intervals between congestion notifications, 100 us
        ("100 Gb/s", "50 us", 21),  # four round trips of 400 us
        ("1 Gb/s", "15 us", 20),  # 32 packets and four round trips alike: 0.6 and 0.8 ms
        ("100 Mb/s", "1 us", 23),  # 32 packets of 2,150 B: 5.5 ms
    ],
)
def test_an_epoch_is_as_long_as_the_fabrics_rates_ask_for(rate, delay, shift):
    plan = make_plan(fabric(rate, delay).program("*", "symphony"))
    for switch in plan.switches:
        assert epoch_shift(switch, plan, {}) == shift
        settings = program("symphony").settings(switch, plan, {})
        assert settings == {"shift": shift}
    assert epoch_shift(next(iter(plan.switches)), plan, {"roce": {"cnp_gap": "20 ms"}}) == 26
    given = make_plan(fabric(rate, delay).program("*", "symphony", shift=12))
    assert program("symphony").settings(next(iter(given.switches)), given, {}) == {"shift": 12}


def test_the_slowest_link_to_another_switch_makes_an_epoch_long():
    made = fabric("100 Gb/s", "1 us").override("p0.leaf0--p0.spine0", rate="100 Mb/s")
    made.override("h*--*", rate="10 Mb/s")  # those to hosts have no rows
    plan = make_plan(made.program("*", "symphony"))
    fixed = replace(plan, base_rtt_ps=10**6)  # of slow links long ones
    assert {each.name: epoch_shift(each, fixed, {}) for each in plan.switches} == {
        "p0.leaf0": 23,
        "p0.leaf1": 17,
        "p0.spine0": 23,
    }


def test_sequence_numbers_of_roce_count_packets_of_the_size_that_the_run_has():
    made = by_sequence(fabric())
    plan, own = make_plan(made), {"payload_mtu": 1024, "initial_psn": 5}
    requests = [JobRequest(job(), tuple(range(8)))]
    rings = Rings.of(plan, requests, {"roce": own})
    assert rings is not None
    _, rules = rings.rows(next(iter(plan.switches)))
    assert {(rule["mtu"], rule["base"], rule["carrier"]) for rule in rules} == {(1024, 5, "roce")}


def test_rows_and_counters_of_every_egress_are_shown(tmp_path):
    r = go(tmp_path, by_sequence(fabric()), faults=slow_host(), **DCQCN)
    leaf, spine = r.switch("p0.leaf0"), r.switch("p0.spine0")
    (row,) = leaf.snapshot()["rings"]  # ports to hosts are not tracked
    assert row["nranks"] == 8 and row["job"] == 0 and row["state"] & 1
    assert len(spine.snapshot()["rings"]) == 2
    assert {each["egress"] for each in spine.snapshot()["rings"]} == {0, 1}
    (tally,) = leaf.snapshot()["jobs"]
    for name in ("tagged", "extra_marks", "init", "largest_gap"):
        assert tally[name] == leaf.counters.get(name, 0), name
    (total,) = spine.by_job().values()
    for name in ("tagged", "extra_marks", "init", "largest_gap"):
        assert total[name] == spine.counters.get(name, 0), name
    assert leaf.counters["tagged"] > 1000 and leaf.counters["extra_marks"] > 0
    assert leaf.counters["largest_gap"] > 31_250  # bytes: a quarter of a step
    counted = json.loads(next(tmp_path.rglob("counters.json")).read_text())
    assert "extra_marks" in json.dumps(counted)


def test_marks_slow_senders_down_and_off_is_forward(tmp_path):
    runs = {
        name: go(tmp_path / name, made, faults=slow_host(), **DCQCN)
        for name, made in {
            "forward": fabric(),
            "off": by_sequence(fabric(), enable=False),
            "none": by_sequence(fabric(), identity="none"),
            "on": by_sequence(fabric()),
        }.items()
    }
    figures = {name: str(r.metrics) for name, r in runs.items()}
    assert figures["off"] == figures["none"] == figures["forward"] != figures["on"]
    assert "tagged" not in runs["off"].switch("p0.leaf0").counters
    assert runs["none"].switch("p0.leaf0").counters["bypass"] > 1000


def test_tcp_is_tracked_from_its_syn(tmp_path):
    r = go(tmp_path, by_sequence(fabric()), job("tcp"), slow_host())
    leaf = r.switch("p0.leaf0")
    assert leaf.counters["tagged"] > 1000
    assert {row["state"] & 3 for row in leaf.snapshot()["rings"]} == {1, 2}  # the ring, its flows


def test_named_jobs_alone_are_tracked(tmp_path):
    work = [
        ln.AllReduce("1 MB", 3, "roce", hosts=["h0", "h1"], name="a"),
        ln.AllReduce("1 MB", 3, "roce", hosts=["h2", "h3"], name="b"),
    ]
    lab = ln.Lab("symphony", seed=1, directory=tmp_path / "runs")
    r = lab.run(by_sequence(fabric(), jobs=["b"]), work)
    assert {row["job"] for row in r.switch("p0.leaf0").snapshot()["rings"]} == {1}
    with pytest.raises(ln.UsageError, match='the run has no job "c"; it has a, b'):
        lab.run(by_sequence(fabric(), jobs=["c"]), work, label="c")


def test_jobs_that_are_named_are_marked_by_the_programs_mode(tmp_path):
    hosts = [f"h{i}" for i in range(8)]
    work = [job(name="a", hosts=hosts[:4]), job(name="b", hosts=hosts[4:])]

    def marks(label, mode, **more):
        lab = ln.Lab("symphony", seed=1, directory=tmp_path / label)
        r = lab.run(by_sequence(fabric(), mode=mode, **more), work, slow_host(), **DCQCN)
        return r.switch("p0.leaf0").counters["extra_marks"]

    found = {mode: marks(mode, mode) for mode in ("spaced", "prob")}
    assert found["prob"] != found["spaced"] and min(found.values()) > 0
    for mode, count in found.items():
        assert marks(f"named-{mode}", mode, jobs=["a", "b"]) == count


@pytest.mark.parametrize(
    ("options", "packet"),
    [
        ({}, 4096),
        ({"initial_psn": 5_000}, 4096),
        ({"initial_psn": 2**24 - 3}, 4096),
        ({"payload_mtu": 1024}, 1024),
    ],
)
def test_progress_by_psn_counts_packets_since_the_connection_began(tmp_path, options, packet):
    r = go(tmp_path, by_sequence(fabric()), roce={"cc": "dcqcn", **options})
    (row,) = r.switch("p0.leaf0").snapshot()["rings"]
    # Each of the 84 steps sends 125 kB; what does not fill a packet is counted as one.
    full = 84 * 125_000
    assert full - packet <= row["low"] < full + 84 * 2 * packet and row["low"] % packet == 0


def test_flows_that_are_a_ring_are_tracked_by_their_hosts(tmp_path):
    flows = ln.Flows("1 MB", count=2, pairs=[(0, 1), (2, 3)], steps=8, transport="tcp")
    r = go(tmp_path, by_sequence(fabric()), flows)
    leaf = r.switch("p0.leaf0")
    [row] = [row for row in leaf.snapshot()["rings"] if row["state"] & 1]
    assert row["nranks"] == 2 and leaf.counters["tagged"] > 500


def test_ranks_on_one_host_send_by_no_switch(tmp_path):
    """Of three ranks on h0 and one on h1 two send to their own host; the third is known."""
    made = ln.clos.two_tier(
        planes=1,
        leaves=2,
        spines=1,
        hosts_per_leaf=1,
        rate="10 Gb/s",
        delay="5 us",
        ranks_per_host=3,
    )
    r = go(tmp_path, by_sequence(made), **DCQCN)
    (row,) = r.switch("p0.leaf0").snapshot()["rings"]
    assert row["nranks"] == 6 and r.switch("p0.leaf0").counters["tagged"] > 100


def test_what_seq_cannot_know_is_refused(tmp_path):
    with pytest.raises(ln.UsageError, match="give step= the bytes"):
        go(tmp_path, fabric().program("*", "symphony", identity="seq"))
    hosts = ["h0", "h1", "h2"]
    twice = [job(name="a", hosts=hosts), job(name="b", hosts=hosts)]
    with pytest.raises(ln.UsageError, match="of different rings or ranks"):
        ln.Lab("symphony", seed=1, directory=tmp_path / "runs").run(by_sequence(fabric()), twice)


def test_a_rule_is_checked_by_the_engine():
    rule = {
        "source": bytes(16),
        "destination": bytes(16),
        "carrier": "roce",
        "port": None,
        "job": 1,
        "ring": 0,
        "rank": 0,
        "nranks": 8,
        "gen": 0,
        "step_bytes": 1000,
        "mtu": 1500,
        "base": 0,
    }
    network = _core.Network(seed=1, meter_bin_ps=10**9)
    node = network.add_switch(4, program="symphony")

    def tables(**wrong):
        return _core.table_batch(
            "symphony",
            generation=1,
            block=0xFC000000,
            own=[],
            adjacencies=[],
            fib=[],
            hosts=[],
            host_groups=[],
            groups=[],
            rows={"rules": [rule | wrong]},
        )

    with pytest.raises(ValueError, match="row 0: mtu: a power of two of 256 or more, not 1500"):
        network.set_tables(node, tables())
    with pytest.raises(ValueError, match=r"2 \* nranks \* step_bytes must stay below 2\^31"):
        network.set_tables(node, tables(mtu=1024, step_bytes=2**28))
    network.set_tables(node, tables(mtu=1024))
    assert network.switch_snapshot(node) == {"rings": [], "jobs": []}
