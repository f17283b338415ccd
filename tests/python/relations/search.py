"""Many worlds of many relations, on several processes; and a broken world made smaller."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing import connection
from pathlib import Path
from typing import Any

from . import catalogue as catalogue
from .relation import RELATIONS, Verdict, judge
from .worlds import World

SEED = "LOOMNET_RELATIONS_SEED"
HANGS_S = 180.0  # after which a process that tries one world is ended


def seed() -> str:
    """What worlds are drawn from: LOOMNET_RELATIONS_SEED, else the commit, else "fixed"."""
    if given := os.environ.get(SEED):
        return given
    try:
        head = subprocess.run(
            ["git", "rev-parse", "--short=8", "HEAD"],
            capture_output=True,
            text=True,
            cwd=Path(__file__).parent,
            timeout=20,
        )
    except (OSError, subprocess.SubprocessError):
        return "fixed"
    return head.stdout.strip() or "fixed"


@dataclass
class Tally:
    """What came of the worlds of one relation."""

    name: str
    kinds: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    broken: list[Verdict] = field(default_factory=list)

    def take(self, verdict: Verdict) -> None:
        self.kinds[verdict.kind] += 1
        if verdict.reason:
            self.reasons[f"{verdict.kind}: {verdict.reason[:90]}"] += 1
        if verdict.kind == "broken":
            self.broken.append(verdict)

    @property
    def tried(self) -> int:
        """Worlds of which the relation says something."""
        return self.kinds["held"] + self.kinds["broken"]


def for_seconds(name: str, of_seed: str, cpu_s: float) -> Tally:
    """Tries world after world until so much processor time has gone, in this process."""
    tally, index, until = Tally(name), 0, time.process_time() + cpu_s
    while index == 0 or time.process_time() < until:
        tally.take(judge(name, f"{of_seed}:{index}"))
        index += 1
    return tally


def for_count(name: str, of_seed: str, count: int) -> Tally:
    """Tries so many worlds, in this process."""
    tally = Tally(name)
    for index in range(count):
        tally.take(judge(name, f"{of_seed}:{index}"))
    return tally


def until_tried(name: str, of_seed: str, count: int) -> Tally:
    """Tries worlds until the relation has said something of so many, or most are unfit."""
    tally = Tally(name)
    for index in range(4 * count):
        if tally.tried >= count:
            break
        tally.take(judge(name, f"{of_seed}:{index}"))
    return tally


# --- several processes ----------------------------------------------------------------------------
def search(
    names: Iterable[str], of_seed: str, count: int, processes: int, told: Callable[[Verdict], None]
) -> None:
    """Tries so many worlds of each relation; `told` hears of each."""
    todo = iter([(name, f"{of_seed}:{index}") for name in names for index in range(count)])
    crew = [_Hand() for _ in range(processes)]
    try:
        idle = crew
        while True:
            for hand in idle:
                hand.give(next(todo, None))
            busy = [hand for hand in crew if hand.task is not None]
            if not busy:
                return
            ready = connection.wait([hand.pipe for hand in busy], 1.0)
            idle = []
            for hand in busy:
                if hand.pipe in ready or time.monotonic() - hand.since > HANGS_S:
                    told(hand.take(hand.pipe in ready))
                    idle.append(hand)
    finally:
        for hand in crew:
            hand.end()


class _Hand:
    """A process that tries one world at a time."""

    def __init__(self) -> None:
        self.task: tuple[str, str] | None = None
        self.since = 0.0
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=_tries, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    def give(self, task: tuple[str, str] | None) -> None:
        self.task, self.since = task, time.monotonic()
        if task is not None:
            self.pipe.send(task)

    def take(self, ready: bool) -> Verdict:
        assert self.task is not None
        try:
            if ready:
                return self.pipe.recv()
            lines = (f"it hangs: nothing for {HANGS_S:g} s",)
        except EOFError:
            lines = ("its process died",)
        self.end()
        self._start()
        return Verdict(*self.task, "broken", lines)

    def end(self) -> None:
        self._process.kill()
        self._process.join()


def _tries(pipe: Any) -> None:
    while True:
        pipe.send(judge(*pipe.recv()))


# --- a smaller world that breaks the same relation ------------------------------------------------
def smaller(name: str, token: str) -> World:
    """Leaves out faults, jobs, options and settings as long as the relation still breaks."""
    world, moved = RELATIONS[name].world(token), True
    while moved:
        moved = False
        for candidate in _without_one(world):
            if judge(name, token, candidate).kind == "broken":
                world, moved = candidate, True
                break
    return world


def _without_one(world: World) -> Iterator[World]:
    for i in range(len(world.faults)):
        yield world.but(faults=world.faults[:i] + world.faults[i + 1 :])
    for i in range(1, len(world.jobs)):
        yield world.but(jobs=world.jobs[:i] + world.jobs[i + 1 :])
    for option in world.options:
        yield world.but(options={k: v for k, v in world.options.items() if k != option})
    for i in range(1, len(world.fabric)):
        if not world.fabric[i].name.startswith("add_"):
            yield world.but(fabric=world.fabric[:i] + world.fabric[i + 1 :])
    for i, job in enumerate(world.jobs):
        for value in (
            "compute",
            "channels",
            "step_jitter",
            "whole_steps",
            "jitter",
            "gap",
            "load",
            "start",
        ):
            if job.get(value) is not None:
                yield world.but(
                    jobs=(*world.jobs[:i], job.change(**{value: None}), *world.jobs[i + 1 :])
                )
