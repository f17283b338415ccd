"""The real engine on the virtual clock: capacity under faults, repeatability to the byte, and real
PyTorch ranks whose time is the clock's."""

import itertools
import signal
import textwrap

import pytest

import loomnet as ln
from loomnet.base.arguments import parameters_of
from loomnet.base.errors import RunInterrupted
from loomnet.labs.lab import Lab
from loomnet.running.run_options import OF_LAB

pytest.importorskip("loomnet._core")


def fabric(rate="100 Gb/s"):
    return ln.clos.two_tier(planes=4, leaves=2, spines=2, hosts_per_leaf=2, rate=rate, delay="1 us")


def test_mrc_keeps_the_capacity_that_is_left(lab):
    job = ln.AllReduce(size="16 MiB", repeat=40, transport="mrc")
    r = lab.run(fabric(), job, [ln.down("h0--p0.leaf0", at="6 ms", duration="8 ms", phase="down")])
    assert r["errors"] == 0
    assert r["down.goodput_ratio"] == pytest.approx(0.75, abs=0.05)
    assert r["after.goodput_ratio"] == pytest.approx(1.0, abs=0.05)
    assert r["down.retransmitted"] > 0
    assert r.data.fidelity.unexplained == 0


@pytest.mark.parametrize("transport", ["mrc", "roce", "tcp"])
def test_same_seed_same_bytes(tmp_path, transport):
    reports = []
    for number, seed in enumerate((3, 3, 4)):
        lab = Lab("repeat", seed=seed, directory=tmp_path / str(number))
        fault = ln.loss("p1.leaf0->p1.spine1", 0.01, at="1 ms", duration="2 ms", phase="loss")
        lab.run(fabric(), ln.AllReduce(size="2 MB", repeat=10, transport=transport), [fault])
        lab.write()
        reports.append((tmp_path / str(number) / "report.json").read_bytes())
    assert reports[0] == reports[1]
    assert reports[0].replace(b'"seed": 3', b"") != reports[2].replace(b'"seed": 4', b"")


@pytest.mark.parametrize("transport", ["mrc", "tcp"])
def test_payload_on_or_off_times_the_same(tmp_path, transport):
    ends = []
    for payload in (True, False):
        lab = Lab("payload", directory=tmp_path / str(payload))
        job = ln.AllReduce(size="1 MB", repeat=5, transport=transport)
        r = lab.run(fabric(), job, payload=payload)
        assert r["errors"] == 0
        ends.append([(i.start_ps, i.end_ps) for i in r.data.iterations])
    assert ends[0] == ends[1]


def test_point_to_point_jobs_end(lab):
    for label, job in {
        "permutation": ln.Permutation(size="1 MB", repeat=3, transport="mrc"),
        "incast": ln.Incast(size="200 kB", repeat=2, transport="mrc"),
        "flows": ln.Flows(sizes=["10 kB", "1 MB"], count=20, gap="20 us", transport="roce"),
        "streams": ln.Flows(sizes=["10 kB", "1 MB"], count=20, gap="20 us", transport="tcp"),
    }.items():
        r = lab.run(fabric(), job, label=label)
        assert r["errors"] == 0, r.data.errors
        assert r.data.ended == "finished"


def test_gloo_without_pytorch_is_the_tcp_model_too(lab):
    r = lab.run(fabric(), ln.AllReduce(size="1 MB", transport="gloo"), label="gloo", payload=True)
    twin = lab.run(fabric(), ln.AllReduce(size="1 MB", transport="tcp"), label="tcp", payload=True)
    assert r["errors"] == 0 and r.data.wrong == 0
    assert r.data.fidelity.notes["gloo"] == "model: TCP, cubic"
    assert r.data.iterations == twin.data.iterations
    assert r["before.retransmitted"] == twin["before.retransmitted"] == 0


