"""`ln.ModelJob`: training of a published model without PyTorch. Its specification, its timing
against arithmetic by hand, its priorities, and how it runs beside other jobs."""

import json
import subprocess
import sys

import pytest
from test_trace import Trace

import loomnet as ln
import loomnet._core as _core
from loomnet.base.errors import PluginError, UsageError
from loomnet.jobs.model_job import MODELS
from loomnet.labs.memory import needs
from loomnet.labs.run_lint import bytes_each, least_iteration_s, most_rounds
from loomnet.plugins.priorities import FORMULAS, Message
from loomnet.running.virtual_clock import VirtualRunner


def star(**changes):
    return ln.star(**{"hosts": 2, "rate": "10 Gb/s", "delay": "1 us", **changes})


def small(**changes):
    """8 MB in 8 buckets: 6.4 ms of a link of 10 Gb/s."""
    return ln.ModelJob(
        **{"size": "8 MB", "compute": "3 ms", "iterations": 4, "workers": 2, **changes}
    )


class Asked(VirtualRunner):
    def run(self, request, on_progress):
        self.request = request
        return super().run(request, on_progress)


def run(tmp_path, job, *args, seed=1, fabric=None, name="model", **options):
    runner = Asked()
    lab = ln.Lab("model", seed=seed, directory=tmp_path / name, runner=runner)
    result = lab.run(fabric or star(), job, *args, reroute_delay="off", **options)
    lab.write()
    return result, runner.request


def report(tmp_path, name):
    [path] = (tmp_path / name).rglob("report.json")
    return path.read_bytes()


def lengths(result):
    return [each.length_ps / 1e12 for each in result.data.iterations]


# --- the specification ----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("model", "megabytes", "compute", "ratio"),
    [
        ("resnet50", 102.4, "325 ms", 0.25),
        ("vgg16", 553.6, "426 ms", 1.04),
        ("vgg11", 531.6, "181 ms", 2.34),
        ("alexnet", 244.4, "256 ms", 0.76),
        ("bert_large", 1340, "237 ms", 4.5),
    ],
)
def test_published_models(model, megabytes, compute, ratio):
    job = ln.ModelJob(model)
    assert job.gradients.bytes == megabytes * 10**6 and job.compute_time == ln.Time(compute)
    # Communication over compute at 10 Gb/s, as published.
    assert 8 * job.gradients.bytes / 10e9 / job.compute_time.seconds == pytest.approx(ratio, 0.02)


def test_every_model_is_tested_and_has_its_names():
    assert list(MODELS) == ["resnet50", "vgg16", "vgg11", "alexnet", "bert_large"]
    assert ln.ModelJob("bert_l").model == "bert_large"


def test_buckets_are_equal_but_for_the_rest():
    assert ln.ModelJob("resnet50").bucket_bytes == (12_800_000,) * 8
    assert small(size="40 B", buckets=4).bucket_bytes == (12, 12, 8, 8)
    assert small(size=None, buckets=["4 B", "8 B"]).bucket_bytes == (4, 8)
    assert ln.ModelJob("resnet50", buckets=["4 kB", "8 kB"]).gradients == ln.Size("12 kB")
    assert small(size="40 B", buckets=10).bucket_bytes == (4,) * 10


def test_scale_divides_bytes_and_compute_alike():
    job = ln.ModelJob("resnet50", scale=64)
    assert job.gradients == ln.Size("1.6 MB") and job.compute_time == ln.Time("5.078125 ms")
    job = ln.ModelJob("resnet50", size="6.4 MB", compute="64 ms", scale=64)
    assert job.gradients == ln.Size("100 kB") and job.compute_time == ln.Time("1 ms")
    assert small(size=None, buckets=["400 B", "40 B"], scale=10).bucket_bytes == (40, 4)
    assert ln.ModelJob("resnet50", scale=0.5).compute_time == ln.Time("650 ms")


def test_workers_are_ranks():
    assert ln.ModelJob("vgg16", workers=3).place([5, 6, 7, 8]) == [5, 6, 7]
    assert ln.ModelJob("vgg16", ranks=3).place([5, 6, 7, 8]) == [5, 6, 7]
    assert ln.ModelJob("vgg16").place([5, 6, 7, 8]) == [5, 6, 7, 8]


