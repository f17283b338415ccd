"""Several parameter servers of one job: keys go to them in turn, sums stay exact, and what one link
cannot carry several do."""

import pytest

import loomnet as ln

POLICIES = ("esa", "atp")


def star(policy="esa", hosts=4, servers=0, **options):
    fabric = ln.star(hosts=hosts, rate="10 Gb/s", delay="1 us")
    for number in range(servers):
        fabric.add_link(
            fabric.add_host(f"ps{number}", role="server"), "p0.leaf0", rate="10 Gb/s", delay="1 us"
        )
    return fabric.program("*", "aggregate", policy=policy, **options)


def go(tmp_path, fabric, job, faults=(), **options):
    return ln.run(fabric, job, faults, seed=3, directory=tmp_path, **{"payload": True} | options)


def summing(size="1 MB", repeat=4, **options):
    return ln.AllReduce(size, repeat=repeat, allreduce="ina", **{"ranks": 4} | options)


def mean_ms(r):
    return sum(each.length_ps for each in r.data.iterations) / len(r.data.iterations) / 1e9


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("servers", [2, 3, 4, 20])
@pytest.mark.parametrize("loss", [0, 0.002])
def test_sums_of_several_servers_are_exact(tmp_path, policy, servers, loss):
    faults = [ln.loss("*--*", loss, at="0 s")] if loss else []
    r = go(
        tmp_path,
        star(policy, servers=servers),
        summing(servers=servers),
        faults,
        reroute_delay="off",
        ina={"window": 64, "rto_first": 10**9},
    )
    assert r["errors"] == 0 and r.data.wrong == 0 and len(r.data.iterations) == 4
    for number in range(servers):
        nic = r.data.totals[f"nic ps{number}"]
        # Each a like part of all fragments, values and exponents.
        assert nic["ina.full"] + nic.get("ina.from_parts", 0) > 4 * 977 / servers / 2


@pytest.mark.parametrize("policy", POLICIES)
def test_one_server_by_either_name_is_the_same_run(tmp_path, policy):
    runs = [
        go(tmp_path / str(n), star(policy, servers=2), summing(**how))
        for n, how in enumerate(({}, {"server": "ps0"}, {"servers": 1}, {"servers": ["ps0"]}))
    ]
    assert len({tuple(each.length_ps for each in r.data.iterations) for r in runs}) == 1
    assert len({str(sorted(r.data.totals["nic ps0"].items())) for r in runs}) == 1


def test_what_one_link_cannot_carry_four_do(tmp_path):
    """With no memory in the switch all parts go to the servers: one link takes what four workers
    send, four links take it at the workers' own rate."""
    one, four = (
        go(
            tmp_path / str(n),
            star("atp", servers=4, pool=0),
            summing(servers=n),
            ina={"window": 64},
        )
        for n in (1, 4)
    )
    assert one.data.wrong == four.data.wrong == 0
    assert mean_ms(four) < 0.4 * mean_ms(one)
    beside = go(tmp_path / "beside", star("atp", pool=0), summing(servers=4), ina={"window": 64})
    assert beside.data.wrong == 0 and mean_ms(beside) < 0.8 * mean_ms(one)


def test_servers_move_with_their_trees(tmp_path):
    """One spine dies: what two servers finish moves to the trees of the other plane."""
    fabric = ln.clos.two_tier(
        planes=2, leaves=2, spines=1, hosts_per_leaf=3, rate="10 Gb/s", delay="1 us"
    ).program("*", "aggregate", policy="esa")
    fault = ln.kill("p0.spine0", at=ln.step(20), duration="20 ms", phase="cut")
    r = go(
        tmp_path,
        fabric,
        summing("100 kB", 100, servers=["h0", "h1"], ranks=6),
        [fault],
        reroute_delay="1 ms",
        ina={"rto_first": 10**9},
    )
    assert r["errors"] == 0 and r.data.wrong == 0 and len(r.data.iterations) == 100


def test_jobs_take_the_servers_in_turn(tmp_path):
    jobs = [summing("100 kB", name=name, servers=count) for name, count in (("a", 2), ("b", 1))]
    r = go(tmp_path, star(hosts=8, servers=3), jobs)
    trees = {
        name: text
        for name, text in r.data.fidelity.notes.items()
        if name.startswith("trees of sums")
    }
    assert set(trees) == {"trees of sums, a, ps0", "trees of sums, a, ps1", "trees of sums, b"}
    assert trees["trees of sums, b"].endswith("parameter server ps2")
    assert r.job("a").data.wrong == r.job("b").data.wrong == 0


@pytest.mark.parametrize(
    "given, says",
    [
        (0, "servers=0 must be 1 to 64"),
        (65, "servers=65 must be 1 to 64"),
        ("ps0", "servers='ps0' is neither a number nor a list of hosts"),
        (["ps0", "ps0"], "has a host twice"),
        ([], "must be 1 to 64 hosts"),
        (True, "is neither a number nor a list"),
    ],
)
def test_what_cannot_be_servers_is_refused(given, says):
    with pytest.raises(ln.UsageError, match=says):
        summing(servers=given)