def test_flows_begin_when_they_are_told_and_are_sampled(lab):
    def run(label, **options):
        job = ln.Flows(
            sizes=["2 MB"],
            count=2,
            pairs=((0, 1), (2, 1)),
            starts=("0 s", "300 us"),
            transport="tcp",
        )
        return lab.run(ln.star(hosts=3, rate="10 Gb/s", delay="5 us"), job, label=label, **options)

    queue = "p0.leaf0->h1"
    r = run("sampled", sample="10 us", queues=[queue])
    assert [flow.start_ps for flow in r.flow_records] == [0, 300 * 10**6]
    first, second = r.data.samples.senders[0], r.data.samples.senders[1]
    assert [s.at_ps for s in first[:3]] == [0, 10**7, 2 * 10**7] and second[0].at_ps == 300 * 10**6
    acked = [s.acked for s in first]
    assert acked == sorted(acked) and 1_500_000 < acked[-1] <= 2_000_064  # two frame headers
    assert first[-1].cwnd > first[0].cwnd > 0 and first[-1].srtt_ps >= first[-1].min_rtt_ps > 0
    waited = r.data.samples.queues[queue]
    assert waited[:, 1].max() > 0 and waited[0].tolist() == [0, 0]
    twice = run("named-twice", sample="10 us", queues=[queue, queue])
    assert twice.data.samples.queues[queue].tolist() == waited.tolist()
    # Looking changes nothing.
    assert run("not").data.flows == r.data.flows


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"queues": ["p0.leaf0->h1"]}, "give sample="),
        ({"sample": "10 us", "queues": ["h1->h0"]}, 'no direction "h1->h0"'),
        ({"sample": "10 us", "queues": 5}, "run: queues=5 is no list of directions"),
        ({"sample": "0 s"}, "must be 1 ns or more"),
        ({"sample": 5}, "run: sample: 5 has no unit"),
        ({"tcp": 5}, "run: tcp=5 is not a table of its options"),
    ],
)
def test_a_sample_that_cannot_be_taken_is_one_clear_line(lab, options, message):
    with pytest.raises(ln.UsageError, match=message):
        lab.run(
            ln.star(hosts=2, rate="1 Gb/s", delay="1 us"),
            ln.Flows("1 MB", pairs=[(0, 1)]),
            **options,
        )


@pytest.mark.parametrize(
    "cc", ["reno", "cubic", "dctcp", "bbr", "bbr3", "vegas", "copa", "vivace", "astraea"]
)
def test_tcp_takes_its_congestion_control_by_name_and_is_called_a_model(lab, cc):
    job = ln.AllReduce(size="1 MB", repeat=3, transport="tcp")
    r = lab.run(fabric(), job, tcp={"cc": cc}, payload=True)
    assert r["errors"] == 0, r.data.errors
    assert r.data.fidelity.notes["tcp"] == f"model: TCP, {cc}"
    assert r.data.fidelity.unexplained == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cc": "cubik"}, "no control cubik; nearest: .*; there are reno, cubic"),
        ({"congestion": "bbr"}, "no option congestion; nearest: .*; there are cc, "),
        ({"mtu": 100}, "TcpOptions.mtu: 1280"),
        ({"rto_min_ps": "200 ms"}, "rto_min_ps has the wrong type"),
    ],
)
def test_tcp_options_that_do_not_fit_are_one_clear_line(lab, options, message):
    with pytest.raises(ln.UsageError, match=message):
        lab.run(fabric(), ln.AllReduce(size="1 kB", transport="tcp"), tcp=options)


def test_a_dead_port_moves_tcp_to_the_others_and_a_far_one_stalls_it_until_it_heals(lab):
    """As a kernel's multipath route does: own carrier counts, what is dead further on does not."""
    job = ln.AllReduce(size="4 MB", repeat=60, transport="tcp")
    faults = [ln.down("h0--p*.leaf0", at="5 ms", duration="20 ms", phase="cut")]
    r = lab.run(fabric(), job, faults, tcp={"rto_min_ps": 10**9}, reroute_delay="off")
    assert r["errors"] == 0, r.data.errors
    assert r["cut.blip_s"] >= 0.02
    assert r["after.goodput_ratio"] > 0.5
    assert r.data.totals["nic h0"]["rto"] > 0