REFUSED = {
    "unknown model": (
        lambda: ln.ModelJob("resnet5"),
        'ModelJob.model: no model "resnet5"; nearest: resnet50',
    ),
    "mixture of experts": (lambda: ln.ModelJob("mixtrall_8x7b"), "nearest: mixtral_8x7b"),
    "model of a wrong type": (lambda: ln.ModelJob(50), "ModelJob.model: no model 50"),
    "nothing": (lambda: ln.ModelJob(), "ModelJob: size= is missing"),
    "no compute": (lambda: ln.ModelJob(size="1 MB"), "ModelJob: compute= is missing"),
    "no size": (lambda: ln.ModelJob(compute="1 s"), "ModelJob: size= is missing"),
    "both": (lambda: ln.ModelJob("vgg16", workers=2, ranks=2), "two names of one number"),
    "workers": (lambda: ln.ModelJob("vgg16", workers=0), "ModelJob.workers: "),
    "size": (lambda: ln.ModelJob("vgg16", size="10 B"), "ModelJob.size: 10 B is no whole number"),
    "no unit": (lambda: ln.ModelJob("vgg16", size=10), "ModelJob.size: 10 has no unit"),
    "no buckets": (lambda: ln.ModelJob("vgg16", buckets=0), "ModelJob.buckets: 0: write a whole"),
    "many buckets": (lambda: ln.ModelJob("vgg16", buckets=10**6), "from 1 to 65534"),
    "empty": (lambda: ln.ModelJob("vgg16", buckets=[]), "ModelJob.buckets: the list is empty"),
    "a text": (lambda: ln.ModelJob("vgg16", buckets="8"), "ModelJob.buckets: '8': write how many"),
    "a bucket": (lambda: ln.ModelJob("vgg16", buckets=["6 B"]), "ModelJob.buckets: 6 B is no"),
    "two sizes": (lambda: ln.ModelJob("vgg16", buckets=["8 B"], size="8 B"), "both give the bytes"),
    "jitter": (lambda: ln.ModelJob("vgg16", jitter=1), "ModelJob.jitter: "),
    "jitter in words": (lambda: ln.ModelJob("vgg16", jitter="20 %"), "ModelJob.jitter: "),
    "forward": (lambda: ln.ModelJob("vgg16", forward=-0.1), "ModelJob.forward: "),
    "scale": (lambda: ln.ModelJob("vgg16", scale=0), "ModelJob.scale: "),
    "nothing left": (lambda: ln.ModelJob("vgg16", scale=1e8), "leave a bucket without a gradient"),
    "too much": (lambda: ln.ModelJob("vgg16", scale=1e-300), "an iteration of more than 2^60 B"),
    "compute": (lambda: ln.ModelJob("vgg16", compute=3), "ModelJob.compute: 3 has no unit"),
    "iterations": (lambda: ln.ModelJob("vgg16", iterations=0), "ModelJob.iterations: "),
    "unknown name": (lambda: ln.ModelJob("vgg16", iteration=3), "nearest: iterations"),
    "by place": (lambda: ln.ModelJob("vgg16", 4), "takes 1 values by position"),
    "no such priority": (
        lambda: go(priority="layr"),
        'ModelJob.priority: no priority "layr"; nearest: layer',
    ),
    "more ranks than hosts": (lambda: go(workers=4), "ModelJob.ranks: 4 ranks but 2 hosts"),
    "long": (lambda: go(compute="1 h", iterations=10**4), "ModelJob.compute: 10000 times 3600 s"),
    "large": (lambda: go(size="1 TB", buckets=1), "is above 128 GiB, the largest collective"),
    "in all": (lambda: go(size="100 GB", iterations=10**8, compute="0 s"), "2^60 B"),
}


def go(**changes):
    return ln.run(star(), small(**changes))


