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
from loomnet.labs.scenario import Parcel, Scenario, unpacked


def run_point(
    parcel: Parcel, parameters: dict[str, Any], seed: int, max_wall_s: float | None
) -> dict[str, Any]:
    """The report as a dict, or None and the error in one line; and the wall seconds it took. A run
    whose engine fell behind, or that --max-wall ended, is no result."""
    began = time.monotonic()
    report, error = None, None
    with tempfile.TemporaryDirectory(prefix="loomnet-sweep-") as folder:
        try:
            scenario = _loaded(parcel, Path(folder))
            with contextlib.redirect_stdout(io.StringIO()):
                made = scenario.run(seed=seed, max_wall_s=max_wall_s, base=parcel.home(),
                                    directory=Path(folder) / "run", **parameters)
            report = made.to_dict()
            reasons = [run.reason for run in made.fidelity
                       if run.reason and run.reason.startswith("--max-wall")]
            if made.interrupted:
                error = "interrupted"
            elif made.behind or reasons:
                error = "; ".join(made.behind or reasons)
        except LoomnetError as problem:
            error = str(problem)
        except Exception as problem:
            where = traceback.extract_tb(problem.__traceback__)[-1]
            error = (f"{type(problem).__name__}: {problem} "
                     f"({Path(where.filename).name}:{where.lineno})")
    return {
        "report": None if error else report,
        "error": " ".join(error.split()) if error else None,
        "wall_s": round(time.monotonic() - began, 3),
    }


def ignore_interrupts() -> None:
    """For a worker's main thread."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


_LOADED: dict[tuple[str, str], Scenario] = {}  # a worker runs many points of one scenario


def _loaded(parcel: Parcel, folder: Path) -> Scenario:
    key = (parcel.name, parcel.digest)
    if key not in _LOADED:
        _LOADED[key] = unpacked(parcel, folder)
    return _LOADED[key]
