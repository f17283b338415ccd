"""One run on a clock: lets time pass, looks at the jobs that play, carries out what controllers
change, and gathers what the run is reported by. The clock decides how time passes."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import loomnet._core as _core
from loomnet.base.errors import WallTimeError
from loomnet.faults.timetable import Change, SendersChange
from loomnet.measures.observed import Observed
from loomnet.measures.run_data import Fidelity, Iteration, RunData, RunFault
from loomnet.measures.samples import Sampler
from loomnet.measures.switch_state import SwitchState, snapshot_times
from loomnet.plans.entries import SwitchPlan
from loomnet.plans.job_request import JobRequest
from loomnet.plugins.controllers import Event
from loomnet.plugins.failures import PluginInterrupted
from loomnet.running.control import Control, Controls, Faults, Snapshots
from loomnet.running.observer import Observer
from loomnet.running.play import FOREVER, Play, PlayClock, shifted
from loomnet.running.reporting import Reports
from loomnet.running.request import Progress, RunRequest
from loomnet.running.run_view import RunView, name_of
from loomnet.running.sender_rows import SenderRows
from loomnet.systems.given import PartClock

if TYPE_CHECKING:
    from loomnet.running.recording import Recording

T = TypeVar("T")


class Clock(PlayClock, PartClock, Protocol):
    """How time passes on the network of a run. Times are the engine's, in picoseconds."""

    def start(self, plays: Sequence[Play]) -> None:
        """Time may pass from now on."""
        ...

    def pass_time(self, until_ps: int, plays: Sequence[Play]) -> str:
        """Lets time pass to `until_ps` at most; why it stands: "reached" that time, "looked" (a
        job may have moved), "stuck" (nothing is left to happen)."""
        ...

    def moved(self) -> Collection[int] | None:
        """Numbers of the jobs for whose iterations or ends time stands, in the order of the
        request; None: any may have moved. Each is told once."""
        ...

    def skip_to(self, at_ps: int) -> None:
        """Where nothing else is left to happen: lets time pass to then."""
        ...

    def apply(self, changes: Iterable[Change]) -> None: ...
    def operate(self, panel: str, request: Callable[[Any, int], T]) -> T:
        """Calls request(device, now_ps) with a panel's device while no time passes, and returns its
        result; packets, queue pairs and hosts see what it has changed. Raises UsageError."""
        ...

    def forget(self, asked: JobRequest) -> None:
        """The job is over while others go on: switches hold nothing more for it."""
        ...

    def queued(self, halves: Iterable[int]) -> list[int]:
        """Bytes that wait in the ports that send into these directions of the plan's links."""
        ...

    def carried(self, halves: Iterable[int]) -> list[int]:
        """Bytes that these directions of the plan's links have carried so far."""
        ...

    def probe(self, probe: _core.FlowProbe) -> Any:
        """What the probe finds now: an array of rows by names."""
        ...

    def fill(self, observed: Observed, origin_ps: int) -> None:
        """After finish(): gives the series what the clock itself has kept for them. `origin_ps`:
        their time 0."""
        ...

    def senders(self, plays: Sequence[Play]) -> Mapping[int, tuple[int, int, int, int]]:
        """States of TCP senders that the engine models, by flow."""
        ...

    def count_from(self, origin_ps: int) -> None:
        """Captures count time from here: the first job's start."""
        ...

    def drain(self, recording: Recording) -> None:
        """Writes what the recording's captures hold."""
        ...

    def finish(self) -> None:
        """Ends all traffic: counters move no more."""
        ...

    def held(self) -> AbstractContextManager[None]:
        """While it lasts no time passes, and the engine's objects may be touched."""
        ...

    def switch_state(self, switch: SwitchPlan) -> SwitchState:
        """What a switch's program has counted and holds; before finish()."""
        ...

    def totals(self) -> dict[str, dict[str, int]]:
        """Every counter, by object; zeros left out."""
        ...

    def fidelity(self, lead: Play, plays: Sequence[Play]) -> Fidelity:
        """How well the engine kept up, and the notes of all jobs."""
        ...

    @property
    def interrupted(self) -> str:
        """What a run that Ctrl-C or a signal ended gives as its reason."""
        ...

    @property
    def trouble(self) -> str | None:
        """What is wrong with the network itself; None: nothing."""
        ...

    @property
    def behind(self) -> str | None:
        """Why the clock cannot keep up, with the remedy; None: it does."""
        ...

    @property
    def deterministic(self) -> bool: ...