@pytest.mark.parametrize("what", REFUSED)
def test_refused_in_one_line(what, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call, line = REFUSED[what]
    with pytest.raises(UsageError) as refused:
        call()
    assert line in str(refused.value) and "\n" not in str(refused.value)
    assert refused.value.exit_code == 2 and list(tmp_path.iterdir()) == []


# --- timing ---------------------------------------------------------------------------------------
def test_a_job_whose_compute_hides_its_communication(tmp_path):
    """Two ranks exchange each bucket once: 1 MB at 10 Gb/s are 0.8 ms. Backward gives a bucket
    every 5 ms, so only the last one's sum comes after compute."""
    r, request = run(tmp_path, small(compute="60 ms"))
    for each in lengths(r):
        assert 60e-3 + 0.8e-3 < each < 60e-3 + 0.8e-3 * 1.25
    assert (
        r.data.completion_ps
        == r.data.iterations[-1].end_ps
        == sum(each.length_ps for each in r.data.iterations)
    )
    assert least_iteration_s(request, "virtual") == pytest.approx(60e-3)


def test_a_job_whose_communication_hides_its_compute(tmp_path):
    """Forward is 1 ms, and backward of the first bucket 0.25 ms; from then on the network is the
    pace: 8 MB at 10 Gb/s are 6.4 ms."""
    r, request = run(tmp_path, small(compute="3 ms"))
    for each in lengths(r):
        assert 1.25e-3 + 6.4e-3 < each < 1.25e-3 + 6.4e-3 * 1.25
    assert least_iteration_s(request, "virtual") == pytest.approx(6.4e-3)


def test_four_ranks_send_one_and_a_half_times_the_bytes(tmp_path):
    r, request = run(tmp_path, small(workers=4, compute="0 s", buckets=1), fabric=star(hosts=4))
    assert all(9.6e-3 < each < 9.6e-3 * 1.2 for each in lengths(r))
    ring, _ = run(tmp_path, ln.AllReduce("8 MB", 4), fabric=star(hosts=4), name="ring")
    assert lengths(r) == lengths(ring), "one bucket without compute is an all-reduce"
    [asked] = request.jobs
    assert bytes_each(asked.job, 4) == 12e6
    sent = {int(host.payload.sum()) for host in r.data.hosts.values()}
    assert all(4 * 12e6 <= each < 4 * 12e6 * 1.01 for each in sent), sent


def test_without_overlap_compute_and_communication_add_up(tmp_path):
    r, _ = run(tmp_path, small(compute="5 ms", forward=1.0))
    assert all(5e-3 + 6.4e-3 < each < 5e-3 + 6.4e-3 * 1.25 for each in lengths(r))
    early, _ = run(tmp_path, small(compute="5 ms", forward=0.0), name="early")
    assert max(lengths(early)) < min(lengths(r)) - 3e-3


def test_the_hosts_were_busy_while_sums_were_under_way(tmp_path):
    r, _ = run(tmp_path, small(compute="60 ms", iterations=1))
    for host in r.data.hosts.values():
        assert [size for _, _, size in host.work] == [10**6] * 8
        begins = [begin for begin, _, _ in host.work]
        # Forward is 20 ms; a bucket each 5 ms.
        assert begins == [(20 + 5 * (number + 1)) * 10**9 for number in range(8)]


@pytest.mark.parametrize("transport", ["mrc", "roce", "tcp"])
def test_over_every_transport(tmp_path, transport):
    r, _ = run(tmp_path, small(transport=transport, iterations=6, jitter=0.1))
    assert r.data.ended == "finished" and r["errors"] == 0 and len(r.data.iterations) == 6
    assert r["before.iteration_s"] > 6.4e-3


def test_jitter_is_of_the_seed_and_of_each_job(tmp_path):
    job = small(compute="20 ms", jitter=0.2, iterations=12)
    runs = [
        run(tmp_path, job, seed=seed, name=f"{number}")[0] for number, seed in enumerate((1, 1, 2))
    ]
    assert report(tmp_path, "0") == report(tmp_path, "1") != report(tmp_path, "2")
    assert len(set(lengths(runs[0]))) == 12
    assert all(16e-3 < each < 24e-3 + 1.1e-3 for each in lengths(runs[0]))
    both, _ = run(
        tmp_path,
        [small(compute="20 ms", jitter=0.2, iterations=12, name=name) for name in "ab"],
        fabric=star(hosts=4),
        name="both",
    )
    assert lengths(both.job("a")) == lengths(runs[0]), "another job beside it changes no draw"
    assert lengths(both.job("a")) != lengths(both.job("b"))


def test_jitter_of_zero_is_none(tmp_path):
    r, _ = run(tmp_path, small(compute="60 ms", iterations=6))
    assert max(lengths(r)) - min(lengths(r)) < 1e-6


# --- stop, several jobs, faults -------------------------------------------------------------------
def test_from_its_stop_on_no_iteration_begins(tmp_path):
    whole, _ = run(tmp_path, small(iterations=6), name="whole")
    third, fourth = whole.data.iterations[2:4]
    for number, (at, rounds) in enumerate(
        (((third.start_ps + third.end_ps) // 2, 3), (fourth.start_ps, 3), (fourth.start_ps + 1, 4))
    ):
        r, request = run(
            tmp_path, small(iterations=6, stop=f"{at} ps", priority="none"), name=f"{number}"
        )
        run(tmp_path, small(iterations=rounds, priority="none"), name=f"fewer {number}")
        assert r.data.ended == "finished" and len(r.data.iterations) == rounds
        assert report(tmp_path, f"{number}") == report(tmp_path, f"fewer {number}")
        [asked] = request.jobs
        assert rounds <= most_rounds(request.plan, asked) <= 6
    endless, request = run(tmp_path, small(iterations=10**8, stop="30 ms"), name="endless")
    [asked] = request.jobs
    assert 3 <= len(endless.data.iterations) <= most_rounds(request.plan, asked) < 10


def test_two_jobs_with_different_starts_share_a_link(tmp_path):
    """On two racks with one link between them: the second comes while the first runs, and both are
    slower for as long as both run."""
    fabric = ln.clos.two_tier(
        planes=1,
        leaves=2,
        spines=1,
        hosts_per_leaf=2,
        rate="10 Gb/s",
        delay="1 us",
        uplink_rate="10 Gb/s",
    )
    across = [["h0", "h1"], ["h2", "h3"]]
    one = {"compute": "0 s", "iterations": 10, "transport": "roce"}
    jobs = [
        small(name="a", hosts=across[0], **one),
        small(name="b", hosts=across[1], start="30 ms", **one),
    ]
    r, _ = run(tmp_path, jobs, fabric=fabric)
    alone, _ = run(tmp_path, small(hosts=across[0], **one), fabric=fabric, name="alone")
    a, b = lengths(r.job("a")), lengths(r.job("b"))
    assert a[:3] == pytest.approx(lengths(alone)[:3], rel=1e-3)
    assert max(a[5:]) > 1.5 * a[0] and max(b) > 1.5 * min(b)
    first = r.job("b").data
    assert r["b.jct_s"] == pytest.approx(sum(b)) and r["a.jct_s"] == pytest.approx(sum(a))
    assert first.ended == "finished" and r["a.errors"] == r["b.errors"] == 0


def test_beside_other_kinds_of_jobs_and_under_faults(tmp_path):
    fabric = ln.clos.two_tier(
        planes=2, leaves=2, spines=2, hosts_per_leaf=2, rate="10 Gb/s", delay="1 us"
    )
    jobs = [
        small(iterations=60, name="model", compute="1 ms"),
        ln.AllReduce("2 MB", 20, name="ring", ranks=2),
    ]
    r, _ = run(
        tmp_path,
        jobs,
        [ln.down("h0--p0.leaf0", at=ln.step(10), duration=ln.iterations(20), phase="down")],
        fabric=fabric,
    )
    assert r["model.errors"] == r["ring.errors"] == 0
    before, down, after = (r[f"model.{phase}.iteration_s"] for phase in ("before", "down", "after"))
    assert down > 1.3 * before and after == pytest.approx(before, rel=0.05)
    assert 0.4 < r["model.down.goodput_ratio"] < 0.75
    assert r["model.down.recovery_s"] is not None


def test_a_dead_network_is_a_stall_that_names_itself(tmp_path):
    r, _ = run(
        tmp_path,
        small(stall_timeout="50 ms", iterations=10**4),
        [ln.down("h0--*", at="10 ms", duration="1 h")],
    )
    assert r.data.ended in ("stalled", "failed") and r["errors"] >= 1
    assert "stall_timeout" in r.data.reason or "retry" in r.data.reason, r.data.reason


def test_compute_longer_than_the_stall_timeout_is_no_stall(tmp_path):
    r, _ = run(tmp_path, small(compute="2 s", stall_timeout="100 ms", iterations=2))
    assert r.data.ended == "finished"


def test_lengths_travel_and_no_bytes_whatever_a_run_asks(tmp_path):
    r, request = run(tmp_path, small(), payload=True)
    assert r.data.ended == "finished" and r.data.wrong is None
    assert [
        need.what
        for need in needs(request, payload=True, clock="virtual")
        if need.what != "the fabric"
    ] == ["2 queue pairs"]


def test_several_ranks_on_a_host(tmp_path):
    fabric = ln.clos.two_tier(
        planes=1,
        leaves=2,
        spines=1,
        hosts_per_leaf=1,
        rate="10 Gb/s",
        delay="1 us",
        ranks_per_host=2,
        local_link="900 GB/s",
    )
    r, _ = run(tmp_path, small(workers=4, compute="0 s"), fabric=fabric)
    assert r["errors"] == 0
    assert all(each > 9.6e-3 for each in lengths(r)), "the NIC sends what one ring sends"


def test_described_and_seen_on_its_way(tmp_path, capsys):
    (tmp_path / "s.py").write_text(
        "import loomnet as ln\n@ln.scenario\ndef s(lab: ln.Lab):\n"
        "    lab.run(ln.star(hosts=2, rate='10 Gb/s', delay='1 us'),\n"
        "            ln.ModelJob('vgg16', workers=2, iterations=3, scale=640))\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "loomnet", "run", "s.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "3 x ModelJob of vgg16 (865 kB of gradients in 8 buckets" in done.stdout + done.stderr
    [path] = tmp_path.rglob("report.json")
    assert json.loads(path.read_text())["fidelity"]
    steps = []
    lab = ln.Lab(
        "seen",
        directory=tmp_path / "seen",
        on_progress=lambda name, at: steps.append((at.step, at.total)),
    )
    lab.run(star(), small(iterations=150))
    assert {total for _, total in steps} == {150}


def test_a_trace_has_every_bucket(tmp_path):
    lab, job = ln.Lab("t", seed=1, directory=tmp_path), small(iterations=2, buckets=3)
    r = lab.run(star(), job, trace=tmp_path / "t.pftrace")
    trace = Trace(tmp_path / "t.pftrace")
    rounds = trace.on("iterations of rank 0")
    assert [(each.begin, each.end) for each in rounds] == [
        (each.start_ps // 1000, each.end_ps // 1000) for each in r.data.iterations
    ]
    sent = job.bucket_bytes[::-1]  # the last layers' gradients are there first
    for host in ("h0", "h1"):
        ops = [
            each
            for each in trace.slices
            if trace.names[each.track].startswith(f"{host} operations")
        ]
        assert [each.name for each in ops] == [f"all_reduce {n}" for n in range(6)]
        assert [each.values["bytes"] for each in ops] == [*sent, *sent]
        assert {each.values["outcome"] for each in ops} == {"ok"}
        # Iterations are rank 0's: rank 1 has its last sum a moment before or after.
        apart = 0 if host == "h0" else r.plan.base_rtt_ps // 1000
        for number, each in enumerate(ops):
            around = rounds[number // 3]
            assert around.begin < each.begin < each.end <= around.end + apart
        assert [ops[2].end, ops[5].end] == pytest.approx([each.end for each in rounds], abs=apart)


# --- sums in switches -----------------------------------------------------------------------------
def summing(policy="esa", hosts=4, **options):
    fabric = star(hosts=hosts)
    fabric.add_link(fabric.add_host("ps", role="server"), "p0.leaf0", rate="10 Gb/s", delay="1 us")
    return fabric.program("*", "aggregate", policy=policy, **options)


@pytest.mark.parametrize("policy", ["esa", "atp", "switchml"])
def test_switches_sum_every_bucket_exactly(tmp_path, policy):
    job = small(workers=4, allreduce="ina", jitter=0.2)
    runs = [
        run(tmp_path, job, fabric=summing(policy), name=f"{number}", payload=payload)[0]
        for number, payload in enumerate((True, True, False))
    ]
    assert all(r["errors"] == 0 and len(r.data.iterations) == 4 for r in runs)
    assert runs[0].data.wrong == 0 and runs[2].data.wrong is None
    assert report(tmp_path, "0") == report(tmp_path, "1")
    assert lengths(runs[0]) == lengths(runs[2]), "bytes cost no time"


def test_switches_send_each_byte_once(tmp_path):
    """A rank of a ring of four sends 1.5 times the bytes of one whose switch sums."""
    took = {}
    for how in ("ring", "ina"):
        job = small(workers=4, compute="0 s", iterations=6, allreduce=how)
        r, request = run(tmp_path, job, fabric=summing(), name=how)
        took[how] = r["before.iteration_s"]
        least = least_iteration_s(request, "virtual")
        assert least == pytest.approx(6.4e-3 if how == "ina" else 9.6e-3)
        assert least < took[how] < 1.35 * least
    assert 1.3 < took["ring"] / took["ina"] < 1.7


def test_buckets_are_under_way_together_where_switches_sum(tmp_path):
    """Eight buckets are there within 1.3 ms of one another, and each takes 0.8 ms."""
    for how in ("ring", "ina"):
        r, _ = run(
            tmp_path, small(workers=4, compute="2 ms", allreduce=how), fabric=summing(), name=how
        )
        for host in list(r.data.hosts.values())[:4]:
            ends = [end for _, end, _ in host.work]
            assert len(ends) == 32 and ends == sorted(ends), "sums end in the order of buckets"
            begins = [begin for begin, *_ in host.work]
            assert sum(begin < end for begin, end in zip(begins[1:], ends, strict=False)) >= 24


@pytest.mark.parametrize(
    ("levels", "swaps"), [((128, 128), False), ((127, 128), True), ((128, 127), True)]
)
def test_switches_decide_by_the_priorities_that_are_given(tmp_path, levels, swaps):
    """Slots are short while ranks wait for a later one. Without downgrade a packet takes the slot
    of one that is less urgent, by a single step, and of no other."""
    name = f"model_{levels[0]}_{levels[1]}"

    @ln.plugin.priority(name)
    class Level(ln.plugin.Priority):
        def priority(self, message):
            return levels["ab".index(message.job)]

    jobs = [
        small(workers=4, allreduce="ina", compute="10 ms", jitter=0.2, priority=name, name=each)
        for each in "ab"
    ]
    r, _ = run(
        tmp_path,
        jobs,
        fabric=summing(hosts=8, pool="16 KiB", downgrade=0),
        name=name,
        ina={"rto_first": 50 * 10**9},
    )
    counters = r.switch("p0.leaf0").counters
    assert counters["collide"] > 1000
    assert (counters.get("preempt", 0) > 0) is swaps


def test_jobs_of_one_switch_stay_exact_whatever_their_priority(tmp_path):
    @ln.plugin.priority("model_first_a")
    class First(ln.plugin.Priority):
        def priority(self, message):
            return 200 if message.job == "a" else 2

    for priority in (*FORMULAS, "model_first_a"):
        jobs = [
            small(workers=4, allreduce="ina", priority=priority, name=name, start=start, scale=4)
            for name, start in (("a", "0 s"), ("b", "1 ms"))
        ]
        r, _ = run(
            tmp_path,
            jobs,
            fabric=summing(hosts=8, pool="64 KiB"),
            name=priority,
            payload=True,
            ina={"rto_first": 10**9},
        )
        for name in "ab":
            assert r[f"{name}.errors"] == 0 and r.job(name).data.wrong == 0
            assert r[f"{name}.jct_s"] > 0


# --- priorities -----------------------------------------------------------------------------------
GOLDEN = [
    ((1, 1, 1, 0), 128),
    ((100, 1.04, 16, 0), 107),
    ((100, 1.04, 16, 15), 76),
    ((10, 4.5, 24, 0), 155),
    ((0.01, 2, 8, 0), 212),
    ((3600, 0.025, 50, 49), 1),
    ((1e-6, 256, 1000, 0), 255),
]


def message(remaining_s=None, ratio=None, layers=4, layer=0):
    return Message("a", layer, layers, 1, 0.5, 4, layer or 0, remaining_s, ratio)


@pytest.mark.parametrize(("given", "priority"), GOLDEN)
def test_the_formula_for_users(given, priority):
    time, ratio, layers, layer = given
    assert ln.plugin.formula(message(time, ratio, layers, layer)) == priority


def test_the_formulas_of_the_engine_have_these_names():
    for name in FORMULAS:
        _core.priority_of(name, remaining_s=1, communication_ratio=1, layers=1, layer=0)
    with pytest.raises(ValueError, match='no priority "full"'):
        _core.priority_of("full", remaining_s=1, communication_ratio=1, layers=1, layer=0)
    asked = message(0.25, 16, 8, 1)
    assert [ln.plugin.formula(asked, name) for name in FORMULAS[:-1]] == [
        192,
        144,
        160,
        144,
        128,
        128,
    ]
    assert ln.plugin.formula(message(layer=None)) == 128, "what is not known counts as 1"
    for name in ("random", "esaa"):
        with pytest.raises(UsageError, match=f'no formula "{name}"; nearest: '):
            ln.plugin.formula(asked, name)


@pytest.mark.parametrize("name", FORMULAS)
def test_every_formula_runs_and_repeats(tmp_path, name):
    for number in range(2):
        r, _ = run(tmp_path, small(priority=name), name=f"{number}")
        assert r["errors"] == 0
    assert report(tmp_path, "0") == report(tmp_path, "1")


def test_no_class_may_have_a_formulas_name():
    with pytest.raises(UsageError, match=r'plugin\.priority "esa": the engine has'):
        ln.plugin.priority("esa")


def test_a_class_is_asked_for_each_bucket_iteration_and_rank(tmp_path):
    asked = []

    @ln.plugin.priority("model_heard")
    class Heard(ln.plugin.Priority):
        def priority(self, message):
            asked.append(message)
            return 1 + message.layer

    r, _ = run(
        tmp_path,
        [
            small(priority="model_heard", name="heard", iterations=3, buckets=2, compute="60 ms"),
            small(name="other"),
        ],
        fabric=star(hosts=4),
    )
    assert r["heard.errors"] == 0 and len(asked) == 2 * 3 * 2
    first, last = asked[0], asked[-1]
    assert (
        first.job,
        first.layer,
        first.layers,
        first.iteration,
        first.bytes,
        first.remaining_layers,
    ) == ("heard", 1, 2, 1, 4 * 10**6, 1)
    assert first.progress == pytest.approx(2 / 3) and last.progress == 1.0
    assert (last.layer, last.iteration, last.remaining_layers) == (0, 3, 0)
    # Three iterations of the stated 60 ms; at the last, one of 60 ms and the last bucket's sum.
    assert first.remaining_s == pytest.approx(0.18) and 0.063 < last.remaining_s < 0.065
    assert first.communication_ratio == pytest.approx(6.4 / 60)


@pytest.mark.parametrize(
    ("priority", "said"),
    [
        (lambda self, message: 0, "gave 0, which is no whole number from 1 to 255"),
        (lambda self, message: 256, "gave 256"),
        (lambda self, message: "high", "gave 'high'"),
        (
            lambda self, message: 9 // message.layer,
            r"raised ZeroDivisionError: .* \(test_model_job",
        ),
    ],
)
def test_a_class_that_breaks_its_contract_ends_the_run_by_name(tmp_path, priority, said):
    class Broken(ln.plugin.Priority):
        pass

    Broken.priority = priority
    ln.plugin.priority("model_broken")(Broken)
    with pytest.raises(PluginError, match=f'priority "model_broken": priority {said}'):
        run(tmp_path, small(priority="model_broken"))


def test_a_class_that_cannot_be_made_and_one_that_is_interrupted(tmp_path):
    class Unmade(ln.plugin.Priority):
        def __init__(self, level):
            pass

    class Interrupted(ln.plugin.Priority):
        def priority(self, message):
            raise KeyboardInterrupt

    ln.plugin.priority("model_unmade")(Unmade)
    ln.plugin.priority("model_interrupted")(Interrupted)
    with pytest.raises(PluginError, match=r'priority "model_unmade": __init__ raised TypeError'):
        run(tmp_path, small(priority="model_unmade"))
    with pytest.raises((KeyboardInterrupt, ln.LoomnetError)):
        run(tmp_path, small(priority="model_interrupted"))


def test_live_takes_formulas_alone(tmp_path):
    @ln.plugin.priority("model_live")
    class Level(ln.plugin.Priority):
        def priority(self, message):
            return 9

    lab = ln.Lab("live", directory=tmp_path, clock="live")
    with pytest.raises(UsageError, match='"model_live" is a class in Python, which is asked on'):
        lab.run(star(), small(priority="model_live"))
