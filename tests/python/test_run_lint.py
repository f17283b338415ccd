"""What is said before a run comes true: each note against the run it foretells, and no note where
nothing is out of the ordinary."""

import pytest
from scripted import ScriptedRunner
from synthetic import steady_run

import loomnet as ln
from loomnet.labs import run_lint
from loomnet.labs.run_lint import bytes_by_host, least_iteration_s
from loomnet.running.virtual_clock import VirtualRunner


def fabric(**changes):
    values = {
        "planes": 2,
        "leaves": 2,
        "spines": 2,
        "hosts_per_leaf": 2,
        "rate": "100 Gb/s",
        "delay": "1 us",
        **changes,
    }
    return ln.clos.two_tier(**values)


def notes(tmp_path, built, job, faults=(), *, clock="virtual", pcap=(), **options):
    """What is said of a run that does not take place."""
    said = []
    lab = ln.Lab(
        directory=tmp_path,
        say=said.append,
        clock=clock,
        runner=ScriptedRunner(lambda request: steady_run(windows=())),
    )
    files = {port: tmp_path / "x.pcapng" for port in pcap}
    tmp_path.mkdir(exist_ok=True)
    lab.run(built, job, list(faults), pcap=files or None, **options)
    return [line for line in said if line.startswith("note: ")]


class Asked(VirtualRunner):
    """The virtual clock's engine, which keeps what it was asked."""

    def run(self, request, on_progress):
        self.request = request
        return super().run(request, on_progress)


@pytest.mark.parametrize("transport", ["mrc", "roce", "tcp"])
@pytest.mark.parametrize(
    "kind", [ln.AllReduce, ln.AllToAll, ln.AllGather, ln.ReduceScatter, ln.SendRecv]
)
def test_no_iteration_is_shorter_than_the_least(tmp_path, kind, transport):
    runner = Asked()
    lab = ln.Lab(directory=tmp_path, runner=runner)
    result = lab.run(fabric(planes=2), kind("8 MB", 5, transport), reroute_delay="off")
    least = least_iteration_s(runner.request, "virtual")
    shortest = min(each.length_ps for each in result.data.iterations) / 1e12
    assert least < shortest
    if transport == "mrc":
        assert shortest < 1.25 * least, "headers and round trips"


def test_a_fault_shorter_than_an_iteration_is_said_and_measures_none(tmp_path):
    said = []
    lab = ln.Lab(directory=tmp_path, say=said.append)
    job = ln.AllReduce("8 MB", 12)
    short = ln.down("h0--p0.leaf0", at="1 ms", duration="100 us", phase="short")
    long = ln.down("h0--p0.leaf0", at="3 ms", duration="5 ms", phase="long")
    endless = ln.loss("h0--p0.leaf0", 0.01, at=ln.step(11), phase="endless")
    result = lab.run(fabric(), job, [short, long, endless])
    (note,) = [line for line in said if line.startswith("note: ")]
    assert note.startswith("note: fault short lasts 100 us, but one iteration takes 480 us or more")
    assert result["short.iteration_s"] is None


def test_a_fault_before_the_end_of_the_first_iteration_is_said(tmp_path):
    def said(at, phase="down"):
        fault = ln.down("h0--p0.leaf0", at=at, duration="9 ms", phase=phase)
        found = notes(tmp_path, fabric(), ln.AllReduce("8 MB", 12), [fault])
        return [line for line in found if "no whole iteration" in line]

    (note,) = said("200 us")
    assert note.startswith(
        "note: fault down begins at 200 us, but one iteration takes 480 us or more"
    )
    assert said("500 us") == said("0 s") == said(ln.step(1)) == said("200 us", phase=None) == []
    early = ln.down("h0--p0.leaf0", at="200 us", duration="9 ms", phase="down")
    r = ln.run(fabric(), ln.AllReduce("8 MB", 12), [early], write=False)
    assert r["before.iteration_s"] is None


def test_a_short_fault_that_names_no_phase_has_no_iterations_to_lose(tmp_path):
    job = ln.AllReduce("8 MB", 12)
    for phase, count in ((None, 0), ("short", 1)):
        fault = ln.down("h0--p0.leaf0", at="1 ms", duration="100 us", phase=phase)
        said = notes(tmp_path / str(phase), fabric(), job, [fault])
        assert len([line for line in said if "no whole iteration" in line]) == count


def test_faults_without_any_phase_are_said_to_stand_in_before(tmp_path):
    job, late = ln.AllReduce("8 MB", 12), ln.down("h0--p0.leaf0", at="1 ms", duration="1 ms")
    (note,) = notes(tmp_path / "a", fabric(), job, [late])
    assert note.startswith("note: fault down(h0--p0.leaf0) has no phase=")
    r = ln.run(fabric(), job, [late], write=False)
    assert r.number("before.lost") > 0 and "after.lost" not in r
    always = ln.loss("*--*", 0.001, at="0 s")
    named = ln.down("h1--p0.leaf1", at=ln.step(2), duration=ln.iterations(5), phase="down")
    assert notes(tmp_path / "b", fabric(), job, [always]) == []
    assert notes(tmp_path / "c", fabric(), job, [late, named]) == []