def torch_job(tmp_path, body, **options):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        import torch, torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel
        torch.set_num_threads(1)
        torch.manual_seed(1)
        dist.init_process_group("gloo")
        rank = dist.get_rank()
        net = DistributedDataParallel(torch.nn.Linear(256, 256))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        def step(number):
            optimizer.zero_grad()
            loss = net(torch.full((4, 256), float(rank + number))).square().mean()
            loss.backward()
            optimizer.step()
            if rank == 0:
                print(f"step {number} loss {loss.item():.6f}", flush=True)
        """)
        + textwrap.dedent(body)
    )
    options.setdefault("transport", "mrc")
    return ln.TorchJob(
        script, ranks=4, compute="1 ms", log=r"step (?P<step>\d+) loss (?P<loss>\S+)", **options
    )


def test_pytorch_time_is_the_clocks(tmp_path, request):
    """Over MRC and over the TCP model: time is compute and network, losses and parameters agree,
    and the model has its label in the report. With --soak a second run over the TCP model repeats
    the first; by default test_real_ranks.py repeats real ranks, and the tests above TCP's times."""
    pytest.importorskip("torch")
    seen = {}
    runs = [("mrc", "mrc"), ("gloo", "gloo")]
    if request.config.getoption("--soak"):
        runs.append(("again", "gloo"))
    for label, transport in runs:
        lab = Lab("torch", directory=tmp_path / label)
        options = {"tcp": {"cc": "cubic"}} if transport == "gloo" else {}
        r = lab.run(
            fabric("400 Gb/s"),
            torch_job(tmp_path, "for i in range(1, 25): step(i)\n", transport=transport),
            **options,
        )
        assert r["errors"] == 0, r.data.errors
        assert r.unequal_hashes == 0
        assert len(r.data.iterations) == 23
        lengths = [i.length_ps for i in r.data.iterations]
        assert all(10**9 < length < 1.2 * 10**9 for length in lengths), lengths
        seen[label] = lengths, r.loss_curve
        assert r.data.fidelity.notes.get("gloo") == (
            "model: TCP, cubic" if transport == "gloo" else None
        )
    assert "mapped to loomnet (tcp)" in (tmp_path / "gloo" / "ranks" / "0.log").read_text()
    assert seen["gloo"] == seen.get("again", seen["gloo"])
    assert [loss for _, loss in seen["gloo"][1]] == pytest.approx(
        [loss for _, loss in seen["mrc"][1]], rel=1e-5
    )


@pytest.mark.soak  # by default test_endings.py has ranks that raise, with PyTorch and without
def test_a_rank_that_fails_is_a_named_error(tmp_path):
    pytest.importorskip("torch")
    lab = Lab("fails", directory=tmp_path / "run")
    job = torch_job(
        tmp_path,
        """
        for i in range(1, 50):
            if rank == 2 and i == 5:
                raise ValueError("a bug in the script")
            step(i)
        """,
    )
    r = lab.run(fabric(), job)
    assert r.data.ended == "failed"
    assert r["errors"] >= 1
    assert r.data.errors[0].who == "rank 2"
    assert "ValueError: a bug in the script" in r.data.errors[0].message


