"""Runs cases in one placement: over stock Gloo, over the loopback NIC, on the virtual clock or
live. The ranks run the same script everywhere; only what surrounds them differs."""

from __future__ import annotations

import itertools
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "torch_ranks"))
sys.path.insert(0, str(Path(__file__).parent))

import comparing
import torch
from launch import Ranks
from registry import CASES, Case, cases_of

import loomnet as ln
from loomnet.labs.lab import Lab

SCRIPT = Path(__file__).with_name("run_cases.py")
CASE_S = 60.0  # of wall time, for one case on a busy machine
START_S = 120.0  # for the imports of all ranks
LIVE = {4: {"rate": "60 Mb/s", "delay": "0.5 ms"}, 8: {"rate": "25 Mb/s", "delay": "0.5 ms"}}


@dataclass
class Outcome:
    """What became of one case in one placement.

    Attributes:
        why: empty where the case ended well in every rank; else the reason, first line first.
        seconds: of wall time, of the slowest rank.
        results: what each rank computed, in the order of ranks.
    """

    name: str
    why: str = ""
    seconds: float = 0.0
    results: list[Any] = field(default_factory=list, repr=False)


def run(
    placement: str, world: int, cases: Mapping[str, Case], directory: Path, limit: float = CASE_S
) -> dict[str, Outcome]:
    """Runs cases in one job. A case that fails or hangs ends its job; those after it run in
    another."""
    outcomes: dict[str, Outcome] = {}
    left = list(cases)
    families = ",".join(sorted({case.family for case in cases.values()}))
    kept = _for_all_users(directory / "kept")
    for attempt in itertools.count():
        if not left:
            return outcomes
        folder = directory / f"{placement}-{world}-{left[0]}-{attempt}"
        arguments = [str(_for_all_users(folder / "out")), str(kept), str(limit), families, *left]
        trouble = PLACEMENTS[placement](world, arguments, folder, START_S + limit * len(left))
        found = _read(folder, world, left, trouble)
        outcomes |= {each.name: each for each in found}
        left = left[len(found) :]


def _for_all_users(folder: Path) -> Path:
    """Live, ranks may be another user's."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o777)
    return folder


def _read(folder: Path, world: int, names: Sequence[str], trouble: str) -> list[Outcome]:
    """Outcomes of the cases up to the first that did not end well."""
    logs = [_text(folder / "ranks" / f"{rank}.log") for rank in range(world)]
    found = []
    for name in names:
        times = [re.search(rf"^case {name} ok ([0-9.]+) s$", log, re.M) for log in logs]
        files = [folder / "out" / f"{name}.{rank}.pt" for rank in range(world)]
        if all(times) and all(file.exists() for file in files):
            found.append(
                Outcome(
                    name,
                    "",
                    max(float(t[1]) for t in times if t),
                    [torch.load(file, weights_only=True) for file in files],
                )
            )
            continue
        found.append(Outcome(name, _reason(name, logs, trouble)))
        return found
    if trouble:  # every case ended well, their job did not
        found[-1].why = f"the job did not end well after its last case: {trouble}"
    return found


def _reason(name: str, logs: Sequence[str], trouble: str) -> str:
    """One line for the job, one for each rank, then the first failing rank's own words."""
    lines, words = [trouble.partition("\n")[0] or "the job ended without an error"], ""
    for rank, log in enumerate(logs):
        _, begins, said = log.partition(f"case {name} begins\n")
        if not begins:
            state = "never began"
        elif f"case {name} ok" in said:
            state = "ended well"
        elif f"case {name} FAILED" in said:
            state = "failed: " + said.strip().splitlines()[-1]
            # A peer's error says that another rank is gone.
            if not words or ("DistBackendError" in words and "DistBackendError" not in said):
                words = said
        else:  # a hang, with stacks: what the others failed of
            state = "did not end"
            words = said if "did not end" not in "".join(lines) else words
        lines.append(f"  rank {rank} {state}")
    return "\n".join([*lines, words[:3000]])


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


