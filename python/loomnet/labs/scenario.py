"""A scenario is a decorated function; its typed signature is the only list of its parameters."""

from __future__ import annotations

import contextlib
import html
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from loomnet.base.arguments import checked_call
from loomnet.base.errors import UsageError, WallTimeError
from loomnet.base.notebook import in_notebook
from loomnet.base.table import Table
from loomnet.base.wall_time import WallTime, WallTimeOver, importing
from loomnet.labs.lab import Lab
from loomnet.labs.own_modules import modules_beside
from loomnet.labs.typed_function import TypedFunction, called, declared_in, loaded, plain
from loomnet.processes.inputs import Inputs
from loomnet.programs.c_file import homes
from loomnet.results.report import Report
from loomnet.running.record import Record

_RUN_OPTIONS = (
    "seed",
    "clock",
    "directory",
    "max_wall_s",
    "runner",
    "replay_gaps",
    "replay_faults",
    "say",
    "on_progress",
    "base",
    "record",
)


class Scenario(TypedFunction):
    """What @ln.scenario makes of a function whose first argument is the Lab."""

    kind, mark, command = "scenario", "@ln.scenario", "loomnet run"
    takes, shape = "the lab", "def name(lab: ln.Lab, …)"
    taken = _RUN_OPTIONS
    several = "one run takes one value; for several, use `loomnet sweep` with --set TEXT"
    none = 'a training script is run by one, as ln.TorchJob("FILE")'

    def run(
        self,
        /,
        *,
        seed: int = 0,
        clock: str = "virtual",
        directory: Path | None = None,
        max_wall_s: float | None = None,
        runner: Any = None,
        replay_gaps: Any = None,
        replay_faults: Any = None,
        for_twin: bool = False,
        say: Any = None,
        on_progress: Any = None,
        base: Path | None = None,
        record: Record | None = None,
        _reads: Inputs | None = None,
        **values: Any,
    ) -> Report:
        """Runs it and returns the report, which is also written. An interrupted run leaves a
        partial report. `base`: where scripts are looked for first, by default beside the
        scenario's file. `_reads` is to take in what the run reads."""
        typed = self.validate(values)
        bar = contextlib.ExitStack()
        if on_progress is None and in_notebook():
            from loomnet.labs.notebook_bar import notebook_bar

            on_progress = bar.enter_context(notebook_bar(self.name))
        wall = WallTime(max_wall_s)
        reads = _reads or Inputs(base or (self.file.parent if self.file else None))
        lab = Lab(
            self.name,
            clock=clock,
            seed=seed,
            parameters=plain(typed),
            base=base or (self.file.parent if self.file else None),
            directory=directory,
            source=self.file,
            max_wall_s=max_wall_s,
            wall=wall,
            runner=runner,
            replay_gaps=replay_gaps,
            replay_faults=replay_faults,
            for_twin=for_twin,
            say=say,
            on_progress=on_progress,
            record=record,
        )
        try:
            with bar, wall, reads, homes(self.file and self.file.parent, base):
                self.play(lab, typed)
        except KeyboardInterrupt:
            lab.report.interrupted = True
        except (WallTimeOver, WallTimeError) as over:
            wall.disarm()
            lab.report.cut_off(str(over))
        except BaseException:
            if not lab.report.interrupted:  # what a scenario raises on its way out of Ctrl-C
                lab.discard_if_empty()
                raise
        if not (lab.ran or lab.report.interrupted or lab.report.fidelity):
            lab.discard_if_empty()
            raise UsageError(
                f"scenario {self.name} ran nothing: it ended without a call of lab.run(fabric, job)"
            )
        lab.inputs = self.inputs(reads, lab.directory)
        lab.modules |= {} if self.modules is None else self.modules.sources()
        if self.file is not None and self._text is not None:
            lab.modules[self.file.name] = self._text
        try:
            lab.write()
        except UsageError as error:  # a full disk takes the file, not the figures
            lab.report.unwritten = str(error)
        if lab.report.interrupted and in_notebook():
            # The cell goes on with its next line, and nothing else would say it.
            print(
                f"{self.name}: interrupted; the report has what was measured until then",
                file=sys.stderr,
            )
        return lab.report

    def inputs(self, reads: Inputs, directory: Path) -> dict[str, str]:
        """What a run into this directory has read, with what was read in loading and the modules
        beside the scenario's file: digests by name."""
        own, modules = [directory], self.modules
        if modules is not None:
            reads.also(modules.loading)
            home = reads.scenario or modules.folder
            reads.know(
                {
                    str(home / Path(path).relative_to(modules.folder)): digest
                    for path, digest in modules.digests().items()
                }
            )
            if home != modules.folder:  # a copy of the scenario, which is no input beside it
                own.append(modules.folder)
        return reads.found(own)

    def play(self, lab: Lab, typed: BaseModel) -> None:
        """Calls the function with a lab and validated parameters."""
        names = type(typed).model_fields
        given = {name: typed.__dict__[name] for name in names}
        with importing(), modules_beside(self.function.__globals__):
            returned = called(self.function, lab, **given)
        if inspect.isawaitable(returned) or inspect.isgenerator(returned):
            if (close := getattr(returned, "close", None)) is not None:
                close()  # Python would warn of a coroutine that was never awaited
            raise UsageError(
                f"scenario {self.name} returned a {type(returned).__name__} that nothing runs; "
                "write it as a plain function"
            )

    def __call__(self, lab: Lab, /, **values: Any) -> None:
        """Plays the scenario on a lab that is there already."""
        self.play(lab, self.validate(values))

    def __repr__(self) -> str:
        return f"Scenario({self.name}: {', '.join(p.name for p in self.parameters)})"

    def _repr_html_(self) -> str:
        """In a notebook: what it says of itself, and its parameters."""
        said = f"scenario {self.name}" + (f": {self.doc.splitlines()[0]}" if self.doc else "")
        table = Table(
            ("parameter", "type", "default"),
            (
                {"parameter": each.name, "type": each.type, "default": each.default}
                for each in self.parameters
            ),
        )
        return f"<p>{html.escape(said)}</p>{table._repr_html_()}"


@checked_call
def scenario(function: Callable[..., object]) -> Scenario:
    """Decorator: makes a function of a Lab and typed parameters a scenario."""
    return Scenario(function)


def scenarios_in(file: str | Path) -> list[Scenario]:
    """All scenarios of a file, in order of definition. Raises UsageError if it cannot be read."""
    return declared_in(file, Scenario)


@checked_call
def load(target: str | Path, *, max_wall_s: float | None = None) -> Scenario:
    """The scenario of `FILE` or `FILE::NAME`. Raises UsageError naming what there is, WallTimeError
    where the file's code runs for longer than `max_wall_s` when it is loaded."""
    try:
        with WallTime(max_wall_s) as wall:
            return loaded(target, Scenario)
    except WallTimeOver as over:
        wall.disarm()
        file = str(target).partition("::")[0]
        raise WallTimeError(f"{file}: {over} while the file was being loaded") from None