def test_the_rank_that_failed_first_is_named_although_its_peers_end_before_it(tmp_path):
    pytest.importorskip("torch")
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        import atexit, time, torch, torch.distributed as dist
        atexit.register(time.sleep, 1)  # runs after the backend's own, which tells the peers
        dist.init_process_group()
        if dist.get_rank() == 2:
            raise ValueError("a bug in the script")
        atexit.unregister(time.sleep)
        dist.barrier()
        """)
    )
    r = Lab("fails", directory=tmp_path / "run").run(
        fabric(), ln.TorchJob(script, ranks=4, compute="1 ms", transport="mrc")
    )
    assert r.data.ended == "failed"
    assert [error.who for error in r.data.errors] == ["rank 2"]
    assert "ValueError: a bug in the script" in r.data.errors[0].message


def test_a_job_that_waits_for_ever_is_ended(tmp_path):
    pytest.importorskip("torch")
    lab = Lab("stuck", directory=tmp_path / "run")
    job = torch_job(
        tmp_path,
        """
        step(1)
        if rank == 0:
            dist.recv(torch.zeros(1), src=1)
        else:
            dist.barrier()
        """,
    )
    r = lab.run(fabric(), job)
    assert r.data.ended in ("stalled", "failed")
    assert r["errors"] >= 1


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"nonsense": 4}, "run: roce: no option nonsense; nearest: "),
        ({"dcqn": True}, "run: roce: no option dcqn; nearest: dcqcn"),
    ],
)
def test_a_slip_in_a_table_that_no_job_uses_is_refused(lab, table, message):
    with pytest.raises(ln.UsageError, match=message):
        lab.run(fabric(), ln.AllReduce(size="1 kB", transport="mrc"), roce=table)


def test_a_table_that_no_job_uses_may_be_there(lab):
    job = ln.AllReduce(size="1 kB", transport="mrc")
    r = lab.run(fabric(), job, roce={"cc": "dcqcn", "minimum_rate_bps": 10**6}, tcp={"cc": "bbr"})
    assert r.data.ended == "finished"


def test_names_that_lab_run_takes_are_proposed_too():
    assert {*OF_LAB} == {*parameters_of(ln.Lab.run)} - {"fabric", "job"}
    with pytest.raises(ln.UsageError, match="no option lable; nearest: label"):
        ln.Lab("x").run(
            ln.star(hosts=2, rate="1 Gb/s", delay="1 us"), ln.AllReduce("8 kB"), lable="a"
        )


def test_an_option_that_no_engine_knows_is_refused(lab):
    with pytest.raises(ln.UsageError, match=r"no option paylod.*payload"):
        lab.run(fabric(), ln.AllReduce(size="1 kB", transport="mrc"), paylod=True)


def test_ctrl_c_is_heard_inside_a_long_call_of_the_engine(tmp_path, monkeypatch):
    """However many events a call may run: it looks every 50 ms or so of wall time."""
    monkeypatch.setattr("loomnet.running.virtual_clock.MOST_EVENTS", 10**15)
    monkeypatch.setattr("loomnet.running.reporting.PROGRESS_S", 10**9)
    old = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 1.0)
    try:
        with pytest.raises(RunInterrupted):  # the whole of it would take hours
            try:
                Lab("long", directory=tmp_path / "run", seed=1).run(
                    fabric(), ln.Flows("100 GB", pairs=[(0, 1)], transport="mrc")
                )
            except Exception:  # as in a user's loop over runs, which may not go on with the next
                pytest.fail("an interrupt is no run that failed")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


def test_a_series_that_outlasts_its_bound_doubles_its_step(monkeypatch):
    """Every sample lies on the step that the result states, and the last one near the end."""
    from loomnet.base.units import Time
    from loomnet.measures import samples as sampling
    from loomnet.plans.make import make_plan

    monkeypatch.setattr(sampling, "MOST_ENTRIES", 1000)
    plan = make_plan(ln.clos.star(hosts=2, rate="1 Gb/s", delay="1 us"))
    sampler = sampling.Sampler(Time("1 ns"), ["h0->p0.leaf0"], plan)
    now = 0
    while now < 50_000_000:
        now = sampler.due_ps
        sampler.take(now, [now], {3: (now, 1, 1, 1)})
    samples = sampler.samples
    queue, senders = samples.queues["h0->p0.leaf0"], samples.senders[3]
    assert len(queue) == len(senders) and 200 < len(queue) <= 501
    assert samples.every_ps == 1000 << 7 and queue[-1][0] >= 50_000_000
    for (a, _), (b, _) in itertools.pairwise(queue):
        assert b - a == samples.every_ps
    with pytest.raises(ln.UsageError, match="sample=1 ps must be 1 ns or more"):
        sampling.Sampler(Time("1 ps"), [], plan)


def test_a_wait_for_a_start_is_no_stall(tmp_path):
    r = ln.run(
        ln.star(hosts=4, rate="100 Gb/s", delay="1 us"),
        ln.Flows(["1 kB"], pairs=((0, 1),), count=2, starts=("0 s", "20 s")),
        directory=tmp_path / "run",
    )
    assert r.data.ended == "finished" and r.flow_records[1].start_ps == 20 * 10**12
