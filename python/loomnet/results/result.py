"""What one run on a lab gave: standard figures by name, series, rank logs."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from loomnet.base.errors import UnknownNameError, UsageError
from loomnet.base.names import did_you_mean, how_many, in_quotes, quoted
from loomnet.base.table import Table
from loomnet.base.units import Time
from loomnet.measures import training as measure
from loomnet.measures.drops import drops
from loomnet.measures.kind import Kind
from loomnet.measures.observed import ObservedTable
from loomnet.measures.pools import PoolTable
from loomnet.measures.rows import Measured, Metric, dotted_name
from loomnet.measures.run_data import Ending, RunData
from loomnet.measures.switch_state import SwitchState, switch_named
from loomnet.plans.model import Plan
from loomnet.processes.folder import read_bounded
from loomnet.results.number_mapping import NumberMapping
from loomnet.results.result_rows import rows_of
from loomnet.results.series import Series

if TYPE_CHECKING:
    from loomnet.measures.expert_rounds import ExpertRounds
    from loomnet.measures.flow_completion import FlowRecord
    from loomnet.measures.ring_steps import RingSteps


# Of several endings, the first that one of a run's jobs had is the run's.
ENDINGS: tuple[Ending, ...] = ("interrupted", "failed", "stalled", "finished")


class Result(NumberMapping):
    """One run, a mapping: `r["phase.figure"]` and `r["errors"]` are numbers, or None where null;
    `r.number("phase.figure")` is a number or raises. `kind`: what the job is measured by;
    `setup`: what of it was given, by name."""

    def __init__(
        self,
        plan: Plan,
        data: RunData,
        phases: list[measure.Phase],
        label: str | None = None,
        transport: str | None = None,
        *,
        kind: Kind | None = None,
        setup: Mapping[str, Any] | None = None,
        job: str | None = None,
    ) -> None:
        self.plan, self.data, self.phases, self.label = plan, data, phases, label
        self.fabric_facts: dict[str, str] = {}  # as the fabric was in the run
        self.jobs: dict[str, Result] = {}  # by name, where the run had several
        self.first_job: str | None = None  # of the run, where it had several
        self.transport, self.kind, self.setup = transport, kind or Kind(), dict(setup or {})
        self._none = self.kind.none(phases, data)
        self.rows = rows_of(plan, data, phases, self.kind, label, job)
        self.job_name = job
        self._index()

    def _index(self) -> None:
        self.by_name: dict[str, Metric] = {
            row.within_run if self.jobs else row.within_job: row for row in self.rows
        }

    @classmethod
    def of_jobs(cls, results: Sequence[Result]) -> Result:
        """One result of a run of several jobs: figures are `job.phase.figure`; all else that
        belongs to a job is `result.job(name)`'s."""
        made = cls.__new__(cls)
        lead = results[0]
        worst = min(results, key=lambda each: ENDINGS.index(each.data.ended)).data
        made.data = replace(lead.data, ended=worst.ended, reason=worst.reason)
        made.plan, made.phases, made.label = lead.plan, lead.phases, lead.label
        made.fabric_facts = lead.fabric_facts
        made.transport, made.kind, made.setup, made.job_name = lead.transport, lead.kind, {}, None
        made.jobs = {result.job_name or "": result for result in results}
        made.first_job = lead.job_name
        for result in results:
            result.first_job = lead.job_name
        made.rows = [row for result in results for row in result.rows]
        made._index()
        return made

    def job(self, name: str) -> Result:
        """One job of a run of several. Raises UsageError with the nearest names."""
        if not self.jobs:
            raise UsageError(f"no job {in_quotes(name)}: the run had one job, whose result this is")
        if name not in self.jobs:
            raise UsageError(f"no job {in_quotes(name)}{did_you_mean(name, self.jobs)}")
        return self.jobs[name]

    @property
    def time_zero_s(self) -> float:
        """Seconds from time 0 of the run's first job (of faults, samples, pictures) to the job's
        own (of its figures and tables); 0 of the only job of a run."""
        self._of_one_job("time_zero_s")
        return self.data.zero_ps / 1e12

    @property
    def on_run_clock(self) -> Result:
        """The same for a picture, in time since time 0 of the run's first job."""
        from loomnet.results.run_clock import moved

        return self if self.jobs or not self.data.zero_ps else moved(self)

    @property
    def parts(self) -> list[Result]:
        """A result per job: of a run of one job the result itself."""
        return list(self.jobs.values()) or [self]

    @property
    def title(self) -> str:
        """`<label>.<job>`, without the parts there are not."""
        return dotted_name(self.label, self.job_name)

    @property
    def legend(self) -> str:
        """What a picture calls the run: its title, or its transport."""
        return self.title or self.transport or "run"

    def _of_one_job(self, what: str) -> None:
        """Raises UsageError where the run had several."""
        if self.jobs:
            first = in_quotes(next(iter(self.jobs)))
            raise UsageError(
                f"{what}: of which job? Write r.job({first}).{what}; there are "
                f"{', '.join(self.jobs)}"
            )

    def metric(self, name: str) -> Metric:
        """The row behind `phase.figure`. Raises UsageError with the three nearest names, or why
        such a job has no such figure; it is a KeyError, too."""
        if not isinstance(name, str) or name not in self.by_name:
            if (why := self._left_out(name)) is not None:
                raise UnknownNameError(f"no number {in_quotes(name)}: {why}")
            raise UnknownNameError(f"no number {in_quotes(name)}{did_you_mean(name, self.by_name)}")
        return self.by_name[name]

    def _left_out(self, name: Any) -> str | None:
        """Why the job has no figure of this name, which other kinds of jobs have, or has one by
        phase alone."""
        if isinstance(name, str) and f"before.{name}" in self.by_name:
            phases = ", ".join(
                phase.name for phase in self.phases if f"{phase.name}.{name}" in self.by_name
            )
            return (
                f'it is counted by phase ({phases}): "before.{name}" is up to the first fault, '
                "of a run without faults all of it"
            )
        if self.jobs:
            job, _, rest = name.partition(".") if isinstance(name, str) else ("", "", "")
            return self.jobs[job]._left_out(rest) if job in self.jobs else None
        return self._none.get(name) if isinstance(name, str) else None

    def number(self, name: str) -> Measured:
        """The figure `phase.figure` as a number, for arithmetic: `r.number("down.blip_s") + 1`.
        Raises UsageError with the reason where it is null."""
        row = self.metric(name)
        if row.value is None:
            raise UsageError(f"number {in_quotes(name)} is null: {row.reason or 'not measured'}")
        return Measured(row)

    @property
    def metrics(self) -> Table:
        """A tidy table: phase, name, value, unit, reason; before them the job, where the run had
        several."""
        columns = ("phase", "name", "value", "unit", "reason")
        if self.jobs:
            columns = ("job", *columns)
        return Table(columns, [{c: getattr(row, c) for c in columns} for row in self.rows])

    @property
    def summary(self) -> str:
        """What happened, in one sentence."""
        from loomnet.results.summary import summary_of

        return summary_of(self)

    @property
    def iterations(self) -> Table:
        """One row per iteration of rank 0 that ended: its number, begin and end in seconds since
        the first began, and its length."""
        self._of_one_job("iterations")
        return self._iterations

    @cached_property
    def _iterations(self) -> Table:
        return Table(
            ("number", "start_s", "end_s", "length_s"),
            (
                {
                    "number": each.number,
                    "start_s": each.start_ps / 1e12,
                    "end_s": each.end_ps / 1e12,
                    "length_s": each.length_ps / 1e12,
                }
                for each in self.data.iterations
            ),
        )

    @property
    def flow_records(self) -> list[FlowRecord]:
        """Every flow of the job; empty where it has none."""
        self._of_one_job("flows")
        return self._flow_records

    @cached_property
    def _flow_records(self) -> list[FlowRecord]:
        from loomnet.measures.flow_completion import records

        return records(self.plan, self.data)

    @property
    def flows(self) -> Table:
        """One row per flow: source, destination, bytes, start and completion time (until the
        sender's last acknowledgement) in seconds, the slowdown against the fabric being empty, and
        the time until the last byte's arrival. Null where a flow never ended."""
        columns = ("source", "destination", "bytes", "start_s", "fct_s", "slowdown", "arrival_s")
        names = self.plan.topology.names
        rows: list[dict[str, Any]] = [
            dict(
                zip(
                    columns,
                    (
                        names[flow.source],
                        names[flow.destination],
                        flow.bytes,
                        flow.start_ps / 1e12,
                        flow.completion_ps and flow.completion_ps / 1e12,
                        flow.completion_ps and flow.completion_ps / max(flow.ideal_ps, 1),
                        None
                        if flow.arrived_ps is None
                        else (flow.arrived_ps - flow.start_ps) / 1e12,
                    ),
                    strict=True,
                )
            )
            for flow in self.flow_records
        ]
        return Table(columns, rows)

    def flow_figures(self) -> dict[str, tuple[float | None, str]]:
        """(value, unit) of fct_mean_s, fct_p50_s, fct_p99_s, fct_max_s, slowdown_mean and so on;
        None where a flow that never ended counts."""
        from loomnet.measures.flow_completion import UNITS, FlowTimes, figures

        self._of_one_job("flow_figures")
        return {
            name: (value.value, UNITS[name])
            for name, value in figures(FlowTimes.of(self.plan, self.data)).items()
        }

    @property
    def loss_curve(self) -> list[tuple[int, float]]:
        """(step, loss) as rank 0 printed them."""
        self._of_one_job("loss_curve")
        return measure.losses(self.data)

    @property
    def marks(self) -> Table:
        """One row per line of rank 0 in which TorchJob(log=…) found a group `mark`, as of a
        checkpoint: the step that it speaks of, or the line before it did, the time at which that
        step ended, and the text. Pictures of iterations show them."""
        self._of_one_job("marks")
        return Table(
            ("step", "time_s", "mark"),
            (
                {"step": step, "time_s": at / 1e12, "mark": text}
                for step, at, text in measure.marks(self.data)
            ),
        )

    @overload
    def series(
        self,
        name: Literal["goodput", "iteration_s"],
        *,
        where: None = None,
        every: Time | str | None = None,
    ) -> Series: ...
    @overload
    def series(
        self, name: str, *, where: str | None = None, every: Time | str | None = None
    ) -> ObservedTable: ...

    def series(
        self, name: str, *, where: str | None = None, every: Time | str | None = None
    ) -> Series | ObservedTable:
        """`goodput` (payload received, all hosts, Gb/s) or `iteration_s` over time: a Series.
        `queue` (bytes waiting in ports) and `link_use` (share of a link's rate since the sample
        before) of the directions that a run was told to look at, `sample="10 us",
        links=["p0.leaf0->*"]`, and what
        a run was told to observe (`sample="1 ms", observe=["cwnd"]`): a table of time in seconds,
        where, name and value, in bytes unless the name ends in _ps or _bps. `where`: the directions
        of queue pairs, as "h0->h1*"; `every`: one value in so long a time."""
        from loomnet.results.result_series import series_of

        return series_of(self, name, where, every)

    def goodput(self, step: Time | None = None, until: float | None = None) -> Series:
        """series("goodput"), in bins of `step`, up to `until` seconds."""
        from loomnet.results.result_series import goodput

        return goodput(self, step, until)

    def plot(
        self,
        what: str | None = None,
        *,
        until: Time | str | None = None,
        size: tuple[float, float] | None = None,
    ) -> Any:
        """A picture of the run, a matplotlib Figure that a notebook shows and `savefig` writes.

        `what`: "overview" (goodput and iterations over time), "goodput", "iterations", "speed"
        (iterations in percent of the job's own before the first fault), "flows" (distributions of
        completion times and slowdowns), "links" (use and queues of the links that the run was told
        to look at), "circuits" (where the light of each port of a panel went, and its dark times),
        or one distribution: "fct", "slowdown", "latency", "iteration_s", "queue". None: "flows" for
        flows, "overview" for rounds and training.
        `until`: emulated time that is shown; without it quiet stretches of a run that stalls are
        drawn narrow. `size`: width and height in inches, as (9, 4). Raises UsageError."""
        from loomnet.results.result_plot import plot

        return plot(self, what, until, size)

    def switch(self, name: str) -> SwitchState:
        """What the program of a switch counted, and its `snapshot()` at the run's end, or at a time
        that the run was given: `snapshots=["2 ms"]`. Raises UsageError with the nearest names."""
        return SwitchState.of(
            switch_named(self.plan, name),
            self.data.totals.get(f"switch {name}", {}),
            self.data.snapshots.get(name, {}),
            self.data.earlier_snapshots.get(name),
        )

    def pool(self, switch: str, *, every: Time | str | None = None) -> PoolTable:
        """Slots of a switch by the job that held them, over time: a table of time (seconds), job,
        slots held, summing and done, of all jobs of the run that switches sum for. The run was
        given `pools="100 us"`. `every`: keeps one sample per such step. Raises UsageError."""
        from loomnet.results.result_series import pool

        return pool(self, switch, every)

    @property
    def experts(self) -> ExpertRounds:
        """The iterations of a mixture of experts and what each was spent on, the events of its
        circuits' controllers, and the first region's time line. Raises UsageError."""
        self._of_one_job("experts")
        if self.data.experts is None:
            raise UsageError("experts: the job is no mixture of experts")
        return self.data.experts

    @property
    def ring_steps(self) -> RingSteps:
        """When each rank had received which ring step: the job's step gap, and how its leading rank
        and its laggard come along. Raises UsageError for a job that has no ring steps."""
        self._of_one_job("ring_steps")
        if self.data.ring_steps is None:
            raise UsageError(
                "ring_steps: this job has none; ln.AllReduce, ln.ReduceScatter and "
                "ln.AllGather of more than 4 KiB have them, ln.Flows with steps=, and "
                'an ln.TorchJob whose packets show them, as by roce={"identity": '
                '"hdr"}, or on a fabric with the program symphony'
            )
        return self.data.ring_steps

    @property
    def time_zero_ps(self) -> int | None:
        """The job's time 0 in picoseconds of the engine's clock, by which congestion controls and
        switch programs are told times; those of results, plots, faults and traces count from it.
        None where the job had not begun."""
        return self.data.time_zero_ps

    @property
    def events(self) -> Table:
        """What happened to the ports of the fabric's panels: `time` in seconds, `where`, `kind`,
        `value`; statuses of the panels' simplex ports and carriers of hosts. Raises UsageError for
        a run without panels."""
        if self.data.events is None:
            raise UsageError(
                "events: the fabric has no panel; what transports noted is in a trace "
                'of the run: trace="FILE"'
            )
        return self.data.events.table

    @property
    def drops(self) -> Table:
        """Every reason for which packets were dropped: `where` (link, switch, panel, nic, engine),
        `reason`, `packets`, `objects` that dropped for it and the one with `most`."""
        return Table(
            ("where", "reason", "packets", "objects", "most"),
            ({"most": each.most, **each.row()} for each in drops(self.data.totals)),
            "no packet was dropped",
        )

    @property
    def unequal_hashes(self) -> int | None:
        """Steps (of every 20th) after which the ranks' parameters were not all equal, byte for
        byte; None if no step was hashed by every rank."""
        self._of_one_job("unequal_hashes")
        return self.data.unequal_hashes

    def rank_log(self, rank: int) -> str:
        """What a rank printed, the first 64 MiB of it; empty where the job has no ranks of its
        own."""
        self._of_one_job("rank_log")
        if type(rank) is not int or not 0 <= rank < 2**63:
            raise UsageError(f"rank_log: {quoted(rank)} is no rank")
        if self.data.directory is None:
            return ""
        path = Path(self.data.directory) / "ranks" / f"{rank}.log"
        try:
            return read_bounded(path).decode(errors="replace")
        except OSError:
            return ""

    def logged(self, rank: int, pattern: str) -> list[dict[str, str]]:
        """The named groups of every line of a rank's output that matches."""
        try:
            found = re.compile(pattern)
        except (re.error, TypeError, OverflowError, RecursionError) as error:
            raise UsageError(
                f"logged: {quoted(pattern)} is not a regular expression: {error}"
            ) from None
        lines = self.rank_log(rank).splitlines()
        return [match.groupdict() for match in map(found.search, lines) if match]

    def __repr__(self) -> str:
        name = f"{self.label}: " if self.label else ""
        if self.jobs:
            jobs = (f"{each} {result.data.ended}" for each, result in self.jobs.items())
            return f"Result({name}{', '.join(jobs)})"
        over = f" over {self.transport}" if self.transport else ""
        phases = ", ".join(phase.name for phase in self.phases)
        errors = len(self.data.errors)
        done = (
            how_many(int(self["flows"] or 0), "flow")
            if "flows" in self
            else how_many(len(self.data.iterations), "iteration")
        )
        return (
            f"Result({name}{self.data.ended}, {done}{over}; "
            f"phases {phases}; {how_many(errors, 'error')}; all numbers in "
            ".metrics)"
        )

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(self.summary)}</p>{self.metrics._repr_html_()}"
