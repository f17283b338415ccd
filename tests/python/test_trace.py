"""What a run records as a Perfetto trace, read with Perfetto's own schema, under which names, and a
report that does not know of it."""

import collections
import itertools
import textwrap

import pytest
from recorded import fabric, recorded

import loomnet as ln
from loomnet.base.errors import UsageError
from loomnet.cli import main
from loomnet.labs.lab import Lab
from loomnet.plans.make import make_plan
from loomnet.plans.port_search import find_port
from loomnet.running.perfetto_trace import RankClock
from loomnet.running.record import Record, parse_pcap
from loomnet.running.recording import Recording

pytest.importorskip("loomnet._core")
SLICE_BEGIN, SLICE_END, INSTANT, COUNTER = 1, 2, 3, 4


# --- Perfetto -------------------------------------------------------------------------------------
class Trace:
    """A trace as Perfetto's schema reads it: slices with their track, in order of begin."""

    Slice = collections.namedtuple("Slice", "track name begin end flows ending values")

    def __init__(self, path):
        schema = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
        trace = schema.Trace()
        trace.ParseFromString(path.read_bytes())
        self.names, self.parents, self.ranks, self.attributes = {}, {}, {}, {}
        self.orders = {}  # of processes, as they are first described
        self.counters = collections.defaultdict(list)
        self.slices, self.instants = [], []
        events = []
        for packet in trace.packet:
            assert packet.trusted_packet_sequence_id == 1
            for each in packet.trace_attributes.attribute:
                self.attributes[each.key] = each.string_value
            if packet.HasField("track_descriptor"):
                track = packet.track_descriptor
                self.names[track.uuid] = (
                    track.name or track.process.process_name or track.thread.thread_name
                )
                self.parents[track.uuid] = track.parent_uuid
                self.ranks[track.uuid] = track.sibling_order_rank
                if track.HasField("process") and track.process.legacy_sort_index:
                    self.orders[track.process.legacy_sort_index] = None
            if packet.HasField("track_event"):
                events.append((packet.timestamp, packet.track_event))
        open_slices = collections.defaultdict(list)
        # Perfetto orders by time and keeps the order of the file among equals.
        for at, event in sorted(events, key=lambda e: e[0]):
            assert event.track_uuid in self.names
            values = {a.name: a.string_value or a.int_value for a in event.debug_annotations}
            here = open_slices[event.track_uuid]
            if event.type == SLICE_BEGIN:
                here.append((at, event, values))
            elif event.type == SLICE_END:
                begin, opened, values = here.pop()
                self.slices.append(
                    self.Slice(
                        event.track_uuid,
                        opened.name,
                        begin,
                        at,
                        tuple(opened.flow_ids),
                        tuple(opened.terminating_flow_ids),
                        values,
                    )
                )
            elif event.type == INSTANT:
                self.instants.append((at, event.track_uuid, event.name, values))
            else:
                assert event.type == COUNTER
                self.counters[self.names[event.track_uuid]].append((at, event.counter_value))
        assert not any(open_slices.values()), "a slice without an end"
        self.slices.sort(key=lambda s: s.begin)

    def on(self, name):
        return [s for s in self.slices if self.names[s.track] == name]

    def under(self, parent):
        return [s for s in self.slices if self.names.get(self.parents[s.track]) == parent]


@pytest.fixture(scope="module")
def all_reduce(tmp_path_factory):
    folder = tmp_path_factory.mktemp("all_reduce")
    job = ln.AllReduce(size="256 KiB", repeat=3, transport="mrc")
    return recorded(folder, job), Trace(folder / "run.pftrace")


def test_operations_messages_and_hops_are_joined_by_arrows(all_reduce):
    result, trace = all_reduce
    operations = [s for s in trace.slices if s.name.startswith("all_reduce")]
    assert len(operations) == 6  # two hosts, three repeats
    assert {trace.names[trace.parents[s.track]] for s in operations} == {"h0", "h1"}
    first = result.data.iterations[0]
    at_h0 = [s for s in operations if trace.names[trace.parents[s.track]] == "h0"]
    assert at_h0[0].begin == first.start_ps // 1000
    assert at_h0[0].end == first.end_ps // 1000

    messages = {s.ending[0]: s for s in trace.slices if s.name.startswith("message") and s.ending}
    hops = collections.defaultdict(list)
    for each in trace.under("links"):
        for flow in (*each.flows, *each.ending):
            hops[flow].append(each)
    for operation in at_h0:
        assert operation.flows, "no message belongs to it"
        moved = 0
        for flow in operation.flows:
            message = messages[flow]
            assert trace.names[trace.parents[message.track]] == "h0"
            assert message.name == "message to h1"
            assert operation.begin <= message.begin <= operation.end
            moved += message.values["bytes"]
            for packet in message.flows:
                path = [trace.names[hop.track] for hop in hops[packet]]
                assert len(path) == 4
                assert path[0].startswith("h0->p") and path[-1].endswith("->h1")
                for before, after in itertools.pairwise(path):
                    assert before.partition("->")[2] == after.partition("->")[0]
                assert hops[packet][0].begin >= message.begin
                assert all(h.values["message"] == message.values["message"] for h in hops[packet])
                assert [bool(h.ending) for h in hops[packet]] == [False] * 3 + [True]
        assert 262144 <= moved < 265000  # 2 (N - 1) / N of the tensor, and chunk headers


