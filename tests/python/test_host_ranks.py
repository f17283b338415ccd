"""Several ranks on a host, joined by its local link, on the virtual clock: what the NIC's
ports carry, and which link sets the pace."""

import json

import pytest

import loomnet as ln
from loomnet.base.errors import UsageError
from loomnet.faults.expected_capacity import expected_capacity
from loomnet.faults.timetable import LinkState
from loomnet.labs.bench import benchmark_named, measured
from loomnet.measures.flow_completion import records
from loomnet.plans.make import make_plan

MESSAGE_HEADER = 64  # bytes in front of each message of a collective that carries payload


def fabric(hosts=2, ranks=4, **changes):
    values = {
        "planes": 2,
        "leaves": 2,
        "spines": 1,
        "hosts_per_leaf": hosts // 2,
        "rate": "100 Gb/s",
        "delay": "1 us",
        "ranks_per_host": ranks,
        **changes,
    }
    return ln.clos.two_tier(**values)


def run(tmp_path, made, jobs, *args, name="ranks", seed=1, **options):
    lab = ln.Lab(name, seed=seed, directory=tmp_path / "runs")
    return lab.run(made, jobs, *args, **options)


def steady(result):
    """Seconds of the last iteration: the first fills what the others find filled."""
    return result.data.iterations[-1].length_ps / 1e12


# --- what the links carry -------------------------------------------------------------------------
RING = {ln.AllReduce: 14, ln.AllGather: 7, ln.ReduceScatter: 7}  # eighths of `size` a rank sends


@pytest.mark.parametrize("transport", ["mrc", "roce", "tcp"])
@pytest.mark.parametrize("kind", RING)
def test_ports_carry_what_a_ring_needs_between_hosts_and_no_more(tmp_path, kind, transport):
    """2 hosts x 4 ranks: of eight edges, one leaves each host and three stay in it."""
    result = run(tmp_path, fabric(), kind("8 MB", 3, transport=transport), payload=True)
    assert result.data.ended == "finished" and result.data.wrong == 0
    an_edge = 3 * RING[kind] * 1_000_000
    for host in ("h0", "h1"):
        nic = result.data.totals[f"nic {host}"]
        headers, rest = divmod(nic["bytes_placed"] - an_edge, MESSAGE_HEADER)
        assert rest == 0 and 0 < headers <= nic["immediates_delivered"]
        assert nic["local_bytes"] == 3 * nic["bytes_placed"]
    # What left the ports is this payload in packets, acknowledgements and what was sent again.
    for host, leaf in (("h0", "leaf0"), ("h1", "leaf1")):
        sent = sum(
            result.data.totals[f"link {host}->p{plane}.{leaf}"]["bytes"] for plane in range(2)
        )
        assert an_edge < sent < 1.12 * an_edge


def test_roce_sends_exactly_the_payload_of_one_edge(tmp_path):
    result = run(tmp_path, fabric(), ln.AllReduce("8 MB", transport="roce"))
    for host in ("h0", "h1"):
        nic = result.data.totals[f"nic {host}"]
        assert nic["payload_bytes_sent"] == nic["bytes_placed"]
        assert (nic["bytes_placed"] - 14_000_000) % MESSAGE_HEADER == 0
        assert nic["bytes_placed"] - 14_000_000 < 14_000_000 // 1000


@pytest.mark.parametrize("transport", ["mrc", "roce", "tcp"])
@pytest.mark.parametrize(
    "kind",
    [
        ln.AllReduce,
        ln.AllToAll,
        ln.AllGather,
        ln.ReduceScatter,
        ln.Broadcast,
        ln.Reduce,
        ln.SendRecv,
    ],
)
def test_every_collective_gives_the_right_result(tmp_path, kind, transport):
    result = run(
        tmp_path,
        fabric(hosts=4, ranks=3),
        kind("300 kB", 2, transport=transport, ranks=10),
        payload=True,
    )
    assert result.data.ended == "finished" and result.data.wrong == 0 and result["errors"] == 0
    assert result.data.fidelity.unexplained == 0


@pytest.mark.parametrize("transport", ["mrc", "roce", "tcp"])
def test_one_host_alone_sends_no_packet(tmp_path, transport):
    result = run(
        tmp_path, fabric(), ln.AllReduce("8 MB", 2, hosts=["h1"], transport=transport), payload=True
    )
    assert result.data.ended == "finished" and result.data.wrong == 0
    assert result.data.fidelity.packets == 0
    assert set(result.data.totals) == {"nic h1"}


