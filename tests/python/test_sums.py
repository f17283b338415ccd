"""All-reduces that switches sum, on the virtual clock: sums are exact under every policy, on one
and two levels of switches and several planes, whatever links lose; and what is refused."""

import pytest

import loomnet as ln

POLICIES = ("esa", "atp", "switchml")


def star(policy="esa", hosts=4, server=True, **options):
    fabric = ln.star(hosts=hosts, rate="10 Gb/s", delay="1 us")
    if server:
        fabric.add_host("ps", role="server")
        fabric.add_link("ps", "p0.leaf0", rate="10 Gb/s", delay="1 us")
    return fabric.program("*", "aggregate", policy=policy, **options)


def clos(policy="esa", planes=1, **options):
    fabric = ln.clos.two_tier(
        planes=planes, leaves=2, spines=2, hosts_per_leaf=4, rate="10 Gb/s", delay="1 us"
    )
    return fabric.program("*", "aggregate", policy=policy, **options)


def go(tmp_path, fabric, job=None, faults=(), **options):
    options.setdefault("payload", True)
    return ln.run(
        fabric,
        job or ln.AllReduce("300 kB", repeat=3, allreduce="ina"),
        faults,
        seed=3,
        directory=tmp_path,
        **options,
    )


def counted(r, name):
    return sum(row.get(name, 0) for row in r.data.totals.values())


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("server", [True, False])
def test_switches_make_exact_sums(tmp_path, policy, server):
    r = go(tmp_path, star(policy, server=server))
    assert r["errors"] == 0 and r.data.wrong == 0 and len(r.data.iterations) == 3
    # Of values, and the same number whose exponents travel before any value: up to 576 do.
    fragments = 3 * 2 * -(-300_000 // 1024)
    assert counted(r, "complete") == fragments
    if policy != "switchml":
        assert counted(r, "ina.full") == fragments and counted(r, "ina.from_parts") == 0


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("planes", [1, 2])
def test_two_levels_and_several_planes(tmp_path, policy, planes):
    r = go(tmp_path, clos(policy, planes))
    assert r["errors"] == 0 and r.data.wrong == 0
    for plane in range(planes):
        switches = {
            s: r.switch(s).counters.get("complete", 0)
            for s in (f"p{plane}.leaf0", f"p{plane}.leaf1", f"p{plane}.spine0", f"p{plane}.spine1")
        }
        assert switches[f"p{plane}.leaf1"] > 100 and switches[f"p{plane}.leaf0"] > 100
        # One of the spines alone is on the tree, and has one way below it: it sums nothing.
        assert [switches[f"p{plane}.spine{n}"] for n in (0, 1)] == [0, 0]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("loss", [0.0001, 0.01])
def test_lost_packets_change_no_sum(tmp_path, policy, loss):
    r = go(
        tmp_path,
        clos(policy, pool="64 KiB"),
        faults=[ln.loss("*--*", loss, at="0 s")],
        ina={"rto_first": 10**9, "switchml_timeout": 10**9, "window": 64},
    )
    assert r["errors"] == 0 and r.data.wrong == 0 and len(r.data.iterations) == 3
    assert loss < 0.01 or counted(r, "ina.resend") > 0


@pytest.mark.parametrize("policy", POLICIES)
def test_jobs_share_a_small_pool_and_stay_exact(tmp_path, policy):
    fabric = ln.star(hosts=8, rate="10 Gb/s", delay="1 us")
    fabric.program("*", "aggregate", policy=policy, pool=32 * 1056)
    jobs = [ln.AllReduce("200 kB", repeat=3, ranks=4, allreduce="ina", name=name) for name in "ab"]
    r = go(tmp_path, fabric, jobs, ina={"window": 32, "rto_first": 10**9})
    for name in "ab":
        assert r[f"{name}.errors"] == 0 and r.job(name).data.wrong == 0


def test_the_same_seed_gives_the_same_report(tmp_path):
    runs = [
        go(
            tmp_path / str(n),
            clos(pool="32 KiB"),
            faults=[ln.loss("*--*", 0.01, at="0 s")],
            ina={"rto_first": 10**9},
        )
        for n in range(2)
    ]
    assert str(runs[0].metrics) == str(runs[1].metrics)
    assert runs[0].data.totals == runs[1].data.totals


def test_sums_beat_the_ring_where_the_links_bind(tmp_path):
    """2 (n - 1) / n times the bytes go over a rank's link in a ring."""
    fabric = star()
    times = {
        how: go(
            tmp_path / how,
            fabric,
            ln.AllReduce("8 MB", allreduce=how),
            payload=False,
        ).data.iterations[0]
        for how in ("ring", "ina")
    }
    took = {how: each.end_ps - each.start_ps for how, each in times.items()}
    assert 1.35 < took["ring"] / took["ina"] < 1.6


REFUSED = {
    "no program": (
        lambda: ln.star(hosts=4, rate="10 Gb/s", delay="1 us"),
        {},
        'AllReduce: allreduce="ina" needs switches that sum; say which: '
        'fabric.program("p0.*", "aggregate", policy="esa")',
    ),
    "a switch that only forwards": (
        lambda: clos().program("p0.spine*"),
        {},
        "in no plane do all switches between its hosts",
    ),
    "two policies": (
        lambda: clos().program("p0.leaf0", "aggregate", policy="atp"),
        {},
        "p0.leaf0 sums with policy=atp, p0.leaf1 with esa",
    ),
    "no slots for SwitchML": (
        lambda: star("switchml", pool=1056),
        {},
        "p0.leaf0 has 1 slots, and SwitchML needs 2",
    ),
    "a leaf without slots under SwitchML": (
        lambda: clos("switchml").program("p0.leaf1", "aggregate", policy="switchml", pool=0),
        {},
        "p0.leaf1 has 0 slots, and SwitchML needs 2",
    ),
    "a root without slots under SwitchML": (
        lambda: clos("switchml").program("p0.leaf0", "aggregate", policy="switchml", pool=0),
        {},
        "p0.leaf0 has 0 slots, and SwitchML needs 2",
    ),
    "results by ATP's switches": (
        lambda: star("atp"),
        {"ina": {"result_path": "switch", "index_policy": "seq"}},
        'ina: result_path="switch" goes with policy="esa", and the switches sum with atp',
    ),
    "results by SwitchML's switches": (
        lambda: star("switchml"),
        {"ina": {"result_path": "switch"}},
        'result_path="switch" goes with policy="esa"',
    ),
    "a window of none": (star, {"ina": {"window": 0}}, "ina: window=0 must be a whole number"),
    "a pool below a slot": (
        lambda: star(pool=1000),
        {},
        "pool: 1000 bytes are less than a slot, 1056 for these values",
    ),
    "a time in words": (
        star,
        {"ina": {"rto_first": "5 ms"}},
        "rto_first has the wrong type, which is a whole number (1000000 to",
    ),
    "a time without an end": (star, {"ina": {"rto_min": 50}}, "rto_min: 1000000 to"),
    "a slip": (star, {"ina": {"windw": 5}}, "windw"),
    "what switches say": (star, {"ina": {"pool": 5}}, "ina: pool is the switches' to say"),
    "a quantisation": (star, {"ina": {"quant": "int8"}}, 'ina: quant="int8" is not one of'),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_summed_is_one_line(tmp_path, monkeypatch, what):
    monkeypatch.chdir(tmp_path)
    fabric, options, line = REFUSED[what]
    with pytest.raises(ln.UsageError) as refused:
        ln.run(fabric(), ln.AllReduce("10 kB", allreduce="ina"), **options)
    assert line in str(refused.value) and "\n" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("slots", [0, 4])
def test_switchml_moves_to_no_tree_that_lacks_its_slots(tmp_path, slots):
    """The spine that is left when the other dies has fewer slots than the job's share, and the
    parts of several leaves meet there: no sum is better than a wrong one."""
    fabric = ln.clos.two_tier(
        planes=1, leaves=3, spines=2, hosts_per_leaf=2, rate="10 Gb/s", delay="1 us"
    ).program("*", "aggregate", policy="switchml")
    job = ln.AllReduce("1 MB", repeat=8, allreduce="ina", stall_timeout="2 s")
    ended = []
    for spine in ("p0.spine0", "p0.spine1"):
        other = "p0.spine1" if spine == "p0.spine0" else "p0.spine0"
        fabric.program("p0.spine*", "aggregate", policy="switchml")
        fabric.program(other, "aggregate", policy="switchml", pool=slots * 1056)
        try:
            r = go(tmp_path / spine, fabric, job, [ln.kill(spine, at="1 ms")])
        except ln.UsageError as refused:  # the job's first tree is by the other
            assert slots == 0 and f"{other} has 0 slots" in str(refused)
            continue
        assert r.data.wrong == 0
        ended.append(r.data.reason or "")
    assert any("no plane joins its hosts and h0 any more" in reason for reason in ended)


def test_options_of_sums_may_stand_where_no_job_has_any(tmp_path):
    """The same call then compares sums in switches with a ring."""
    ina = {"quant": "fixed", "window": 64}
    r = go(tmp_path, star(), ln.AllReduce("10 kB"), ina=ina)
    assert r["errors"] == 0
    with pytest.raises(ln.UsageError, match=r"ina: no option qant; nearest: quant"):
        go(tmp_path / "b", star(), ln.AllReduce("10 kB"), ina={"qant": "fixed"})


@pytest.mark.parametrize("size", ["1 B", "3 B"])
def test_a_sum_of_less_than_one_value_is_refused(size):
    with pytest.raises(ln.UsageError, match="size: switches sum values of 4 B"):
        ln.AllReduce(size, allreduce="ina")
    assert ln.AllReduce("4 B", allreduce="ina").size.bytes == 4
    assert ln.AllReduce(size).allreduce == "ring"  # whose bytes are no values


def test_jobs_without_sums_refuse_them():
    for job in (
        lambda: ln.AllToAll("1 MB", allreduce="ina"),
        lambda: ln.AllReduce("1 MB", server="h0"),
    ):
        with pytest.raises(ln.UsageError, match=r"leave it out|goes with"):
            job()
    with pytest.raises(ln.UsageError, match='"ina" carries sums alone'):
        ln.run(star(), ln.AllReduce("1 MB", transport="ina"))
    with pytest.raises(ln.UsageError, match='server: no host "h99"'):
        ln.run(star(), ln.AllReduce("1 MB", allreduce="ina", server="h99"))
    with pytest.raises(ln.UsageError, match="option hop is set by the run"):
        star(hop=3)


@pytest.mark.parametrize("server", [True, False])
@pytest.mark.parametrize("two_levels", [True, False])
def test_the_root_may_answer_the_workers_itself(tmp_path, server, two_levels):
    """result_path="switch": sums that are whole at the root go to the workers at once."""
    fabric = clos() if two_levels else star(server=server)
    ina = {"result_path": "switch", "index_policy": "static", "rto_first": 10**9}
    r = go(tmp_path / "clean", fabric, ina=ina)
    assert r["errors"] == 0 and r.data.wrong == 0 and counted(r, "ina.result_sent") == 0
    assert counted(r, "answered") == 3 * 2 * 293
    assert counted(r, "answered") - counted(r, "ina.full") <= 1  # the last is on its way
    r = go(tmp_path / "lossy", fabric, faults=[ln.loss("*--*", 0.001, at="0 s")], ina=ina)
    assert r["errors"] == 0 and r.data.wrong == 0 and counted(r, "ina.result_sent") > 0
    with pytest.raises(ln.UsageError, match="result_path: switch needs index_policy static or seq"):
        go(tmp_path / "b", fabric, ina={"result_path": "switch"})


def long(repeat, stall_timeout="0.2 s"):
    return ln.AllReduce("100 kB", repeat=repeat, allreduce="ina", stall_timeout=stall_timeout)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    "what, planes",
    [
        ("p0.spine*", 2),
        ("p0.leaf0", 2),
        ("p0.leaf1", 2),
        ("h1--p0.leaf1", 2),
        ("h0--p0.leaf0", 2),
        ("p0.spine1", 1),
        ("p0.leaf1--p0.spine*", 2),
    ],
)
def test_a_job_moves_to_a_tree_that_is_left(tmp_path, policy, what, planes):
    """A switch dies, the port of the server's host, that of a worker's, or a link of the tree. It
    lasts for a third of the run or more, and the job goes on long before it ends."""
    fabric = clos(policy, planes)
    make = ln.down if "--" in what else ln.kill
    fault = make(what, at=ln.step(30), duration="8 ms", phase="cut")
    r = go(
        tmp_path,
        fabric,
        long(130),
        [fault],
        reroute_delay="1 ms",
        ina={"rto_first": 10**9, "switchml_timeout": 10**9},
    )
    assert r.data.wrong == 0
    if policy == "switchml" and r.data.ended == "stalled":
        # Some workers had a sum of the old tree and do not send their parts again.
        assert "its sums are made at p" in r.data.reason
        return
    assert r["errors"] == 0 and len(r.data.iterations) == 130
    assert r.data.iterations[-1].start_ps > r.data.iterations[30].start_ps + 8e9
    if policy != "switchml":
        assert r["cut.recovery_s"] is not None and r["cut.recovery_s"] < 0.008


@pytest.mark.parametrize("policy", POLICIES)
def test_a_switch_that_reboots_makes_no_wrong_sum(tmp_path, policy):
    fault = ln.kill("p0.leaf0", at=ln.step(20), duration="2 ms", reboot="1 ms", phase="dead")
    r = go(
        tmp_path,
        star(policy),
        long(100, stall_timeout="1 s"),
        [fault],
        ina={"rto_first": 10**9, "switchml_timeout": 10**9},
    )
    assert r.data.wrong == 0
    if policy == "switchml":  # it forgot whom it had answered
        assert r.data.ended in ("finished", "stalled")
    else:
        assert r["errors"] == 0 and len(r.data.iterations) == 100


def test_a_job_that_has_ended_leaves_its_slots_to_others(tmp_path):
    """Job a loses all that one worker sends and ends with partial sums in every slot, before any
    timer of its own could have freed them. ATP evicts nobody: job b gets slots by that alone."""
    fabric = ln.star(hosts=8, rate="10 Gb/s", delay="1 us")
    fabric.program("*", "aggregate", policy="atp", pool=16 * 1056)
    common = {"ranks": 4, "allreduce": "ina"}
    jobs = [
        ln.AllReduce("200 kB", repeat=2, name="a", stall_timeout="2 ms", **common),
        ln.AllReduce("200 kB", repeat=40, name="b", start="1 ms", **common),
    ]
    r = go(
        tmp_path,
        fabric,
        jobs,
        [ln.loss("h1->p0.leaf0", 1.0, at="0 s")],
        ina={"window": 64, "rto_first": 10**12, "rto_min": 10**12},
    )
    assert r.job("a").data.ended == "stalled"
    assert r.job("b").data.wrong == 0 and r["b.errors"] == 0
    switch = r.job("b").switch("p0.leaf0")
    assert switch.counters["takeover"] >= 8
    assert not [row for row in switch.snapshot()["slots"] if row["state"] and row["job"] == 2]


@pytest.mark.parametrize("seed", range(3))
def test_switchml_jobs_share_no_slot_where_pools_differ(tmp_path, seed):
    """Job a sums at leaf0 alone, b across both leaves, of which leaf1 has an eighth of the slots.
    Without loss, slots that two jobs had would cost time; with it, sums would wait for good."""
    fabric = ln.clos.two_tier(
        planes=1, leaves=2, spines=1, hosts_per_leaf=4, rate="10 Gb/s", delay="1 us"
    )
    fabric.program("*", "aggregate", policy="switchml", pool=512 * 1056)
    fabric.program("p0.leaf1", "aggregate", policy="switchml", pool=64 * 1056)
    jobs = [
        ln.AllReduce(
            "500 kB", repeat=6, allreduce="ina", name=name, hosts=hosts, stall_timeout="3 s"
        )
        for name, hosts in (("a", ["h0", "h2"]), ("b", ["h4", "h1", "h6", "h3"]))
    ]
    r = ln.run(
        fabric,
        jobs,
        [ln.loss("*--*", 0.001, at="0 s")],
        seed=seed,
        directory=tmp_path,
        payload=True,
        reroute_delay="off",
        ina={"window": 64, "switchml_timeout": 3 * 10**8},
    )
    for name in "ab":
        assert r.job(name).data.ended == "finished" and r.job(name).data.wrong == 0
        assert r[f"{name}.errors"] == 0


def mean_ms(r):
    return sum(each.length_ps for each in r.data.iterations) / len(r.data.iterations) / 1e9


def test_gaps_are_repaired_under_each_policy_whose_workers_see_them(tmp_path):
    """A later result of the same tree tells that one was lost: without that, its timer does. In
    as many planes, results of other planes tell nothing."""

    def run(policy, planes=1, loss=0.0, repair=True):
        fabric = ln.clos.two_tier(
            planes=planes, leaves=2, spines=1, hosts_per_leaf=2, rate="10 Gb/s", delay="1 us"
        )
        fabric.program("*", "aggregate", policy=policy)
        faults = [ln.loss("*--*", loss, at="0 s")] if loss else []
        r = go(
            tmp_path,
            fabric,
            ln.AllReduce("1 MB", repeat=6, allreduce="ina"),
            faults,
            reroute_delay="off",
            ina={"window": 64, "gap_repair": repair},
        )
        assert r["errors"] == 0 and r.data.wrong == 0 and len(r.data.iterations) == 6
        return r

    for policy in ("esa", "atp"):
        one, two = run(policy), run(policy, planes=2)
        assert counted(one, "ina.gap_resend") == 0
        assert mean_ms(two) <= 0.6 * mean_ms(one)
        lossy, unrepaired = run(policy, loss=0.01), run(policy, loss=0.01, repair=False)
        assert counted(lossy, "ina.gap_resend") > 50 and counted(unrepaired, "ina.gap_resend") == 0
        assert mean_ms(lossy) < 0.7 * mean_ms(unrepaired)


@pytest.mark.parametrize("policy", ["esa", "atp"])
@pytest.mark.parametrize(
    "link, job, says",
    [
        ("ps--p0.leaf0", "a", "no plane joins its hosts and ps any more"),
        ("h1--p0.leaf0", "a", "no plane joins its hosts and ps any more"),
    ],
)
def test_a_server_or_worker_that_is_gone_is_named_and_hurts_no_other_job(
    tmp_path, policy, link, job, says
):
    """Cut off for good: its job ends by name, the other's sums stay exact in the same few slots."""
    fabric = star(policy, hosts=8, pool=16 * 1056)
    fabric.add_link(fabric.add_host("ps2", role="server"), "p0.leaf0", rate="10 Gb/s", delay="1 us")
    jobs = [
        ln.AllReduce(
            "100 kB", repeat=60, ranks=4, allreduce="ina", name=name, stall_timeout="20 ms"
        )
        for name in "ab"
    ]
    r = go(
        tmp_path,
        fabric,
        jobs,
        [ln.down(link, at=ln.step(10))],
        reroute_delay="1 ms",
        ina={"window": 32, "rto_first": 10**9},
    )
    assert r.job(job).data.ended == "stalled" and says in r.job(job).data.reason
    other = r.job("b")
    assert other.data.wrong == 0 and r["b.errors"] == 0 and len(other.data.iterations) == 60
    held = [row for row in other.switch("p0.leaf0").snapshot()["slots"] if row["state"]]
    assert not [row for row in held if row["job"] == 2]  # the slots of job a were given back


def test_the_report_says_where_sums_are_made(tmp_path):
    r = go(tmp_path, clos(planes=2), payload=False)
    assert r.data.fidelity.notes["trees of sums"] == (
        "plane 0: root p0.leaf0 with p0.leaf1, p0.spine1 below; "
        "plane 1: root p1.leaf0 with p1.leaf1, p1.spine1 below; parameter server h0"
    )
