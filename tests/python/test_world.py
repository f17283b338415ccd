"""`ln.World`: a fabric with its traffic, stepped by the caller."""

import copy
import pickle

import numpy as np
import pytest

import loomnet as ln
from loomnet.base.errors import LoomnetError

CUBIC, HELD = {"cc": "cubic"}, {"cc": "held"}


def bottleneck(rate="100 Mb/s", **values):
    return ln.dumbbell(left=2, right=2, rate="1 Gb/s", bottleneck=rate, delay="5 ms", **values)


def two(size="1 GB", **values):
    return ln.Flows(size, pairs=[(0, 2), (1, 3)], transport="tcp", **values)


def through(world, step, most=10**6):
    """All rows on the way to the end."""
    rows = [world.reset()]
    while not world.done and len(rows) < most:
        rows.append(world.step(world.now + step))
    return rows


@pytest.mark.parametrize("transport", ["mrc", "roce", "tcp"])
def test_its_flows_are_those_of_a_run_to_the_picosecond(tmp_path, transport):
    fabric = ln.clos.two_tier(
        planes=2, leaves=2, spines=2, hosts_per_leaf=2, rate="10 Gb/s", delay="1 us"
    )
    job = ln.Flows(["20 kB", "300 kB"], count=24, load=0.6, transport=transport)
    fault = ln.loss("h0->p0.leaf0", 0.05, at="20 us", duration="1 ms")
    r = ln.Lab("run", seed=3, directory=tmp_path).run(fabric, job, [fault])
    world = ln.World(fabric, job, seed=3, faults=[fault])
    seen = through(world, ln.Time("7 us"), 400)
    world.step("10 s")
    assert world.done and np.array_equal(world.flows[0].columns, r.data.flows.columns)
    assert {int(flow) for rows in seen for flow in rows["flow"]} <= set(range(24))
    # Begun anew it is the same, and by another seed it is not.
    world.reset()
    world.step("10 s")
    assert np.array_equal(world.flows[0].columns, r.data.flows.columns)
    world.reset(seed=4)
    world.step("10 s")
    assert not np.array_equal(world.flows[0].columns, r.data.flows.columns)
    world.reset(np.int64(3))
    world.step("10 s")
    assert np.array_equal(world.flows[0].columns, r.data.flows.columns)


def test_two_worlds_side_by_side_do_not_hear_of_one_another():
    def alone(seed):
        world = ln.World(bottleneck(), two("2 MB"), seed, tcp=CUBIC)
        return [rows.tobytes() for rows in through(world, ln.Time("20 ms"))]

    a, b = (ln.World(bottleneck(), two("2 MB"), seed, tcp=CUBIC) for seed in (1, 2))
    seen = [a.reset()], [b.reset()]
    while not (a.done and b.done):
        for world, rows in zip((a, b), seen, strict=True):
            if not world.done:
                rows.append(world.step(world.now + ln.Time("20 ms")))
    assert [[rows.tobytes() for rows in each] for each in seen] == [alone(1), alone(2)]


def test_rows_say_what_senders_hold_and_act_says_what_they_may_send_by():
    # Round trip 30 ms and a packet's time; a window of 30 kB gives 8 Mb/s, twice of it 16.
    world = ln.World(bottleneck(), two(), tcp=HELD, jitter="0 s")
    world.reset()
    rows = world.step("1 ms")
    assert rows["flow"].tolist() == [0, 1] and rows["source"].tolist() == [0, 1]
    assert rows["destination"].tolist() == [2, 3] and rows["job"].tolist() == [0, 0]
    world.act([0, 1], cwnd=[30_000, 60_000])
    first = world.step("1 s")
    assert first["cwnd"].tolist() == [30_000, 60_000]
    then = world.step("2 s")
    rates = (then["acked"] - first["acked"]) * 8
    round_trip = then["srtt_ps"] / 1e12
    assert rates == pytest.approx(np.array([30_000, 60_000]) * 8 / round_trip, rel=0.1)
    # A mask and one number for all; what is NaN or left out stays.
    world.act(then["flow"] == 1, cwnd=15_000)
    world.act(slice(None), cwnd=[np.nan, np.nan], pacing=[0, 2e6])
    assert world.step("2.5 s")["cwnd"].tolist() == [30_000, 15_000]
    before = world.step("3 s")
    later = world.step("4 s")
    assert later["pacing_bps"].tolist() == [0, 2e6]
    assert ((later["acked"] - before["acked"]) * 8)[1] == pytest.approx(2e6, rel=0.1)