# --- what sets the pace ---------------------------------------------------------------------------
SIZE = 64e6


@pytest.mark.parametrize("local", [10, 25, 50])
def test_a_slow_local_link_sets_the_pace(tmp_path, local):
    """Three edges of a host's ring share its local link."""
    result = run(tmp_path, fabric(local_link=f"{local} GB/s"), ln.AllReduce("64 MB", 2))
    assert steady(result) == pytest.approx(3 * SIZE * 14 / 8 / (local * 1e9), rel=0.01)


@pytest.mark.parametrize("planes", [1, 2])
def test_a_fast_local_link_leaves_the_pace_to_the_nic(tmp_path, planes):
    job = ln.AllReduce("64 MB", 2)
    times = [
        steady(run(tmp_path, fabric(planes=planes, local_link=local), job))
        for local in ("900 GB/s", "200 GB/s")
    ]
    alone = SIZE * 14 / 8 * 8 / (planes * 100e9)
    assert times[0] == pytest.approx(times[1], rel=0.001)
    assert alone < times[0] < 1.12 * alone  # headers and acknowledgements


def test_a_single_host_is_as_fast_as_its_local_link(tmp_path):
    """Four edges, at the default of 900 GB/s."""
    result = run(tmp_path, fabric(), ln.AllReduce("64 MB", 3, hosts=["h0"]))
    assert steady(result) == pytest.approx(4 * SIZE * 6 / 4 / 900e9, rel=0.01)


def test_a_flow_on_a_host_takes_its_bytes_over_the_rate_and_the_delay_each_way(tmp_path):
    made = fabric(local_link="100 GB/s", local_delay="3 us")
    result = run(tmp_path, made, ln.Flows("10 MB", pairs=[(0, 1), (1, 4)], count=2))
    own, far = records(result.plan, result.data)
    assert (own.source, own.destination) == (0, 0) and (far.source, far.destination) == (0, 1)
    assert own.completion_ps == own.ideal_ps == 106_000_000
    assert own.arrived_ps - own.start_ps == 103_000_000
    assert far.completion_ps > 10e6 * 8 / 200e9 * 1e12


@pytest.mark.parametrize("delay", ["0 s", "10 ns", "1 us", "80 us"])
def test_graphs_and_flows_end_whatever_the_local_delay(tmp_path, delay):
    """Shorter than a link's delay, within which hosts are served one after another, and longer."""
    matrix = tmp_path / "m.cm"
    matrix.write_text(
        "Nodes 4\nConnections 4\n0->1 id 1 start 0 size 100000\n"
        "1->2 id 2 start 0 size 100000\n2->3 id 3 start 1000000 size 5\n"
        "3->2 id 4 start 0 size 300000\n"
    )
    rows = tmp_path / "t.jsonl"
    rows.write_text(
        "\n".join(
            json.dumps({"at": f"{i} us", "source": a, "destination": b, "size": "200 kB"})
            for i, (a, b) in enumerate([(0, 1), (1, 2), (3, 2), (2, 0)])
        )
    )
    for job, flows in (
        (ln.Flows.from_htsim(matrix), 4),
        (ln.Trace(rows), 4),
        (ln.Permutation("100 kB", 2), 8),
        (ln.Incast("100 kB", receiver=1), 3),
    ):
        result = run(tmp_path, fabric(ranks=2, local_delay=delay), job)
        assert result.data.ended == "finished" and len(result.data.flows) == flows
        moved = sum(flow.bytes for flow in result.data.flows)
        assert sum(int(host.payload.sum()) for host in result.data.hosts.values()) == moved
        for flow in records(result.plan, result.data):
            assert flow.completion_ps >= flow.ideal_ps
        for host in result.data.hosts.values():  # nothing is left open
            assert max(end for _, end in host.busy) <= result.data.end_ps
            assert max(end for _, end, _ in host.work) - host.busy[-1][1] <= 1_000_000


