"""What a Dask worker does with one point of a sweep: loads the scenario, runs it, hands back the
report. Writes nothing that stays."""

from __future__ import annotations

import contextlib
import io
import signal
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

from loomnet.base.errors import LoomnetError
from loomnet.labs.parcel import Parcel, unpacked
from loomnet.labs.scenario import Scenario
from loomnet.processes.inputs import Inputs, build


def run_point(
    parcel: Parcel, parameters: dict[str, Any], seed: int, max_wall_s: float | None
) -> dict[str, Any]:
    """The report as a dict, or None and the error in one line; the wall seconds it took; what it
    has read, the build of Loomnet that ran it, and the numbers of the metrics that the scenario
    itself recorded. A run whose engine fell behind, or that --max-wall ended, is no result."""
    began = time.monotonic()
    report, error, inputs, recorded = None, None, {}, []
    with tempfile.TemporaryDirectory(prefix="loomnet-sweep-") as folder:
        scenario, home = None, parcel.home()
        reads = Inputs(home)
        try:
            scenario = _loaded(parcel)
            with contextlib.redirect_stdout(io.StringIO()):
                made = scenario.run(
                    seed=seed,
                    max_wall_s=max_wall_s,
                    base=home,
                    _reads=reads,
                    directory=Path(folder) / "run",
                    **parameters,
                )
            report = made.to_dict()
            recorded = [number for number, row in enumerate(made.rows) if row.recorded]
            reasons = [
                run.reason
                for run in made.fidelity
                if run.reason and run.reason.startswith("--max-wall")
            ]
            if made.interrupted:
                error = "interrupted"
            elif made.behind or reasons:
                error = "; ".join(made.behind or reasons)
        except LoomnetError as problem:
            error = str(problem)
        except Exception as problem:
            where = traceback.extract_tb(problem.__traceback__)[-1]
            error = (
                f"{type(problem).__name__}: {problem} ({Path(where.filename).name}:{where.lineno})"
            )
        if scenario is not None:
            inputs = scenario.inputs(reads, Path(folder))
    return {
        "report": None if error else report,
        "error": " ".join(error.split()) if error else None,
        "wall_s": round(time.monotonic() - began, 3),
        "inputs": inputs,
        "build": build(),
        "recorded": recorded,
    }


def ignore_interrupts() -> None:
    """For a worker's main thread."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


_LOADED: dict[tuple[str, str], Scenario] = {}  # a worker runs many points of one scenario
_UNPACKED: list[tempfile.TemporaryDirectory[str]] = []  # for as long as the worker lives


def _loaded(parcel: Parcel) -> Scenario:
    """The scenario, as its files are now."""
    key = (parcel.name, parcel.digest)
    known = _LOADED.get(key)
    if known is None or (known.modules is not None and known.modules.changed()):
        _UNPACKED.append(tempfile.TemporaryDirectory(prefix="loomnet-sweep-"))
        _LOADED[key] = unpacked(parcel, Path(_UNPACKED[-1].name))
    return _LOADED[key]