@pytest.mark.parametrize(
    ("transport", "options"), [("tcp", CUBIC), ("mrc", {}), ("roce", {"cc": "dctcp_like"})]
)
def test_a_window_that_is_set_to_what_it_is_changes_nothing(transport, options):
    ends = []
    for acts in (False, True):
        world = ln.World(
            bottleneck(),
            ln.Flows("3 MB", pairs=[(0, 2), (1, 3)], transport=transport),
            2,
            **{transport: options},
        )
        world.reset()
        for tick in range(1, 60):
            rows = world.step(f"{20 * tick} ms")
            if acts and len(rows):
                world.act(slice(None), cwnd=rows["cwnd"])
        ends.append(world.flows[0].columns.tolist())
    assert world.done and ends[0] == ends[1]


@pytest.mark.parametrize("transport", ["tcp", "mrc", "roce"])
def test_a_rate_is_kept_however_often_it_is_set(transport):
    """Also while a packet waits for its time: the same rate changes nothing, and half the rate is
    half the bytes."""

    def sent(rate, every):
        job = ln.Flows("1 GB", pairs=[(0, 2), (1, 3)], transport=transport)
        world = ln.World(bottleneck(), job, 2, **{transport: HELD})
        world.reset()
        world.step("20 ms")
        world.act(slice(None), cwnd=1e6, pacing=rate)
        before = world.step("1 s")["acked"].sum()  # what was on its way has arrived
        for tick in range(1_000_000 + every, 1_400_001, every):
            rows = world.step(f"{tick} us")
            world.act(slice(None), pacing=rate)
        return rows["acked"].sum() - before

    once, often = (sent(4e6, every) for every in (400_000, 160))
    assert once == often
    assert once == pytest.approx(4e6 * 2 / 8 * 0.4, rel=0.1)
    assert sent(2e6, 400_000) == pytest.approx(once / 2, rel=0.1)


def test_a_closed_window_that_opens_sends_at_once():
    """Nothing but act() tells the sender that it may: no acknowledgement is under way."""
    for transport, options in (
        ("tcp", {"tcp": HELD}),
        ("mrc", {"mrc": HELD}),
        ("roce", {"roce": HELD}),
    ):
        fabric = ln.star(hosts=2, rate="10 Gb/s", delay="1 us")
        world = ln.World(fabric, ln.Flows("10 MB", pairs=[(0, 1)], transport=transport), **options)
        world.reset()
        rows = world.step("200 us")
        world.act(slice(None), pacing=1e5)  # a packet in 160 ms
        world.step("20 ms")
        before = world.step("21 ms")
        world.act(slice(None), cwnd=1e6, pacing=0)
        after = world.step("22 ms")
        assert len(rows) and after["acked"].sum() - before["acked"].sum() > 500_000, transport


def test_flows_come_and_go_by_a_timetable():
    lasts = [ln.Time("2 s"), ln.Time("1 s"), ln.Time("500 ms")]
    job = ln.Flows(
        "10 GB",
        pairs=[(0, 2), (1, 3), (0, 2)],
        transport="tcp",
        starts=["0 s", "500 ms", "700 ms"],
        lifetimes=lasts,
    )
    world = ln.World(bottleneck(), job, tcp=CUBIC)
    there = {}
    world.reset()
    while not world.done:
        for flow in world.step(world.now + ln.Time("50 ms"))["flow"].tolist():
            there.setdefault(flow, []).append(world.now.count / 1e12)
    assert {flow: round(min(at), 2) for flow, at in there.items()} == {0: 0.05, 1: 0.5, 2: 0.7}
    _, _, size, start, end, _ = world.flows[0].columns
    took = (end - start) / 1e12
    # It ends with what was under way: within some round trips of 30 ms and a queue.
    assert all(
        want.count / 1e12 <= each < want.count / 1e12 + 0.2
        for want, each in zip(lasts, took, strict=True)
    )
    assert 0.8 < size.sum() * 8 / (end.max() / 1e12) / 100e6 < 1


