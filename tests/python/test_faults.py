"""Faults: rows that validate, a timetable that both clocks drive, and the capacity left."""

import math

import pytest
from fabrics import main_job
from hypothesis import given, settings
from hypothesis import strategies as st

import loomnet as ln
from loomnet.base.errors import UsageError
from loomnet.faults.expected_capacity import (
    edge_rates,
    expected_capacity,
)
from loomnet.faults.model import Fault, check_faults
from loomnet.faults.timetable import (
    LinkChange,
    LinkState,
    PhaseChange,
    RouteChange,
    SwitchChange,
    Timetable,
)
from loomnet.jobs.edges import ring
from loomnet.plans.make import make_plan

S = 10**12


PLAN = make_plan(main_job())
HALF = {PLAN.half(i).name: i for i in range(2 * len(PLAN.links))}
NODE = {switch.name: switch.number for switch in PLAN.switches}
MAIN = [
    ln.down("h0--p0.leaf0", at="8 s", duration="8 s", phase="nic_link_down"),
    ln.down("p1.leaf0--p1.spine0", at="20 s", duration="8 s", phase="leaf_spine_down"),
    ln.loss("p2.leaf0->p2.spine1", 0.20, at="32 s", duration="8 s", phase="silent_loss"),
    ln.kill("p3.spine0", at="44 s", duration="8 s", phase="spine_down"),
]


# --- rows ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ln.down("h0--p0.leaf0", at=8), "Fault.at: 8 has no unit"),
        (lambda: ln.down("h0--p0.leaf0", at="8 s", duration=3), "Fault.duration: 3 has no unit"),
        (lambda: ln.down("h0--p0.leaf0", at="1 s", duration="0 s"), "longer than zero"),
        (lambda: ln.down("h0--p0.leaf0", at="1 s", phase="before"), 'phase "before"'),
        (lambda: ln.down("h0--p0.leaf0", at="1 s", phase="NIC down"), "small letters"),
        (lambda: ln.loss("h0--p0.leaf0", 1.5, at="1 s"), "probability 1.5"),
        (lambda: ln.loss("h0--p0.leaf0", 0.0, at="1 s"), "probability 0.0"),
        (lambda: ln.loss("h0--p0.leaf0", math.nan, at="1 s"), "probability nan"),
        (lambda: ln.loss("h0--p0.leaf0", 0.1, at="1 s", burst=0.5), "burst 0.5"),
        (lambda: ln.duplicate("h0--p0.leaf0", 0, at="1 s"), "duplicate: share 0.0 must be above 0"),
        (lambda: ln.duplicate("h0--p0.leaf0", 2, at="1 s"), "duplicate: share 2.0 must be above 0"),
        (lambda: ln.reorder("h0--p0.leaf0", math.nan, at="1 s"), "reorder: share nan must be"),
        (lambda: ln.reorder("h0--p0.leaf0", 0.1, at="1 s", by=5), "reorder: by: 5 has no unit"),
        (lambda: ln.reorder("h0--p0.leaf0", 0.1, at="1 s", by="0 s"), "by=0 s moves no packet"),
        (lambda: ln.jitter("h0--p0.leaf0", 5, at="1 s"), "jitter: by: 5 has no unit"),
        (lambda: ln.jitter("h0--p0.leaf0", "0 s", at="1 s"), "jitter: 0 s moves no packet"),
        (lambda: ln.bunch("h0--p0.leaf0", "0 s", at="1 s"), "bunch: 0 s moves no packet"),
        (lambda: ln.delay("h0--p0.leaf0", 5, at="1 s"), "Fault.extra: 5 has no unit"),
        (lambda: ln.degrade("h0--p0.leaf0", 1.5, at="1 s"), "degrade to 1.5"),
        (lambda: ln.degrade("h0--p0.leaf0", "10", at="1 s"), "no unit"),
        (lambda: ln.step(0), "step\\(0\\)"),
        (lambda: ln.iterations(2.5), "iterations\\(2.5\\)"),
        (
            lambda: Fault(kind="down", target="x", at="1 s", fase="a"),
            'unknown name "fase"; nearest: phase',
        ),
    ],
)
def test_a_row_that_makes_no_sense_is_refused(make, message):
    with pytest.raises(UsageError, match=message):
        make()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (ln.down("h0--p0.leaf7", at="1 s"), r'no link "h0--p0.leaf7"; nearest: h0--p0.leaf0, .*, '),
        (ln.kill("p0.spin1", at="1 s"), r'no switch "p0.spin1"; nearest: p0.spine1, '),
        (ln.kill("h0", at="1 s"), r'no switch "h0": it is a host, whose links go down by ln.down'),
        (
            ln.degrade("h0--p0.leaf0", "40 Mb/s", at="1 s"),
            "40 Mb/s is not below h0--p0.leaf0's rate",
        ),
    ],
)
def test_a_fault_on_what_does_not_exist_names_the_three_nearest(row, message):
    with pytest.raises(UsageError, match=message):
        check_faults([row], main_job())


