"""Expected capacity against closed forms, by volumes over links, and against what holds for every
fabric, job and fault: it lies within 0 and 1, and one more fault never raises it."""

import itertools
import math
import random
import statistics
from dataclasses import replace

import highspy
import numpy
import pytest

import loomnet as ln
from loomnet.faults import expected_capacity as expected
from loomnet.faults import linear_program, ways
from loomnet.faults.expected_capacity import edge_rates, expected_capacity, sum_capacity
from loomnet.faults.linear_program import Program, maximize
from loomnet.faults.timetable import LinkState, Timetable
from loomnet.plans.make import make_plan

LINK = {"rate": "100 Gb/s", "delay": "1 us"}
JOBS = (ln.AllReduce, ln.AllToAll, ln.Broadcast, ln.SendRecv, ln.Permutation, ln.Incast)


def capacity(fabric, job, *faults, others=()):
    plan = make_plan(fabric)
    table = Timetable(plan, list(faults))
    table.advance(10**15)
    (window, *_) = table.windows
    hosts = list(range(len(plan.hosts)))
    return expected_capacity(
        plan,
        job.edges(hosts),
        window.states,
        window.dead,
        others=others,
        of="slowest" if job.synchronous else "mean",
    )


def two_tier(spines=4, per_leaf=4, planes=1, **values):
    return ln.clos.two_tier(
        planes=planes, leaves=2, spines=spines, hosts_per_leaf=per_leaf, **{**LINK, **values}
    )


def slower(share):
    return ln.degrade("p0.leaf*--p0.spine*", share, at="1 s", phase="x")


# An all-to-all of 8 on two leaves: 7 volumes leave each NIC, 16 each leaf, by 4 uplinks or fewer.
@pytest.mark.parametrize(
    ("fabric", "fault", "left"),
    [
        (two_tier(), ln.kill("p0.spine0", at="1 s", phase="x"), 1),
        (two_tier(), slower(0.25), 7 / 16),
        (two_tier(spines=2), ln.kill("p0.spine0", at="1 s", phase="x"), 8 / 16),
        (two_tier(spines=2), ln.down("p0.leaf0->p0.spine1", at="1 s", phase="x"), 8 / 16),
        (two_tier(), ln.down("h0->p0.leaf0", at="1 s", phase="x"), 0),
        (two_tier(planes=2), ln.down("h0->p0.leaf0", at="1 s", phase="x"), 1 / 2),
        (two_tier(planes=2, spines=2), ln.kill("p0.spine0", at="1 s", phase="x"), 3 / 4),
        (two_tier(uplink_rate="40 Gb/s"), slower(0.5), 1 / 2),
        # Pods of 4 hosts: 48 volumes leave each by 4 cores, 12 each; 15 leave a NIC. By 3 cores 16.
        (
            ln.clos.three_tier(
                pods=4, leaves_per_pod=2, aggs_per_pod=2, cores_per_agg=2, hosts_per_leaf=2, **LINK
            ),
            ln.kill("p0.core0", at="1 s", phase="x"),
            15 / 16,
        ),
    ],
)
def test_an_all_to_all_by_hand(fabric, fault, left):
    assert capacity(fabric, ln.AllToAll("1 MB"), fault) == pytest.approx(left, abs=1e-9)


def test_pairs_with_unequal_numbers_of_paths_share_by_pairs():
    """h0 sends to its leaf's other host by one way and to another leaf's by four."""
    plan = make_plan(two_tier())
    assert edge_rates(plan, [(0, 2), (0, 1)]) == pytest.approx([50e9] * 2)
    assert edge_rates(plan, [(0, 2), (0, 1), (0, 3)]) == pytest.approx([100e9 / 3] * 3)