def test_a_thousand_worlds_in_one_process():
    fabric, job = bottleneck("1 Gb/s"), two("20 kB")
    world = ln.World(fabric, job, tcp=CUBIC)
    ends = set()
    for seed in range(1000):
        world.reset(seed=seed)
        world.step("1 s")
        assert world.done
        ends.add(int(world.flows[0].columns[4].max()))
    assert len(ends) > 100  # jitter of the start is the seed's


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda w: w.act([0], cwnd=1), r"World.act: call reset\(\) first"),
        (
            lambda w: ln.World(bottleneck(), two(), controllers=[]),
            r"World: controllers= is of lab.run; a world shows its rows, and act\(\)",
        ),
        (lambda w: ln.World(bottleneck(), two(), sample="1 ms"), "World: sample= is of lab.run"),
        (lambda w: w.reset(np.float64(7)), "must be a whole number"),
        (
            lambda w: (w.reset(), w.step("1 s"), w.step("1 ms")),
            "World.step: 1 ms is over; it is 1 s",
        ),
        (lambda w: (w.reset(), w.act([7], cwnd=1)), "World.act: rows: the last look had"),
        (
            lambda w: (w.reset(), w.step("9 ms"), w.act([0, 1], cwnd=[1, 2, 3])),
            "not a number or a size, nor one",
        ),
        (
            lambda w: (w.reset(), w.step("9 ms"), w.act([0], cwnd=-5)),
            "World.act: cwnd: -5 is not a window of 0 to 9e15 bytes",
        ),
        (
            lambda w: (w.reset(), w.step("9 ms"), w.act([0, 1], cwnd=[1e5, float("inf")])),
            "World.act: cwnd: inf is not a window of 0 to 9e15 bytes; NaN leaves it as it is",
        ),
        (
            lambda w: (w.reset(), w.step("9 ms"), w.act([0], pacing=float("-inf"))),
            "World.act: pacing: -inf is not a rate of 1 bit/s to 9.2e18, nor 0: not paced",
        ),
        (
            lambda w: (w.reset(), w.step("9 ms"), w.act([0, 1, 0], cwnd=1e5)),
            "World.act: rows: row 0 is given more than once",
        ),
        (
            lambda w: (w.reset(), w.step("9 ms"), w.act([1, -1], pacing=[1e6, 2e6])),
            "World.act: rows: row 1 is given more than once",
        ),
        (lambda w: (w.reset(), w.step("9 ms"), w.act([0], pacing=-5)), "a rate of 1 bit/s to"),
        (
            lambda w: (w.reset(), w.step("9 ms"), w.act([0], pacing=1e20)),
            "a rate of 1 bit/s to 9.2e18",
        ),
        (
            lambda w: (w.reset(), w.step("9 ms"), w.act([0], pacing=1e-3)),
            "a rate of 1 bit/s to 9.2e18",
        ),
        (
            lambda w: (w.reset(), w.step("9 ms"), w.act(None, cwnd=1e5)),
            "give numbers of rows, a slice",
        ),
        (lambda w: (w.reset(), w.step("9 ms"), w.act(True, cwnd=1e5)), "a mask of as many bools"),
        (lambda w: (w.reset(), copy.copy(w)), "World: no copy of it can be made"),
        (lambda w: (w.reset(), copy.deepcopy(w)), "World: no copy of it can be made"),
        (lambda w: (w.reset(), pickle.dumps(w)), "World: no copy of it can be made"),
        (lambda w: (w.reset(), w.step(5)), "World.step: until"),
        (lambda w: w.reset(seed="x"), "seed"),
    ],
)
def test_what_cannot_be_is_one_line(call, line):
    with pytest.raises(LoomnetError, match=line):
        call(ln.World(bottleneck(), two(), tcp=HELD))


@pytest.mark.parametrize("transport", ["tcp", "mrc", "roce"])
@pytest.mark.parametrize("rate", [1, 9.2e18])
def test_the_slowest_and_the_fastest_rate_that_can_be_set(transport, rate):
    job = ln.Flows("1 GB", pairs=[(0, 2), (1, 3)], transport=transport)
    world = ln.World(bottleneck(), job, **{transport: HELD})
    world.reset()
    world.step("20 ms")
    world.act(0, pacing=rate)
    world.act(np.int64(1), pacing=rate)
    before = world.step("1 s")["acked"].sum()
    after = world.step("1.4 s")["acked"].sum()
    assert (after == before) == (rate == 1)
    assert repr(world) == "World(Flows; at 1.4 s)"