def test_flows_between_ranks_of_one_host_go_by_its_local_link(tmp_path):
    runner = Asked()
    two = ln.clos.two_tier(
        planes=1,
        leaves=2,
        spines=1,
        hosts_per_leaf=1,
        rate="100 Gb/s",
        delay="1 us",
        ranks_per_host=2,
    )
    ln.Lab(directory=tmp_path, runner=runner).run(two, ln.Permutation("1 MB"))
    assert bytes_by_host(runner.request.lead) == {0: (1e6, 1e6), 1: (1e6, 1e6)}


def test_declared_compute_time_is_the_least_of_a_pytorch_job_on_the_virtual_clock(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("")
    fault = ln.down("h0--p0.leaf0", at="1 s", duration="10 ms", phase="short")
    job = ln.TorchJob(str(script), compute="50 ms")
    assert "takes 50 ms or more" in notes(tmp_path / "a", fabric(), job, [fault])[0]
    assert notes(tmp_path / "b", fabric(), job, [fault], clock="live") == []
    measured = ln.TorchJob(str(script), compute="measured")
    assert notes(tmp_path / "c", fabric(), measured, [fault]) == []


def test_links_slower_than_their_packets_are_said(tmp_path):
    slow, said = fabric(planes=4, rate="40 Mb/s"), []
    lab = ln.Lab(directory=tmp_path / "slow", say=said.append)
    result = lab.run(slow, ln.AllReduce("2 MB", 6))
    (note,) = [line for line in said if line.startswith("note: ")]
    assert "links of 40 Mb/s and 1 us, such as h0->p0.leaf0" in note and "overflow" in note
    assert overflowed(result) == 0, "windows of a few packets fit"
    slow_s = result["before.iteration_s"]
    assert "data_limit= sets the queues" in note and "or more" not in note
    longer = note.partition("a full packet takes ")[2].partition(" to leave")[0]
    fine, said[:] = fabric(planes=4, rate="40 Mb/s", delay=longer), []
    lab = ln.Lab(directory=tmp_path / "fine", say=said.append)
    result = lab.run(fine, ln.AllReduce("2 MB", 6))
    assert not [line for line in said if line.startswith("note: ")]
    assert overflowed(result) == 0
    assert 0.9 * slow_s < result["before.iteration_s"] < slow_s, "no cable is too short for a ring"


def overflowed(result):
    return sum(
        each.get("drop_queue_full", 0) + each.get("trimmed", 0)
        for each in result.data.totals.values()
    )


def test_a_window_of_mrc_that_binds_is_said_and_does(tmp_path):
    """Eight ports of 400 Gb/s, the published least of eight times 128 packets: the note tells how
    much of the line is left, and the mpr from which on all of it is."""
    built = fabric(planes=8, rate="400 Gb/s")
    job, times = ln.AllReduce("32 MB", 6), {}
    for mpr in (0, 8, 13):
        said = []
        lab = ln.Lab(directory=tmp_path / str(mpr), say=said.append)
        result = lab.run(built, job, mrc={"mpr": mpr})
        times[mpr] = result["before.iteration_s"]
        found = [line for line in said if line.startswith("note: ")]
        limited = [name for name in result.data.fidelity.notes if name.startswith("limited by ")]
        assert bool(found) == bool(limited) == (mpr == 8)
        if found:
            assert 'note: mrc={"mpr": 8} lets a sender have 2.1 MB unacknowledged' in found[0]
            assert 'mrc={"mpr": 13} or more' in found[0]
            share = int(found[0].partition("reaches ")[2].partition("%")[0]) / 100
    assert times[13] == pytest.approx(times[0], rel=0.03)
    assert times[0] / times[8] == pytest.approx(share, rel=0.15)


def test_windows_that_jobs_do_not_fill_and_defaults_are_not_spoken_of(tmp_path):
    built = fabric(planes=8, rate="400 Gb/s")
    small = ln.AllReduce("1 MB", 6)
    assert notes(tmp_path / "a", built, small, mrc={"mpr": 8}) == []
    assert notes(tmp_path / "b", built, ln.AllReduce("16 MB", 6)) == []
    (note,) = notes(
        tmp_path / "c",
        fabric(rate="400 Gb/s"),
        ln.AllReduce("4 MB", 3, "roce"),
        roce={"in_flight_limit": 100_000},
    )
    assert 'roce={"in_flight_limit": 100000} lets a sender have 100 kB' in note
    far = fabric(rate="400 Gb/s", delay="100 us")
    (note,) = notes(tmp_path / "d", far, ln.AllReduce("64 MB", 3, "tcp"))
    assert 'tcp={"send_buffer": 4194304}' in note and "Linux's default" in note
    assert (
        notes(
            tmp_path / "e",
            far,
            ln.AllReduce("64 MB", 3, "tcp"),
            tcp={"send_buffer": 1 << 27, "receive_buffer": 1 << 27},
        )
        == []
    )
    # Without packets there is no window, and live the kernel's TCP sizes its own.
    assert notes(tmp_path / "f", far, ln.AllReduce("64 MB", 3, "tcp"), model="fluid") == []
    flows = ln.Permutation("8 MB", transport="tcp")
    (note,) = notes(tmp_path / "g", far, flows)
    assert "Linux's default" in note
    assert notes(tmp_path / "h", far, flows, clock="live") == []


def test_queues_that_were_made_small_are_said(tmp_path):
    built = fabric(rate="400 Gb/s", pfc=False)
    assert notes(tmp_path / "a", built, ln.AllReduce("1 MB", 3, "roce")) == []
    built.override("h1->p0.leaf1", data_limit="20 kB")  # a host waits for its own queue
    assert notes(tmp_path / "host", built, ln.AllReduce("1 MB", 3, "roce")) == []
    built.override("p0.leaf0->h0", data_limit="20 kB")
    (note,) = notes(tmp_path / "b", built, ln.AllReduce("1 MB", 3, "roce"))
    assert note.startswith("note: queues of p0.leaf0->h0 hold 20 kB, less than half of the 410 kB")
    built.override("p1.*->*", data_limit="20 kB")
    (note,) = notes(tmp_path / "c", built, ln.AllReduce("1 MB", 3, "roce"))
    assert "queues of p0.leaf0->h0 and 12 more hold 20 kB" in note


@pytest.mark.parametrize(
    ("rate", "delay"),
    [
        ("400 Gb/s", "1 us"),
        ("10 Gb/s", "1 us"),
        ("40 Mb/s", "0.5 ms"),
        ("20 Mb/s", "0.5 ms"),
        ("100 Gb/s", "1 ms"),
    ],
)
def test_ordinary_fabrics_are_not_spoken_of(tmp_path, rate, delay):
    built = fabric(rate=rate, delay=delay)
    assert notes(tmp_path, built, ln.AllReduce("1 MB", 3), pcap=["h0:0"]) == []


@pytest.mark.parametrize("payload", [False, True])
@pytest.mark.parametrize("transport", ["mrc", "roce"])
@pytest.mark.parametrize(
    "kind", [ln.AllReduce, ln.AllToAll, ln.SendRecv, ln.Permutation, ln.Incast]
)
def test_the_size_of_a_capture_is_foretold(tmp_path, monkeypatch, kind, transport, payload):
    monkeypatch.setattr(run_lint, "LARGE_CAPTURE", 1)
    said, file = [], tmp_path / "h0.pcapng"
    lab = ln.Lab(directory=tmp_path / "run", say=said.append)
    lab.run(fabric(), kind("2 MB", 5, transport), pcap={"h0:0": file}, payload=payload)
    (note,) = [line for line in said if line.startswith("note: ")]
    number, unit = note.partition("about ")[2].partition(":")[0].split()
    foretold = float(number) * {"kB": 1e3, "MB": 1e6}[unit]
    # Of flows, acknowledgements are fewer, and what an incast sends again is not foretold.
    rel = 0.4 if kind in (ln.Permutation, ln.Incast) else 0.2
    assert foretold == pytest.approx(file.stat().st_size, rel=rel)


def test_only_a_large_capture_is_spoken_of(tmp_path):
    large, small = ln.AllReduce("64 MiB", 60), ln.AllReduce("4 MB", 60)
    (note,) = notes(tmp_path / "a", fabric(), large, pcap=["h0:0"])
    assert note.startswith("note: the capture of h0:0 will be about 680 MB: some 2.9 M data ")
    assert notes(tmp_path / "b", fabric(), small, pcap=["h0:0"]) == []
    # How spines share packets, and how much a script sends, is not known before.
    assert notes(tmp_path / "c", fabric(), large, pcap=["p0.spine0:0"]) == []
    flows = ln.Flows(sizes=["64 MiB"], count=60, transport="roce")
    assert notes(tmp_path / "d", fabric(), flows, pcap=["h0:0"]) == []


def test_long_waits_are_said(tmp_path):
    (note,) = notes(tmp_path / "a", fabric(), ln.AllReduce("640 MiB", 60))
    assert note == "note: some 120 M packets will take about 100 s of wall time"
    slow = fabric(rate="20 Mb/s", delay="0.5 ms")
    (note,) = notes(tmp_path / "b", slow, ln.AllReduce("10 MB", 60), clock="live", dilation=2)
    assert note == "note: 60 iterations take 6 min of wall time or more, at D = 2"
    assert notes(tmp_path / "c", slow, ln.AllReduce("1 MB", 20), clock="live") == []


def test_large_fabrics_and_other_jobs_are_looked_at_too(tmp_path):
    tree = ln.clos.fat_tree(k=16, rate="100 Gb/s", delay="1 us")
    assert notes(tmp_path / "a", tree, ln.Permutation("1 MB")) == []
    big = ln.clos.two_tier(
        planes=4, leaves=32, spines=32, hosts_per_leaf=32, rate="400 Gb/s", delay="1 us"
    )
    assert notes(tmp_path / "b", big, ln.AllReduce("64 kB", ranks=8)) == []
    irregular = ln.star(hosts=3, rate="10 Gb/s", delay="1 us")
    assert notes(tmp_path / "c", irregular, ln.Flows(sizes=["1 MB"], count=3)) == []