def test_servers_that_are_not_there_are_refused(tmp_path):
    for fabric, how, says in (
        (star(servers=2), {"servers": 3}, "there are 2 hosts of role server; add some"),
        (star(), {"servers": 5}, "there are 4 hosts with a rank"),
        (star(), {"servers": ["h0", "ps9"]}, r'AllReduce.servers: no host "ps9"'),
        (star("switchml", servers=2), {"servers": 2}, "switchml has no parameter servers"),
    ):
        with pytest.raises(ln.UsageError, match=says):
            go(tmp_path, fabric, summing(**how))
    with pytest.raises(ln.UsageError, match="server= and servers= say the same"):
        summing(server="h0", servers=2)
    for name in ("server", "servers"):
        with pytest.raises(ln.UsageError, match=f"ina: {name} is a job's"):
            go(tmp_path, star(servers=2), summing(), ina={name: "ps0"})
    with pytest.raises(ln.UsageError, match="servers= goes with"):
        ln.AllReduce("1 MB", servers=2)
    with pytest.raises(ln.UsageError, match="window=2 is less than a fragment for each of 3"):
        go(tmp_path, star(servers=3), summing(servers=3), ina={"window": 2})


@pytest.mark.parametrize("server", [True, False])
def test_a_server_on_a_workers_link_is_said_before_the_run(tmp_path, server):
    said = []
    ln.Lab(directory=tmp_path, say=said.append).run(star(servers=int(server)), summing("10 kB", 1))
    note = "note: the parameter server on h0 shares a worker's link"
    assert any(line.startswith(note) for line in said) is not server


def test_a_server_on_another_jobs_link_is_said_too(tmp_path):
    said = []
    jobs = [
        summing("10 kB", 1, name=name, hosts=hosts, ranks=None, server=server)
        for name, hosts, server in (("a", ["h0", "h1"], "h2"), ("b", ["h2", "h3"], "ps0"))
    ]
    ln.Lab(directory=tmp_path, say=said.append).run(star(servers=1), jobs)
    notes = [line for line in said if "shares a worker's link" in line]
    assert len(notes) == 1 and 'of "a" on h2' in notes[0]


@pytest.mark.parametrize("named", ["ps0", "ps1"])
def test_a_job_that_names_no_server_takes_none_that_another_has_named(tmp_path, named):
    def run(second):
        jobs = [
            summing(name=name, hosts=[f"h{first + i}" for i in range(4)], ranks=None, **how)
            for name, first, how in (("a", 0, {"server": named}), ("b", 4, second))
        ]
        return go(tmp_path, star(hosts=8, servers=2), jobs)

    left = "ps1" if named == "ps0" else "ps0"
    assert run({}).data.totals[f"nic {left}"] == run({"server": left}).data.totals[f"nic {left}"]


def test_servers_that_another_job_has_named_are_taken_where_too_few_are_left(tmp_path):
    jobs = [
        summing("10 kB", name=name, hosts=hosts, ranks=None, **how)
        for name, hosts, how in (
            ("a", ["h0", "h1"], {"server": "ps0"}),
            ("b", ["h2", "h3"], {"servers": 2}),
        )
    ]
    r = go(tmp_path, star(servers=2), jobs)
    assert r["a.errors"] == r["b.errors"] == 0
    assert all(r.data.totals[f"nic ps{n}"]["ina.full"] for n in (0, 1))


@pytest.mark.parametrize("policy", ["esa", "atp", "switchml"])
@pytest.mark.parametrize("planes", [1, 2])
def test_a_worker_below_another_leaf_is_named_alone(tmp_path, policy, planes):
    """Roots know what has come from a leaf as a whole; the leaf's own slot knows whose it is."""
    fabric = ln.clos.two_tier(
        planes=planes, leaves=2, spines=2, hosts_per_leaf=4, rate="10 Gb/s", delay="1 us"
    ).program("*", "aggregate", policy=policy)
    r = go(
        tmp_path,
        fabric,
        summing(repeat=50, ranks=8, stall_timeout="50 ms"),
        [ln.loss("h5->*", 1.0, at=ln.step(5))],
        reroute_delay="off",
        ina={"rto_first": 10**9, "switchml_timeout": 10**9},
    )
    assert r.data.ended == "stalled"
    assert "where the oldest lacks the part of h5" in r.data.reason, r.data.reason
    assert not any(f"h{i}" in r.data.reason for i in (1, 2, 3, 4, 6, 7)), r.data.reason
    assert "reboot" not in r.data.reason


def test_of_several_servers_a_stall_tells_each(tmp_path):
    r = go(
        tmp_path,
        star(servers=2),
        summing(repeat=50, servers=2, stall_timeout="50 ms"),
        [ln.loss("ps1--*", 1.0, at=ln.step(5))],
        reroute_delay="off",
        ina={"rto_first": 10**9},
    )
    assert r.data.ended == "stalled"
    assert "finished on ps0, which knows of no sum that lacks a part, ps1, " in r.data.reason


@pytest.mark.parametrize("policy", ["esa", "atp", "switchml"])
def test_a_stalled_sum_names_the_worker_that_is_missing(tmp_path, policy):
    r = go(
        tmp_path,
        star(policy, servers=1),
        summing(repeat=50, stall_timeout="50 ms"),
        [ln.loss("h3->p0.leaf0", 1.0, at=ln.step(5))],
        reroute_delay="off",
        ina={"rto_first": 10**9, "switchml_timeout": 10**9},
    )
    assert r.data.ended == "stalled"
    assert "where the oldest lacks the part of h3" in r.data.reason
    assert "h1" not in r.data.reason and "h2" not in r.data.reason