def test_a_hop_is_exact_and_a_link_sends_one_packet_at_a_time(all_reduce):
    _, trace = all_reduce
    links = {trace.names[s.track] for s in trace.under("links")}
    assert len(links) == 24
    for name in links:
        last = 0
        for hop in trace.on(name):
            assert hop.begin >= last
            last = hop.end
            # 24 bytes of preamble, FCS and gap; 100 Gb/s is 80 ps a byte.
            lasts = hop.values["done_ps"] - hop.values["start_ps"]
            assert lasts == 80 * (max(hop.values["bytes"], 60) + 24)


def test_tracks_have_names_of_their_own_and_hosts_are_in_order(tmp_path):
    job = ln.AllToAll(size="1 MiB", repeat=2, transport="mrc")
    recorded(tmp_path, job, fab=fabric(hosts_per_leaf=2))
    trace = Trace(tmp_path / "run.pftrace")
    assert len(set(trace.names.values())) == len(trace.names)
    pairs = [name for name in trace.names.values() if "queue pair" in name]
    assert any(name.endswith(", lane 2") for name in trace.names.values()) or len(pairs) == 12
    hosts = [
        name
        for uuid, name in trace.names.items()
        if not trace.parents[uuid] and name.startswith("h")
    ]
    assert hosts == ["h0", "h1", "h2", "h3"]
    assert list(trace.orders) == sorted(trace.orders) and len(trace.orders) > 4
    links = [
        trace.ranks[uuid]
        for uuid, parent in trace.parents.items()
        if trace.names.get(parent) == "links"
        and "->" in trace.names[uuid]
        and not trace.names[uuid].startswith("queue ")
    ]
    assert len(set(links)) == len(links) > 0 and min(links) > 0


def test_what_only_python_knows_is_on_the_timeline(tmp_path):
    job = ln.AllReduce(size="256 KiB", repeat=40, transport="mrc")
    fault = ln.down("h0--p0.leaf0", at="200 us", duration="300 us", phase="cut")
    result = recorded(tmp_path, job, [fault])
    trace = Trace(tmp_path / "run.pftrace")
    (phase,) = trace.on("phase cut")
    assert (phase.begin, phase.end) == (200_000, 500_000)
    assert len(trace.on("iterations of rank 0")) == len(result.data.iterations) == 40
    assert any(name == "drop: link_down" for _, _, name, _ in trace.instants)
    assert any(name == "port_excluded" for _, _, name, _ in trace.instants)


@pytest.mark.parametrize("name", ["flow", "transfer"])
def test_point_to_point_traffic_is_operations_too(tmp_path, name):
    if name == "flow":
        job = ln.Permutation(size="300 kB", transport="mrc")
    else:
        matrix = tmp_path / "pair.cm"
        matrix.write_text("Nodes 2\nConnections 1\n0->1 id 1 start 0 size 300000\n")
        job = ln.Flows.from_htsim(matrix, transport="mrc")
    result = recorded(tmp_path / "run", job)
    assert result["errors"] == 0, result.data.errors
    trace = Trace(tmp_path / "run" / "run.pftrace")
    operations = [s for s in trace.slices if s.name.startswith(name)]
    assert operations
    for each in operations:
        assert each.values["outcome"] == "ok"
        assert each.values["bytes"] == 300_000
        assert len(each.flows) == 1  # one write


def test_queue_depths_peak_where_the_link_says_and_end_empty(tmp_path):
    job = ln.Incast(size="200 kB", repeat=1, transport="roce")
    fab = fabric(planes=1, leaves=2, spines=1, hosts_per_leaf=3)
    result = recorded(tmp_path, job, fab=fab)
    trace = Trace(tmp_path / "run.pftrace")
    assert len(trace.counters) >= 2
    peaks = 0
    for name, points in trace.counters.items():
        assert name.startswith("queue ")
        assert points[-1][1] == 0
        highest = max(value for _, value in points)
        assert highest >= result.data.totals[f"link {name.removeprefix('queue ')}"]["max_queue"]
        peaks += highest > 100_000
    assert peaks