@pytest.mark.parametrize("cc", ["dcqcn", "timely"])
@pytest.mark.parametrize("acted", [[0], [0, 1]])
def test_a_window_given_to_a_sender_that_has_none_moves_no_other_column(cc, acted):
    """These controls have a rate alone, and so wide a window does not hold a sender back."""
    job = ln.Flows("10 MB", pairs=[(0, 2), (1, 3)], transport="roce")
    alone, held = (ln.World(bottleneck(), job, seed=1, roce={"cc": cc}) for _ in range(2))
    for world in (alone, held):
        world.reset()
        world.step("20 ms")
    before = held.step("30 ms")
    assert np.isnan(before["cwnd"]).all()
    held.act(acted, cwnd=1e9)
    rows, others = held.step("50 ms"), alone.step("50 ms")
    assert rows.dtype == others.dtype == before.dtype
    for name in rows.dtype.names:
        if name != "cwnd":
            assert np.array_equal(rows[name], others[name], equal_nan=True), name
    assert (rows["cwnd"][acted] == 1e9).all() and np.isnan(np.delete(rows["cwnd"], acted)).all()


@pytest.mark.parametrize("order", [("tcp", "roce"), ("mrc", "tcp")])
def test_flows_of_two_transports_that_start_together_meet(order):
    hosts = ("h0", "h1", "h2", "h3")
    jobs = [
        ln.Flows("1 MB", pairs=[pair], transport=each, hosts=hosts, name=each, starts=["0 s"])
        for pair, each in zip([(0, 2), (1, 3)], order, strict=True)
    ]
    r = ln.run(bottleneck(), jobs, write=False)
    assert [r.job(each).time_zero_s for each in order] == [0, 0]
    world = ln.World(bottleneck(), jobs, jitter="0 s")
    rows = world.reset()
    assert list(rows["job"]) == [0, 1] and not rows["acked"].any()


def test_a_limit_that_is_nan_stays_as_it_is():
    world = ln.World(bottleneck(), two(), tcp=HELD)
    world.reset()
    before = world.step("9 ms")["cwnd"]
    world.act(slice(None), cwnd=[np.nan, 50_000])
    world.act([False, True], pacing=np.nan)
    assert world.step("10 ms")["cwnd"].tolist() == [before[0], 50_000]


def test_jobs_that_are_no_flows_are_refused():
    with pytest.raises(LoomnetError, match=r"World: AllReduce is no job of flows; give ln\.Flows"):
        ln.World(bottleneck(), ln.AllReduce("1 MB", transport="tcp"))
    with pytest.raises(LoomnetError, match="lifetimes has 1 times for 2 flows"):
        two(lifetimes=["1 s"])
    with pytest.raises(LoomnetError, match="roce: without a congestion control"):
        world = ln.World(
            ln.star(hosts=2, rate="10 Gb/s", delay="1 us"),
            ln.Flows("10 MB", pairs=[(0, 1)], transport="roce"),
        )
        world.reset()
        world.step("100 us")
        world.act([0], cwnd=5000)


@pytest.mark.parametrize("transport", ["mrc", "roce", "tcp"])
def test_held_senders_show_their_round_trips_over_each_transport(transport):
    fabric = ln.clos.two_tier(
        planes=1, leaves=2, spines=2, hosts_per_leaf=2, rate="10 Gb/s", delay="1 us"
    )
    world = ln.World(
        fabric, ln.Flows("4 MB", pairs=[(0, 1), (2, 1)], transport=transport), **{transport: HELD}
    )
    world.reset()
    rows = world.step("300 us")
    assert (rows["min_rtt_ps"] >= 8e6).all()  # four links of 1 us, there and back
    assert (rows["srtt_ps"] >= rows["min_rtt_ps"]).all() and (rows["srtt_ps"] < 1e8).all()
    # Both go to one host: windows held above what the path holds show as a queue.
    world.act(slice(None), cwnd=rows["cwnd"] * 8)
    later = world.step("2 ms")
    assert (later["srtt_ps"] > 1.2 * rows["min_rtt_ps"]).all()
