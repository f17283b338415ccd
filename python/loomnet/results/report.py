"""The report of a run: equal content gives equal bytes. Wall times and paths go elsewhere
(environment.json), so that report.json can be compared byte by byte."""

from __future__ import annotations

import html
import json
from collections.abc import MutableMapping
from dataclasses import asdict, dataclass, field
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loomnet.base.errors import (
    EXIT_CHECK_FAILED,
    EXIT_FIDELITY,
    EXIT_INTERRUPTED,
    EXIT_OK,
    UnknownNameError,
)
from loomnet.base.names import how_many
from loomnet.base.number_text import number_text
from loomnet.base.table import Table
from loomnet.measures.rows import Check, Metric
from loomnet.measures.run_data import Fidelity

if TYPE_CHECKING:
    from loomnet.results.result import Result

SCHEMA_VERSION = 1
MOST_SUMMARISED = 12  # runs whose sentences are in `summary`
BROKEN_OFF = ("stalled", "failed")  # endings of a run that say nothing good of its job


@dataclass
class RunFidelity:
    """Fidelity of one labelled run, with what follows from it."""

    label: str
    fidelity: Fidelity
    ended: str
    reason: str | None = None

    @property
    def kept_up(self) -> bool:
        return self.fidelity.fell_behind is None and self.fidelity.unexplained == 0

    @property
    def verdict(self) -> str:
        if self.fidelity.unexplained:
            return f"{self.fidelity.unexplained} packets unexplained"
        return self.fidelity.fell_behind or "kept up"

    def row(self) -> dict[str, Any]:
        f = self.fidelity
        return {
            "label": self.label,
            "kept_up": self.kept_up,
            "verdict": self.verdict,
            "lateness_p50_ps": f.lateness_p50_ps,
            "lateness_p99_ps": f.lateness_p99_ps,
            "lateness_max_ps": f.lateness_max_ps,
            "packets": f.packets,
            "unexplained": f.unexplained,
            "dilation": f.dilation,
            "emulated_ps": f.emulated_ps,
            "ended": self.ended,
            "reason": self.reason,
            "notes": dict(f.notes),
            "stages": [asdict(row) for row in f.stages],
            "waits": [asdict(row) for row in f.waits],
        }


# Notes of a run that say why it is not deterministic.
UNREPEATABLE = ("waited outside the network", "threads that began to communicate while time passed")


