"""`ln.run`: a Lab of one run."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from loomnet.base.arguments import checked_call, parameters_of
from loomnet.base.errors import RunInterrupted, UsageError
from loomnet.base.notebook import in_notebook
from loomnet.fabrics.model import Fabric
from loomnet.faults.model import Fault
from loomnet.jobs.model import Job
from loomnet.jobs.task_graph import PASSED_OVER
from loomnet.labs.lab import Lab
from loomnet.labs.preparation import list_of_jobs
from loomnet.labs.run_folder import TemporaryFolder
from loomnet.measures.run_data import NEVER_CAME
from loomnet.results.result import Result
from loomnet.running.run_options import check_names
from loomnet.systems.transport import LIMITED_BY


@checked_call
def run(
    fabric: Fabric,
    job: Job | Sequence[Job],
    faults: Iterable[Fault] = (),
    *,
    seed: int = 0,
    clock: str = "virtual",
    directory: Path | str | None = None,
    write: bool = True,
    **options: Any,
) -> Result:
    """A Lab of one run, of a job or of several at once: returns its numbers and writes its report
    into `directory`, by default a new one below runs/. In a notebook a bar shows how far it is.
    What may surprise about the run is written to the standard error in lines that begin with
    `note:`, before its traffic; behind it, what a file says without effect.

    `options` are those of Lab.run: `label=` names the run in comparisons and pictures, transports
    take their own, as `roce={"cc": "timely"}`, and `sample=`, `observe=`, `model="fluid"` say what
    is looked at and how.
    `write=False` writes no report; what the run itself needs on disk (logs of ranks) lies in a
    temporary folder that goes with the result.
    """
    jobs = list_of_jobs(job)
    if not write and directory is not None:
        raise UsageError(
            "run: directory= is where the report is written; leave it out with write=False"
        )
    of_lab = parameters_of(Lab.run)
    check_names(
        {name: value for name, value in options.items() if name not in of_lab},
        {*of_lab, *parameters_of(run)},
    )
    lead = jobs[0]  # whose iterations the bar counts
    with contextlib.ExitStack() as stack:
        on_progress = None
        if in_notebook():
            from loomnet.labs.notebook_bar import notebook_bar

            on_progress = stack.enter_context(notebook_bar(lead.describe()))
        name = "_and_".join(dict.fromkeys(each.kind for each in jobs))
        kept = None if write else TemporaryFolder()
        where = kept.path if kept is not None else directory
        lab = Lab(
            name,
            clock=clock,
            seed=seed,
            say=_tell_notes,
            on_progress=on_progress,
            directory=None if where is None else Path(where),
        )
        try:
            result = lab.run(fabric, jobs, faults, **options)
        except BaseException as error:
            if kept is not None:
                kept.remove()
            if type(error) is KeyboardInterrupt and in_notebook():
                raise RunInterrupted("interrupted before the run had begun") from None
            raise
        finally:
            if write and lab.results:
                lab.write()
        if kept is not None:
            kept.remove_with(result, *result.jobs.values())
            lab.check_recorded()
        for name, text in result.data.fidelity.notes.items():
            if name.startswith((LIMITED_BY, PASSED_OVER, NEVER_CAME)):
                _tell_notes(f"note: {name}: {text}")
        return result


def _tell_notes(line: str) -> None:
    if line.startswith("note: "):
        print(line, file=sys.stderr)
