"""What a run says of timeouts, of the iteration that a silence hit, of faults that never came."""

import pytest

import loomnet as ln


def fabric():
    return ln.clos.two_tier(
        planes=1, leaves=2, spines=1, hosts_per_leaf=2, rate="25 Gb/s", delay="250 ns"
    )


UPLINK = "p0.leaf0--p0.spine0"


def flows_over_a_fault(transport="roce"):
    return ln.run(
        fabric(),
        ln.Flows("200 kB", pairs=[(2, 0), (1, 0)], starts=["0 s", "0 s"], transport=transport),
        [ln.down(UPLINK, at="10 us", duration="1 ms", phase="down")],
        write=False,
    )


def test_a_flow_that_waited_for_its_timeout_is_named():
    r = flows_over_a_fault()
    # The published timeout of NCCL's queue pairs: 4.096 us * 2^20.
    assert "; 1 flow waited 4.295 s for its timeout (h1->h0)" in r.summary
    (waited,) = r.data.timeout_waits.values()
    assert waited == 4_294_967_296_000 and 4.29 < r["fct_max_s"] < 4.31
    assert (r["before.timeouts"], r["down.timeouts"], r["after.timeouts"]) == (0, 0, 1)
    assert ln.explain("timeouts")


@pytest.mark.parametrize("transport", ["tcp", "mrc"])
def test_each_transport_tells_its_timeouts(transport):
    r = flows_over_a_fault(transport)
    events = [each for host in (1, 2) for each in r.data.totals.get(f"nic h{host}", {}).items()]
    counted = sum(value for name, value in events if name in ("rto", "lost_rto"))
    assert (counted > 0) == ("after.timeouts" in r or "down.timeouts" in r)
    if r.data.timeout_waits:
        assert "waited" in r.summary and "h1->h0" in r.summary


def test_without_a_timeout_there_is_none():
    r = ln.run(fabric(), ln.Permutation("200 kB", transport="roce"), write=False)
    assert "timeout" not in r.summary and "before.timeouts" not in r
    with pytest.raises(ln.UsageError, match="no retransmission timeout ran out in this run"):
        r["before.timeouts"]


def test_timeouts_of_hosts_that_serve_two_jobs_are_not_said_to_be_none():
    hosts = ("h0", "h1", "h2")
    flows = ln.Flows(
        "200 kB",
        pairs=[(2, 0), (1, 0)],
        starts=["0 s", "0 s"],
        transport="roce",
        name="struck",
        hosts=hosts,
    )
    later = ln.Flows(
        "20 kB", pairs=[(1, 0)], starts=["9 s"], transport="roce", name="later", hosts=hosts
    )
    r = ln.run(
        fabric(), [flows, later], [ln.down(UPLINK, at="10 us", duration="1 ms")], write=False
    )
    assert "waited 4.295 s" in r.summary
    with pytest.raises(ln.UsageError, match="hosts count it for another job too"):
        r.jobs["struck"]["before.timeouts"]


def test_compare_takes_no_timeouts_for_zero():
    struck = flows_over_a_fault()
    whole = ln.run(
        fabric(),
        ln.Flows("200 kB", pairs=[(2, 0), (1, 0)], starts=["0 s", "0 s"], transport="roce"),
        [ln.down("p0.leaf1--p0.spine0", at="10 ms", duration="1 ms", phase="down")],
        write=False,
    )
    found = {row.name: row for row in ln.compare(whole, struck)}
    assert found["before.timeouts"].verdict == "same"
    gone = {row.name: row.verdict for row in ln.compare(struck, whole)}
    assert "missing" not in {gone[name] for name in gone if name.endswith("timeouts")}


@pytest.mark.parametrize("step", [3, 5])
def test_the_iteration_that_holds_the_silence_is_named(step):
    r = ln.run(
        fabric(),
        ln.AllReduce("2 MB", repeat=12, transport="roce", compute="5 ms"),
        [ln.down(UPLINK, at=ln.step(step), duration=ln.iterations(3), phase="down")],
        write=False,
    )
    longest = max(r.iterations, key=lambda row: row["length_s"])
    assert longest["length_s"] > 4
    assert f"in iteration {longest['number']}" in r.summary


@pytest.mark.parametrize("given", [{"at": ln.step(10)}, {"at": "1 s"}])
@pytest.mark.parametrize("phase", [{"phase": "down"}, {}])
def test_a_fault_that_never_came_is_told(given, phase, capsys):
    r = ln.run(
        fabric(),
        ln.AllReduce("1 MB", repeat=5),
        [ln.down(UPLINK, duration="1 ms", **given, **phase)],
        write=False,
    )
    assert f"; fault down({UPLINK}) at {given['at']} never came: the job ended after" in r.summary
    assert "and 5 iterations" in r.summary
    assert "note: faults that never came: down(" in capsys.readouterr().err


def test_a_fault_that_came_is_not_told_as_one_that_did_not(capsys):
    r = ln.run(
        fabric(),
        ln.AllReduce("1 MB", repeat=5, compute="1 ms"),
        [ln.degrade(UPLINK, to="10 Gb/s", at=ln.step(2), duration="1 ms")],
        write=False,
    )
    assert "never came" not in r.summary + capsys.readouterr().err


def test_a_seeds_hash_makes_a_step_of_roce_longer_as_your_script_says():
    net = ln.clos.two_tier(
        planes=1, leaves=2, spines=2, hosts_per_leaf=2, rate="25 Gb/s", delay="1 us", order="block"
    )

    def step_ms(transport, seed):
        r = ln.run(net, ln.AllToAll("2 MB", repeat=10, transport=transport), seed=seed, write=False)
        return round(r.number("before.iteration_s") * 1e3, 3)

    assert [step_ms("roce", seed) for seed in range(3)] == [0.518, 0.686, 0.518]
    assert {step_ms("mrc", seed) for seed in range(2)} == {0.541}
