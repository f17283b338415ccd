"""Live against virtual: the same scenario on both clocks must agree, with the live run's compute
gaps replayed on the virtual clock, and its faults where in an iteration they fell."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from loomnet.base.number_text import number_text
from loomnet.base.table import Table
from loomnet.labs.preparation import check_has_twin
from loomnet.measures import training as measure
from loomnet.measures.rows import dotted_name
from loomnet.measures.run_data import RunData
from loomnet.results.report import Report
from loomnet.results.result import Result

RATE_TOLERANCE = 0.05  # relative, of goodput and completion times
# Not the mean: which sender of an incast gets more of the link is decided by microseconds, and
# moves it by 5 % from seed to seed on the virtual clock alone.
FLOW_FIGURES = ("fct_max_s",)
RTTS = 2  # a silence or a recovery may also differ by so many round trips
# Twins that are played where a silence or recovery disagrees: their faults begin earlier or later
# by so much of what the ranks' computing differed by.
NEARBY_SHIFTS = (-1.0, -0.5, 0.5, 1.0)
SHARE, ROUND_TRIPS, DRAW, EDGE = f"{100 * RATE_TOLERANCE:.0f} %", f"{RTTS} RTT", "draw", "edge"
NEARBY = "near"
WHY = {
    SHARE: "of the live number",
    ROUND_TRIPS: "round trips of the fabric",
    DRAW: f"{SHARE} or {ROUND_TRIPS}, and the most by which the ranks' computing differed within "
    "one iteration of the phase: the virtual clock replays how long each rank computed, not "
    "when",
    EDGE: f"as {DRAW}, and what a threshold of recovery {SHARE} higher or lower changes, for "
    f"lengths of iterations agree to {SHARE}; a fault that close to an iteration's edge may "
    "be found by the next",
    NEARBY: f"as {EDGE}, and the range of {len(NEARBY_SHIFTS)} more virtual runs, whose faults "
    "began earlier or later by up to the ranks' difference of computing: which packets a "
    "fault meets decides what it costs",
}


@dataclass(frozen=True)
class Agreement:
    """One number on both clocks. `bound` is the difference allowed, in the number's unit, and `why`
    the rule it is from, a key of WHY. `reach`: from where to where the virtual figure itself may
    lie, where it is one draw of several; the bound is counted from there."""

    name: str
    live: float | None
    virtual: float | None
    bound: float
    why: str = SHARE
    unit: str | None = None
    reach: tuple[float, float] | None = None

    @property
    def ok(self) -> bool:
        """Within the bound. A figure that only one clock has disagrees, but for a recovery that the
        reach allows never to come."""
        if self.reach is not None:
            live = math.inf if self.live is None else self.live
            return self.reach[0] - self.bound <= live <= self.reach[1] + self.bound
        if self.live is None or self.virtual is None:
            return self.live is self.virtual
        return math.fabs(self.live - self.virtual) <= self.bound

    @property
    def difference(self) -> float | None:
        """How far the virtual figure lies above the live one."""
        if self.live is None or self.virtual is None:
            return None
        return self.virtual - self.live

    @property
    def allowed(self) -> float:
        """Of the difference, in the direction it has."""
        if self.reach is None or self.virtual is None or self.difference is None:
            return self.bound
        low, high = self.reach
        return self.bound + (self.virtual - low if self.difference > 0 else high - self.virtual)

    def row(self) -> dict[str, object]:
        return {
            "number": self.name,
            "live": number_text(self.live, self.unit),
            "virtual": number_text(self.virtual, self.unit),
            "allowed": "any" if math.isinf(self.allowed) else number_text(self.allowed, self.unit),
            "by": self.why,
            "ok": "ok" if self.ok else "NO",
        }


def compute_gaps(data: RunData) -> tuple[int, ...] | tuple[tuple[int, ...], ...]:
    """Picoseconds of computing, to be replayed. Of a traffic model: between the end of each
    iteration of rank 0 and the start of the next. Of a training job, whose iterations leave no room
    between them: per rank, the part of each iteration without work outstanding on its host; so the
    others wait for a slow rank in the replay too."""
    done = data.iterations
    between = tuple(max(b.start_ps - a.end_ps, 0) for a, b in itertools.pairwise(done))
    if any(between) or not data.log:
        return between
    return tuple(
        tuple(each.length_ps - measure.overlap(host.busy, each) for each in done)
        for host in data.hosts.values()
    )


def agreements(live: Result, virtual: Result, nearby: Sequence[Result] = ()) -> list[Agreement]:
    """Goodput and iteration per phase and the completion times agree within 5 %.

    A silence and a recovery are one draw per fault. They agree within the larger of 5 % and two
    round trips, and within what the draw can change:

    - A receiver is also silent while its peers still compute, which the network does not cause. The
      twin replays how long each rank computed in each iteration, but not when: live, gradients
      leave while backward goes on. So both may also differ by as much as the ranks' compute times
      differed within one iteration.
    - Recovery ends with the first of three iterations below a threshold, and one that is close to
      it may count on one clock alone. As lengths agree to 5 %, a live recovery lies between the
      twin's with the threshold 5 % higher and 5 % lower; "never" is the longest of all. A fault
      close to an iteration's edge may fall into the next iteration of the twin.
    - Which packets a fault meets decides what it costs: begun a millisecond later, it may cost the
      twin an iteration more. `nearby`: twins whose faults began a little earlier or later
      (`replays_nearby`); the live figure may lie anywhere between the twins'.
    """
    label = f"{live.title}." if live.title else ""
    found = [_share(f"{label}completion_s", _completion(live.data), _completion(virtual.data))]
    if live.flow_records and virtual.flow_records:
        flows = live.flow_figures(), virtual.flow_figures()
        found += [
            _share(f"{label}{name}", flows[0][name][0], flows[1][name][0]) for name in FLOW_FIGURES
        ]
    twins = {phase.name: index for index, phase in enumerate(virtual.phases)}
    for index, phase in enumerate(live.phases):
        name, twin = f"{label}{phase.name}", twins.get(phase.name)
        played = measure.goodput(live.data.hosts, phase).value
        modelled = (
            None
            if twin is None
            else measure.goodput(virtual.data.hosts, virtual.phases[twin]).value
        )
        found.append(_share(f"{name}.goodput", played, modelled, unit="B/s"))
        pairs = {
            figure: (
                _value(live, f"{phase.name}.{figure}"),
                _value(virtual, f"{phase.name}.{figure}"),
            )
            for figure in ("goodput_ratio", "iteration_s", "blip_s", "recovery_s")
        }
        found.append(_share(f"{name}.goodput_ratio", *pairs["goodput_ratio"], unit="ratio"))
        found.append(_share(f"{name}.iteration_s", *pairs["iteration_s"]))
        silence = _silence(f"{name}.blip_s", *pairs["blip_s"], live, phase)
        recovery = _recovery(f"{name}.recovery_s", *pairs["recovery_s"], live, index, virtual, twin)
        found += [_between(each, phase.name, nearby) for each in (silence, recovery)]
    return found


def _between(made: Agreement, phase: str, nearby: Sequence[Result]) -> Agreement:
    """Between the twin's figure and those of others that ended well. Only a recovery may be none,
    which is the longest of all."""
    nearby = [each for each in nearby if each.data.ended == "finished"]
    if made.ok or not nearby or made.why not in (DRAW, EDGE):
        return made
    figure = made.name.rpartition(".")[2]
    found = [made.virtual, *(_value(each, f"{phase}.{figure}") for each in nearby)]
    if figure == "recovery_s":
        found = [math.inf if each is None else each for each in found]
    drawn = [*(each for each in found if each is not None), *(made.reach or ())]
    return replace(made, reach=(min(drawn), max(drawn)), why=NEARBY) if drawn else made


def _share(name: str, live: float | None, virtual: float | None, *, unit: str = "s") -> Agreement:
    return Agreement(name, live, virtual, RATE_TOLERANCE * math.fabs(live or 0.0), SHARE, unit)


def _near(name: str, live: float | None, virtual: float | None, result: Result) -> Agreement:
    """Within the larger of 5 % and two round trips."""
    share, trips = RATE_TOLERANCE * math.fabs(live or 0.0), RTTS * result.plan.base_rtt_ps / 1e12
    why = SHARE if share > trips else ROUND_TRIPS
    return Agreement(name, live, virtual, max(share, trips), why, "s")


def _silence(
    name: str, live: float | None, virtual: float | None, result: Result, phase: measure.Phase
) -> Agreement:
    made = _near(name, live, virtual, result)
    draw = uneven_computing_s(result.data, phase)
    return replace(made, bound=made.bound + draw, why=DRAW) if draw else made


def _recovery(
    name: str,
    live_s: float | None,
    virtual_s: float | None,
    live: Result,
    index: int,
    virtual: Result,
    twin: int | None,
) -> Agreement:
    made, phase = _near(name, live_s, virtual_s, live), live.phases[index]
    ended = {live.data.ended, virtual.data.ended}
    if twin is None or (live_s is None and virtual_s is None) or ended != {"finished"}:
        return made
    draw = uneven_computing_s(live.data, phase)
    slack = made.bound + draw + _next_iteration_s(live, phase, draw)
    soonest, latest = (
        _recovery_within(virtual, twin, measure.RECOVERED_WITHIN * factor)
        for factor in (1 + RATE_TOLERANCE, 1 / (1 + RATE_TOLERANCE))
    )
    if soonest == latest and slack == made.bound:
        return made
    why = DRAW if soonest == latest and slack == made.bound + draw else EDGE
    return replace(made, bound=slack, why=why, reach=(soonest, latest))


def _recovery_within(result: Result, index: int, within: float) -> float:
    """With another threshold than the published one; infinite where there is none."""
    until = measure.next_fault_ps(result.phases, index, result.data.end_ps)
    found = measure.recovery_s(result.data, result.phases[index], result.phases[0], until, within)
    return math.inf if found.value is None else found.value


def _next_iteration_s(result: Result, phase: measure.Phase, draw: float) -> float:
    """The length of the iteration that a fault found, if it fell closer to its edge than `draw`."""
    for each in result.data.iterations:
        if each.start_ps <= phase.start_ps < each.end_ps:
            edge = min(phase.start_ps - each.start_ps, each.end_ps - phase.start_ps)
            return each.length_ps / 1e12 if edge / 1e12 < draw else 0.0
    return 0.0


def uneven_computing_s(data: RunData, phase: measure.Phase) -> float:
    """The most by which ranks' computing differed in an iteration that lies in the phase, even in
    part. Zero for a job without ranks that compute."""
    ranks = [gaps for gaps in compute_gaps(data) if isinstance(gaps, tuple)]
    if not ranks:
        return 0.0
    spread = [max(each) - min(each) for each in zip(*ranks, strict=True)]
    return (
        max(
            (
                ps
                for iteration, ps in zip(data.iterations, spread, strict=True)
                if iteration.end_ps > phase.start_ps and iteration.start_ps < phase.end_ps
            ),
            default=0,
        )
        / 1e12
    )


def kept_from_computing(live: Report) -> list[str]:
    """Why a live run that kept up cannot be held against a twin all the same: a rank had to wait
    for the processor, so that all waited for it, for longer than an iteration takes."""
    found = []
    for result in _by_job(live).values():
        whole = measure.Phase("run", 0, result.data.end_ps)
        worst = uneven_computing_s(result.data, whole)
        expected = measure.expected_iteration_ps(result.data, result.phases[0], 1.0)
        if worst and expected is not None and worst > expected / 1e12:
            found.append(
                f"{result.title or live.scenario}: a rank was "
                f"{number_text(worst, 's')} late, longer than an iteration "
                f"({number_text(expected / 1e12, 's')}): it had to wait for the "
                "processor; is the machine busy?"
            )
    return found


def crosscheck(live: Report, virtual: Report, nearby: Sequence[Report] = ()) -> list[Agreement]:
    """Every run of a scenario, and every job of a run of several, against its twin of the same
    label and job. One without a twin disagrees. `nearby`: what came of `replays_nearby`."""
    found: list[Agreement] = []
    played, modelled = _by_job(live), _by_job(virtual)
    others = [_by_job(each) for each in nearby]
    for job in dict.fromkeys([*played, *modelled]):
        if job in played and job in modelled:
            found += agreements(
                played[job], modelled[job], [each[job] for each in others if job in each]
            )
        else:
            only_live = job in played
            found.append(
                Agreement(
                    f"{dotted_name(*job) or 'run'}.runs",
                    float(only_live),
                    float(not only_live),
                    0.0,
                )
            )
    return found


def _by_job(report: Report) -> dict[tuple[str | None, str | None], Result]:
    return {
        (part.label, part.job_name): part
        for result in report.results.values()
        for part in result.parts
    }


def table(found: list[Agreement]) -> Table:
    """The agreements as rows of text: figure, live, virtual, how much they may differ, by which
    rule, ok. What neither clock has is left out."""
    return Table(
        ("number", "live", "virtual", "allowed", "by", "ok"), [each.row() for each in _shown(found)]
    )


def legend(found: list[Agreement]) -> list[str]:
    """A line per rule that the table names."""
    used = {each.why for each in _shown(found)}
    return [f"{why}: {text}" for why, text in WHY.items() if why in used]


def _shown(found: list[Agreement]) -> list[Agreement]:
    return [a for a in found if a.live is not None or a.virtual is not None or not a.ok]


def fault_moments(data: RunData) -> dict[str, tuple[int, int]]:
    """Where each phase began: after which iteration's end (0: none), and how many ps after it. The
    cost of a fault depends on this point by up to an iteration. So the twin begins the fault at the
    same point, and not at the same time: iterations differ a little in length on the two clocks."""
    found = {}
    for window in data.windows:
        done = [each for each in data.iterations if each.end_ps <= window.start_ps]
        number, end = (done[-1].number, done[-1].end_ps) if done else (0, 0)
        found.setdefault(window.phase, (number, window.start_ps - end))
    return found


def replay_of(live: Report) -> dict[str, Any]:
    """What of every live run its twin replays, as Scenario.run takes it. Raises UsageError for a
    run of several jobs."""
    for run in live.results.values():
        if run.jobs:
            check_has_twin(run.jobs)
    return {
        "replay_gaps": {label: compute_gaps(run.data) for label, run in live.results.items()},
        "replay_faults": {label: fault_moments(run.data) for label, run in live.results.items()},
    }


def needs_nearby(found: Sequence[Agreement]) -> bool:
    """Whether nothing but silences and recoveries of ranks that compute disagrees."""
    wrong = [each for each in found if not each.ok]
    return bool(wrong) and all(each.why in (DRAW, EDGE) for each in wrong)


def replays_nearby(live: Report) -> list[dict[str, Any]]:
    """As replay_of, of twins whose faults begin a little earlier or later."""
    found = []
    for shift in NEARBY_SHIFTS:
        replay = replay_of(live)
        for label, moments in replay["replay_faults"].items():
            result = live.results[label]
            spread = {phase.name: uneven_computing_s(result.data, phase) for phase in result.phases}
            replay["replay_faults"][label] = {
                phase: (number, max(after + round(shift * spread.get(phase, 0.0) * 1e12), 0))
                for phase, (number, after) in moments.items()
            }
        found.append(replay)
    return found


def _completion(data: RunData) -> float | None:
    return data.iterations[-1].end_ps / 1e12 if data.iterations else None


def _value(result: Result, name: str) -> float | None:
    row = result.by_name.get(name)
    return None if row is None else row.value