class RunLoop:
    """Drives the plays of one request on a clock until all have ended.

    The first play leads: faults' times and steps are those of its job, and time 0 of the run is its
    first iteration.
    """

    def __init__(
        self,
        request: RunRequest,
        clock: Clock,
        plays: Sequence[Play],
        on_progress: Callable[[Progress], None],
        sampler: Sampler | None,
    ) -> None:
        self.request, self.clock, self.plays = request, clock, list(plays)
        self.lead, self.table, self.sampler = plays[0], request.timetable, sampler
        controls: list[Controls] = [Faults(self.table, name_of(self.lead)), *request.controllers]
        self.snapshots: Snapshots | None = None
        if times := snapshot_times(request.options):
            self.snapshots = Snapshots(times, [each.name for each in clock.engine.with_state])
            controls.append(self.snapshots)
        # What a controller sees of senders, and sets of them.
        pairs = clock.engine.note_queue_pairs() if request.controllers else []
        self.senders = senders = SenderRows(clock, plays, pairs)
        self.control = Control(
            request.plan,
            controls,
            # Which has no way back to here.
            lambda number, now, state: RunView(
                now, clock, plays, state, partial(senders.look, number)
            ),
        )
        self.reports = Reports(on_progress, clock.engine, self.table)
        # Each has an entry for as long as it is so: a run may have very many jobs.
        self._running = dict.fromkeys(plays)
        self._horizons: dict[Play, int] = {}  # of those that play, as of their last look
        self.waiting = dict.fromkeys(plays)  # for their time to start
        self._partly = False  # the last look was at some jobs alone
        self.prepared: list[Play] = []
        self.closed: set[Play] = set()
        every = None if sampler is None else sampler.samples.every_ps
        self.observed = Observed.of(request.options, every)
        self.observer = None if self.observed is None else Observer(clock, self.observed)
        self.watches = [watch for part in request.parts if (watch := part.watch(clock)) is not None]
        self.began = time.monotonic()
        self.counted = False  # captures know the first job's start

    # --- the run ----------------------------------------------------------------------------------
    def go(self) -> list[RunData]:
        """Runs to the end; the data of each job."""
        try:
            self.begin()
            self.advance(FOREVER)
        except WallTimeError as over:
            for play in self.running:
                play.stalled(f"{over} before {play.unstarted}")
        except KeyboardInterrupt as stop:
            where = f" {stop}" if isinstance(stop, PluginInterrupted) else ""
            for play in self.running:
                play.end("interrupted", f"{self.clock.interrupted}{where}")
        finally:
            for play in self.prepared:
                self.close(play)
            for play in self.plays:
                # They refer to this loop, which refers to the play.
                play.on_iteration = play.on_over = None
        return self.collect()

    def begin(self) -> None:
        """All is there, and no time has passed."""
        for play in self.plays:
            play.prepare()
            self.prepared.append(play)
        for play in self.plays:
            play.on_iteration = partial(self.on_iteration, play)
            play.on_over = self.over
        self.clock.start(self.plays)
        self.start_due()

    def advance(self, until_ps: int) -> None:
        """Passes time up to this one of the engine's clock, or until all jobs have ended."""
        while self.running and self.clock.now_ps < until_ps:
            stop = self.clock.pass_time(min(self.horizon(), until_ps), self.playing)
            self.look(stop, self.clock.moved() if stop == "looked" else None)
            self.start_due()
            self.report()

    def attend(self, stop: str) -> None:
        """Time has passed by other means than advance(): takes in what happened until now. `stop`:
        why it stands, as Clock.pass_time has it."""
        self.look(stop)
        self.start_due()
        self.report()

    def close(self, play: Play) -> None:
        """Once, when a job has ended: ends its processes."""
        if play in self.closed:
            return
        self.closed.add(play)
        if play.ended is None:  # an error of ours is on its way up
            play.end("interrupted", None)
        play.end_ps = play.over_ps
        if self.running:
            self.clock.forget(play.asked)
        self.control.faults_alone = True  # nothing of a user's may keep a process from being ended
        try:
            play.stop()
        finally:
            self.control.faults_alone = False
        if play not in self.waiting:
            play.sample()

    @property
    def running(self) -> list[Play]:
        """Jobs that have not ended, in the order in which they were given."""
        return list(self._running)

    @property
    def playing(self) -> list[Play]:
        """Those of them that have started, in the same order."""
        return list(self._horizons)

    def over(self, play: Play) -> None:
        self._running.pop(play, None)
        self._horizons.pop(play, None)

    def start_due(self) -> None:
        for play in [each for each in self.waiting if each.starts_ps <= self.clock.now_ps]:
            del self.waiting[play]
            self._started(play)
            play.start()
            self._looked(play)

    def _started(self, play: Play) -> None:
        if play.ended is not None:
            return
        last = next(reversed(self._horizons), None)
        self._horizons[play] = self.clock.now_ps
        if last is not None and last.asked.number > play.asked.number:
            ordered = sorted(self._horizons, key=lambda each: each.asked.number)
            self._horizons = {each: self._horizons[each] for each in ordered}

    def _looked(self, play: Play) -> None:
        if play in self._horizons:
            self._horizons[play] = play.horizon()

    def horizon(self) -> int:
        """Engine time up to which time may pass before somebody must look."""
        ends = list(self._horizons.values())
        ends += [play.starts_ps for play in self.waiting]
        if (due := self.next_change()) is not None:
            ends.append(due)
        if self.sampler is not None and self.lead.origin_ps is not None:
            ends.append(self.lead.origin_ps + self.sampler.due_ps)
        if self.lead.origin_ps is not None:
            ends += [self.lead.origin_ps + watch.due_ps for watch in self.watches]
        return max(min(ends, default=FOREVER), self.clock.now_ps)

    def next_change(self) -> int | None:
        """Engine time at which a controller is due next; None where none has a time yet."""
        if (origin := self.lead.origin_ps) is not None:
            due = self.control.next_time()
            return None if due is None else origin + due
        # Controllers wait for time 0, and a fault by time makes one: see JobZero.
        due, first = self.table.next_time(), self.lead.unless_it_steps_ps
        return None if due is None or first is None else first + due

    def look(self, stop: str, moved: Collection[int] | None = None) -> None:
        """Takes in what happened while time passed, and ends the jobs that are over. `moved`:
        numbers of the jobs to which something happened; None: it may be any."""
        if (trouble := self.clock.trouble) is not None:
            for play in self.running:
                play.errors.append(RunFault(play.now(), "run", trouble))
                play.end("failed", trouble)
            return
        if (late := self.clock.behind) is not None:
            for play in self.running:
                play.end("failed", late)
            return
        self.look_at_queues()
        self.look_by_watches()
        if not self.counted and self.lead.origin_ps is not None:
            self.counted = True
            self.clock.count_from(self.lead.origin_ps)
        if self.request.recording is not None:
            self.clock.drain(self.request.recording)
        looked, self._partly = self.playing, bool(moved)
        if moved:  # the engine goes on with a job that was ended from outside
            told = (self.plays[number] for number in sorted(moved))
            looked = [play for play in told if play.ended is None]
        for play in looked:
            play.look()
        self.change_due()
        for play in looked:
            if (verdict := play.outcome()) is not None:
                play.end(*verdict)
                self.close(play)
                self.on_end(play)
        playing = [play for play in looked if play.ended is None]
        if stop == "stuck" and any(play.told for play in playing):
            stop = "looked"  # what has been told of something may move although time stood
        elif stop == "stuck" and self.running and self.skip():
            stop = "looked"
        for play in playing:
            if (trouble := play.trouble(stop)) is not None:
                play.stalled(trouble)
                self.close(play)
                self.on_end(play)
            self._looked(play)
        if self.wall_is_over():
            for play in self.running:
                play.wall_is_over(self.request.wall_reason)

    def wall_is_over(self) -> bool:
        most = self.request.max_wall_s
        return most is not None and time.monotonic() - self.began > most

    # --- changes ----------------------------------------------------------------------------------
    def on_iteration(self, play: Play, iteration: Iteration) -> None:
        origin, own = self.lead.origin_ps, play.origin_ps
        if origin is not None and own is not None:
            at = iteration.end_ps + own - origin
            self.apply(
                self.control.on_event(
                    self.lead.now(), Event("iteration", at, name_of(play), iteration)
                )
            )

    def on_end(self, play: Play) -> None:
        now, origin = self.lead.now(), self.lead.origin_ps
        at = now if origin is None else max(play.end_ps - origin, 0)
        changes = self.control.on_event(now, Event("end", at, name_of(play), play.ended))
        if self.running:
            self.apply(changes)

    def change_due(self) -> None:
        due = self.next_change()
        if due is not None and due <= self.clock.now_ps:
            self.lead.decide_origin()
            self.apply(self.control.advance(self.lead.now()))

    def skip(self) -> bool:
        """Nothing is left to happen: whether time could be passed to a change or a job's start."""
        dues = [play.starts_ps for play in self.waiting]
        if (due := self.next_change()) is not None:
            dues.append(due)
        if not dues:
            return False
        self.clock.skip_to(max(min(dues), self.clock.now_ps))
        self.change_due()
        return True

    def apply(self, changes: list[Change]) -> None:
        if not changes:
            return
        self.sample()
        for change in changes:
            if isinstance(change, SendersChange):
                self.senders.carry_out(change)
        self.clock.apply(changes)

    # --- what is noted on the way -----------------------------------------------------------------
    def sample(self) -> None:
        for play in self.plays:
            if play not in self.waiting and play.ended is None:
                play.sample()

    def look_at_queues(self) -> None:
        sampler = self.sampler
        if (
            sampler is not None
            and self.lead.origin_ps is not None
            and self.clock.now_ps - self.lead.origin_ps >= sampler.due_ps
        ):
            sampler.take(
                self.lead.now(),
                self.clock.queued(sampler.halves),
                self.clock.senders(self.playing),
                self.clock.carried(sampler.links),
            )
            if self.observer is not None:
                self.observer.take(
                    self.lead.now(),
                    [
                        traffic
                        for play in self.plays
                        if (traffic := play.sending_once()) is not None
                    ],
                )

    def look_by_watches(self) -> None:
        """Before jobs that are over are forgotten: what switches hold now is theirs."""
        if (origin := self.lead.origin_ps) is None:
            return
        for watch in self.watches:
            if self.clock.now_ps - origin >= watch.due_ps:
                watch.take(self.lead.now(), {play.asked.number for play in self.playing})

    def report(self) -> None:
        self.reports.report(next(iter(self.playing), None), look=self._partly)

    # --- the end ----------------------------------------------------------------------------------
    def collect(self) -> list[RunData]:
        origin = self.lead.origin_ps
        snapshots = {
            switch.name: self.clock.switch_state(switch).snapshot()
            for switch in self.clock.engine.with_state
        }
        events = self.clock.engine.panels.events() if self.request.plan.panels else None
        self.clock.finish()
        if self.observed is not None:
            self.clock.fill(self.observed, origin or 0)
        fidelity = self.clock.fidelity(self.lead, self.plays)
        if self.request.controllers:
            fidelity.notes["controllers"] = "; ".join(
                seat.choice.describe() for seat in self.request.controllers
            )
        shared: dict[str, Any] = {
            "fidelity": fidelity,
            "totals": self.clock.totals(),
            "snapshots": snapshots,
            "earlier_snapshots": {} if self.snapshots is None else self.snapshots.taken,
            "samples": None if self.sampler is None else self.sampler.samples,
            "observed": self.observed,
            "deterministic": self.clock.deterministic,
        }
        for watch in self.watches:
            shared |= watch.found()
        found = []
        for play in self.plays:
            own = play.origin_ps
            behind = 0 if origin is None or own is None else origin - own
            shared["zero_ps"] = -behind
            shared["events"] = None if events is None else events.since(own or 0)
            found.append(play.collect(shared, shifted(self.table.windows, behind)))
            found[-1].time_zero_ps = own
        if self.request.recording is not None:
            self.request.recording.finish(found[0], origin or 0)
        return found
