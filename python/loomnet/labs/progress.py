"""How far a run is, as a line or a bar: emulated time, share and time left where the end is known,
and what is waited for when nothing moves."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from loomnet.base.number_text import number_text
from loomnet.base.printing import print_line
from loomnet.base.units import Time
from loomnet.running.request import Progress

SPINNER = 2  # characters before the line on a terminal
SILENT_S = 5.0  # wall time without any movement after which the line says what is waited for
LEAST_SHARE, LEAST_S = 0.02, 1.0  # of a run that must have passed before its end is foretold


def progress_text(
    label: str,
    progress: Progress,
    *,
    left_s: float | None = None,
    silent_s: float | None = None,
    width: int | None = None,
) -> str:
    """`mrc  12.3 s  step 41 of 60 (68 %)  loss 0.81  iteration 420 ms  paths 31/32  [nic_link_down]
    about 6 s left`. `silent_s`: wall seconds in which nothing has moved. `width`: characters there
    are; where all does not fit, what matters least is left out."""
    share = share_done(progress)
    percent = "" if share is None else f" ({100 * share:.0f} %)"
    by_step = progress.until is None and progress.total is not None and progress.total > 1
    now = _short(progress.now)
    if progress.until is not None:
        now = f"{now} of {_short(progress.until)}"
    parts = {"label": label, "now": now if by_step else now + percent}
    if progress.step is not None or by_step:
        of = f" of {progress.total}" if progress.total else ""
        parts["step"] = f"step {progress.step or 0}{of}{percent if by_step else ''}"
    if progress.loss is not None:
        parts["loss"] = f"loss {progress.loss:.4g}"
    if progress.iteration is not None:
        parts["iteration"] = f"iteration {_short(progress.iteration)}"
    if progress.paths_good is not None and progress.paths_good != progress.paths_total:
        parts["paths"] = f"paths {progress.paths_good}/{progress.paths_total}"
    if progress.phase:
        parts["phase"] = f"[{progress.phase}]"
    if progress.remark:
        parts["remark"] = progress.remark
    if silent_s is not None and progress.waits:
        parts["end"] = f"nothing has moved for {silent_s:.0f} s: waiting for {progress.waits}"
    elif left_s is not None:
        parts["end"] = f"about {_wall(left_s)} left"
    for least in ("iteration", "paths", "loss", "phase"):
        if width is not None and len("  ".join(parts.values())) > width:
            parts.pop(least, None)
    return "  ".join(parts.values())


def share_done(progress: Progress) -> float | None:
    """From 0 to 1; None where the job's end is not known."""
    if progress.until:
        return min(progress.now.count / progress.until.count, 1.0)
    if progress.total and progress.total > 1:
        return min((progress.step or 0) / progress.total, 1.0)
    return progress.share


def _short(span: Time) -> str:
    """Three digits are enough of what changes four times a second."""
    return number_text(float(f"{span.seconds:.3g}"), "s")


def time_left(passed_s: float, share: float) -> str:
    """`, about 6 s left`, at the pace so far; nothing while that says nothing."""
    if share < LEAST_SHARE or passed_s < LEAST_S or share >= 1:
        return ""
    return f", about {_wall(passed_s * (1 - share) / share)} left"


def _wall(seconds: float) -> str:
    if seconds < 90:
        return f"{max(round(seconds), 1)} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


@dataclass
class _Pace:
    """How fast one run goes, by the wall clock, and since when it has stood still."""

    moved_at: float
    moved: tuple[int, int | None]
    first: tuple[float, float] | None = None  # (wall, share) of the first share above 0

    def left_s(self, wall: float, share: float | None) -> float | None:
        """Wall seconds to the end at the pace so far; None while that says nothing."""
        if not share:
            return None
        if self.first is None:
            self.first = (wall, share)
        began, at = self.first
        if wall - began < LEAST_S or share - at < LEAST_SHARE:
            return None
        return (wall - began) * (1 - share) / (share - at)


class Watch:
    """Turns what an engine reports into the line's text: one per progress line. `clock` gives wall
    seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._paces: dict[str, _Pace] = {}

    def text(self, label: str, progress: Progress, width: int | None = None) -> tuple[str, bool]:
        """The line, of `width` characters if that can be, and whether it says what is waited
        for."""
        wall, moved = self._clock(), (progress.now.count, progress.step)
        pace = self._paces.setdefault(label, _Pace(wall, moved))
        if moved != pace.moved:
            pace.moved, pace.moved_at = moved, wall
        silent = wall - pace.moved_at
        stands = silent >= SILENT_S
        text = progress_text(
            label,
            progress,
            left_s=pace.left_s(wall, share_done(progress)),
            silent_s=silent if stands else None,
            width=width,
        )
        return text, stands and bool(progress.waits)


@contextmanager
def progress_line(console: Console) -> Iterator[Any]:
    """A callback for Lab.on_progress that keeps one line up to date on a terminal. Elsewhere it
    prints a line per change of phase and per thing that is waited for."""
    watch = Watch()
    if not console.is_terminal:
        phases: dict[str, str | None] = {}
        waits: dict[str, str | None] = {}

        def each(label: str, progress: Progress) -> None:
            text, waiting = watch.text(label, progress)
            news = phases.get(label, "") != progress.phase
            if waiting and waits.get(label) != progress.waits:
                waits[label], news = progress.waits, True
            if news:
                phases[label] = progress.phase
                console.print(text, markup=False, highlight=False, soft_wrap=True)

        yield each
        return
    with console.status("") as status:

        def update(label: str, progress: Progress) -> None:
            text, _ = watch.text(label, progress, console.width - SPINNER)
            status.update(text.replace("[", r"\["))

        yield update


@contextmanager
def progress_bar(title: str, console: Console | None = None) -> Iterator[Callable[..., None]]:
    """A callback (ended, all, failed) that keeps a bar with the time left up to date on a terminal;
    elsewhere it prints a line per tenth. In a notebook there is notebook_count()."""
    console = console or Console()
    if not console.is_terminal:
        tenths = -1

        def each(ended: int, total: int, failed: int = 0) -> None:
            nonlocal tenths
            if (now := 10 * ended // max(total, 1)) > tenths:
                tenths = now
                print_line(console, f"{title}: {ended} of {total}, {failed} failed")

        yield each
        return
    from rich import progress

    columns = (
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TextColumn("{task.fields[failed]} failed"),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
    )
    # The pace is taken over the whole sweep: one point may take longer than rich's own 30 s.
    with progress.Progress(*columns, console=console, speed_estimate_period=10**9) as bar:
        task = bar.add_task(title, failed=0)

        def update(ended: int, total: int, failed: int = 0) -> None:
            bar.update(task, completed=ended, total=total, failed=failed)

        yield update
