"""Every scenario's report.json, for a change that claims to move no figure: two trees, two folders,
byte by byte.

    .venv/bin/python tests/python/scenario_reports.py DIR [NAME…]     # plays them, two seeds each
    .venv/bin/python tests/python/scenario_reports.py DIR --against DIR2

A scenario that this tree does not have, or that ends in an error, is a report of its own words.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SCENARIOS = Path(__file__).parents[2] / "scenarios"
SEEDS = (1, 2)
# Of each scenario below scenarios/, parameters with which it ends in a minute of the virtual clock.
PARAMETERS: dict[str, dict[str, Any]] = {
    "astraea/bars": {"only": "R9,R14,O6", "draws": 1},
    "astraea/responsiveness": {
        "schemes": "astraea,cubic",
        "cubic": "2",
        "beyond": False,
        "draws": 1,
        "length": 20,
    },
    "astraea/stair3": {"apart": "10 s"},
    "crosscheck_allreduce": {"repeat": 10},
    "crosscheck_flow": {},
    "crosscheck_incast": {},
    "crosscheck_permutation": {},
    "ddp_eight_planes": {"steps": 3},
    "flap": {},
    "ina/ablations": {"draws": 1, "iterations": 3, "fragments": 256},
    "ina/ddp": {"steps": 3},
    "ina/exact": {},
    "ina/loss": {"draws": 1, "repeat": 2, "large": "1 MiB"},
    "ina/multi_job": {"jobs": 4, "draws": 1},
    "ina/parts": {"xdp": False, "build": "none"},  # its error: the source tree may not be built
    "ina/rates": {"size": "4 MiB"},
    "ina/scarce_memory": {"draws": 1, "iterations": 3, "fragments": 256},
    "ina/windows": {"draws": 1, "iterations": 1, "fragments": 64},
    "incast": {"size": "500 kB"},
    "lateness": {"size": "0.3 MB", "fault": "3 s"},
    "mfabric/all": {"keep": "kept", "only": "cost"},
    "mfabric/assignment": {"seeds": 1},
    "mfabric/constants": {"models": "mixtral_8x22b"},
    "mfabric/control": {"samples": 200},
    "mfabric/cost": {},
    "mfabric/decisive": {"iterations": 2, "layers": 2, "micro_batches": 1, "seeds": 1},
    "mfabric/failures": {"seeds": 1},
    "mfabric/figures": {},
    "mfabric/fluid_times": {},
    "mfabric/headline": {"points": "S1"},
    "mfabric/limits": {"readings": "graded"},
    "mfabric/modes": {"fabrics": "mixnet,topoopt", "rates": "800 Gb/s", "bars": "", "layers": 1},
    "mfabric/moe_ddp": {"steps": 6},
    "mfabric/moe_gates": {"steps": 3},
    "mfabric/panel": {"iterations": 5, "packets": 3, "draws": 500},
    "mfabric/scale": {"servers": "128"},
    "mfabric/shares": {"iterations": 100},
    "mfabric/worthwhile": {"only": "sparse", "seeds": 1, "iterations": 2},
    "mrc_ddp_link_failure": {"fault": "1 s"},
    "one_link": {"rate": "5 Gb/s"},
    "permutation": {"size": "500 kB"},
    "symphony/bars": {"seeds": 1},
    "symphony/ddp": {"steps": 4, "hidden": 256},
    "symphony/hostile": {"seeds": 1},
    "symphony/marks": {"seeds": 2},
    "symphony/mrc": {"seeds": 1},
    "symphony/ring": {},
    "symphony/two_flows": {"hosts": "B", "size": "100 MB"},
    "symphony/when": {"seeds": 1, "step": "1 MB"},
    "symphony/workloads": {"seeds": 1},
    "tcp_two_flows": {"draws": 1},
}


def report(name: str, seed: int) -> tuple[bytes, float]:
    """The bytes of the scenario's report.json, or of its error, and the seconds that it took."""
    import loomnet as ln

    began = time.monotonic()
    before, folder = Path.cwd(), tempfile.mkdtemp(prefix="loomnet-reports-")
    os.chdir(folder)  # some keep results beside where they run
    try:
        ln.load(SCENARIOS / f"{name}.py").run(seed=seed, directory=Path("run"), **PARAMETERS[name])
        found = Path("run/report.json").read_bytes()
    except Exception as error:
        found = f"{type(error).__name__}: {error}\n".encode()
    finally:
        os.chdir(before)
        shutil.rmtree(folder, ignore_errors=True)
    return found, time.monotonic() - began


def play(folder: Path, names: list[str], jobs: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("spawn")  # each run in a process that has run no other
    with concurrent.futures.ProcessPoolExecutor(
        jobs, mp_context=context, max_tasks_per_child=1
    ) as pool:
        runs = {pool.submit(report, name, seed): (name, seed) for name in names for seed in SEEDS}
        for done in concurrent.futures.as_completed(runs):
            name, seed = runs[done]
            found, seconds = done.result()
            (folder / f"{name.replace('/', '-')}-{seed}.json").write_bytes(found)
            said = "" if found.startswith(b"{") else f"  {found.decode().splitlines()[0][:120]}"
            print(f"{seconds:6.1f} s  {name} {seed}{said}", flush=True)


def differences(a: Path, b: Path) -> list[str]:
    """Names of the reports that are not in both folders with the same bytes."""
    names = sorted({path.name for folder in (a, b) for path in folder.glob("*.json")})
    return [
        name
        for name in names
        if not (
            (a / name).is_file()
            and (b / name).is_file()
            and (a / name).read_bytes() == (b / name).read_bytes()
        )
    ]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help="as ina/exact; all where none is given")
    parser.add_argument("--against", type=Path, help="compare with that folder; play nothing")
    parser.add_argument("-j", "--jobs", type=int, default=2)
    asked = parser.parse_args()
    if asked.against is None:
        play(asked.folder, asked.names or list(PARAMETERS), asked.jobs)
        return 0
    found = differences(asked.folder, asked.against)
    print("\n".join(f"differs: {name}" for name in found) or "the same, byte by byte")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