# --- figures --------------------------------------------------------------------------------------
def test_counters_of_a_host_count_once_however_many_ranks_it_has(tmp_path):
    made = fabric(rate="10 Gb/s")
    result = run(
        tmp_path,
        made,
        ln.AllReduce("4 MB", 12),
        [ln.loss("h0->p0.leaf0", 0.01, at="2 ms", duration="20 ms", phase="lossy")],
    )
    nics = [result.data.totals[f"nic {host}"] for host in ("h0", "h1")]
    sent_again = sum(nic.get("retransmitted", 0) for nic in nics)
    counted = result.data.counters["retransmitted"][-1][1]
    assert counted > 0 and (not sent_again or counted == sent_again)
    assert result["before.goodput_ratio"] == 1.0


def test_a_load_is_of_the_nics_and_not_of_the_ranks(tmp_path):
    """Flows arrive as often as on as many hosts of one rank, though from four times the ranks."""
    last = [
        run(tmp_path, fabric(ranks=ranks), ln.Flows("10 kB", count=400, load=0.1))
        .data.flows[-1]
        .start_ps
        for ranks in (1, 4)
    ]
    assert last[1] == pytest.approx(last[0], rel=0.2)


def test_a_stop_ends_a_job_on_such_hosts(tmp_path):
    result = run(tmp_path, fabric(), ln.AllReduce("1 MB", 100, stop="1 ms"))
    assert result.data.ended == "finished" and 0 < len(result.data.iterations) < 20


def test_expected_capacity_knows_which_pairs_load_no_link():
    plan = make_plan(fabric())
    ring = ln.AllReduce("1 MB").edges([0] * 4 + [1] * 4)
    assert ring == [(0, 0)] * 3 + [(0, 1)] + [(1, 1)] * 3 + [(1, 0)]
    down = next(link.forward for link in plan.links if link.name == "h0--p0.leaf0")
    states = {down.number: LinkState(up=False)}
    assert expected_capacity(plan, ring, states) == pytest.approx(0.5)
    # Where the local link is slower than what is left of the NIC, the fault costs nothing.
    slow = make_plan(fabric(local_link="30 GB/s"))
    assert expected_capacity(slow, ring, states) == pytest.approx(1.0)
    # Flows of one host lose nothing, and their rates do not hide what others lose.
    assert expected_capacity(plan, [(0, 0), (0, 1)], states, of="mean") == pytest.approx(0.5)
    assert expected_capacity(plan, [(0, 0), (1, 1)], states, of="mean") == 1.0


def test_a_fault_costs_nothing_where_the_local_link_sets_the_pace(tmp_path):
    fault = ln.down("h0--p0.leaf0", at="30 ms", duration="60 ms", phase="down")

    def ratio(**changes):
        result = run(tmp_path, fabric(rate="10 Gb/s", **changes), ln.AllReduce("4 MB", 30), [fault])
        assert result.data.ended == "finished"
        return result["down.goodput_ratio"], result["down.expected_capacity"]

    alone, apart = ratio(ranks=1), ratio()
    assert apart == (pytest.approx(alone[0], rel=0.05), pytest.approx(0.5)) and apart[0] < 0.6
    assert ratio(local_link="3 GB/s") == (pytest.approx(1.0, abs=0.01), pytest.approx(1.0))


def test_senders_on_a_host_are_left_out_of_what_is_observed(tmp_path):
    for transport in ("mrc", "tcp"):
        result = run(
            tmp_path,
            fabric(ranks=2),
            ln.Permutation("1 MB", transport=transport),
            sample="10 us",
            observe=["cwnd"],
        )
        where = {place.split()[0] for place, _ in result.data.observed.series()}
        assert where == {"h0->h1", "h1->h0"}


@pytest.mark.parametrize(
    ("name", "eighths"),
    [("all_reduce", 14), ("all_gather", 7), ("sendrecv", 8), ("broadcast", 8), ("reduce", 8)],
)
def test_bench_measures_all_ranks_of_a_host(name, eighths):
    """All eight ranks, of which one edge leaves each host, at the pace of that edge."""
    size = 1 << 24
    rooted = name in ("broadcast", "reduce")
    (row,) = measured(
        benchmark_named(name), fabric(), [size], transport="mrc", repeat=1 if rooted else 3
    )
    assert row.wrong == 0
    alone = size * eighths / 8 * 8 / 200e9 * 1e6
    assert alone < row.time_us < alone * (2.5 if rooted else 1.2)


