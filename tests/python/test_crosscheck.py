"""Live against virtual: what agrees, by how much, and what one clock alone has seen."""

import re
import sys
import textwrap

import pytest
from scripted import ScriptedRunner
from synthetic import S, steady_run

import loomnet as ln
from loomnet.cli import main
from loomnet.labs.crosscheck import (
    DRAW,
    EDGE,
    NEARBY,
    NEARBY_SHIFTS,
    SHARE,
    Agreement,
    agreements,
    compute_gaps,
    fault_moments,
    kept_from_computing,
    legend,
    needs_nearby,
    replays_nearby,
    table,
    uneven_computing_s,
)
from loomnet.measures.run_data import Fidelity
from loomnet.measures.training import phases_of
from loomnet.plans.make import make_plan
from loomnet.results.report import Report
from loomnet.results.result import Result
from loomnet.running import request as runners

PLAN = make_plan(ln.star(hosts=2, rate="40 Mb/s", delay="0.5 ms", planes=4))


def result(**changes):
    data = steady_run(**changes)
    return Result(PLAN, data, phases_of(data, {"nic_link_down": 0.75}), "mrc")


def wrong(live, virtual):
    return [each.name for each in agreements(live, virtual) if not each.ok]


def test_equal_runs_agree():
    found = agreements(result(), result())
    assert len(found) == 1 + 4 * 5 and all(each.ok for each in found)
    assert any(each.live for each in found if each.name == "mrc.nic_link_down.goodput")


def test_a_tenth_of_the_goodput_missing_is_seen():
    # The second fault finds the job at another point of an iteration, and so recovers otherwise.
    second = {"mrc.leaf_spine_down.recovery_s"}
    seen = set(wrong(result(), result(slow=1.5))) - second
    assert seen == {
        f"mrc.nic_link_down.{f}" for f in ("goodput", "goodput_ratio", "iteration_s", "recovery_s")
    }
    assert set(wrong(result(), result(slow=4 / 3 * 1.02))) <= second


