"""Seeds of a training in processes of their own, which end with this one. Needs PyTorch."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any

from loomnet.base.errors import EXIT_INTERRUPTED, EXIT_SCENARIO, LoomnetError, UsageError
from loomnet.labs.typed_function import own_traceback
from loomnet.learning.course import Course
from loomnet.learning.seed_training import Stopped
from loomnet.processes.folder import Folder
from loomnet.processes.interrupts import Interrupts
from loomnet.processes.rank_isolation import die_with_parent

LOOK_S = 0.5


class SeedFailed(LoomnetError):
    """A seed's process ended otherwise than by a policy; the message says how."""

    exit_code = EXIT_SCENARIO


def train_all(
    course: Course,
    folder: Folder,
    jobs: int,
    say: Callable[[int, str], None],
    interrupts: Interrupts,
) -> list[dict[str, Any]]:
    """The side-cars of all seeds, in their order, so many at once. Raises Stopped once all that
    were under way have written checkpoints, where a signal came; what a seed raised, once the
    others have stopped."""
    if jobs == 1 or len(course.seeds) == 1:
        return [
            course.train(
                seed,
                folder,
                lambda line, seed=seed: say(seed, line),
                lambda: interrupts.pending is not None,
            )
            for seed in course.seeds
        ]
    return _Children(course, folder, jobs, say, interrupts).run()


class _Children:
    def __init__(
        self,
        course: Course,
        folder: Folder,
        jobs: int,
        say: Callable[[int, str], None],
        interrupts: Interrupts,
    ) -> None:
        self._course, self._folder, self._jobs = course, folder, jobs
        self._say, self._interrupts = say, interrupts
        self._waiting = list(course.seeds)
        self._under_way: dict[Any, tuple[int, Any]] = {}
        self._found: dict[int, dict[str, Any]] = {}
        self._told = set[int]()  # to end
        self._failed: tuple[str, int] | None = None

    def run(self) -> list[dict[str, Any]]:
        try:
            while self._waiting or self._under_way:
                stop = self._interrupts.pending is not None or self._failed is not None
                while self._waiting and not stop and len(self._under_way) < self._jobs:
                    self._begin(self._waiting.pop(0))
                if stop:
                    self._waiting.clear()
                    self._end()
                for end in wait(list(self._under_way), LOOK_S):
                    self._hear(end)
        finally:
            self._end()
            for _, process in self._under_way.values():
                process.join()
        if self._interrupts.pending is not None:
            raise Stopped
        if self._failed is not None:
            failed = SeedFailed(self._failed[0])
            failed.exit_code = self._failed[1]
            raise failed
        return [self._found[seed] for seed in self._course.seeds]

    def _begin(self, seed: int) -> None:
        # Forked, a child has what is imported here, and handlers of signals from its begin on.
        context = get_context("fork")
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(
            target=_child,
            args=(self._course, self._folder, seed, self._interrupts, os.getpid(), theirs),
        )
        process.start()
        theirs.close()
        self._under_way[ours] = (seed, process)

    def _hear(self, end: Any) -> None:
        seed, process = self._under_way[end]
        try:
            kind, what = end.recv()
        except (EOFError, OSError):
            process.join()
            del self._under_way[end]
            stopped = process.exitcode == EXIT_INTERRUPTED or self._interrupts.pending is not None
            if seed not in self._found and self._failed is None and not stopped:
                self._failed = (f"the process of seed {seed} ended by {process.exitcode}", 1)
            return
        if kind == "said":
            self._say(seed, what)
        elif kind == "found":
            self._found[seed] = what
        elif self._failed is None:
            self._failed = what

    def _end(self) -> None:
        """Those under way write checkpoints and end. Each is told once: a second signal would
        break it off before it stands where it can go on."""
        for seed, process in self._under_way.values():
            if seed not in self._told and process.is_alive():
                process.terminate()
            self._told.add(seed)


def _child(
    course: Course,
    folder: Folder,
    seed: int,
    interrupts: Interrupts,
    parent: int,
    end: Connection,
) -> None:
    if not die_with_parent(signal.SIGTERM, parent):
        return
    try:
        found = course.train(
            seed,
            folder,
            lambda line: end.send(("said", line)),
            lambda: interrupts.pending is not None,
        )
        end.send(("found", found))
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:  # the parent is gone, and the signal for that is on its way
        sys.exit(EXIT_INTERRUPTED)
    except LoomnetError as error:
        end.send(("failed", (str(error), error.exit_code)))
    except Exception as error:
        lines = own_traceback(error)
        if lines is None:
            raise
        print("".join(lines), end="", file=sys.stderr)
        said = f"seed {seed}: the training's own code raised the exception above"
        end.send(("failed", (said, EXIT_SCENARIO)))


def seeds_of(text: str) -> Sequence[int]:
    """Seeds 0 … n-1 of a number, or those of a list "3,5,8". Raises UsageError."""
    words = [each.strip() for each in text.split(",")]
    if not all(each.isascii() and each.isdigit() and len(each) < 10 for each in words):
        raise UsageError(f"--seeds {text}: write a number of seeds, or seeds: 3,5,8")
    # A range takes no memory, whatever number is its end.
    found = [int(each) for each in words] if "," in text else range(int(text))
    if not 1 <= len(found) <= 1000 or len(set(found)) < len(found):
        raise UsageError(f"--seeds {text}: give 1 to 1000 seeds, each once")
    return found
