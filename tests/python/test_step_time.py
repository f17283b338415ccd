"""What a fault does to the iterations of a job: figures, and the sentence of a training job."""

import pytest
from relations.rounds import wrong_figures
from synthetic import S

import loomnet as ln
from loomnet.base.number_text import number_text
from loomnet.measures import training as measure
from loomnet.measures.run_data import HostSeries, Iteration, RunData
from loomnet.measures.training import Phase

FABRIC = ln.clos.two_tier(
    planes=2, leaves=2, spines=2, hosts_per_leaf=2, rate="100 Gb/s", delay="1 us"
)


def trained(transport, at, duration):
    job = ln.ModelJob(
        size="2 MB", compute="0.3 ms", iterations=24, transport=transport, stall_timeout="30 s"
    )
    return ln.run(FABRIC, job, [ln.down("h0--p0.leaf0", at=at, phase="down", duration=duration)])


@pytest.fixture(scope="module")
def slowed():
    return trained("mrc", ln.step(8), ln.iterations(8))


@pytest.fixture(scope="module")
def stalled():
    """A dead link, while it carries packets, and for less than the timeout that follows."""
    return trained("roce", "4.2 ms", "2 ms")


def test_training_is_told_by_its_step_time_before_and_during_a_fault(slowed):
    before, down, slowest = (
        slowed.number(name)
        for name in ("before.iteration_s", "down.iteration_s", "down.slowest_iteration_s")
    )
    assert down > 1.02 * before
    assert slowed.summary == (
        f"h0--p0.leaf0 went down: iterations of {number_text(down, 's')} in place of "
        f"{number_text(before, 's')} ({slowed['down.iteration_slowdown']:.2f}x), the slowest "
        f"{number_text(slowest, 's')} ({slowed['down.slowest_slowdown']:.2f}x)."
    )
    assert slowed["down.stood_still_s"] == 0
    assert wrong_figures(slowed) == []


def test_a_stall_is_told_by_the_iteration_that_it_made(stalled):
    length = max(row["length_s"] for row in stalled.iterations)
    assert stalled["down.iteration_s"] is None
    assert stalled["down.slowest_iteration_s"] == pytest.approx(length)
    assert stalled["down.slowest_slowdown"] > 1000
    # `after` begins inside the iteration that stalled.
    assert stalled["after.slowest_slowdown"] < 2
    still = stalled["down.stood_still_s"]
    assert 0.9 * length < still < length and still > stalled["down.blip_s"]
    (row,) = (row for row in stalled.iterations if row["length_s"] > 1)
    assert stalled.summary == (
        f"h0--p0.leaf0 went down: iteration {row['number']} took {number_text(length, 's')} in "
        f"place of {number_text(stalled['before.iteration_s'], 's')} "
        f"({stalled['down.slowest_slowdown']:.0f}x); the job stood still for "
        f"{number_text(still, 's')}."
    )
    assert wrong_figures(stalled) == []


def test_a_row_of_iterations_is_read_by_name(slowed):
    row = slowed.iterations[0]
    assert row["length_s"] == slowed.iterations.column("length_s")[0]
    with pytest.raises(
        ln.UsageError,
        match="no column 3 in this row; a row is read by name: number, start_s, end_s, length_s",
    ):
        row[3]


def test_comparison_tells_the_worst_iteration_of_two_runs(slowed, stalled):
    rows = {row.name: row.verdict for row in ln.compare(slowed, stalled)}
    for figure in ("slowest_iteration_s", "slowest_slowdown", "stood_still_s"):
        assert rows[f"down.{figure}"] == "worse", figure


def test_an_iteration_across_the_edge_is_the_faults():
    lengths = (1, 1, 1, 7, 2, 1, 1)
    ends = [sum(lengths[: index + 1]) * S for index in range(len(lengths))]
    done = [
        Iteration(number, end - length * S, end)
        for number, (end, length) in enumerate(zip(ends, lengths, strict=True), 1)
    ]
    before, down = Phase("before", 0, 4 * S), Phase("down", 4 * S, 5 * S)
    after = Phase("after", 5 * S, ends[-1])
    assert [measure.slowest_iteration_s(done, each).value for each in (before, down, after)] == [
        1,
        7,
        2,
    ]
    assert measure.slowest_slowdown(done, down, before).value == 7
    assert measure.iteration_slowdown(done, down, before).reason.startswith("0 whole iterations")
    assert measure.slowest_slowdown(done, down, Phase("before", 0, 0)).reason == (
        "no whole iteration before the faults"
    )


def test_iterations_of_no_time_have_no_slowdown():
    done = [Iteration(number, S, S) for number in range(1, 7)] + [Iteration(7, S, 2 * S)]
    before, down = Phase("before", 0, S), Phase("down", S, 3 * S)
    assert measure.slowest_iteration_s(done, down).value == 1
    for figure in (measure.slowest_slowdown, measure.iteration_slowdown):
        assert figure(done, down, before).reason == "iterations before the faults took no time"


@pytest.mark.parametrize(("silence", "still"), [((3, 5.1), 2.1), ((3, 4.9), 0), ((2, 4.5), 2.5)])
def test_a_job_stands_still_from_two_iterations_on(silence, still):
    begin, end = (int(each * S) for each in silence)
    data = RunData("finished", 9 * S, {0: HostSeries(busy=[(0, 9 * S)], silences=[(begin, end)])})
    data.iterations = [Iteration(1, 0, S), Iteration(2, S, 2 * S), Iteration(3, 2 * S, 9 * S)]
    phases = [Phase("before", 0, 2 * S), Phase("down", 3 * S, 4 * S), Phase("after", 4 * S, 9 * S)]
    assert measure.stood_still_s(data, phases, 1).value == pytest.approx(still)


def test_faults_of_one_instant_have_the_same_figures_in_any_order():
    """Each of them is followed by the next fault in time, not by the other one."""
    data = RunData("finished", 9 * S, {0: HostSeries(busy=[(0, 9 * S)], silences=[(3 * S, 6 * S)])})
    data.iterations = [Iteration(1, 0, S), Iteration(2, S, 2 * S), Iteration(3, 2 * S, 9 * S)]
    lossy, down = Phase("lossy", 3 * S, 9 * S), Phase("down", 3 * S, 4 * S)
    later, after = Phase("later", 7 * S, 8 * S), Phase("after", 8 * S, 9 * S)
    for pair in ((lossy, down), (down, lossy)):
        phases = [Phase("before", 0, 2 * S), *pair, later, after]
        for index in (1, 2):
            assert measure.next_fault_ps(phases, index, data.end_ps) == 7 * S
            assert measure.stood_still_s(data, phases, index).value == pytest.approx(3)