def test_above_the_bound_whole_messages_are_sampled_and_the_trace_says_so(tmp_path):
    job = ln.AllReduce(size="1 MiB", repeat=4, transport="mrc")
    recorded(tmp_path / "all", job)
    whole = Trace(tmp_path / "all" / "run.pftrace")
    for name in ("one", "two"):
        recorded(tmp_path / name, job, most_hops=2000)
    assert (tmp_path / "one" / "run.pftrace").read_bytes() == (
        tmp_path / "two" / "run.pftrace"
    ).read_bytes()
    part = Trace(tmp_path / "one" / "run.pftrace")

    def hops(trace):
        found = collections.Counter(s.values["message"] for s in trace.under("links"))
        del found[0]  # packets that carry no message are chosen one by one
        return found

    everything, sample = hops(whole), hops(part)
    assert len(part.under("links")) <= 2000
    assert 2 <= len(sample) < len(everything) / 4
    assert all(everything[number] == count for number, count in sample.items())
    assert part.attributes["loomnet.sampling.packets_share"].startswith("1/")
    before = int(whole.attributes["loomnet.sampling.hops_and_drops_before_zero"])  # probes
    assert before > 0
    assert int(part.attributes["loomnet.sampling.hops_seen"]) == len(whole.under("links")) + before
    assert part.attributes["loomnet.sampling.hops_bound"] == "2000"
    assert whole.attributes["loomnet.sampling.packets_share"] == "all"


@pytest.mark.parametrize("transport", ["mrc", "roce"])
def test_the_report_is_the_same_to_the_byte(tmp_path, transport):
    job = ln.AllReduce(size="512 KiB", repeat=6, transport=transport)
    faults = [ln.loss("p1.leaf0->p1.spine1", 0.02, at="20 us", duration="200 us", phase="loss")]
    recorded(tmp_path / "with", job, faults, pcap=["h0:0", "p0.leaf0:1"])
    plain = Lab("recorded", directory=tmp_path / "without")
    plain.run(fabric(), job, faults)
    plain.write()
    assert (tmp_path / "with" / "lab" / "report.json").read_bytes() == (
        tmp_path / "without" / "report.json"
    ).read_bytes()


# --- files and names ------------------------------------------------------------------------------
def test_ports_have_numbers_and_peers():
    plan = make_plan(fabric())
    assert find_port(plan, "h1:1").name == "h1->p1.leaf1"
    assert find_port(plan, "h1:p1.leaf1") == find_port(plan, "h1:1")
    assert find_port(plan, "p0.spine1:p0.leaf0").name == "p0.spine1->p0.leaf0"


@pytest.mark.parametrize(
    "text, says",
    [
        ("h9:0", 'no node "h9"; nearest: h'),
        ("h0:2", "h0 has ports 0 to 1 (p0.leaf0, p1.leaf0)"),
        ("h0:p0.leaf1", "h0 has ports 0 to 1"),
        ("h0", "write NODE:PORT"),
        (":0", "write NODE:PORT"),
        ("h0:-1", "h0 has ports 0 to 1"),
    ],
)
def test_a_port_that_is_not_there_is_named(text, says):
    with pytest.raises(UsageError) as error:
        find_port(make_plan(fabric()), text)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "texts, says",
    [
        (["h0:0"], "write NODE:PORT=FILE"),
        (["=x"], "write NODE:PORT=FILE"),
        (["h0:0="], "write NODE:PORT=FILE"),
        (["h0:0=a", "h0:0=b"], "given twice"),
    ],
)
def test_pcap_options_are_checked(texts, says):
    with pytest.raises(UsageError, match=says):
        parse_pcap(texts)


def test_two_recordings_in_one_file_are_refused(tmp_path):
    with pytest.raises(UsageError, match="is the file of trace already"):
        Record.of(tmp_path / "x", {"h0:0": tmp_path / "x"})


SCENARIO = textwrap.dedent('''
    import loomnet as ln

    @ln.scenario
    def two(lab: ln.Lab):
        """Two runs."""
        fabric = ln.clos.two_tier(planes=1, leaves=2, spines=1, hosts_per_leaf=1, rate="100 Gb/s",
                                  delay="1 us")
        for name in ("first", "second"):
            lab.run(fabric, ln.AllReduce(size="8 KiB", transport="mrc"), label=name)
''')


