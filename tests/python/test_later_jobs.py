"""A job that starts later than the run: its connections are made at its own start, so until then it
sends nothing, whichever transport and kind of job it has."""

from __future__ import annotations

import pytest

import loomnet as ln
from loomnet.systems.transport import START_RTTS

TRANSPORTS = ("mrc", "roce", "tcp")
START = "4.096 ms"  # a multiple of the 128 ns of MRC's time stamps
START_PS = ln.Time(START).count
HOSTS = ["h0", "h1", "h2", "h3"]


def fabric(**program) -> ln.Fabric:
    made = ln.clos.two_tier(
        planes=2, leaves=2, spines=2, hosts_per_leaf=3, rate="100 Gb/s", delay="1 us"
    )
    if program:
        made.add_host("ps", role="server")
        for plane in range(2):
            made.add_link("ps", f"p{plane}.leaf0", rate="100 Gb/s", delay="1 us")
        made.program("*", "aggregate", **program)
    return made


def jobs(kind: str, transport: str = "mrc", **values) -> ln.Job:
    if kind == "ModelJob/ina":
        return ln.ModelJob(
            size="400 kB",
            compute="20 us",
            buckets=2,
            iterations=2,
            workers=4,
            allreduce="ina",
            **values,
        )
    if kind == "Permutation":
        return ln.Permutation("100 kB", 2, transport, ranks=4, **values)
    if kind == "Flows":
        return ln.Flows("100 kB", count=20, gap="2 us", transport=transport, ranks=4, **values)
    return getattr(ln, kind)("100 kB", repeat=2, transport=transport, ranks=4, **values)


@ln.plugin.controller("counts_packets")
class CountsPackets(ln.plugin.Controller):
    """Notes at each look how many packets the hosts of the later job have sent."""

    seen: list[tuple[int, int]] = []  # noqa: RUF012  (of the run that a test has just made)

    def advance(self, now: int, view: ln.plugin.View) -> None:
        self.seen.append(
            (
                now,
                sum(
                    view.link(name).counters["packets"]
                    for name in view.links
                    if name.split("-")[0] in HOSTS
                ),
            )
        )


def beside(transport: str = "mrc") -> ln.Job:
    """A job of other hosts that is there all the time."""
    return ln.SendRecv("2 kB", 400, transport, hosts=["h4", "h5"], compute="5 us", name="beside")


KINDS = [
    *(
        (kind, transport)
        for kind in ("AllReduce", "Permutation", "Flows")
        for transport in TRANSPORTS
    ),
    ("ModelJob/ina", "mrc"),
]


@pytest.mark.parametrize(("kind", "transport"), KINDS)
def test_nothing_is_sent_before_the_start(kind, transport):
    made = fabric(policy="esa") if kind.endswith("/ina") else fabric()
    job = jobs(kind, transport, start=START, hosts=HOSTS, name="later")
    CountsPackets.seen.clear()
    # Of a port that fails MRC tells the hosts that it is connected with.
    failed = ln.down("h0--p0.leaf0", at="500 us", duration="300 us")
    r = ln.run(
        made,
        [beside(transport), job],
        [failed],
        seed=3,
        write=False,
        controllers=[ln.controller("counts_packets", every="20 us")],
    )
    assert r.job("later").data.ended == "finished"
    # A controller's time begins with the first flow.
    first = START_RTTS * r.job("later").plan.base_rtt_ps
    before = [packets for now, packets in CountsPackets.seen if now < START_PS - first]
    assert len(before) > 80 and not any(before)
    assert CountsPackets.seen[-1][1] > 100


def test_sums_take_the_trees_that_there_are_at_the_start():
    """The switch that would have summed is killed before the job starts."""
    lost = [ln.kill(f"p{plane}.spine0", at="100 us") for plane in range(2)]
    job = jobs("ModelJob/ina", start=START, name="later", hosts=HOSTS)
    r = ln.run(fabric(policy="esa"), [beside(), job], lost, seed=3, write=False)
    assert r.job("later").data.ended == "finished", r.job("later").data.reason


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_its_senders_are_observed_from_its_start_on(transport):
    first = ln.Flows(
        "900 kB", pairs=[(0, 1)], count=40, transport=transport, name="first", hosts=["h0", "h1"]
    )
    later = ln.Flows(
        "900 kB",
        pairs=[(0, 1)],
        count=4,
        transport=transport,
        name="later",
        hosts=["h2", "h3"],
        start=START,
    )
    r = ln.run(fabric(), [first, later], seed=3, write=False, sample="20 us", observe=["acked"])
    begun: dict[str, float] = {}
    for at, where, _, _ in r.data.observed.rows():
        begun.setdefault(where.split()[0], at)
    assert begun["h2->h3"] >= START_PS / 1e12 > begun["h0->h1"]


def test_an_unknown_series_is_refused_though_a_job_starts_later(tmp_path):
    later = jobs("Flows", "tcp", start=START)
    with pytest.raises(ln.UsageError, match='no series "cwin"; nearest: cwnd'):
        ln.run(fabric(), later, write=False, sample="20 us", observe=["cwin"])
