"""Jobs of one run with unlike congestion controls: `cc=` of a job."""

import pickle

import pytest

import loomnet as ln
from loomnet.base.errors import UsageError
from loomnet.running.run_options import check_options

pytest.importorskip("loomnet._core")

BOTTLENECK = "p0.leaf0->p0.leaf1"


def pair(number, cc, **values):
    """A flow of its own hosts, of four on each side."""
    return ln.Flows(
        "100 MB",
        pairs=[(0, 1)],
        hosts=[f"h{number}", f"h{4 + number}"],
        transport="tcp",
        cc=cc,
        stop="10 s",
        **{"name": f"f{number}", **values},
    )


def shares(*controls, **options):
    """Of what all flows got in the time of the first that ends: each one's share."""
    fabric = ln.dumbbell(
        left=4, right=4, rate="1 Gb/s", bottleneck="100 Mb/s", delay="1 ms", bottleneck_delay="8 ms"
    )
    fabric.override(BOTTLENECK, data_limit="500 kB")
    jobs = [pair(number, cc) for number, cc in enumerate(controls)]
    r = ln.run(fabric, jobs, write=False, seed=1, **options)
    end = min(part.data.completion_ps for part in r.parts)
    got = []
    for number, part in enumerate(r.parts):
        host = part.data.hosts[4 + number]
        got.append(int(sum(host.payload[: end // host.bin_ps])))
    return [each / sum(got) for each in got], r


def test_vegas_gives_way_to_cubic_and_an_equal_does_not():
    """Brakmo and Peterson's control keeps a few packets queued where CUBIC fills the buffer."""
    (vegas, cubic), r = shares("vegas", {"cc": "cubic"}, tcp={"mtu": 1500})
    assert vegas < 0.2 < 0.8 < cubic
    models = {name: text for name, text in r.data.fidelity.notes.items() if "tcp" in name}
    assert models["tcp of f0"] == "model: TCP, vegas" and models["tcp of f1"] == "model: TCP, cubic"
    equal, _ = shares("vegas", "vegas", tcp={"mtu": 1500})
    assert min(equal) > 0.3


def test_a_jobs_control_with_its_options_is_the_runs_with_them():
    own, r = shares({"cc": "vegas", "vegas_alpha": 20, "vegas_beta": 24}, "cubic")
    other, again = shares(None, "cubic", tcp={"cc": "vegas", "vegas_alpha": 20, "vegas_beta": 24})
    assert own == other
    assert [part.data.flows.columns.tolist() for part in r.parts] == [
        part.data.flows.columns.tolist() for part in again.parts
    ]
    assert shares({"vegas_alpha": 20, "vegas_beta": 24}, "cubic", tcp={"cc": "vegas"})[0] == own


def test_a_world_has_them_too():
    fabric = ln.dumbbell(left=4, right=4, rate="1 Gb/s", bottleneck="100 Mb/s", delay="1 ms")
    world = ln.World(fabric, [pair(0, "held"), pair(1, "cubic")], seed=1)
    world.reset()
    held, cubic = (world.step(f"{n} ms")["cwnd"].tolist() for n in (100, 200))
    assert held[0] == cubic[0] and held[1] != cubic[1]


def test_a_job_with_a_control_is_copied_and_shown():
    job = pair(0, {"cc": "vegas"})
    assert pickle.loads(pickle.dumps(job)) == job and "cc={'cc': 'vegas'}" in repr(job)


@pytest.mark.parametrize(
    ("jobs", "options", "line"),
    [
        ([pair(0, "vegus")], {}, "no control vegus; nearest: vegas"),
        ([pair(0, {"cc": "vegas", "mtu": 1500})], {}, r'"mtu" is no option of the control vegas'),
        ([pair(0, {"cc": "vegas", "vegas_alpa": 1})], {}, "vegas_alpa"),
        ([pair(0, {"cc": "vegas", "vegas_alpha": 9})], {}, "vegas_alpha: must not be above"),
        ([pair(0, "vegas"), pair(0, "reno", name="g")], {}, "two jobs over tcp on one host"),
        (
            [ln.AllReduce("1 MB", transport="roce", cc="dcqcn")],
            {},
            "links mark for this control by other thresholds",
        ),
    ],
)
def test_what_cannot_be_is_one_line(jobs, options, line):
    fabric = ln.dumbbell(left=4, right=4, rate="1 Gb/s", bottleneck="100 Mb/s", delay="1 ms")
    with pytest.raises(UsageError, match=line) as refused:
        ln.run(fabric, jobs, write=False, **options)
    assert "\n" not in str(refused.value)


def test_live_sockets_of_a_run_have_one_control():
    with pytest.raises(UsageError, match="live, all sockets of a run have one control"):
        check_options({}, [pair(0, "cubic")], live=True)
    check_options({}, [pair(0, "cubic")])


def test_a_control_that_is_no_name_is_one_line():
    with pytest.raises(UsageError, match=r"Flows\.?.*cc.*3 is neither the name"):
        pair(0, 3)
