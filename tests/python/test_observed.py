"""Series of what senders and their congestion controls hold: asked for, read back, and in a trace;
a run that does not ask is as it was."""

import csv

import numpy as np
import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

import loomnet as ln
from loomnet.measures.observed import Observed

MS = 10**9


class Counting(ln.plugin.Congestion):
    """A constant window that counts what it hears."""

    def __init__(self, flow):
        super().__init__(flow)
        self.acks = 0

    def on_ack(self, ack):
        self.acks += 1

    def observe(self):
        return {"acks_heard": self.acks, "half_of_them": self.acks / 2}


def fabric():
    return ln.clos.two_tier(
        planes=1, leaves=2, spines=1, hosts_per_leaf=2, rate="10 Gb/s", delay="5 us"
    )


FLOWS = ln.Flows(pairs=[(0, 1), (0, 3)], count=2, sizes="4 MB", transport="tcp")


def go(directory, job=FLOWS, **options):
    return ln.run(fabric(), job, seed=1, directory=directory, **options)


def observed(directory, wanted="*", **options):
    return go(directory, sample="0.1 ms", observe=wanted, **options)


def test_what_a_control_observes_is_a_tidy_table(tmp_path):
    ln.plugin.congestion("counting")(Counting)
    r = observed(tmp_path, ["acks_heard", "half*"], tcp={"cc": "counting"})
    table = r.series("acks_heard")
    assert table.columns == ("time", "where", "name", "value") and len(table) > 20
    assert {row["name"] for row in table} == {"acks_heard"}
    for where in set(table.column("where")):
        values = [row["value"] for row in table if row["where"] == where]
        assert values == sorted(values) and values[-1] > 100
    wheres = sorted(set(table.column("where")))
    assert [where.split(" qp ")[0] for where in wheres] == ["h0->h1", "h0->h3"]
    one = r.series("acks_heard", where="h0->h3*", every="1 ms")
    assert set(one.column("where")) == {wheres[1]}
    steps = [round(time * 1000) for time in one.column("time")]
    assert steps == sorted(set(steps)) and 2 <= len(steps) < len(table) / 2
    halves = r.series("half_of_them").column("value")
    assert halves == [value / 2 for value in table.column("value")]
    axes = table.plot()
    assert len(axes.lines) == 2 and axes.get_ylabel() == "acks_heard"


@pytest.mark.parametrize("transport", ["mrc", "roce", "tcp"])
def test_every_transport_shows_its_senders(tmp_path, transport):
    job = ln.AllReduce("4 MB", 3, transport)
    options = {"roce": {"dcqcn": True}} if transport == "roce" else {}
    made = ln.clos.two_tier(
        planes=2, leaves=2, spines=1, hosts_per_leaf=1, rate="10 Gb/s", delay="5 us"
    )
    r = ln.run(
        made,
        job,
        seed=1,
        directory=tmp_path,
        sample="0.1 ms",
        observe=["acked", "p*bps"],
        **options,
    )
    assert max(r.series("acked").column("value")) > 10**6
    planes = {
        where.endswith(("plane 0", "plane 1")) for where in r.series("pacing_bps").column("where")
    }
    assert planes == {transport == "roce"}, "RoCE has a part for each plane"


def test_it_is_written_beside_the_report_and_into_a_trace(tmp_path):
    r = observed(tmp_path / "run", ["cwnd"], trace=tmp_path / "trace")
    rows = list(csv.DictReader((tmp_path / "run" / "observed.csv").open()))
    assert [float(row["value"]) for row in rows] == r.series("cwnd").column("value")
    assert [float(row["time"]) for row in rows] == pytest.approx(r.series("cwnd").column("time"))
    trace = Trace.FromString((tmp_path / "trace").read_bytes())
    tracks = {
        p.track_descriptor.uuid: p.track_descriptor.name
        for p in trace.packet
        if p.track_descriptor.HasField("counter")
    }
    seen = [
        (tracks[p.track_event.track_uuid], p.timestamp, p.track_event.double_counter_value)
        for p in trace.packet
        if p.track_event.HasField("double_counter_value")
    ]
    assert len(seen) == len(rows)
    assert {name for name, *_ in seen} == {f"cwnd {row['where']}" for row in rows}
    assert {value for *_, value in seen} == {float(row["value"]) for row in rows}
    stamps = [at for name, at, _ in seen if name == seen[0][0]]
    assert stamps == sorted(stamps) and stamps[0] > 0


def test_a_run_that_does_not_ask_is_as_it_was(tmp_path):
    plain, asked = go(tmp_path / "a"), observed(tmp_path / "b")
    assert (tmp_path / "a" / "report.json").read_bytes() == (
        tmp_path / "b" / "report.json"
    ).read_bytes()
    assert plain.data.observed is None and asked.data.observed is not None
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == [
        "counters.json",
        "environment.json",
        "report.json",
    ]


def test_a_series_that_repeats_is_the_same_to_the_byte(tmp_path):
    for each in "ab":
        observed(tmp_path / each)
    assert (tmp_path / "a/observed.csv").read_bytes() == (tmp_path / "b/observed.csv").read_bytes()


