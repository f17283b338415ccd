"""The standard figures from series whose answer is known, nulls with their reasons included."""

import pytest
from synthetic import PHASES, S, steady_run

from loomnet.measures import training as measure
from loomnet.measures.run_data import HostSeries, Iteration, RunData, RunFault
from loomnet.measures.samples import Samples
from loomnet.measures.standard import standard_figures
from loomnet.measures.training import FIGURES, Phase, phases_of

CAPACITY = {"nic_link_down": 0.75, "leaf_spine_down": 1.0}


def figures(data, **options):
    found = standard_figures(data, phases_of(data, CAPACITY, **options))
    return {name: value for name, (value, _) in found.items()}


def test_phases_before_faults_and_after():
    phases = phases_of(steady_run(), CAPACITY, settle_ps=4 * S)
    assert [(p.name, p.start_ps // S, p.end_ps // S, p.capacity) for p in phases] == [
        ("before", 0, 8, 1),
        ("nic_link_down", 8, 16, 0.75),
        ("leaf_spine_down", 20, 28, 1),
        ("after", 32, 40, 1),
    ]
    assert [p.name for p in phases_of(steady_run(windows=()))] == ["before"]


def test_figures_of_a_job_that_loses_a_quarter_of_its_rate():
    found = figures(steady_run())
    assert found["before.iteration_s"].value == pytest.approx(0.5)
    assert found["nic_link_down.iteration_s"].value == pytest.approx(0.6)
    assert found["nic_link_down.goodput_ratio"].value == pytest.approx(0.75, abs=0.01)
    assert found["leaf_spine_down.goodput_ratio"].value == pytest.approx(1)
    assert found["before.goodput_ratio"].value == 1
    assert found["after.goodput_ratio"].value == pytest.approx(1)
    # 0.2 + 0.3 / 0.75 = 0.6 s is what is expected, so the first iteration after the fault will do.
    assert found["nic_link_down.recovery_s"].value == pytest.approx(0.6)
    assert found["nic_link_down.lost"].value == 7 and found["leaf_spine_down.lost"].value == 2
    assert found["before.lost"].value == 0 and found["nic_link_down.retransmitted"].value == 7
    assert found["errors"].value == 0
    assert found["final_loss"].value == pytest.approx(2 / len(steady_run().iterations), abs=1e-6)


def test_what_the_transport_does_not_count_is_null():
    value = figures(steady_run())["nic_link_down.readmitted"]
    assert value.value is None and value.reason == "this transport does not count it"


def test_blip_is_the_longest_silence_clipped_to_the_phase():
    data = steady_run()
    data.hosts[0].silences = [(7 * S, 9 * S), (12 * S, 12 * S + S // 2)]
    data.hosts[1].silences = [(15 * S, 18 * S)]
    data.hosts[1].silence_floor_ps = S // 100
    found = figures(data)
    assert found["before.blip_s"].value == 1 and found["nic_link_down.blip_s"].value == 1
    assert found["leaf_spine_down.blip_s"].value == pytest.approx(0.01)  # none above the floor


def test_goodput_counts_a_straddling_operation_by_its_share():
    phase, before = Phase("x", 10 * S, 20 * S), Phase("before", 0, 10 * S)
    hosts = {
        0: HostSeries(
            work=[(0, 4 * S, 400), (8 * S, 12 * S, 400), (19 * S, 21 * S, 300)],
            busy=[(0, 4 * S), (8 * S, 12 * S), (19 * S, 21 * S)],
        )
    }
    assert measure.goodput(hosts, phase).value == pytest.approx((200 + 150) / (2 + 1))
    assert measure.goodput(hosts, before).value == pytest.approx(600 / 6)
    assert measure.goodput_ratio(hosts, phase, before).value == pytest.approx(350 / 3 / 100)


def test_work_that_never_finished_lowers_goodput():
    hosts = {0: HostSeries(work=[(0, 1 * S, 100)], busy=[(0, 1 * S), (2 * S, 10 * S)])}
    stuck = measure.goodput(hosts, Phase("x", 2 * S, 10 * S))
    assert stuck.value == 0 and stuck.span_ps == 8 * S


def test_goodput_is_the_mean_over_hosts_that_had_work():
    one = HostSeries(work=[(0, S, 100)], busy=[(0, S)])
    other = HostSeries(work=[(0, S, 300)], busy=[(0, S)])
    idle = HostSeries()
    assert measure.goodput({0: one, 1: other, 2: idle}, Phase("x", 0, S)).value == 200


def test_no_work_in_the_phase_is_null():
    found = figures(steady_run(windows=(("late", 36, 39),), end=40), settle_ps=0)
    assert found["after.iteration_s"].value is None
    assert "5 needed" in found["after.iteration_s"].reason
    empty = measure.goodput_ratio({0: HostSeries()}, Phase("x", 0, S), Phase("before", 0, S))
    assert empty.value is None and "no goodput before" in empty.reason
    assert measure.blip_s({0: HostSeries()}, Phase("x", 0, S)).value is None


@pytest.mark.parametrize(("count", "known"), [(4, False), (5, True)])
def test_a_median_needs_five_whole_iterations(count, known):
    iterations = [Iteration(i, i * S, (i + 1) * S) for i in range(count)]
    value = measure.iteration_s(iterations, Phase("x", 0, count * S))
    assert (value.value is not None) is known
    assert known or f"{count} whole iterations" in value.reason


def test_iterations_that_cross_the_edge_do_not_count():
    iterations = [Iteration(i, i * S - S // 2, i * S + S // 2) for i in range(7)]
    assert measure.iteration_s(iterations, Phase("x", 0, 6 * S)).value == 1
    assert measure.iteration_s(iterations, Phase("x", 0, 5 * S)).value is None


def recovering(lengths_after):
    """Ten iterations of 1 s (0.4 s of them communication), a fault, then these lengths."""
    data = RunData("finished", 0, {0: HostSeries()})
    now = 0
    for number, length in enumerate([1.0] * 10 + lengths_after, 1):
        end = now + int(length * S)
        data.iterations.append(Iteration(number, now, end))
        data.hosts[0].busy.append((end - 4 * S // 10, end))
        now = end
    data.end_ps = now
    return data


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([1.0] * 6, 1.0),
        ([4.0, 2.0, 1.0, 1.0, 1.0], 7.0),
        ([4.0, 1.0, 1.0, 3.0, 1.0, 1.05, 1.1], 10.0),  # two good ones are not three
        ([4.0, 1.0, 1.0], None),
        ([1.2] * 9, None),
        ([], None),
    ],
)
def test_recovery_is_the_end_of_the_first_of_three_good_iterations(lengths, expected):
    data = recovering(lengths)
    phase, before = Phase("x", 10 * S, data.end_ps), Phase("before", 0, 10 * S)
    value = measure.recovery_s(data, phase, before, data.end_ps)
    assert value.value == (None if expected is None else pytest.approx(expected))
    assert expected is not None or "never 3 iterations within 1.1 x 1 s" in value.reason


def test_recovery_expects_what_the_capacity_allows():
    data = recovering([1.4] * 5)  # 0.6 + 0.4 / 0.5
    before = Phase("before", 0, 10 * S)
    half = measure.recovery_s(data, Phase("x", 10 * S, data.end_ps, 0.5), before, data.end_ps)
    assert half.value == pytest.approx(1.4)
    none = measure.recovery_s(data, Phase("x", 10 * S, data.end_ps, 0.0), before, data.end_ps)
    assert none.value is None and "none is left" in none.reason
    unknown = measure.recovery_s(
        data, Phase("x", 10 * S, data.end_ps, float("nan")), before, data.end_ps
    )
    assert unknown.value is None


@pytest.mark.parametrize(("count", "known"), [(4, False), (5, True)])
def test_an_expected_iteration_needs_five_before_the_faults(count, known):
    data = steady_run(windows=())
    expected = measure.expected_iteration_ps(data, Phase("before", 0, count * S // 2, 1), 0.75)
    assert expected == (pytest.approx(0.6 * S) if known else None)


def test_work_without_a_length_belongs_to_the_one_phase_that_it_ends_in():
    before, during = Phase("before", 0, 8 * S, 1), Phase("down", 8 * S, 16 * S, 1)
    for at, shares in (
        (0, (0, 0)),
        (1, (1, 0)),
        (8 * S - 1, (1, 0)),
        (8 * S, (1, 0)),
        (8 * S + 1, (0, 1)),
        (16 * S, (0, 1)),
        (16 * S + 1, (0, 0)),
    ):
        series = HostSeries(work=[(at, at, 7)])
        found = tuple(measure._done_inside(series, phase) / 7 for phase in (before, during))
        assert found == shares, at


def test_samples_of_a_queue_are_those_from_the_first_time_up_to_the_last():
    samples = Samples(10, ["a->b"])
    for at, size in ((10, 1000), (20, 2000), (30, 4000)):
        samples.take(at, [size], [])
    for first, last, bytes_ in (
        (0, 2**63, [1000, 2000, 4000]),
        (10, 30, [1000, 2000]),
        (11, 31, [2000, 4000]),
        (20, 21, [2000]),
        (20, 20, []),
    ):
        assert samples.queue_seconds("a->b", 8000, first, last) == [n / 1000 for n in bytes_]


def test_recovery_is_not_looked_for_beyond_the_next_fault():
    data = recovering([4.0, 1.0, 1.0, 1.0])
    phase, before = Phase("x", 10 * S, 14 * S), Phase("before", 0, 10 * S)
    assert measure.recovery_s(data, phase, before, 17 * S).value == pytest.approx(5)
    assert measure.recovery_s(data, phase, before, 16 * S).value is None


@pytest.mark.parametrize("ended", ["stalled", "failed", "interrupted"])
def test_a_run_that_ended_early_is_null_from_there_on_with_the_reason(ended):
    data = steady_run(
        end=24,
        ended=ended,
        reason="no progress for 24 s",
        errors=[RunFault(24 * S, "job", "stalled")],
    )
    found = figures(data, planned=["nic_link_down", "leaf_spine_down", "spine_down"])
    assert found["nic_link_down.goodput_ratio"].value == pytest.approx(0.75, abs=0.01)
    for phase in ("leaf_spine_down", "spine_down", "after"):
        for name in FIGURES:
            if name == "timeouts" or (  # of which there were none
                phase == "after" and name in ("recovery_s", "stood_still_s")
            ):
                assert f"{phase}.{name}" not in found
                continue
            value = found[f"{phase}.{name}"]
            assert value.value is None
            assert value.reason == f"the run {ended}: no progress for 24 s"
    assert found["errors"].value == 1 and found["final_loss"].value is not None


def test_a_job_without_iterations_says_so():
    found = figures(RunData("finished", 0))
    assert found["before.iteration_s"].reason == "the job began no iteration"


def test_a_job_that_finished_before_its_faults_says_so():
    found = figures(steady_run(windows=()), planned=["nic_link_down"])
    assert found["nic_link_down.blip_s"].reason == "the job finished before this phase"
    assert found["before.iteration_s"].value == pytest.approx(0.5)


def test_a_fault_that_never_began_leaves_what_follows_the_last_one_that_did():
    ran = figures(steady_run())
    found = figures(steady_run(), planned=["nic_link_down", "leaf_spine_down", "spine_down"])
    for name in FIGURES:
        assert found.get(f"after.{name}") == ran.get(f"after.{name}")
    assert found["after.goodput_ratio"].value == pytest.approx(1, abs=0.01)
    assert found["spine_down.goodput_ratio"].value is None
    beside = figures(steady_run(windows=(*PHASES, ("spine_down", 50, 60))))  # by another job's time
    assert beside == found


def test_losses_skip_what_does_not_parse():
    data = RunData(
        "finished",
        S,
        log=[
            (0, {"step": "1", "loss": "0.5"}),
            (1, {"step": "x"}),
            (2, {"step": "2", "loss": "oops"}),
        ],
    )
    assert measure.losses(data) == [(1, 0.5)]
    assert measure.final_loss(RunData("finished", S)).value is None