def test_rows_read_as_one_line():
    assert MAIN[0].describe() == "nic_link_down: down h0--p0.leaf0 at 8 s for 8 s"
    assert ln.loss("a--b", 0.2, at=ln.step(4), duration=ln.iterations(3)).describe() == (
        "loss a--b 0.2 at step 4 for 3 iterations"
    )
    assert ln.duplicate("a->b", 0.01, at="1 s", phase="twice").describe() == (
        "twice: duplicate a->b 0.01 at 1 s to the end"
    )
    assert ln.reorder("a--b", 0.1, at="1 s", by="5 us").describe() == (
        "reorder a--b 0.1 by up to 5 us at 1 s to the end"
    )
    assert (
        ln.jitter("a--b", "5 us", at="1 s").describe() == "jitter a--b up to 5 us at 1 s to the end"
    )
    assert (
        ln.bunch("a->b", "2 ms", at="1 s").describe() == "bunch a->b every 2 ms at 1 s to the end"
    )


# --- timetable ----------------------------------------------------------------------------------
def drain(table):
    events = []
    while (now := table.next_time()) is not None:
        events.append((now / S, table.advance(now)))
    return events


def test_main_job_by_the_clock():
    table = Timetable(PLAN, MAIN, reroute_delay=ln.Time("1 s"))
    assert table.advance(8 * S - 1) == [] and not table.finished
    events = drain(table)
    assert [at for at, _ in events] == [8, 9, 16, 17, 20, 21, 28, 29, 32, 40, 44, 45, 52, 53]
    first = events[0][1]
    assert first == [
        LinkChange(HALF["h0->p0.leaf0"], LinkState(up=False)),
        LinkChange(HALF["p0.leaf0->h0"], LinkState(up=False)),
        PhaseChange("nic_link_down", "begin"),
    ]
    (rerouted,) = events[1][1]
    assert isinstance(rerouted, RouteChange) and rerouted.tables.host_planes(0, 1) == (1, 2, 3)
    (healed,) = events[3][1]
    assert healed.tables.host_planes(0, 1) == (0, 1, 2, 3)
    assert events[8][1][0] == LinkChange(HALF["p2.leaf0->p2.spine1"], LinkState(loss=0.2))
    assert events[10][1][0] == SwitchChange(NODE["p3.spine0"], False)
    assert sum(isinstance(c, LinkChange) for c in events[10][1]) == 4
    assert table.finished and not table.active
    assert [(w.phase, w.start_ps // S, w.end_ps // S) for w in table.windows] == [
        ("nic_link_down", 8, 16),
        ("leaf_spine_down", 20, 28),
        ("silent_loss", 32, 40),
        ("spine_down", 44, 52),
    ]
    assert table.longest_fault() == ln.Time("8 s")


def test_a_killed_switch_boots_with_carrier_and_without_tables():
    fault = ln.kill("p3.spine0", at="1 s", duration="2 s", reboot="1 s", phase="dead")
    assert fault.describe().endswith("for 2 s, then boots for 1 s")
    table = Timetable(PLAN, [fault], reroute_delay=ln.Time("500 ms"))
    assert table.longest_fault() == ln.Time("3 s")
    carrier, alive, dead = {}, {}, {}
    for at, changes in drain(table):
        for change in changes:
            if isinstance(change, LinkChange):
                carrier[at] = change.state.up
            elif isinstance(change, SwitchChange):
                alive[at] = change.alive
            elif isinstance(change, RouteChange):
                dead[at] = change.tables.host_planes(0, 2)
    assert carrier == {1: False, 3: True} and alive == {1: False, 4: True}
    assert [(w.start_ps // S, w.end_ps // S) for w in table.windows] == [(1, 4)]
    with pytest.raises(UsageError, match="reboot needs a duration"):
        ln.kill("p3.spine0", at="1 s", reboot="1 s")


def test_a_booting_switch_drops_by_name_and_forwards_again(tmp_path):
    """The one spine is RoCE's only way. What comes while the spine boots is dropped by it; while it
    is off, nothing reaches it."""
    fabric = ln.clos.two_tier(
        planes=1, leaves=2, spines=1, hosts_per_leaf=1, rate="10 Gb/s", delay="1 us"
    )
    counts = {}
    for boots in (None, "1 ms"):
        fault = ln.kill("p0.spine0", at="1 ms", duration="1 ms", reboot=boots, phase="dead")
        r = ln.Lab("boot", directory=tmp_path / str(boots), seed=1).run(
            fabric,
            ln.Flows(["8 MB"], pairs=((0, 1),), transport="roce"),
            [fault],
            roce={"timeout_exponent": 7},
        )
        assert r["errors"] == 0 and r.data.fidelity.unexplained == 0
        counts[boots] = r.data.totals["switch p0.spine0"].get("drop_no_route", 0)
        assert r.data.windows[0].end_ps == (2 if boots is None else 3) * 10**9
        assert r.flow_records[0].end_ps > r.data.windows[0].end_ps
    assert counts[None] == 0 and counts["1 ms"] > 0


def test_rerouting_off():
    changes = [c for _, some in drain(Timetable(PLAN, MAIN)) for c in some]
    assert not any(isinstance(c, RouteChange) for c in changes)


def test_faults_at_steps_last_medians_of_the_undisturbed_iteration():
    rows = [
        ln.down("h0--p0.leaf0", at=ln.step(3), duration=ln.iterations(4), phase="a"),
        ln.loss("h0--p1.leaf0", 0.5, at=ln.step(5), duration=ln.iterations(2), phase="b"),
    ]
    table = Timetable(PLAN, rows)
    assert table.next_time() is None and not table.finished
    for number, (start, end) in enumerate([(0, 10), (10, 30), (30, 40)], 1):
        changes = table.on_iteration(number, start * S, end * S)
    assert PhaseChange("a", "begin") in changes
    assert table.next_time() == (40 + 4 * 10) * S  # median of 10, 20, 10
    assert table.on_iteration(4, 40 * S, 60 * S) == []
    assert PhaseChange("b", "begin") in table.on_iteration(5, 60 * S, 75 * S)
    # The two disturbed iterations did not count: 2 medians of 10 s from 75 s.
    assert [at for at, _ in drain(table)] == [80, 95] and table.finished


def test_iterations_of_a_collective_last_with_what_its_ranks_compute_between_them():
    fault = ln.down("h0--p0.leaf0", at=ln.step(3), duration=ln.iterations(4), phase="a")
    table = Timetable(PLAN, [fault])
    for number in (1, 2, 3):  # 10 s each, every 15 s
        table.on_iteration(number, (number - 1) * 15 * S, ((number - 1) * 15 + 10) * S)
    assert table.next_time() == (40 + 4 * 15) * S


def test_a_step_that_is_jumped_over_still_starts_its_fault():
    table = Timetable(PLAN, [ln.down("h0--*", at=ln.step(3), phase="a")])
    assert PhaseChange("a", "begin") in table.on_iteration(7, 0, S)
    assert table.finished and table.windows[0].end_ps is None


def test_a_replayed_fault_begins_where_in_the_iterations_it_fell():
    """Of a phase's faults the first is placed; one without a moment keeps its own time."""
    faults = [
        ln.down("h0--p0.leaf0", at="9 s", duration="1 s", phase="a"),
        ln.down("h0--p1.leaf0", at="2 s", duration="1 s", phase="a"),
        ln.down("h0--p2.leaf0", at="3 s", duration="1 s", phase="b"),
        ln.down("h0--p3.leaf0", at="4 s", duration="1 s"),
    ]
    table = Timetable(PLAN, faults, moments={"a": (4, S // 5), "b": (0, S)})
    assert table.next_time() == S
    table.advance(S)
    assert [w.phase for w in table.windows] == ["b"] and not table.finished
    for number in (1, 2, 3):  # of 0.7 s each
        table.on_iteration(number, (number - 1) * 7 * S // 10, number * 7 * S // 10)
    assert len(table.windows) == 1
    table.on_iteration(4, 21 * S // 10, 28 * S // 10)
    table.advance(20 * S)
    assert [(w.phase, w.start_ps, w.end_ps) for w in table.windows] == [
        ("b", S, 2 * S),
        ("a", 3 * S, 4 * S),
        ("a", 9 * S, 10 * S),
    ]
    assert table.finished


def test_iterations_before_any_iteration_is_an_error():
    table = Timetable(PLAN, [ln.down("h0--*", at="1 s", duration=ln.iterations(3))])
    with pytest.raises(UsageError, match="no undisturbed iteration"):
        table.advance(S)


def test_one_dead_direction_takes_the_carrier_of_both():
    (_, changes), *_ = drain(Timetable(PLAN, [ln.down("h0->p0.leaf0", at="1 s")]))
    down = {c.half for c in changes if isinstance(c, LinkChange) and not c.state.up}
    assert down == {HALF["h0->p0.leaf0"], HALF["p0.leaf0->h0"]}


@pytest.mark.parametrize("keep", [False, True])
def test_a_slower_link_has_shorter_queues(keep):
    row = ln.degrade("h0->p0.leaf0", 0.25, at="1 s", keep_thresholds=keep)
    (_, changes), *_ = drain(Timetable(PLAN, [row]))
    (state,) = (c.state for c in changes if isinstance(c, LinkChange))
    assert (state.share, state.queue_share) == (0.25, 1.0 if keep else 0.25)
    half = PLAN.half(HALF["h0->p0.leaf0"])
    assert half.queue_share(1e-6, PLAN.frame_bytes) * half.data_limit_bytes >= 8 * PLAN.frame_bytes


def test_overlapping_faults_on_one_link_add_up():
    half = HALF["h0->p0.leaf0"]
    rows = [
        ln.loss("h0->p0.leaf0", 0.5, at="1 s", duration="4 s"),
        ln.loss("h0--p0.leaf0", 0.2, at="2 s", duration="2 s", burst=3.0),
        ln.delay("h0->p0.leaf0", "1 ms", at="2 s", duration="2 s"),
        ln.delay("h0->p0.leaf0", "2 ms", at="2 s", duration="2 s"),
        ln.degrade("h0->p0.leaf0", "10 Mb/s", at="2 s", duration="2 s"),
        ln.degrade("h0->p0.leaf0", 0.5, at="2 s", duration="2 s"),
        ln.down("h0->p0.leaf0", at="3 s", duration="10 s"),
        ln.down("h0->p0.leaf0", at="4 s", duration="1 s"),
    ]
    seen = {
        at: next(c.state for c in changes if isinstance(c, LinkChange) and c.half == half)
        for at, changes in drain(Timetable(PLAN, rows))
        if any(isinstance(c, LinkChange) and c.half == half for c in changes)
    }
    assert seen[1] == LinkState(loss=0.5)
    assert seen[2].loss == pytest.approx(0.6) and seen[2].burst == 3.0
    assert seen[2].extra_delay_ps == 3 * 10**9 and seen[2].share == pytest.approx(0.125)
    assert seen[2].queue_share == pytest.approx(0.125)
    assert not seen[3].up and not seen[4].up and seen[4].loss == 0.5
    assert seen[13].healthy


def test_overlapping_duplicates_and_reordering_add_up():
    half = HALF["h0->p0.leaf0"]
    rows = [
        ln.duplicate("h0->p0.leaf0", 0.5, at="1 s", duration="2 s"),
        ln.duplicate("h0--p0.leaf0", 0.2, at="1 s", duration="1 s"),
        ln.reorder("h0->p0.leaf0", 0.1, at="1 s", duration="2 s", by="3 us"),
        ln.reorder("h0->p0.leaf0", 0.5, at="1 s", duration="1 s", by="1 us"),
        ln.loss("h0->p0.leaf0", 0.25, at="1 s", duration="2 s"),
    ]
    (_, first), (_, second), (_, third) = drain(Timetable(PLAN, rows))
    state = next(c.state for c in first if c.half == half)
    assert state.duplicate == pytest.approx(0.6) and state.reorder == pytest.approx(0.55)
    assert state.jitter_ps == 3_000_000 and state.loss == 0.25 and state.extra_delay_ps == 0
    assert second[0].state == LinkState(duplicate=0.5, reorder=0.1, jitter_ps=3_000_000, loss=0.25)
    assert third[0].state.healthy


def test_overlapping_jitters_add_up_and_the_longer_slot_holds():
    half = HALF["h0->p0.leaf0"]
    rows = [
        ln.jitter("h0->p0.leaf0", "3 us", at="1 s", duration="2 s"),
        ln.jitter("h0--p0.leaf0", "1 us", at="1 s", duration="1 s"),
        ln.bunch("h0->p0.leaf0", "7 us", at="1 s", duration="2 s"),
        ln.bunch("h0->p0.leaf0", "5 us", at="1 s", duration="1 s"),
    ]
    (_, first), (_, second), (_, third) = drain(Timetable(PLAN, rows))
    assert next(c.state for c in first if c.half == half) == LinkState(
        wander_ps=4_000_000, slot_ps=7_000_000
    )
    assert second[0].state == LinkState(wander_ps=3_000_000, slot_ps=7_000_000)
    assert third[0].state.healthy


@pytest.mark.parametrize("transport", ["mrc", "roce", "tcp"])
def test_jitter_and_bunches_put_nothing_out_of_order(tmp_path, transport):
    """Real bytes arrive, later; a transport that resends what was overtaken resends nothing."""
    fabric = ln.star(hosts=2, rate="10 Gb/s", delay="1 us")
    job = ln.AllReduce("400 kB", repeat=4, transport=transport)
    by = {
        "nothing": [],
        "jitter": [ln.jitter("*--*", "20 us", at="0 s")],
        "bunch": [ln.bunch("*--*", "20 us", at="0 s")],
    }
    took = {}
    for name, faults in by.items():
        r = ln.run(fabric, job, faults, payload=True, directory=tmp_path / name, seed=2)
        assert r["errors"] == 0 and r.data.wrong == 0 and len(r.data.iterations) == 4
        totals = r.data.totals.values()
        again = ("retransmitted", "data_retransmitted", "drop_queue_full", "nak_sent", "naks_sent")
        assert not any(row.get(counter) for row in totals for counter in again), name
        took[name] = r.data.iterations[-1].end_ps
    assert took["jitter"] > 1.02 * took["nothing"] and took["bunch"] > 1.02 * took["nothing"]


def test_reordered_packets_fall_eight_behind_unless_a_time_is_given():
    ((_, changes),) = drain(Timetable(PLAN, [ln.reorder("h0->p0.leaf0", 0.1, at="1 s")]))
    (change,) = changes
    rate = PLAN.half(change.half).rate_bps
    assert change.state.jitter_ps == round(8 * PLAN.frame_bytes * 8e12 / rate)


@pytest.mark.parametrize("transport", ["mrc", "roce", "tcp"])
def test_packets_twice_and_out_of_order_alter_no_byte(tmp_path, transport):
    """Real bytes arrive as they were sent, and the link counts what it sent twice."""
    fabric = ln.star(hosts=4, rate="10 Gb/s", delay="1 us")
    faults = [ln.duplicate("*--*", 0.05, at="0 s"), ln.reorder("*--*", 0.05, at="0 s", by="20 us")]
    job = ln.AllReduce("400 kB", repeat=4, transport=transport)
    r = ln.run(fabric, job, faults, payload=True, directory=tmp_path, seed=2)
    assert r["errors"] == 0 and r.data.wrong == 0 and len(r.data.iterations) == 4
    links = {name: row for name, row in r.data.totals.items() if name.startswith("link ")}
    sent, twice = (
        sum(row.get(name, 0) for row in links.values()) for name in ("packets", "duplicated")
    )
    assert 0.03 < twice / sent < 0.07


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["down", "loss", "delay", "degrade", "kill"]),
            st.integers(0, 20),
            st.integers(1, 20),
            st.sampled_from(["h0--p0.leaf0", "p0.leaf0->p0.spine1", "p*.leaf1--*"]),
        ),
        max_size=8,
    )
)
def test_whatever_happens_all_is_healed_in_the_end(rows):
    faults = []
    for kind, at, lasts, link in rows:
        span = {"at": f"{at} s", "duration": f"{lasts} s"}
        faults.append(
            {
                "down": lambda s=span, x=link: ln.down(x, **s),
                "loss": lambda s=span, x=link: ln.loss(x, 0.3, **s),
                "delay": lambda s=span, x=link: ln.delay(x, "1 ms", **s),
                "degrade": lambda s=span, x=link: ln.degrade(x, 0.5, **s),
                "kill": lambda s=span: ln.kill("p0.spine*", **s),
            }[kind]()
        )
    table = Timetable(PLAN, faults, reroute_delay=ln.Time("1 s"))
    state, alive, last = {}, {}, -1
    for at, changes in drain(table):
        assert at > last
        last = at
        for change in changes:
            if isinstance(change, LinkChange):
                assert state.get(change.half) != change.state, "a change that changes nothing"
                state[change.half] = change.state
            elif isinstance(change, SwitchChange):
                alive[change.node] = change.alive
    assert table.finished and all(s.healthy for s in state.values()) and all(alive.values())


# --- expected capacity --------------------------------------------------------------------------
def test_the_main_jobs_four_faults_leave_075_1_1_1():
    table, edges = Timetable(PLAN, MAIN), ring(4)
    while (now := table.next_time()) is not None:
        table.advance(now)
    assert {
        w.phase: expected_capacity(PLAN, edges, w.states, w.dead) for w in table.windows
    } == pytest.approx(
        {"nic_link_down": 0.75, "leaf_spine_down": 1, "silent_loss": 1, "spine_down": 1}
    )


def test_healthy_ring_fills_every_port():
    assert edge_rates(PLAN, ring(4)) == pytest.approx([160e6] * 4)


def capacity(faults, plan=PLAN, edges=None, **options):
    table = Timetable(plan, faults)
    table.advance(10**15)
    states = table.windows[0].states
    return expected_capacity(plan, edges or ring(4), states, table.windows[0].dead, **options)


@pytest.mark.parametrize(
    ("fault", "left"),
    [
        (ln.down("h0--p*.leaf0", at="1 s", phase="x"), 0),
        (ln.down("h0--p[01].leaf0", at="1 s", phase="x"), 0.5),
        (ln.down("p0.leaf0--p0.spine*", at="1 s", phase="x"), 0.75),
        (ln.kill("p0.leaf0", at="1 s", phase="x"), 0.75),
        (
            ln.loss("h0->p0.leaf0", 0.2, at="1 s", phase="x"),
            0.95,
        ),  # no clean path left in the plane
        (ln.degrade("h0--p0.leaf0", "10 Mb/s", at="1 s", phase="x"), 0.8125),
        (ln.delay("h0--p0.leaf0", "1 s", at="1 s", phase="x"), 1),
    ],
)
def test_capacity_left(fault, left):
    assert capacity([fault]) == pytest.approx(left)


def test_thin_uplinks_halve_with_one_spine():
    thin = make_plan(
        ln.clos.two_tier(
            planes=2, leaves=2, spines=2, hosts_per_leaf=2, rate="40 Mb/s", delay="0.5 ms"
        )
    )
    assert capacity([ln.kill("p*.spine0", at="1 s", phase="x")], thin) == pytest.approx(0.5)
    assert capacity([ln.kill("p0.spine0", at="1 s", phase="x")], thin) == pytest.approx(0.75)


def test_independent_flows_lose_the_mean():
    edges = ln.Permutation("1 MB").edges([0, 1, 2, 3])
    assert capacity([MAIN[0]], edges=edges, of="mean") == pytest.approx((0.75 + 1 + 1 + 0.75) / 4)
    assert math.isnan(expected_capacity(PLAN, [], {}))
