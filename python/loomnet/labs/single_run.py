"""`ln.run`: a Lab of one run."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from loomnet.base.arguments import checked_call
from loomnet.base.errors import UsageError
from loomnet.fabrics.model import Fabric
from loomnet.faults.model import Fault
from loomnet.jobs.model import Job
from loomnet.labs.lab import Lab
from loomnet.labs.preparation import list_of_jobs
from loomnet.labs.run_folder import TemporaryFolder
from loomnet.results.result import Result


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
    `note:`, before its traffic.

    `write=False` writes no report; what the run itself needs on disk (logs of ranks) lies in a
    temporary folder that goes with the result.
    """
    jobs = list_of_jobs(job)
    if not write and directory is not None:
        raise UsageError("run: directory= is where the report is written; leave it out with "
                         "write=False")
    lead = jobs[0]  # whose iterations the bar counts
    from loomnet.base.notebook import in_notebook

    with contextlib.ExitStack() as stack:
        on_progress = None
        if in_notebook():
            from loomnet.labs.progress import notebook_bar

            iterations = getattr(lead, "repeat", None)
            on_progress = stack.enter_context(notebook_bar(lead.describe(), iterations))
        name = "_and_".join(dict.fromkeys(each.kind for each in jobs))
        kept = None if write else TemporaryFolder()
        where = kept.path if kept is not None else directory
        lab = Lab(name, clock=clock, seed=seed, say=_tell_notes, on_progress=on_progress,
                  directory=None if where is None else Path(where))
        try:
            result = lab.run(fabric, jobs, faults, **options)
        except BaseException:
            if kept is not None:
                kept.remove()
            raise
        finally:
            if write and lab.results:
                lab.write()
        if kept is not None:
            kept.remove_with(result, *result.jobs.values())
            lab.check_recorded()
        return result


def _tell_notes(line: str) -> None:
    if line.startswith("note: "):
        print(line, file=sys.stderr)