def test_silences_may_differ_by_two_round_trips():
    live, near, far = result(), result(), result()
    rtt = PLAN.base_rtt_ps
    for one, length in ((live, S // 10), (near, S // 10 + 2 * rtt), (far, S // 10 + 4 * rtt)):
        one.data.hosts[0].silences = [(9 * S, 9 * S + length)]
    remade = [Result(PLAN, r.data, r.phases, "mrc") for r in (live, near, far)]
    assert wrong(remade[0], remade[1]) == []
    assert wrong(remade[0], remade[2]) == ["mrc.nic_link_down.blip_s"]


def silent(length, uneven=0):
    """A run with a silence of `length` in its first fault, in which host 0 computed `uneven` more
    than host 1 in every iteration."""
    made = result()
    made.data.hosts[0].silences = [(9 * S, 9 * S + length)]
    made.data.hosts[0].busy = [(begin + uneven, end) for begin, end in made.data.hosts[0].busy]
    return Result(PLAN, made.data, made.phases, "mrc")


def test_silences_may_differ_by_what_computing_differed_by():
    """The live ranks' computing counts, for it is theirs that the twin cannot place."""
    near, far = silent(S // 10, S // 20), silent(S // 10 + S // 25, S // 20)
    (blip,) = [a for a in agreements(near, far) if a.name == "mrc.nic_link_down.blip_s"]
    assert (
        blip.ok
        and blip.why == DRAW
        and blip.bound == pytest.approx(0.05 + 2 * PLAN.base_rtt_ps / 1e12)
    )
    assert "mrc.nic_link_down.blip_s" in wrong(silent(S // 10), silent(S // 10 + S // 25))
    beyond = silent(S // 10 + S // 12, S // 20)
    assert "mrc.nic_link_down.blip_s" in wrong(near, beyond)


def test_what_a_fault_meets_is_measured_by_twins_whose_faults_begin_nearby():
    live, twin = silent(S // 10, S // 20), silent(S // 4, S // 20)
    [blip] = [each for each in agreements(live, twin) if not each.ok]
    assert blip.name == "mrc.nic_link_down.blip_s" and needs_nearby([blip])
    near = [silent(S // 4, S // 20), silent(S // 8, S // 20), silent(S // 5, S // 20)]
    [found] = [each for each in agreements(live, twin, near) if each.name == blip.name]
    assert found.ok and found.why == NEARBY and found.reach == (0.125, 0.25)
    assert "any" not in found.row()["allowed"]
    # Shorter than with all of them, by more than the bound; longer, too.
    far = [silent(S // 4, S // 20), silent(S // 5, S // 20)]
    for other in (live, silent(S // 2, S // 20)):
        assert (
            wrong(other, twin)
            == [each.name for each in agreements(other, twin, far) if not each.ok]
            == [blip.name]
        )


def test_a_twin_nearby_that_failed_or_lacks_the_figure_widens_nothing():
    live, twin = silent(10 * S, S // 20), silent(S // 4, S // 20)
    stalled, without = silent(S // 5, S // 20), silent(S // 5, S // 20)
    stalled.data.ended = "stalled"
    without = Result(PLAN, without.data, without.phases[:1], "mrc")  # it never saw the fault
    for nearby in ([stalled], [without], [stalled, without]):
        assert "mrc.nic_link_down.blip_s" in [
            each.name for each in agreements(live, twin, nearby) if not each.ok
        ]


def test_twins_nearby_are_for_ranks_that_compute_and_for_nothing_that_is_a_mean():
    alike, apart = silent(S // 10), silent(S // 4)  # all ranks compute alike: nothing is drawn
    found = agreements(alike, apart, [alike])
    assert [each.name for each in found if not each.ok] == ["mrc.nic_link_down.blip_s"]
    assert not needs_nearby(found) and not needs_nearby(agreements(alike, alike))
    slow = agreements(result(), result(slow=2.5))
    assert not needs_nearby(slow)


def test_faults_of_twins_nearby_begin_by_up_to_the_difference_of_computing_earlier_and_later():
    made = silent(S // 10, S // 20)
    report = Report("one", "live", 0, {}, results={"mrc": made})
    at = fault_moments(made.data)
    shifted = [each["replay_faults"]["mrc"] for each in replays_nearby(report)]
    for phase, (number, after) in at.items():
        assert [each[phase] for each in shifted] == [
            (number, max(after + round(shift * S / 20), 0)) for shift in NEARBY_SHIFTS
        ]


def recovering(lengths, uneven=0):
    """A run whose first fault, at 8 s, finds iterations of these lengths (s), of 0.3 s talking but
    for the last ones; expected is 0.6 s, so 0.66 s is the threshold."""
    made = result()
    data = made.data
    done = [each for each in data.iterations if each.end_ps <= 8 * S]
    now = done[-1].end_ps
    while lengths or now < 16 * S:
        length = round((lengths.pop(0) if lengths else 0.6) * S)
        done.append(type(done[0])(len(done) + 1, now, now + length))
        now += length
    data.iterations = done
    for host, series in data.hosts.items():
        series.busy = [
            (each.start_ps + S // 5 + (uneven if host else 0), each.end_ps) for each in done
        ]
        series.work = [(*busy, 10**6) for busy in series.busy]
    data.end_ps = now
    data.windows = data.windows[:1]
    return Result(PLAN, data, phases_of(data, {"nic_link_down": 0.75}), "mrc")


def recovery(live, virtual):
    (found,) = [a for a in agreements(live, virtual) if a.name.endswith("down.recovery_s")]
    return found


def test_an_iteration_near_the_threshold_may_count_on_one_clock_alone():
    live, twin = recovering([0.67, 0.67, 0.67]), recovering([0.65, 0.65, 0.65])
    found = recovery(live, twin)
    assert (found.live, found.virtual) == (pytest.approx(2.61), pytest.approx(0.65))
    assert found.ok and found.why == EDGE
    assert recovery(twin, live).ok
    # 0.8 s is not near it.
    found = recovery(recovering([0.8, 0.8, 0.8]), twin)
    assert not found.ok
    assert recovery(live, live).ok


def test_never_is_the_longest_recovery():
    never, near = recovering([0.68] * 12), recovering([0.65] * 12)
    assert recovery(never, near).live is None and recovery(never, near).ok
    assert recovery(never, recovering([0.61] * 12)).ok is False
    assert recovery(near, recovering([0.9] * 12)).ok is False


def test_a_run_that_ended_early_has_no_recovery_by_another_threshold():
    live, stalled = recovering([0.65] * 3), recovering([0.65] * 3)
    stalled.data.ended, stalled.data.reason = "stalled", "no operation finished"
    stalled = Result(PLAN, stalled.data, stalled.phases, "mrc")
    found = [a for a in agreements(live, stalled) if a.name.endswith(".after.goodput_ratio")]
    assert [a.virtual for a in found] == [None] and not found[0].ok


def test_uneven_computing_is_of_iterations_that_touch_the_phase():
    made = recovering([0.6] * 4, uneven=S // 50)
    assert uneven_computing_s(made.data, made.phases[1]) == pytest.approx(0.02)
    assert uneven_computing_s(result().data, made.phases[1]) == 0.0
    assert uneven_computing_s(steady_run(log=[]), made.phases[1]) == 0.0


def test_a_rank_kept_from_the_processor_longer_than_an_iteration_is_no_result():
    report = Report("x", clock="live")
    report.results["mrc"] = recovering([0.6] * 4, uneven=S // 50)
    assert kept_from_computing(report) == []
    worst = recovering([0.6, 1.2, 0.6])
    slow = next(i for i in worst.data.iterations if i.length_ps > S)
    worst.data.hosts[0].busy = [
        (slow.end_ps - 1, slow.end_ps) if end == slow.end_ps else (b, end)
        for b, end in worst.data.hosts[0].busy
    ]
    report.results["mrc"] = worst
    (line,) = kept_from_computing(report)
    assert line.startswith("mrc: a rank was 1 s late, longer than an iteration (500 ms)")


def test_the_table_says_by_which_rule_and_fits_80_characters():
    found = agreements(silent(S // 10, S // 20), silent(S // 10 + S // 25, S // 20))
    found += [recovery(recovering([0.67] * 3), recovering([0.65] * 3))]
    lines = str(table(found)).splitlines()
    assert max(map(len, lines)) <= 80
    blip = next(line for line in lines if "nic_link_down.blip_s" in line)
    assert blip.split()[1:] == ["100", "ms", "140", "ms", "55.91", "ms", "draw", "ok"], blip
    named = {line.partition(":")[0] for line in legend(found)}
    assert named == {SHARE, DRAW, EDGE} == {re.split(r"  +", line)[-2] for line in lines[1:]}


def test_what_only_one_clock_has_disagrees():
    assert not Agreement("x", 1.0, None, 9).ok and Agreement("x", None, None, 0).ok
    names = wrong(result(), result(windows=()))
    assert "mrc.nic_link_down.goodput" in names and "mrc.after.blip_s" in names


def test_gaps_are_what_lies_between_iterations():
    data = steady_run(end=4, windows=())
    shifted = [type(i)(i.number, i.start_ps + S // 10, i.end_ps) for i in data.iterations]
    data.iterations = shifted
    assert compute_gaps(data) == (S // 10,) * (len(shifted) - 1)


def test_faults_are_placed_by_the_iteration_they_fell_into():
    """Iterations of 0.5 s, the 17th to 30th of 0.6 s: the second fault fell within one."""
    done = steady_run().iterations
    second = next(each for each in reversed(done) if each.end_ps <= 20 * S)
    assert fault_moments(steady_run()) == {
        "nic_link_down": (16, 0),
        "leaf_spine_down": (second.number, 20 * S - second.end_ps),
    }
    assert 0 < 20 * S - second.end_ps < S // 2
    early = steady_run(windows=(("soon", 0.25, 8),))
    early.windows[0].start_ps = S // 4
    assert fault_moments(early) == {"soon": (0, S // 4)}
    assert fault_moments(steady_run(windows=())) == {}


@pytest.mark.parametrize(
    ("slow", "behind", "status"), [(4 / 3, None, 0), (2.5, None, 1), (4 / 3, "a hog", 3)]
)
def test_command(tmp_path, monkeypatch, capsys, slow, behind, status):
    (tmp_path / "one.py").write_text(
        textwrap.dedent("""
        import loomnet as ln

        @ln.scenario
        def one(lab: ln.Lab):
            fabric = ln.star(hosts=2, rate="40 Mb/s", delay="0.5 ms", planes=4)
            lab.run(fabric, ln.AllReduce("1 MB", 10), label="mrc")
        """)
    )
    engines = {
        "live": ScriptedRunner(lambda _: steady_run(fidelity=Fidelity(fell_behind=behind))),
        "virtual": ScriptedRunner(lambda _: steady_run(slow=slow)),
    }
    for clock, engine in engines.items():
        monkeypatch.setattr(sys.modules[__name__], clock, lambda e=engine: e, raising=False)
        monkeypatch.setitem(runners.RUNNERS, clock, f"{__name__}:{clock}")
    monkeypatch.chdir(tmp_path)
    assert main(["crosscheck", "one.py"]) == status
    out = capsys.readouterr().out
    assert "mrc.completion_s" in out and "5 %: of the live number" in out
    assert (" NO\n" in out) == (status == 1)
    gaps = engines["virtual"].requests[0].lead.gaps_ps
    # A training job's iterations leave no room between them: 0.2 s of each 0.5 s has no work.
    assert gaps == ((S // 5,) * len(steady_run().iterations),) * 2
    assert "gaps_ps" not in engines["live"].requests[0].options
