"""A fabric with its traffic that is stepped by the caller."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from loomnet.base.arguments import checked_call
from loomnet.base.errors import UsageError
from loomnet.base.units import Time
from loomnet.fabrics.model import Fabric
from loomnet.faults.model import Fault, list_of_faults
from loomnet.jobs.flows import Flows, Incast, Permutation
from loomnet.jobs.model import Job
from loomnet.labs.preparation import again, list_of_jobs, prepare
from loomnet.measures.flow_rows import FlowRows
from loomnet.plans.make import check_seed
from loomnet.running.play import Play
from loomnet.running.request import Progress
from loomnet.running.run_loop import RunLoop
from loomnet.running.run_options import check_options
from loomnet.running.sender_rows import Limits, SenderRows
from loomnet.running.traffic_play import TrafficPlay
from loomnet.running.virtual_clock import VirtualClock

# What only a run with a report has, or a loop that nobody steps.
_OF_RUNS = (
    *("controllers", "model", "clock", "label", "settle", "dilation", "trace", "pcap"),
    *("sample", "queues", "links", "observe", "snapshots", "pools"),
)


class World:
    """A fabric with jobs of flows on the virtual clock, stepped by the caller: no folder, no
    report, the same flows as `lab.run` to the picosecond.

        world = ln.World(fabric, ln.Flows("1 GB", pairs=[(0, 2), (1, 2)], transport="tcp"), seed=1)
        rows = world.reset()
        while not world.done:
            rows = world.step(world.now + ln.Time("5 ms"))
            world.act(range(len(rows)), cwnd=2 * rows["cwnd"])

    step() and reset() return a numpy structured array with a row for each sender under way: `job`,
    `flow` (numbers in the lists given), `source`, `destination` (host numbers), `part`, and as
    float64 what the sender and its congestion control show of themselves, NaN where they do not:
    `acked`, `in_flight` (bytes), `cwnd` (bytes), `pacing_bps`, `srtt_ps`, `min_rtt_ps` and
    more, by transport. A flow is in the rows from its start to its end. Flows that start together
    are moved apart by the seed, so that the rows of time 0 may be none: `jitter="0 s"`.

    Args:
        fabric, jobs, faults: as lab.run takes them; jobs are of flows (ln.Flows, ln.Permutation,
            ln.Incast), the first leads.
        seed: of the first reset.
        reroute_delay: as in lab.run.
        options: those of transports, as `tcp={"cc": "held"}`, a control whose window and rate are
            what act() last said, and `jitter=`.

    Raises UsageError, FabricError as lab.run does.
    """

    @checked_call
    def __init__(
        self,
        fabric: Fabric,
        jobs: Job | Sequence[Job],
        seed: int = 0,
        *,
        faults: Iterable[Fault] = (),
        reroute_delay: Time | str | None = "1 s",
        **options: Any,
    ) -> None:
        seed = _plain(seed)
        check_seed(seed)
        if unfit := [name for name in options if name in _OF_RUNS]:
            raise UsageError(
                f"World: {unfit[0]}= is of lab.run; a world shows its rows, and act() is in the "
                "place of controllers"
            )
        listed = list_of_jobs(jobs)
        for job in listed:
            if not isinstance(job, (Flows, Permutation, Incast)):
                raise UsageError(
                    f"World: {type(job).__name__} is no job of flows; give ln.Flows, "
                    "ln.Permutation or ln.Incast, or run it by lab.run"
                )
        self._request = prepare(
            fabric,
            listed,
            list_of_faults(faults),
            clock="virtual",
            seed=seed,
            base=Path.cwd(),
            reroute_delay=reroute_delay,
            dilation=1.0,
            options=options,
            moments=None,
            recorded=False,
            replayed=None,
        )
        check_options(self._request.options, [asked.job for asked in self._request.jobs])
        self._loop: RunLoop | None = None
        self._senders: SenderRows | None = None

    @checked_call
    def reset(self, seed: int | None = None) -> np.ndarray:
        """Begins anew, by default with the seed of the last time. The rows of time 0."""
        seed = _plain(self._request.seed if seed is None else seed)
        check_seed(seed)
        self._request = again(self._request, seed)
        clock = VirtualClock(self._request, ExitStack())  # which jobs of flows leave empty
        plays = [clock.play(asked) for asked in self._request.jobs]
        self._loop = RunLoop(self._request, clock, plays, _unseen, None)
        self._loop.begin()
        # Time 0 is the first job's, which begins some round trips after the engine's clock.
        self._loop.advance(self.origin_ps)
        self._senders = SenderRows(clock, plays)
        return self._senders.look()

    @checked_call
    def step(self, until: Time | str) -> np.ndarray:
        """Passes time up to `until`, counted from reset(); at the latest all flows end. The rows of
        then. Raises UsageError for a time that is over."""
        loop = self._begun("step")
        until = Time.given("World.step: until", until)
        if until < self.now:
            raise UsageError(f"World.step: {until} is over; it is {self.now}")
        at_ps = self.origin_ps + until.count
        loop.advance(at_ps)
        loop.clock.check()
        if loop.clock.now_ps < at_ps:  # all flows have ended
            loop.clock.skip_to(at_ps)
        assert self._senders is not None
        return self._senders.look()

    @checked_call
    def act(self, rows: Any, *, cwnd: Limits = None, pacing: Limits = None) -> None:
        """Sets what senders may send by, now. Congestion controls go on from there, and senders act
        on each call at once: give both in one call where both change.

        Args:
            rows: of the last look: numbers, a slice or a mask of bools.
            cwnd: bytes that may be in flight, of each of these rows, or one number for all, or
                "50 kB"; at least a packet. NaN: as it is.
            pacing: bits per second, likewise, or "1 Gb/s"; 0: not paced.
        """
        self._begun("act")
        assert self._senders is not None
        self._senders.limit("World.act", rows, cwnd, pacing)

    @property
    def now(self) -> Time:
        """Time since reset()."""
        return Time.of(max(self._begun("now").clock.now_ps - self.origin_ps, 0))

    @property
    def done(self) -> bool:
        """Whether all flows have ended."""
        return not self._begun("done").running

    @property
    def flows(self) -> list[FlowRows]:
        """Of each job the flows so far, as `result.flows` has them: FlowRows.columns."""
        self._begun("flows")
        return [
            play.traffic.flows().since(play.origin_ps)
            for play in self.plays
            if play.traffic is not None
        ]

    @property
    def loop(self) -> RunLoop:
        """What drives it, for those that let time pass by other means: RunLoop.attend()."""
        return self._begun("loop")

    @property
    def plays(self) -> list[TrafficPlay]:
        """One for each job."""
        return [play for play in self._begun("plays").plays if isinstance(play, TrafficPlay)]

    @property
    def origin_ps(self) -> int:
        """Time 0 on the engine's clock."""
        lead: Play = self._begun("now").lead
        assert lead.origin_ps is not None
        return lead.origin_ps

    def __repr__(self) -> str:
        jobs = ", ".join(type(each.job).__name__ for each in self._request.jobs)
        if self._loop is None:
            return f"World({jobs}; not reset yet)"
        return f"World({jobs}; at {self.now}{', done' if self.done else ''})"

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise UsageError(
            "World: no copy of it can be made, nor can it be pickled; make another by "
            "ln.World(…), which may have the same fabric, jobs and seed"
        )

    # --- inside -----------------------------------------------------------------------------------
    def _begun(self, what: str) -> RunLoop:
        if self._loop is None:
            raise UsageError(f"World.{what}: call reset() first")
        return self._loop


def _plain(seed: int) -> int:
    """numpy's whole numbers, as its generators and learning environments give them, as Python's."""
    return int(seed) if isinstance(seed, np.integer) else seed


def _unseen(_: Progress) -> None:
    """Nobody watches a step."""
