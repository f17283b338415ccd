"""How far a run or a sweep is, in a Jupyter notebook: one output of the cell, which is written anew
while the run lasts and is empty when it ends.

There is no widget in it. A widget is two objects, one in the kernel and one in the page, that send
each other their state. A run's bar was closed while the page's half was still sending, and the
kernel answered "No such comm" into the cell; where nobody watched, the page's half was the program
that executes notebooks (nbclient), which did it at each change. An output that is written anew is
answered by nobody.
"""

from __future__ import annotations

import html
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from loomnet.base.notebook import is_watched, shell
from loomnet.labs.progress import Watch, share_done, time_left
from loomnet.running.request import Progress

EVERY_S = 0.25  # wall seconds between two changes of the bar
FIRST_S = 0.5  # a run that takes less has no bar
NOTHING = {"text/html": "", "text/plain": ""}

# The output that the bars of one cell share, and the cell's number: runs in a loop leave one place.
_place: tuple[int, Any] | None = None


class Bar:
    """`clock` gives wall seconds; `place` gives the output, which has `update(data, raw=True)`;
    `first_s`: wall seconds before which nothing is drawn."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        place: Callable[[], Any] | None = None,
        first_s: float | None = None,
    ) -> None:
        self._clock, self._place = clock, place or _place_of_cell
        self._next = clock() + (FIRST_S if first_s is None else first_s)
        self._shown: Any = None

    def show(self, share: float | None, text: Callable[[], str]) -> None:
        """Draws `share`, 0 to 1 or None where the end is not known, and the text beside it; does
        nothing where the last change was a moment ago."""
        if self._clock() < self._next:
            return
        if self._shown is None:
            self._shown = self._place()
        said, value = text(), "" if share is None else f' value="{share:.3f}"'
        self._shown.update(
            {
                "text/html": f'<progress max="1"{value}></progress> '
                f"<code>{html.escape(said)}</code>",
                "text/plain": said,
            },
            raw=True,
        )
        self._next = self._clock() + EVERY_S

    def end(self) -> None:
        """Leaves nothing to be seen."""
        if self._shown is not None:
            self._shown.update(NOTHING, raw=True)


def _place_of_cell() -> Any:
    global _place
    from IPython.display import display

    cell = shell().execution_count
    if _place is None or _place[0] != cell:
        _place = (cell, display(NOTHING, raw=True, display_id=True))
    return _place[1]


@contextmanager
def notebook_bar(title: str) -> Iterator[Callable[[str, Progress], None] | None]:
    """In a notebook that somebody watches, a callback for Lab's on_progress that keeps a bar up to
    date; else None."""
    if not is_watched():
        yield None
        return
    bar, watch = Bar(), Watch()

    def update(label: str, at: Progress) -> None:
        bar.show(share_done(at), lambda: f"{title}: {watch.text('', at)[0].strip()}")

    try:
        yield update
    finally:
        bar.end()


@contextmanager
def notebook_count(title: str) -> Iterator[Callable[..., None]]:
    """The same of points of a sweep, from the begin on, since its processes take seconds to start
    and a point may take minutes: a callback (ended, all, failed)."""
    if not is_watched():
        yield lambda *counts: None
        return
    bar, began = Bar(first_s=0.0), time.monotonic()

    def update(ended: int, total: int, failed: int = 0) -> None:
        if ended >= total:  # it ends empty, and one that was done already shows nothing
            return
        share = ended / max(total, 1)
        left = time_left(time.monotonic() - began, share)
        bar.show(share, lambda: f"{title}: {ended} of {total}, {failed} failed{left}")

    try:
        yield update
    finally:
        bar.end()