# --- placements: each returns what went wrong with the job as a whole, or nothing -----------------
def over_gloo(world: int, arguments: list[str], folder: Path, limit: float) -> str:
    return _in_processes(world, arguments, folder, limit, nic=False)


def over_loopback(world: int, arguments: list[str], folder: Path, limit: float) -> str:
    return _in_processes(
        world, arguments, folder, limit, nic=True, LOOMNET_MAP_BACKEND="1", LOOMNET_TRANSPORT="mrc"
    )


def _in_processes(
    world: int, arguments: list[str], folder: Path, limit: float, *, nic: bool, **environment: str
) -> str:
    (folder / "ranks").mkdir()
    with Ranks(
        str(SCRIPT), world, *arguments, directory=folder / "ranks", nic=nic, **environment
    ) as ranks:
        deadline = time.monotonic() + limit
        while len(ranks.status) < world and time.monotonic() < deadline:
            ranks.poll()
            # A rank that failed leaves the others waiting for it: over Gloo, for the timeout.
            if any(ranks.status.values()):
                deadline = min(deadline, time.monotonic() + 3)
            time.sleep(0.02)
        failed = {rank: status for rank, status in ranks.status.items() if status}
        late = sorted(set(range(world)) - set(ranks.status))
    return f"exit statuses {failed}" if failed else f"ranks {late} still run" if late else ""


def on_virtual_clock(world: int, arguments: list[str], folder: Path, limit: float) -> str:
    fabric = ln.clos.two_tier(
        planes=2, leaves=2, spines=2, hosts_per_leaf=world // 2, rate="400 Gb/s", delay="1 us"
    )
    lab = Lab("torch_cases", directory=folder, max_wall_s=limit)
    return _in_lab(lab, fabric, world, arguments, compute="1 ms")


def live(world: int, arguments: list[str], folder: Path, limit: float) -> str:
    fabric = ln.clos.two_tier(
        planes=1, leaves=2, spines=1, hosts_per_leaf=world // 2, **LIVE[world]
    )
    lab = Lab("torch_cases", clock="live", directory=folder, max_wall_s=limit)
    return _in_lab(lab, fabric, world, arguments)


def _in_lab(lab: Lab, fabric: ln.Fabric, world: int, arguments: list[str], **options: Any) -> str:
    job = ln.TorchJob(
        SCRIPT, args=arguments, ranks=world, transport="mrc", stall_timeout=None, **options
    )
    data = lab.run(fabric, job).data
    if data.fidelity.unexplained:
        return f"{data.fidelity.unexplained} packets are unexplained"
    if data.ended == "finished" and not data.errors:
        return ""
    return "\n".join(
        [f"{data.ended}: {data.reason}", *(f"{each.who}: {each.message}" for each in data.errors)]
    )


PLACEMENTS: dict[str, Callable[[int, list[str], Path, float], str]] = {
    "gloo": over_gloo,
    "loopback": over_loopback,
    "virtual": on_virtual_clock,
    "live": live,
}


# --- verdicts -------------------------------------------------------------------------------------
def verdict(case: Case, mine: Outcome, theirs: Outcome, *, to_the_bit: bool = False) -> str:
    """Why the outcome is not that of the other placement; empty: it is."""
    if mine.why or theirs.why:
        return mine.why or f"the reference failed: {theirs.why}"
    lines = [
        f"rank {rank}{line}"
        for rank, pair in enumerate(zip(mine.results, theirs.results, strict=True))
        for line in comparing.differences(*pair, 0 if to_the_bit else case.spread)
    ]
    return "\n".join(lines[:8])


def forked(directory: Path) -> bool:
    """Whether ranks of the virtual clock began with PyTorch imported: their first line tells the
    CPU time that each process had used by then, which imports take seconds of."""
    logs = list(directory.glob("virtual-*/ranks/*.log"))
    times = [
        re.search(r"^rank \d+ of \d+, ([0-9.]+) s of CPU time", _text(log), re.M) for log in logs
    ]
    return bool(logs) and all(each is not None and float(each[1]) < 1.0 for each in times)


__all__ = ["CASES", "Outcome", "cases_of", "forked", "run", "verdict"]