def test_a_labelled_run_of_several_jobs_has_its_own(tmp_path):
    jobs = [
        ln.AllReduce("1 MB", 2, "mrc", ranks=2, name="a"),
        ln.AllReduce("1 MB", 2, "mrc", ranks=2, name="b"),
    ]
    r = ln.Lab(directory=tmp_path).run(fabric(), jobs, label="two", sample="0.1 ms", observe="cwnd")
    places = {where.split(" qp")[0] for where in r.series("cwnd").column("where")}
    assert places == {"h0->h1", "h1->h0", "h2->h3", "h3->h2"}
    assert (tmp_path / "two" / "observed.csv").exists()


def test_too_many_values_are_thinned_series_by_series(monkeypatch):
    monkeypatch.setattr("loomnet.measures.observed.MOST_VALUES", 10)
    found = Observed(1, ("x",))
    keys = np.array([found.key(where, "x") for where in "ab"])
    for at in range(6):
        found.take(at, keys, np.array([at, 10.0 + at]))
    kept = {
        where: (times.tolist(), values.tolist())
        for (where, _), (times, values) in found.series().items()
    }
    assert kept == {"a": ([0, 2, 4], [0.0, 2.0, 4.0]), "b": ([0, 2, 4], [10.0, 12.0, 14.0])}


REFUSED = {
    "no step": ({"observe": ["cwnd"]}, 'observe: values are read every sample; give sample="1 ms"'),
    "no list": ({"observe": 5, "sample": "1 ms"}, 'observe=5 is no list of names, as ["cwnd"]'),
    "no names": ({"observe": [], "sample": "1 ms"}, "observe=[] is no list"),
    "an unknown name": (
        {"observe": ["cwin"], "sample": "1 ms"},
        'observe: no series "cwin"; nearest: cwnd',
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused_is_one_line(what, tmp_path, monkeypatch):
    options, line = REFUSED[what]
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ln.UsageError) as refused:
        go(None, **options)
    assert line in str(refused.value) and "\n" not in str(refused.value)
    assert refused.value.exit_code == 2 and list(tmp_path.iterdir()) == []


def test_a_series_that_was_not_asked_for_says_how(tmp_path):
    r = go(tmp_path / "a")
    with pytest.raises(
        ln.UsageError,
        match=r'no series "cwnd"; nearest: goodput, link_use, '
        r"iteration_s; "
        r'what .*: sample="1 ms", observe=\["cwnd"\]',
    ):
        r.series("cwnd")
    with pytest.raises(ln.UsageError, match="goodput is of all hosts together"):
        r.series("goodput", where="h0")
    with pytest.raises(ln.UsageError, match="every=0 ps must be above 0"):
        r.series("goodput", every="0 s")
    assert len(r.series("goodput", every="1 ms").values) > 2


def test_senders_of_jobs_over_two_transports_are_observed(tmp_path):
    """Every host has both transports, and the senders of the second are not the first one's."""
    jobs = [
        ln.AllReduce("100 kB", 2, "mrc", hosts=["h0", "h1"], name="a"),
        ln.AllReduce("100 kB", 2, "roce", hosts=["h2", "h3"], name="b"),
    ]
    r = ln.run(fabric(), jobs, directory=tmp_path, sample="10 us", observe=["*"])
    wheres = {
        where.split("->")[0]
        for name in r.job("a").data.observed.names
        for where in r.job("a").series(name).column("where")
    }
    assert wheres == {"h0", "h1", "h2", "h3"}


def test_a_flows_series_is_its_own_and_ends_with_it(tmp_path):
    """Flows that come and go, of a size each: rows of the probe change places as they leave it."""
    flows = ln.Flows(
        sizes=[ln.Size.of(20_000 + 1_000 * number) for number in range(40)],
        count=40,
        transport="roce",
        pairs=((0, 2), (1, 3)),
        starts=[f"{15 * number} us" for number in range(40)],
    )
    fabric = ln.clos.two_tier(
        planes=1, leaves=2, spines=1, hosts_per_leaf=2, rate="10 Gb/s", delay="5 us"
    )
    r = ln.run(fabric, flows, directory=tmp_path, sample="20 us", observe=["acked"])
    series = {}
    for row in r.series("acked"):
        number = int(row["where"].split()[-1])  # of the queue pair: flows have them in their order
        series.setdefault(number, []).append((row["time"], row["value"]))
    assert len(series) == 40 and len({flow.bytes for flow in r.flow_records}) > 10
    payload = r.plan.payload_bytes
    for flow, (_, values) in zip(r.flow_records, sorted(series.items()), strict=True):
        if flow.end_ps > r.data.end_ps - 20e6:  # no look came behind its end
            continue
        last, acked = values[-1]
        assert acked == -(-flow.bytes // payload) * payload
        assert flow.end_ps <= last * 1e12 <= flow.end_ps + 20.001e6
        assert values[0][0] * 1e12 >= flow.start_ps - 1
