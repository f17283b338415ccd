"""Both clocks agree: the same scenarios, live against virtual, through the command a user types."""

import math
import subprocess
import sys
from pathlib import Path

import pytest

import loomnet as ln
from loomnet import crosscheck as twin
from loomnet import measure
from loomnet.errors import EXIT_FIDELITY, EXIT_OK
from loomnet.live import doctor

_REASON = doctor.why_not_live()
pytestmark = pytest.mark.skipif(_REASON is not None, reason=str(_REASON))
SCENARIOS = Path(__file__).parents[2] / "scenarios"
TRIES = 2  # a run that fell behind is no result: one more try, then it is an error


@pytest.mark.parametrize("scenario", ["flow", "incast", "permutation", "allreduce"])
def test_live_and_virtual_agree(scenario, tmp_path):
    for _ in range(TRIES):
        done = subprocess.run(
            [sys.executable, "-m", "loomnet", "crosscheck",
             str(SCENARIOS / f"crosscheck_{scenario}.py")],
            cwd=tmp_path, capture_output=True, text=True, timeout=120,
        )
        if done.returncode != EXIT_FIDELITY:
            break
    assert done.returncode == EXIT_OK, done.stdout + done.stderr
    table = [line.split() for line in done.stdout.splitlines()]
    agreed = [line for line in table if line and line[-1] == "True" and len(line) == 6]
    assert len(agreed) >= (9 if scenario == "allreduce" else 3), done.stdout
    assert "kept up" in done.stdout


MAIN_JOB = {"transport": "mrc", "fault": "5 s"}  # 40 s of training: ten iterations per fault
PHASES = ("nic_link_down", "leaf_spine_down", "silent_loss", "spine_down")


@pytest.mark.timeout(400)
def test_the_main_job_agrees(uses_machine, tmp_path):
    """Real PyTorch under four faults. Rates agree to 5 %. A silence and a recovery are one draw per
    fault; the twin's faults fall where in an iteration the live ones fell, and what is left is held
    against what the draw can change:

    - Silence at a receiver whose peers still compute is no network's. The twin replays how long
      each rank computed in each iteration, but not when: live, gradients leave while backward goes
      on. Silences may differ by as much as the ranks' computing differed within one iteration.
    - Recovery ends with the first of three iterations below a threshold, and one that is close to
      it may count on one clock alone. As lengths agree to 5 %, a live recovery lies between the
      twin's with the threshold 5 % higher and 5 % lower; "never" is the longest of all. A fault as
      close to an iteration's edge as computing is uneven may find the twin in the next.
    """
    pytest.importorskip("torch")
    scenario = ln.load(SCENARIOS / "mrc_ddp_link_failure.py")
    for number in range(TRIES):
        live = scenario.run(clock="live", directory=tmp_path / f"live-{number}", **MAIN_JOB)
        reason = live.behind or kept_from_computing(live.results["mrc"])
        if not reason:
            break
    assert not reason, reason
    virtual = scenario.run(directory=tmp_path / "virtual", **twin.replay_of(live), **MAIN_JOB)
    results = live.results["mrc"], virtual.results["mrc"]
    found = {each.name.removeprefix("mrc."): each for each in twin.crosscheck(live, virtual)}
    rows = str(twin.table(list(found.values())))
    print(rows)  # pytest -s
    phases = {phase.name: phase for phase in results[0].phases}
    for name in PHASES:
        ratios = [result[f"{name}.goodput_ratio"] for result in results]
        assert ratios[0] == pytest.approx(ratios[1], rel=twin.RATE_TOLERANCE), (name, rows)
        for figure in ("goodput", "iteration_s"):
            each = found[f"{name}.{figure}"]
            assert each.live is not None and each.ok, rows
        draw = uneven_computing_s(results[0], phases[name])
        blip = found[f"{name}.blip_s"]
        assert abs(blip.live - blip.virtual) <= blip.bound + draw, (draw, rows)
        recovery = found[f"{name}.recovery_s"]
        live_s = math.inf if recovery.live is None else recovery.live
        soonest, latest = (recovery_s(results[1], name, measure.RECOVERED_WITHIN * factor)
                           for factor in (1 + twin.RATE_TOLERANCE, 1 / (1 + twin.RATE_TOLERANCE)))
        slack = recovery.bound + draw + next_iteration_s(results[0], name, draw)
        assert soonest - slack <= live_s <= latest + slack, (name, soonest, latest, draw, rows)
    assert found["completion_s"].ok, rows


def kept_from_computing(result):
    """Why the run is none: a rank had to wait for the processor, so that all waited for it, longer
    than an iteration takes."""
    before = result.phases[0]
    expected = measure.expected_iteration_ps(result.data, before, 1.0)
    if expected is None:
        return "too few iterations before the faults"
    worst = uneven_computing_s(result, measure.Phase("run", 0, result.data.end_ps))
    return worst > expected / 1e12 and f"a rank was {worst:.2g} s late, an iteration's length"


def recovery_s(result, name, within):
    """With another threshold than the published one; infinite where there is none."""
    phases = {phase.name: phase for phase in result.phases}
    here = phases[name]
    until = min(phase.start_ps for phase in result.phases if phase.start_ps > here.start_ps)
    found = measure.recovery_s(result.data, here, phases["before"], until, within).value
    return math.inf if found is None else found


def next_iteration_s(result, name, draw):
    """The length of the iteration that a fault found, if it fell that close to its edge; else 0."""
    (fault,) = (phase.start_ps for phase in result.phases if phase.name == name)
    (found,) = (each for each in result.data.iterations if each.start_ps <= fault < each.end_ps)
    near = min(fault - found.start_ps, found.end_ps - fault) / 1e12 <= draw
    return found.length_ps / 1e12 if near else 0.0


def uneven_computing_s(result, phase):
    """The most by which ranks' computing differed in an iteration that lies in the phase, even in
    part."""
    gaps = zip(*twin.compute_gaps(result.data), strict=True)
    return max(max(each) - min(each) for iteration, each in
               zip(result.data.iterations, gaps, strict=True)
               if iteration.end_ps > phase.start_ps and iteration.start_ps < phase.end_ps) / 1e12
