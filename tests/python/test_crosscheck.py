"""Live against virtual: what agrees, by how much, and what one clock alone has seen."""

import sys
import textwrap

import pytest
from scripted import ScriptedRunner
from synthetic import S, steady_run

import loomnet as ln
from loomnet import runner as runners
from loomnet.cli import main
from loomnet.crosscheck import Agreement, agreements, compute_gaps, fault_moments
from loomnet.measure import phases_of
from loomnet.plan import make_plan
from loomnet.result import Result
from loomnet.rundata import Fidelity

PLAN = make_plan(ln.star(hosts=2, rate="40 Mb/s", delay="0.5 ms", planes=4))


def result(**changes):
    data = steady_run(**changes)
    return Result(PLAN, data, phases_of(data, {"nic_link_down": 0.75}), "mrc")


def wrong(live, virtual):
    return [each.name for each in agreements(live, virtual) if not each.ok]


def test_equal_runs_agree():
    found = agreements(result(), result())
    assert len(found) == 1 + 4 * 4 and all(each.ok for each in found)
    assert any(each.live for each in found if each.name == "mrc.nic_link_down.goodput")


def test_a_tenth_of_the_goodput_missing_is_seen():
    # The second fault finds the job at another point of an iteration, and so recovers otherwise.
    second = {"mrc.leaf_spine_down.recovery_s"}
    seen = set(wrong(result(), result(slow=1.5))) - second
    assert seen == {f"mrc.nic_link_down.{f}" for f in ("goodput", "iteration_s", "recovery_s")}
    assert set(wrong(result(), result(slow=4 / 3 * 1.02))) <= second


def test_silences_may_differ_by_two_round_trips():
    live, near, far = result(), result(), result()
    rtt = PLAN.base_rtt_ps
    for one, length in ((live, S // 10), (near, S // 10 + 2 * rtt), (far, S // 10 + 4 * rtt)):
        one.data.hosts[0].silences = [(9 * S, 9 * S + length)]
    remade = [Result(PLAN, r.data, r.phases, "mrc") for r in (live, near, far)]
    assert wrong(remade[0], remade[1]) == []
    assert wrong(remade[0], remade[2]) == ["mrc.nic_link_down.blip_s"]


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
        "nic_link_down": (16, 0), "leaf_spine_down": (second.number, 20 * S - second.end_ps)}
    assert 0 < 20 * S - second.end_ps < S // 2
    early = steady_run(windows=(("soon", 0.25, 8),))
    early.windows[0].start_ps = S // 4
    assert fault_moments(early) == {"soon": (0, S // 4)}
    assert fault_moments(steady_run(windows=())) == {}


@pytest.mark.parametrize(("slow", "behind", "status"), [(4 / 3, None, 0), (2.5, None, 1),
                                                        (4 / 3, "a hog", 3)])  # fmt: skip
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
    engines = {"live": ScriptedRunner(lambda _: steady_run(fidelity=Fidelity(fell_behind=behind))),
               "virtual": ScriptedRunner(lambda _: steady_run(slow=slow))}  # fmt: skip
    for clock, engine in engines.items():
        monkeypatch.setattr(sys.modules[__name__], clock, lambda e=engine: e, raising=False)
        monkeypatch.setitem(runners.RUNNERS, clock, f"{__name__}:{clock}")
    monkeypatch.chdir(tmp_path)
    assert main(["crosscheck", "one.py"]) == status
    assert "mrc.completion_s" in capsys.readouterr().out
    gaps = engines["virtual"].requests[0].options["gaps_ps"]
    # A training job's iterations leave no room between them: 0.2 s of each 0.5 s has no work.
    assert gaps == ((S // 5,) * len(steady_run().iterations),) * 2
    assert "gaps_ps" not in engines["live"].requests[0].options
