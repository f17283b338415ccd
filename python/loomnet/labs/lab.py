"""A Lab runs jobs on fabrics under faults, and writes one report."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Any, ClassVar, Literal

from loomnet.base.arguments import checked_call
from loomnet.base.errors import RunInterrupted, UsageError
from loomnet.base.names import in_quotes, quoted
from loomnet.base.reading import is_file, user_path
from loomnet.base.units import Time
from loomnet.base.wall_time import WallTime, uninterrupted
from loomnet.fabrics.model import Fabric
from loomnet.fabrics.panels import Circuit
from loomnet.faults.model import Fault, list_of_faults
from loomnet.jobs.model import Job
from loomnet.labs.auto_dilation import AUTO, AutoDilation
from loomnet.labs.c_programs import check_c_programs, sources_of
from loomnet.labs.fluid_request import check_model, fluid_request
from loomnet.labs.plugin_wall import plugins_end_with_it
from loomnet.labs.preparation import (
    check_computing,
    check_has_twin,
    ending_of,
    interruption_of,
    list_of_jobs,
    prepare,
    results_of,
)
from loomnet.labs.run_folder import check_label, folders_in, remove_empty, write_figures
from loomnet.labs.run_lint import foreseen
from loomnet.labs.told import with_recording, with_the_end
from loomnet.measures import rows as rows
from loomnet.measures.rows import check_plain
from loomnet.plans.make import check_seed
from loomnet.plugins.change import circuits as circuits_change
from loomnet.plugins.controllers import ControllerChoice, controllers_of
from loomnet.plugins.scripted import Row, ScriptedCircuits
from loomnet.processes.folder import Folder
from loomnet.results.kept import KeptResults
from loomnet.results.report import Report, RunFidelity
from loomnet.results.result import Result
from loomnet.results.run_directory import new_run_directory, write_run
from loomnet.running.record import Record
from loomnet.running.request import CLOCKS, Progress, Runner, RunRequest, get_runner
from loomnet.systems.registry import renamed, transports


class Lab:
    """Runs jobs, gathers metrics and checks, writes the report.

    `base`: where scripts are looked for first; `directory`: the run's directory, made under runs/
    when first needed if not given. `say` receives lines before each run's traffic and about what it
    recorded, and `on_progress` the label and where the run stands. `replay_gaps`: per label, the
    picoseconds of compute between iterations that a live run measured, and `replay_faults` where in
    its iterations its faults fell (Timetable's `moments`); the virtual clock replays them.
    `for_twin`: a virtual run is to replay these runs; one of several jobs, which has no twin, is
    refused before it starts.
    """

    # Loads `FILE` or `FILE::NAME`; set by the package `labs`.
    load_file: ClassVar[Callable[[str], Any]]

    @checked_call
    def __init__(
        self,
        scenario: str = "lab",
        *,
        clock: str = "virtual",
        seed: int = 0,
        parameters: dict[str, Any] | None = None,
        base: Path | None = None,
        directory: Path | Folder | None = None,
        source: Path | None = None,
        max_wall_s: float | None = None,
        wall: WallTime | None = None,
        runner: Runner | None = None,
        replay_gaps: Mapping[str | None, tuple[int, ...]] | None = None,
        replay_faults: Mapping[str | None, Mapping[str, tuple[int, int]]] | None = None,
        for_twin: bool = False,
        say: Callable[[str], None] | None = None,
        on_progress: Callable[[str, Progress], None] | None = None,
        record: Record | None = None,
    ) -> None:
        if clock not in CLOCKS:
            raise UsageError(f"clock: {in_quotes(clock)} is not one of {', '.join(CLOCKS)}")
        check_seed(seed)
        if not isinstance(scenario, str) or not scenario:
            raise UsageError(f"Lab: {quoted(scenario)} is not a name")
        check_plain("Lab", scenario)
        if not isinstance(parameters, (dict, NoneType)):
            raise UsageError(f"Lab: parameters={quoted(parameters)} is not a table")
        check_plain("Lab: parameters", parameters)
        if not isinstance(record, (Record, NoneType)):
            raise UsageError(f"Lab: record={quoted(record)} is not a Record")
        self.report = Report(
            scenario,
            parameters or {},
            clock,
            seed,
            deterministic=clock == "virtual",
            # A crosscheck compares the series of all runs of both clocks.
            results=KeptResults(None)
            if for_twin or replay_gaps or replay_faults
            else KeptResults(),
        )
        self.results = self.report.results
        self.file_reports: list[Report] = []  # of scenario files run in this lab, in order
        self._replay = dict(replay_gaps or {})
        self._moments = dict(replay_faults or {})
        self._for_twin = for_twin
        self._base = Path.cwd() if base is None else user_path("Lab: base", base)
        self._source = source
        self._folder: Folder | None = directory if isinstance(directory, Folder) else None
        self._theirs: frozenset[Path] = frozenset()  # folders that were there before
        self._directory: Path | None = None
        if directory is not None:
            self._directory = (
                self._folder.path
                if self._folder is not None
                else user_path("Lab: directory", directory)
            )
        self._started, self._max_wall_s = time.time(), max_wall_s
        # Of a scenario all runs together have max_wall_s, of another lab each run has.
        WallTime(max_wall_s)  # raises for a value that is not a time
        self._wall = wall or WallTime(None)
        self._runner, self._say, self._on_progress = runner, say, on_progress
        self._notes: dict[str, Any] = {}
        # What the scenario has read; modules beside its file and C files: a run keeps copies.
        self.inputs: dict[str, str] | None = None
        self.modules: dict[str, bytes] = {}
        self._unwritten: list[str] = []  # why traces and captures are not whole
        self._record = record or Record()
        self._circuits: list[Row] = []  # of the next run
        self._dilation = AutoDilation()

    @property
    def clock(self) -> str:
        return self.report.clock

    @property
    def transports(self) -> tuple[str, ...]:
        """Transports a PyTorch job can have; on the virtual clock `gloo` is its model, `tcp`."""
        return tuple(transports())

    @property
    def seed(self) -> int:
        return self.report.seed

    @property
    def directory(self) -> Path:
        """Where this lab writes; the folder is made on first use."""
        return self.folder.path

    @property
    def folder(self) -> Folder:
        """The same, held open: a run writes where it began to. Raises UsageError where it cannot be
        made, or has no room for a report."""
        if self._folder is None:
            if self._directory is not None:
                self._theirs = folders_in(Path(self._directory))
                self._folder = Folder.at(Path(self._directory))
            else:
                self._folder = new_run_directory(self.report.scenario, self.seed)
            try:
                self._folder.check_room()
            except UsageError:
                self.discard_if_empty()
                raise
        return self._folder

    def say(self, line: str) -> None:
        if self._say is not None:
            self._say(line)

    def note(self, name: str, value: Any) -> None:
        """Something about this very run (addresses, bindings, versions) for environment.json."""
        self._notes[name] = value

    # --- circuits of the next run -----------------------------------------------------------------
    @checked_call
    def circuits(self, panel: str, pairs: Iterable[Circuit], *, at: Time | str) -> None:
        """In the next run the panel patches these circuits, and no others, at this time after the
        first job's first iteration began; pairs as Panel.circuits takes them. Raises UsageError."""
        time = Time.given("circuits: at", at)
        self._circuits.append((time, circuits_change(panel, pairs)))

    def _scripted(self) -> list[ControllerChoice]:
        return [ScriptedCircuits.of(self._circuits)] if self._circuits else []

    # --- running --------------------------------------------------------------------------------
    @property
    def ran(self) -> bool:
        """Whether anything has run in this lab."""
        return bool(self.results or self.file_reports)

    @property
    def wall_of_one_run(self) -> WallTime:
        """That each run has of its own; of a lab whose runs share one, none."""
        return WallTime(self._max_wall_s if self._wall.seconds is None else None)

    def _wall_left(self) -> float | None:
        """Seconds that the next run may take. Raises WallTimeError where none is left."""
        self._wall.check()
        left = self._wall.left_s
        return self._max_wall_s if left is None else math.ceil(left * 10) / 10

    @uninterrupted
    @plugins_end_with_it
    @checked_call
    def run(
        self,
        fabric: Fabric,
        job: Job | Sequence[Job],
        faults: Iterable[Fault] = (),
        *,
        label: str | None = None,
        seed: int | None = None,
        reroute_delay: Time | str | None = "1 s",
        settle: Time | str = "0 s",
        dilation: float | Literal["auto"] = 1.0,
        trace: str | Path | None = None,
        pcap: Mapping[str, str | Path] | None = None,
        controllers: Iterable[ControllerChoice] = (),
        model: str = "packets",
        **options: Any,
    ) -> Result:
        """Runs a job, or several at once, on a fabric under faults and returns their figures.

        Of several jobs the first leads: faults' times and steps count from its first iteration.
        `r["name.before.iteration_s"]` is a figure of one job, `r.job("name")` all of that job.
        `reroute_delay`: ECMP tables reconverge so long after a failure or its end; "off" never.
        `settle`: phase `after` begins so long behind the last fault. `dilation`: live clock only;
        "auto": the least whole one that fits this machine, the first run's for all of the lab.
        `trace`: a Perfetto trace is written here; `pcap`: "NODE:PORT" -> pcapng file. What the lab
        itself was told to record is recorded where these are not given.
        `controllers`: [ln.controller("mine", every="30 ms")]: registered classes that look at the
        run and change its network.
        `options`: the transport's own, by its name: `tcp={"cc": "bbr"}`, `mrc={"evs_per_qp": 16}`;
        `sample="10 ms"` with `queues=["p0.leaf0->p0.leaf1"]` notes bytes waiting in ports and the
        state of TCP senders in steps of this time, with `links=["p0.leaf0->*"]` (globs) what links
        carry, too: `result.series("queue")`, `result.series("link_use")`; with `observe=["cwnd"]`
        (names or globs) what senders and their congestion controls hold: `result.series("cwnd")`,
        counters in a trace, and `observed.csv` beside the report. `snapshots=["2 ms"]` keeps
        the state of switch programs at these times, for `result.switch(name).snapshot(at="2 ms")`.
        `model="fluid"`: instead of packets, flows share links max-min on the routes that packets
        would take; virtual clock only, and loss, marks and queues are null. docs/fluid.md.
        `pools="100 us"` notes in steps of this time how many slots each job holds in each switch
        that sums: `result.pool(name)`, and `pools.csv` beside the report.
        All is checked before anything starts: raises UsageError, FabricError, PrivilegeError.
        """
        if self.report.interrupted:
            raise RunInterrupted(
                "interrupted: no run of this lab starts after Ctrl-C; make another ln.Lab()"
            )
        check_model(model)
        record = Record.of(trace, pcap)
        jobs = list_of_jobs(job)
        if self._for_twin:
            check_has_twin(jobs)
            check_c_programs(fabric, "virtual")
        request = self._request(
            fabric,
            jobs,
            list_of_faults(faults),
            label,
            seed,
            reroute_delay,
            dilation,
            options,
            [*controllers_of(controllers), *self._scripted()],
            recorded=bool(record or self._record),
        )
        self._circuits.clear()
        self.modules |= sources_of(fabric, self._source)
        settle = Time.given("run: settle", settle)
        if model == "fluid":
            request = fluid_request(request, self.clock, recorded=bool(record or self._record))
        request = self._recorded(request, record)
        name = label or self.report.scenario
        try:
            if self._for_twin:
                check_computing(request)
            runner = self._runner or get_runner(self.clock)
            from loomnet.labs.memory import check_memory

            memory = check_memory(request, self.clock)
            for line in (runner.describe(request) + memory).split("\n"):  # none of them too long
                self.say(line)
            for line in foreseen(request, self.clock):
                self.say(line)
            found = runner.run(request, with_the_end(self._on_progress, name, jobs[0]))
        except BaseException:
            if request.recording is not None:
                request.recording.discard()
            self.discard_if_empty()
            raise
        if request.recording is not None:
            self._unwritten += request.recording.failed.values()
        for line in request.recording.said if request.recording is not None else ():
            self.say(line)
        with self.folder.rights():
            write_figures(request.folder or self.folder, found)
        if label:  # a traffic model writes nothing of its own
            with self.folder.rights(), contextlib.suppress(OSError):
                request.directory.rmdir()
        results = results_of(request, found, label, settle)
        result = results[0] if len(results) == 1 else Result.of_jobs(results)
        self.results[label] = result
        self.report.rows += result.rows
        self.report.sentences[label or ""] = result.summary
        self.report.fabrics[label or ""] = result.fabric_facts
        self.report.deterministic &= all(data.deterministic for data in found)
        ended, reason = ending_of(request, found)
        self.report.fidelity.append(RunFidelity(label or "", found[0].fidelity, ended, reason))
        if ended == "interrupted":
            self.report.interrupted = True
            raise interruption_of(result, found[0].end_ps, reason)
        return result

    def _request(
        self,
        fabric: Fabric,
        jobs: list[Job],
        faults: list[Fault],
        label: str | None,
        seed: int | None,
        reroute_delay: Any,
        dilation: float | Literal["auto"],
        options: dict[str, Any],
        controllers: list[ControllerChoice],
        *,
        recorded: bool,
    ) -> RunRequest:
        """What a runner is asked for, all of it checked; the run's folder is made."""
        check_label(label, self.results, self._source)
        gaps = self._replay.get(label)
        options, said = renamed(options)
        for line in said:
            self.say(f"note: {line}")
        prepared = prepare(
            fabric,
            jobs,
            faults,
            clock=self.clock,
            seed=self.seed if seed is None else seed,
            base=self._base,
            reroute_delay=reroute_delay,
            dilation=1.0 if dilation == AUTO else dilation,
            options=options,
            moments=self._moments.get(label),
            recorded=recorded,
            replayed=gaps,
            controllers=controllers,
        )
        if dilation == AUTO:
            prepared = self._dilation.fit(prepared, self.clock, self.say)
        folder = self.folder.folder(label) if label else self.folder
        return dataclasses.replace(
            prepared,
            label=label or "",
            directory=folder.path,
            folder=folder,
            max_wall_s=self._wall_left(),
            max_wall_of_s=self._wall.seconds,
        )

    def _recorded(self, request: RunRequest, record: Record) -> RunRequest:
        """With what this run shall record: its own wishes, else the lab's, whose files are the
        first run's as named and get the label of later runs."""
        if not record:
            record = self._record
            if record and self.results:
                record = record.labelled(request.label)
        if not record:
            return request
        try:
            return with_recording(request, record)
        except BaseException:
            self.discard_if_empty()
            raise

    @uninterrupted
    def run_file(self, file: str | Path, /, **values: Any) -> Report:
        """Runs `FILE` or `FILE::NAME` with this lab's clock and seed, into a folder of this lab's,
        and returns its report. A file is looked for beside the lab's own, then where one is."""
        name, sign, inner = str(file).partition("::")
        beside = self._base / name
        scenario = type(self).load_file(f"{beside if is_file(beside) else name}{sign}{inner}")
        count = sum(each.scenario == scenario.name for each in self.file_reports)
        folder = scenario.name if count == 0 else f"{scenario.name}-{count + 1}"
        report = scenario.run(
            seed=self.seed,
            clock=self.clock,
            runner=self._runner,
            directory=self.folder.folder(folder),
            max_wall_s=self._wall_left(),
            say=self._say,
            on_progress=self._on_progress,
            **values,
        )
        self.file_reports.append(report)
        return report

    # --- reporting ------------------------------------------------------------------------------
    @checked_call
    def metric(
        self,
        name: str,
        value: Any,
        *,
        unit: str | None = None,
        published: float | None = None,
        reason: str | None = None,
        label: str | None = None,
        phase: str | None = None,
    ) -> None:
        """Adds a row to the report; NaN and None become null with a reason."""
        made = rows.metric(
            name, value, unit=unit, published=published, reason=reason, label=label, phase=phase
        )
        self.report.rows.append(dataclasses.replace(made, recorded=True))

    @checked_call
    def check(
        self,
        name: str,
        value: Any,
        *,
        ge: float | None = None,
        le: float | None = None,
        eq: float | None = None,
        approx: float | None = None,
        rel: float | None = None,
        abs: float | None = None,
        published: float | None = None,
        reason: str | None = None,
        what: str | None = None,
    ) -> bool:
        """Adds a check and returns whether it holds. Null and NaN do not. `what`: in words, what is
        checked, for the report and for pictures of checks."""
        made = rows.check(
            name,
            value,
            ge=ge,
            le=le,
            eq=eq,
            approx=approx,
            rel=rel,
            abs=abs,
            published=published,
            reason=reason,
            what=what,
        )
        self.report.checks.append(made)
        return made.ok

    def discard_if_empty(self) -> None:
        """Bad input leaves nothing behind: removes empty folders that this lab has made in its
        directory, and the directory itself and runs/ if nothing is in them."""
        if self._folder is None:
            return
        with self._folder.rights():
            if remove_empty(self._folder.path, self._theirs):
                self._folder.close()
                self._folder = None  # another run of this lab makes a new one

    def write(self) -> Path:
        """Writes report.json, environment.json and the scenario's copy; returns report.json. Raises
        UsageError for what cannot be written, traces and captures of the lab's runs included."""
        path = write_run(
            self.folder,
            self.report,
            started=self._started,
            source=self._source,
            modules=self.modules,
            inputs=self.inputs,
            notes=self._notes,
        )
        self.check_recorded()
        return path

    def check_recorded(self) -> None:
        """Raises UsageError where a trace or a capture of this lab's runs is not whole."""
        if self._unwritten:
            raise UsageError("; ".join(self._unwritten))