@dataclass(repr=False)
class Report:
    """Everything one scenario run has to say. `directory` is where it was written, if it was;
    `unwritten` says why it, a trace
    or a capture was not."""

    scenario: str
    parameters: dict[str, Any] = field(default_factory=dict)
    clock: str = "virtual"
    seed: int = 0
    deterministic: bool = True
    interrupted: bool = False
    rows: list[Metric] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    fidelity: list[RunFidelity] = field(default_factory=list)
    sentences: dict[str, str] = field(default_factory=dict)  # what happened in each run, by label
    fabrics: dict[str, dict[str, str]] = field(default_factory=dict)  # their facts, by label
    directory: Path | None = None
    unwritten: str | None = None
    # By label.
    results: MutableMapping[str | None, Result] = field(default_factory=dict, repr=False)

    @property
    def failed(self) -> list[Check]:
        """Checks that do not hold."""
        return [check for check in self.checks if not check.ok]

    @property
    def ok(self) -> bool:
        return self.exit_code == EXIT_OK

    @property
    def behind(self) -> list[str]:
        """Why the figures cannot be trusted; empty when they can."""
        late = [run for run in self.fidelity if not run.kept_up]
        found = [f"{run.label or self.scenario}: {run.verdict}" for run in late]
        return found + [
            f"check {check.name} is on a number below the resolution of its run"
            for check in self.checks
            if not check.stands
        ]

    @property
    def broken_off(self) -> list[str]:
        """Runs that a rank, a job, a stall, a deadlock or --max-wall ended, each with its
        reason; an interrupted run is none of them."""
        return [
            f"{run.label or self.scenario} {run.ended}: {run.reason or 'no reason is known'}"
            for run in self.fidelity
            if run.ended in BROKEN_OFF
        ]

    @property
    def unrepeatable(self) -> list[str]:
        """Why another run on the virtual clock with this seed may give other figures; empty where
        it gives the same bytes, and of live runs, of which none does."""
        if self.deterministic or self.clock != "virtual":
            return []
        found = [
            f"{run.label or self.scenario}: {note}: {run.fidelity.notes[note]}"
            for run in self.fidelity
            for note in UNREPEATABLE
            if note in run.fidelity.notes
        ]
        return found or [
            f"{self.scenario}: compute times were measured, or commands came from outside"
        ]

    @property
    def interrupted_in(self) -> list[str]:
        """Plug-ins whose own code Ctrl-C came in, each with its run."""
        return [
            f"{run.label or self.scenario}: {run.reason}"
            for run in self.fidelity
            if run.ended == "interrupted" and " in " in (run.reason or "")
        ]

    @property
    def summary(self) -> str:
        """What happened: a sentence of each run, of many runs the first."""
        shown = [
            f"{label}: {said}" if label else said
            for label, said in list(self.sentences.items())[:MOST_SUMMARISED]
        ]
        if (more := len(self.sentences) - len(shown)) > 0:
            shown.append(f"And {more} more runs.")
        return " ".join(shown)

    def __repr__(self) -> str:
        held = len(self.checks) - len(self.failed)
        checks = f", {held} of {how_many(len(self.checks), 'check')} hold" if self.checks else ""
        how = " interrupted," if self.interrupted else ""
        where = f"; {self.directory}" if self.directory is not None else ""
        return (
            f"Report({self.scenario}:{how} {how_many(len(self.fidelity), 'run')}{checks}; "
            f"all numbers in .metrics{where})"
        )

    def _repr_html_(self) -> str:
        """In a notebook: what happened in each run, the checks, and every number."""
        said = [
            *(
                f"{label}: {text}" if label else text
                for label, text in list(self.sentences.items())[:MOST_SUMMARISED]
            ),
            *self.behind,
            *self.broken_off,
        ]
        if self.interrupted:
            said.insert(0, "Interrupted: what follows was measured until then.")
        above = "".join(f"<p>{html.escape(line)}</p>" for line in said)
        return (
            above + (self.checked._repr_html_() if self.checks else "") + self.metrics._repr_html_()
        )

    @property
    def checked(self) -> Table:
        """The checks: name, value, bound, whether it holds, and why not."""
        return Table(
            ("check", "value", "bound", "holds", "reason"),
            (
                {
                    "check": each.name,
                    "value": number_text(each.value, each.unit),
                    "bound": each.bound_text,
                    "holds": "yes" if each.ok else "no",
                    "reason": each.reason,
                }
                for each in self.checks
            ),
        )

    def cut_off(self, reason: str) -> None:
        """Notes that the scenario's own code was ended outside its runs, unless a run was ended for
        the same reason: that run says it."""
        if any((run.reason or "").startswith(reason) for run in self.fidelity):
            return
        self.fidelity.append(RunFidelity("", Fidelity(), "stalled", reason))

    @property
    def exit_code(self) -> int:
        """The first that holds: 130 interrupted, 3 an engine fell behind, 1 a check failed or a run
        did not end by itself, 0."""
        if self.interrupted:
            return EXIT_INTERRUPTED
        if self.behind:
            return EXIT_FIDELITY
        return EXIT_CHECK_FAILED if self.failed or self.broken_off else EXIT_OK

    @property
    def metrics(self) -> Table:
        """A tidy table: name, value, unit, label, phase, published, reason; after the label the
        job, where a run had several."""
        columns = ("name", "value", "unit", "label", "phase", "published", "reason")
        if any(row.job for row in self.rows):
            columns = (*columns[:4], "job", *columns[4:])
        return Table(columns, [{c: getattr(row, c) for c in columns} for row in self.rows])

    def __getitem__(self, dotted: str) -> Any:
        """The value of a metric by its dotted name; None for null. Raises UsageError,
        which is a KeyError here, with the nearest names."""
        from loomnet.base.names import did_you_mean, in_quotes

        for row in self.rows:
            if row.dotted == dotted:
                return row.value
        known = [row.dotted for row in self.rows]
        raise UnknownNameError(f"no metric {in_quotes(dotted)}{did_you_mean(dotted, known)}")

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA_VERSION,
            "scenario": self.scenario,
            "parameters": self.parameters,
            "clock": self.clock,
            "seed": self.seed,
            "deterministic": self.deterministic,
            "interrupted": self.interrupted,
            "summary": self.summary,
            "fabrics": self.fabrics,
            "metrics": [row.row() for row in self.rows],
            "checks": [check.row() for check in self.checks],
            "fidelity": [run.row() for run in self.fidelity],
        }

    def to_json(self) -> str:
        """Sorted keys, two spaces, no NaN: the same content is the same bytes. Files of the run, as
        a failed rank's log, are named from its directory, whose own name differs each time."""
        text = (
            json.dumps(
                self.to_dict(), sort_keys=True, indent=2, allow_nan=False, ensure_ascii=False
            )
            + "\n"
        )
        if self.directory is None:
            return text
        return text.replace(json.dumps(f"{self.directory}/", ensure_ascii=False)[1:-1], "")


def report_schema() -> dict[str, Any]:
    """The published JSON Schema (draft 2020-12) of report.json."""
    return json.loads(resources.files("loomnet.results").joinpath("report.schema.json").read_text())