def test_bench_agrees_with_the_iterations_of_a_run(tmp_path):
    (row,) = measured(
        benchmark_named("all_reduce"), fabric(), [8_000_000], transport="mrc", repeat=5
    )
    result = run(tmp_path, fabric(), ln.AllReduce("8 MB", 6), payload=True)
    lengths = [each.length_ps / 1e6 for each in result.data.iterations[1:]]
    assert row.time_us == pytest.approx(sum(lengths) / len(lengths), rel=0.001)


def test_what_is_foreseen_knows_the_local_link(tmp_path):
    said = []
    lab = ln.Lab("foreseen", seed=1, directory=tmp_path / "runs", say=said.append)
    # 3 edges of 1.75 MB at 1 GB/s: no iteration is shorter than 5 ms.
    lab.run(
        fabric(local_link="1 GB/s"),
        ln.AllReduce("1 MB", 2),
        [ln.down("h0--p0.leaf0", at="1 ms", duration="4 ms", phase="short")],
    )
    assert any("lasts 4 ms, but one iteration takes 5.3 ms or more" in line for line in said)


# --- runs -----------------------------------------------------------------------------------------
def in_report(tmp_path, number, build, jobs):
    lab = ln.Lab("same", seed=3, directory=tmp_path / str(number))
    lab.run(build(), jobs)
    return lab.write().read_bytes()


def test_two_jobs_share_hosts_of_several_ranks(tmp_path):
    jobs = [
        ln.AllReduce("2 MB", 5, name="a", hosts=["h0", "h1"]),
        ln.AllToAll("2 MB", 5, name="b", transport="roce", hosts=["h0", "h1"], ranks=6),
    ]
    result = run(tmp_path, fabric(), jobs, payload=True)
    for name in "ab":
        own = result.job(name)
        assert own.data.ended == "finished" and own.data.wrong == 0 and own["errors"] == 0
    assert sorted(result.job("b").data.hosts) == [0, 1]


@pytest.mark.parametrize("transport", ["mrc", "roce", "tcp"])
def test_a_seed_gives_the_same_report_to_the_byte(tmp_path, transport):
    jobs = [
        ln.AllReduce("1 MB", 5, name="a", transport=transport, hosts=["h0", "h1"]),
        ln.Flows(
            "websearch", count=30, load=0.4, name="b", transport=transport, hosts=["h0", "h1"]
        ),
    ]
    first, second = (in_report(tmp_path, n, fabric, jobs) for n in range(2))
    assert first == second


def test_a_large_fabric_built_in_part_runs_as_the_whole(tmp_path, monkeypatch):
    from loomnet.labs import preparation

    def large():
        return ln.clos.two_tier(
            planes=2,
            leaves=16,
            spines=8,
            hosts_per_leaf=16,
            rate="100 Gb/s",
            delay="1 us",
            ranks_per_host=4,
            local_link="300 GB/s",
        )

    job = ln.AllReduce("1 MB", 2, hosts=["h0", "h17", "h250"])
    partial = run(tmp_path, large(), job)
    monkeypatch.setattr(preparation, "BUILT_WHOLE", 10**9)
    whole = run(tmp_path, large(), job)
    assert partial.plan.partial and not whole.plan.partial
    assert partial.data.iterations == whole.data.iterations
    assert partial.data.totals == whole.data.totals


def test_a_capture_of_a_port_holds_nothing_of_the_local_link(tmp_path):
    file = tmp_path / "h0.pcapng"
    run(tmp_path, fabric(ranks=2), ln.AllReduce("100 kB", hosts=["h0"]), pcap={"h0:0": str(file)})
    empty = file.stat().st_size
    run(tmp_path, fabric(ranks=2), ln.AllReduce("100 kB"), pcap={"h0:0": str(file)})
    assert empty < 1000 < file.stat().st_size


def test_a_trace_of_such_hosts_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"trace: h0 has 4 ranks of one job") as caught:
        run(tmp_path, fabric(), ln.AllReduce("1 MB"), trace=tmp_path / "x.pftrace")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "x.pftrace").exists() and not list((tmp_path / "runs").glob("*"))
    run(
        tmp_path,
        fabric(),
        ln.AllReduce("1 MB", ranks=2, hosts=["h0"]),
        pcap={"h0:0": str(tmp_path / "a.pcapng")},
    )
