"""Several jobs in one live run, on hosts that they share."""

from pathlib import Path

import pytest

import loomnet as ln
from loomnet.base.errors import UsageError

TRAIN = Path(__file__).parents[2] / "scenarios" / "train_digits.py"
BOTH = ["h0", "h2"]


def run(tmp_path, jobs, clock="live", **options):
    fabric = ln.clos.two_tier(
        planes=2, leaves=2, spines=1, hosts_per_leaf=2, rate="20 Mb/s", delay="0.5 ms"
    )
    lab = ln.Lab("several", clock=clock, seed=1, directory=tmp_path / "runs")
    return lab.run(fabric, jobs, **options)


def ranks(name, transport):
    return ln.TorchJob(
        TRAIN,
        args=["--steps=3"],
        ranks=2,
        name=name,
        hosts=BOTH,
        compute="2 ms",
        transport=transport,
        log=r"step (?P<step>\d+) loss (?P<loss>\S+)",
    )


def losses(result):
    return [loss for _, loss in result.loss_curve]


def test_pytorch_jobs_on_the_same_hosts_learn_as_one_does_alone(uses_machine, tmp_path):
    """Of two ranks, every transport and clock adds the same two gradients: one job alone stands for
    all."""
    transports = {"a": "mrc", "b": "roce", "c": "gloo"}
    r = run(tmp_path, [ranks(name, each) for name, each in transports.items()])
    alone = losses(run(tmp_path, ranks(None, "mrc"), clock="virtual"))
    assert r.data.fidelity.unexplained == 0 and len(alone) == 3
    for name in transports:
        own = r.job(name)
        assert own.data.ended == "finished", own.data.errors
        assert losses(own) == alone
        assert own["errors"] == 0 and not own.data.unequal_hashes
        # Python's start and exit, which take seconds of the live clock, are not in it.
        spans = [span for host in own.data.hosts.values() for span in host.work]
        assert (
            own["jct_s"]
            == (max(end for _, end, _ in spans) - min(begin for begin, *_ in spans)) / 1e12
        )


@pytest.mark.parametrize(("first", "second"), [("mrc", "mrc"), ("roce", "mrc"), ("mrc", "tcp")])
def test_traffic_on_the_same_hosts(uses_machine, tmp_path, first, second):
    r = run(
        tmp_path,
        [
            ln.AllReduce(size="200 kB", repeat=5, hosts=BOTH, transport=first, name="a"),
            ln.Permutation(size="300 kB", hosts=BOTH, transport=second, name="b"),
        ],
    )
    assert r.data.fidelity.unexplained == 0
    for name in "ab":
        own = r.job(name)
        assert own.data.ended == "finished" and own["errors"] == 0
    sent = {host: int(series.payload.sum()) for host, series in r.job("b").data.hosts.items()}
    assert set(sent) == {0, 2}
    for size in sent.values():  # the kernel's TCP may send a byte twice
        assert 300_000 <= size <= (330_000 if second == "tcp" else 300_000)


def test_two_jobs_over_the_kernel_of_one_host_are_refused(uses_machine, tmp_path):
    with pytest.raises(UsageError, match="jobs a and b are over the kernel of h0, which does not"):
        run(
            tmp_path,
            [
                ln.Permutation(size="1 kB", hosts=BOTH, transport="tcp", name="a"),
                ln.Permutation(size="1 kB", hosts=["h0", "h1"], transport="tcp", name="b"),
            ],
        )


def test_tcp_and_gloo_in_one_run_are_refused(uses_machine, tmp_path):
    with pytest.raises(UsageError, match='settings of one of "tcp" and "gloo"'):
        run(
            tmp_path,
            [
                ln.Permutation(size="1 kB", hosts=BOTH, transport="tcp"),
                ln.TorchJob(TRAIN, hosts=["h1", "h3"], transport="gloo"),
            ],
        )


def test_jobs_stop_at_their_time(uses_machine, tmp_path):
    """From its stop on a job begins no round and no flow, and ends with what is under way."""
    jobs = [
        ln.AllReduce(size="50 kB", repeat=10**6, hosts=BOTH, stop="500 ms", name="a"),
        ln.Flows(
            sizes="10 kB",
            count=1000,
            gap="20 ms",
            hosts=BOTH,
            transport="tcp",
            stop="500 ms",
            name="b",
        ),
    ]
    r = run(tmp_path, jobs)
    for name in "ab":
        own = r.job(name)
        assert own.data.ended == "finished" and own["errors"] == 0, own.data.errors
    assert 1 < len(r.job("a").data.iterations) < 100
    assert max(each.start_ps for each in r.job("a").data.iterations) < 500 * 10**9
    flows = r.job("b").data.flows
    assert 5 < len(flows) < 60 and all(each.end_ps is not None for each in flows)
    assert max(each.start_ps for each in flows) < 500 * 10**9


def test_ranks_are_told_to_stop(uses_machine, tmp_path):
    job = ln.TorchJob(TRAIN, args=["--steps=100000"], ranks=2, hosts=BOTH, stop="10 s", until="1 h")
    r = run(tmp_path, job)
    assert r.data.ended == "finished" and r["errors"] == 0, r.data.errors
    assert 1 <= len(r.data.iterations) < 1000