def test_independent_flows_keep_what_fits_of_their_healthy_rates():
    """The uplinks carry half of what six flows across want; two inside their leaf lose nothing."""
    fabric = ln.clos.two_tier(planes=1, leaves=2, spines=4, hosts_per_leaf=4, order="block", **LINK)
    hosts = [(0, 1), (4, 5), (1, 4), (2, 7), (3, 6), (5, 0), (6, 2), (7, 3)]
    job = ln.Flows("1 MB", pairs=hosts)
    assert capacity(fabric, job, slower(0.375)) == pytest.approx((2 + 6 * 0.5) / 8)


def test_other_jobs_take_their_share_and_give_it_back_when_they_lose_it():
    fabric = two_tier(spines=1, per_leaf=2)  # h0, h2 on leaf 0; h1, h3 on leaf 1
    plan = make_plan(fabric)
    down = {
        half.number: LinkState(up=False)
        for link in plan.links
        for half in (link.forward, link.backward)
        if half.name == "h2->p0.leaf0"
    }
    assert expected_capacity(plan, [(0, 1)], {}, others=[(2, 3)]) == 1
    # The rival's port is gone: the uplink is this job's alone. Its own port costs it all.
    assert expected_capacity(plan, [(0, 1)], down, others=[(2, 3)]) == 1
    assert expected_capacity(plan, [(2, 3)], down, others=[(0, 1)]) == 0
    half = {
        number: LinkState(share=0.25)
        for number in (2 * link.number for link in plan.links if link.name == "p0.leaf0--p0.spine0")
    }
    assert expected_capacity(plan, [(0, 1)], half, others=[(2, 3)]) == pytest.approx(0.25)


def test_a_chain_ends_where_it_ends():
    """Rank 0 of a broadcast receives nothing, and of a reduction sends nothing."""
    fabric = two_tier(planes=2)
    for job, left in ((ln.Broadcast("1 MB"), (1, 0.5)), (ln.Reduce("1 MB"), (0.5, 1))):
        plan = make_plan(fabric)
        halves = {plan.half(n).name: n for n in range(2 * len(plan.links))}
        edges = job.edges(list(range(8)))
        found = [
            expected_capacity(plan, edges, {halves[name]: LinkState(up=False)})
            for name in ("p0.leaf0->h0", "h0->p0.leaf0")
        ]
        assert found == list(left)


def test_sums_of_switches_need_every_host_in_a_plane():
    fabric = two_tier(planes=2, spines=2)
    plan = make_plan(fabric)
    halves = {plan.half(n).name: n for n in range(2 * len(plan.links))}
    hosts, down = list(range(8)), LinkState(up=False)

    def left(*names, state=down):
        return sum_capacity(plan, hosts, {halves[name]: state for name in names})

    assert left() == 1 and left("h3->p0.leaf1") == 0.5 and left("p1.leaf1->h3") == 0.5
    assert left("p0.leaf0->p0.spine0") == 1  # another tree is as good
    assert left("p0.leaf0->p0.spine0", "p0.leaf0->p0.spine1") == 0.5
    assert left("h3->p0.leaf1", state=LinkState(share=0.5)) == 0.75
    assert left("h3->p0.leaf1", "h2->p1.leaf0") == 0


# --- what always holds ----------------------------------------------------------------------------
def drawn_fabric(draw):
    kind = draw.choice(("two", "two", "three", "graph"))
    if kind == "two":
        fabric = ln.clos.two_tier(
            planes=draw.choice((1, 1, 2)),
            leaves=draw.randint(1, 4),
            spines=draw.randint(1, 4),
            hosts_per_leaf=draw.randint(2, 3),
            uplink_rate=f"{draw.choice((40, 100))} Gb/s",
            **LINK,
        )
    elif kind == "three":
        fabric = ln.clos.three_tier(
            pods=2,
            leaves_per_pod=draw.randint(1, 2),
            aggs_per_pod=draw.randint(1, 2),
            cores_per_agg=draw.randint(1, 2),
            hosts_per_leaf=draw.randint(1, 2),
            **LINK,
        )
    else:
        fabric = ln.Fabric("graph")
        nodes = [fabric.add_switch(f"p0.s{i}") for i in range(draw.randint(2, 8))]
        for i, node in enumerate(nodes[1:], 1):
            for other in draw.sample(nodes[:i], draw.randint(1, min(i, 3))):
                fabric.add_link(node, other, rate=f"{draw.choice((10, 100))} Gb/s", delay="1 us")
        for _ in range(draw.randint(2, 6)):
            fabric.add_link(fabric.add_host(), draw.choice(nodes), **LINK)
    names = [row["link"] for row in fabric.links.rows]
    for name in draw.sample(names, draw.choice((0, 0, 2))):
        fabric.override(name, rate=f"{draw.choice((10, 25, 60))} Gb/s")
    return fabric