def test_the_command_line_records_every_run_of_a_scenario(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two.py").write_text(SCENARIO)
    assert (
        main(
            [
                "run",
                "two.py",
                "--trace",
                "t.pftrace",
                "--pcap",
                "h0:0=a.pcapng",
                "--pcap",
                "p0.spine0:0=b.pcapng",
            ]
        )
        == 0
    )
    made = {
        "t.pftrace",
        "t-second.pftrace",
        "a.pcapng",
        "a-second.pcapng",
        "b.pcapng",
        "b-second.pcapng",
    }
    assert made | {"two.py", "runs"} <= {path.name for path in tmp_path.iterdir()}
    assert all((tmp_path / name).stat().st_size > 500 for name in made)


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["--pcap", "h7:0=a.pcapng"], 'no node "h7"'),
        (["--pcap", "h0:1=a.pcapng"], "h0 has ports 0 to 0"),
        (["--pcap", "h0:0=no/such/folder/a.pcapng"], "cannot write no/such/folder/a.pcapng"),
        (["--trace", "no/such/folder/t"], "cannot write no/such/folder/t"),
        (["--trace", "."], "cannot write"),
        (["--trace", "a", "--pcap", "h0:0=a"], "is the file of trace already"),
        (["--trace", "good.pftrace", "--pcap", "h0:0=no/such/folder/a"], "cannot write no/such"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(tmp_path, monkeypatch, capsys, arguments, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two.py").write_text(SCENARIO)
    assert main(["run", "two.py", *arguments]) == 2
    error = capsys.readouterr().err.strip()
    assert says in error and len(error.splitlines()) == 1, error
    assert {path.name for path in tmp_path.iterdir()} - {"__pycache__"} == {"two.py"}


def test_a_file_that_was_there_stays_if_the_run_does_not_begin(tmp_path):
    (tmp_path / "t").write_text("precious")
    recording = Recording(Record.of(tmp_path / "t"), make_plan(fabric()), tmp_path)
    recording.discard()
    assert (tmp_path / "t").read_text() == "precious"


# --- torch.profiler -------------------------------------------------------------------------------
def test_a_ranks_clock_becomes_emulated_time():
    # Operations at 1000 to 2000 ns took 5 to 9 us; a pause at 3000 to 7000 ns let 100 us pass.
    clock = RankClock(
        [(1000, 5_000_000), (2000, 9_000_000), (3000, 9_000_000), (8000, 109_000_000)],
        pauses=[(3000, 7000)],
    )
    assert clock.at(0) == 5_000_000
    assert clock.at(1500) == 7_000_000
    assert clock.at(2500) == 9_000_000
    assert clock.at(3000) == clock.at(5000) == clock.at(7000) == 9_000_000
    assert clock.at(7250) == 34_000_000
    assert clock.at(9000) == 109_000_000
    assert clock.span == (1000, 8000)


def test_what_torch_profiler_saw_lies_on_the_same_timeline(tmp_path):
    pytest.importorskip("torch")
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent("""
        import sys, torch, torch.distributed as dist
        from torch.profiler import ProfilerActivity, profile
        dist.init_process_group("gloo")
        torch.manual_seed(0)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            for _ in range(5):
                optimizer.zero_grad()
                model(torch.ones(8, 64)).sum().backward()
                optimizer.step()
        profiler.export_chrome_trace(f"{sys.argv[1]}/mine{dist.get_rank()}.json")
        dist.destroy_process_group()
    """)
    )
    job = ln.TorchJob(script, args=[str(tmp_path)], ranks=2, compute="1 ms", transport="mrc")
    result = recorded(tmp_path / "run", job)
    if any("register" in e.message for e in result.data.errors):
        pytest.skip("the package is not installed: PyTorch finds no backend entry point")
    assert result["errors"] == 0, result.data.errors
    trace = Trace(tmp_path / "run" / "run.pftrace")
    assert trace.attributes["loomnet.profiles"] == "2"
    for rank in range(2):
        steps = [
            s
            for s in trace.slices
            if s.name.startswith("DistributedDataParallel.forward")
            and trace.names[s.track].startswith(f"rank {rank} torch thread")
        ]
        assert len(steps) == 4  # of five: the trace begins with the end of the first step
        # From the third step on (DDP talks in the second's), forward lies inside its iteration's
        # declared millisecond.
        for step, iteration in zip(steps[1:], result.data.iterations[1:], strict=False):
            begin = iteration.start_ps // 1000
            assert begin <= step.begin < step.end <= begin + 1_001_000
            assert step.end > step.begin
    reduced = [s for s in trace.slices if s.name.startswith("all_reduce")]
    assert len(reduced) >= 2 * 5
    # Messages of one that had begun before the trace may have ended before it.
    assert all(s.flows for s in reduced if s.begin > 0), "an all-reduce without messages"