def one_more(draw, states, halves):
    half = draw.randrange(halves)
    state = states.get(half, LinkState())
    worse = draw.choice(
        (
            replace(state, up=False),
            replace(state, loss=1 - 0.7 * (1 - state.loss)),
            replace(state, share=state.share * 0.3),
        )
    )
    return {**states, half: worse}


def never_raised(seed):
    draw = random.Random(f"capacity {seed}")
    plan = make_plan(drawn_fabric(draw))
    job = draw.choice(JOBS)("1 MB")
    edges = job.edges(list(range(len(plan.hosts))))
    states, before = {}, 1.0
    for count in range(4):
        left = expected_capacity(plan, edges, states, of="slowest" if job.synchronous else "mean")
        assert 0 <= left <= before + 2e-9, (seed, job, count, before, left)
        assert count or left == 1, (seed, job, left)
        before, states = left, one_more(draw, states, 2 * len(plan.links))


def test_it_is_within_0_and_1_and_one_more_fault_never_raises_it():
    for seed in range(25):
        never_raised(seed)


def test_switches_taken_together_change_nothing(monkeypatch):
    """Against the same programs with every link of its own, also with dead switches and of a part
    of a fabric."""
    telling = 0
    for seed in range(40):
        draw = random.Random(f"alike {seed}")
        tiers = draw.choice((2, 3))
        sizes = (
            {"leaves": 3, "spines": 5}
            if tiers == 2
            else {"pods": 3, "leaves_per_pod": 2, "aggs_per_pod": 3, "cores_per_agg": 3}
        )
        fabric = (ln.clos.two_tier if tiers == 2 else ln.clos.three_tier)(
            planes=draw.choice((1, 2)), hosts_per_leaf=2, uplink_rate="40 Gb/s", **LINK, **sizes
        )
        names = [row["link"] for row in fabric.links.rows]
        for name in draw.sample(names, draw.choice((0, 2))):
            fabric.override(name, rate=f"{draw.choice((10, 25))} Gb/s")
        hosts = sorted(draw.sample(range(len(fabric.hosts)), 5))
        plan = make_plan(fabric, hosts=hosts if draw.random() < 0.5 else None)
        states: dict[int, LinkState] = {}
        present = [half for half in range(2 * len(names)) if plan.topology.present(half // 2)]
        for _ in range(draw.choice((0, 1, 4))):
            states[draw.choice(present)] = draw.choice((LinkState(up=False), LinkState(share=0.3)))
        dead = frozenset(draw.sample(list(plan.topology.switch_numbers), draw.choice((0, 1, 2))))
        job = draw.choice(JOBS)("1 MB")
        edges = job.edges(hosts)
        of = "slowest" if job.synchronous else "mean"
        found = expected_capacity(plan, edges, states, dead, of=of)
        with monkeypatch.context() as patched:
            patched.setattr(expected, "ways_of", lambda plan, *_: ways._EveryLink(plan))
            assert found == pytest.approx(
                expected_capacity(plan, edges, states, dead, of=of), abs=1e-8
            ), seed
        telling += 0 < found < 1
    assert telling > 8


def test_the_program_is_no_larger_with_more_spines():
    def size(spines):
        plan = make_plan(
            ln.clos.two_tier(planes=2, leaves=4, spines=spines, hosts_per_leaf=2, **LINK)
        )
        state = {2 * plan.topology.link_number["p0.leaf1--p0.spine3"]: LinkState(up=False)}
        edges = ln.AllToAll("1 MB").edges(list(range(8)))
        return expected._Traffic(plan, edges, (), state, frozenset())._variables

    assert size(8) == size(64) > 0


@pytest.mark.parametrize("uplink", ["10 Gb/s", "100 Gb/s"])
def test_bottlenecks_that_are_full_at_once_take_one_program(monkeypatch, uplink):
    """All leaves, or all NICs, of a random permutation: not one program for each."""
    plan = make_plan(
        ln.clos.two_tier(
            planes=2, leaves=16, spines=4, hosts_per_leaf=4, uplink_rate=uplink, **LINK
        )
    )
    hosts = list(range(64))
    solved = []
    monkeypatch.setattr(
        linear_program, "maximize", lambda *given: solved.append(1) or maximize(*given)
    )
    rates = expected.edge_rates(plan, ln.Permutation("1 MB", shift="random").edges(hosts))
    assert max(rates) <= 200e9 * (1 + 1e-9) and len(solved) <= 12


@pytest.mark.soak
def test_it_is_so_in_many_fabrics():
    for seed in range(25, 1000):
        never_raised(seed)


def test_a_program_is_solved_whatever_is_taken_together():
    """Of random programs with marks that keep all rows apart, and without."""
    draw = numpy.random.default_rng(5)
    for _ in range(20):
        rows, columns = draw.integers(2, 9, 2)
        matrix = draw.integers(0, 3, (rows, columns)).astype(float)
        matrix[0] = 1  # bounded
        at = numpy.nonzero(matrix)
        limits = draw.integers(0, 3, rows).astype(float)
        found = [
            maximize(Program(*at, matrix[at], limits, marks, int(columns)), numpy.ones(columns))
            for marks in (numpy.zeros(rows), numpy.arange(rows))
        ]
        assert found[0].value == pytest.approx(found[1].value, abs=1e-9)
        assert limits @ found[1].prices == pytest.approx(found[1].value, abs=1e-9)
        for each in found:
            assert (matrix @ each.variables <= limits + 1e-9).all()
            assert each.variables.sum() == pytest.approx(each.value, abs=1e-9)


def best_corner(matrix, limits, objective):
    """Of the points at which as many constraints meet as there are variables, those within all."""
    rows, columns = matrix.shape
    walls = numpy.vstack([matrix, -numpy.eye(columns)])
    ends = numpy.r_[limits, numpy.zeros(columns)]
    best = -math.inf
    for chosen in itertools.combinations(range(rows + columns), columns):
        meeting = walls[list(chosen)]
        if abs(numpy.linalg.det(meeting)) > 1e-9:
            point = numpy.linalg.solve(meeting, ends[list(chosen)])
            if (walls @ point <= ends + 1e-9).all():
                best = max(best, float(objective @ point))
    return best


def test_an_optimum_is_the_best_corner():
    """Also where a limit below 0 keeps a variable up."""
    draw = numpy.random.default_rng(6)
    for number in range(60):
        rows, columns = draw.integers(2, 6), draw.integers(2, 5)
        matrix = draw.choice([-1.0, 0, 0, 1, 1, 2], (rows, columns))
        limits = draw.integers(0, 4, rows).astype(float)
        matrix[0], limits[0] = 1, 3  # bounded
        if number % 2:
            matrix[1], limits[1] = 0, -0.5
            matrix[1, 0] = -1  # the first variable is 1/2 at least
        objective = draw.integers(0, 3, columns).astype(float)
        expected = best_corner(matrix, limits, objective)
        if expected == -math.inf:  # no point is within all
            continue
        at = numpy.nonzero(matrix)
        program = Program(*at, matrix[at], limits, numpy.zeros(rows), int(columns))
        assert maximize(program, objective).value == pytest.approx(expected, abs=1e-9), number


def test_hosts_of_which_no_two_are_alike_have_an_expected_capacity():
    """Of 60 hosts on a switch, 3,540 edges; each host sends and receives 59."""
    fabric = ln.Fabric("unlike")
    switch = fabric.add_switch("p0.s0")
    for number in range(60):
        fabric.add_link(fabric.add_host(), switch, rate=f"{100 + number} Gb/s", delay="1 us")
    job = ln.AllToAll("1 MB")
    assert edge_rates(make_plan(fabric), job.edges(list(range(60))))[0] == pytest.approx(100e9 / 59)
    for share, left in ((0.5, 159 / 200), (0.8, 1)):
        fault = ln.degrade("h59--p0.s0", share, at="1 s", phase="x")
        assert capacity(fabric, job, fault) == pytest.approx(left)


def test_the_solver_says_nothing_and_takes_the_threads_that_a_scenario_gave_it(capfd):
    """All of HiGHS in a process has one number of threads, and refuses another one."""
    fabric, job = two_tier(spines=2), ln.AllToAll("1 MB")
    fault = ln.kill("p0.spine0", at="1 s", phase="x")
    assert capacity(fabric, job, fault) == 0.5
    assert capfd.readouterr() == ("", "")
    highspy.Highs.resetGlobalScheduler(True)
    try:
        theirs = highspy.Highs()
        theirs.silent()
        theirs.setOptionValue("threads", 2)
        theirs.maximize(theirs.addVariable(ub=3))
        assert theirs.getObjectiveValue() == 3
        capfd.readouterr()
        assert capacity(fabric, job, fault) == 0.5
        assert capfd.readouterr() == ("", "")
    finally:
        highspy.Highs.resetGlobalScheduler(True)


# --- against what is measured ---------------------------------------------------------------------
@pytest.mark.parametrize(
    "run",
    [
        (
            two_tier(),
            ln.AllToAll("2 MB", repeat=60),
            ln.kill("p0.spine0", at="2 ms", duration="3 ms", phase="x"),
            1,
        ),
        (
            two_tier(),
            ln.AllToAll("2 MB", repeat=60),
            ln.degrade("p0.leaf*--p0.spine*", 0.25, at="2 ms", duration="3 ms", phase="x"),
            1,
        ),
        # Large enough that two spines are as full as one: of 2 MB they carry 0.74 of their rate,
        # one spine 0.83, and the ratio is 0.55.
        (
            two_tier(spines=2),
            ln.AllToAll("16 MB", repeat=16),
            ln.kill("p0.spine0", at="8 ms", duration="12 ms", phase="x"),
            4,
        ),
        (
            two_tier(planes=2),
            ln.AllReduce("2 MB", repeat=60),
            ln.down("h0--p0.leaf0", at="2 ms", duration="3 ms", phase="x"),
            1,
        ),
        (
            two_tier(planes=2),
            ln.Permutation("2 MB", repeat=60),
            ln.down("h0--p0.leaf0", at="2 ms", duration="3 ms", phase="x"),
            1,
        ),
    ],
    ids=["spare-spine", "slow-uplinks", "half-the-spines", "port", "port-of-a-permutation"],
)
def test_mrc_has_the_goodput_that_is_expected(tmp_path, run):
    pytest.importorskip("loomnet._core")
    fabric, job, fault, seeds = run
    runs = [
        ln.run(fabric, job, [fault], directory=tmp_path / f"run{seed}", seed=seed)
        for seed in range(seeds)
    ]
    expected = runs[0]["x.expected_capacity"]
    kept = [r["x.goodput_ratio"] for r in runs]
    assert 0.9 * expected <= statistics.mean(kept) <= 1.08 * expected
    assert all(0.8 * expected <= each <= 1.15 * expected for each in kept)
