"""Draws a job in a notebook: its ranks in a circle, an arrow for each two of which one sends to the
other, and what its user gave."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping
from typing import Any

from loomnet.base.errors import LoomnetError
from loomnet.base.table import Table
from loomnet.jobs.edges import Pair

SHOWN = 8  # ranks, at least, of a job that takes as many as the fabric has
MOST_RANKS, MOST_ARROWS = 64, 400  # beyond them there is no picture
_SIZE, _RADIUS, _NODE = 230, 88, 11
# Fields that a reader of a picture need not see: they are the same in nearly every run.
UNSAID = frozenset(("kind",))


def job_html(job: Any) -> str:
    """The sentence, the picture and a table of what was given, the fields that differ from their
    defaults among it."""
    fields = type(job).model_fields
    given = [
        {"setting": name, "value": _text(getattr(job, name))}
        for name in fields
        if name not in UNSAID
        and (
            name in job.model_fields_set
            or getattr(job, name) != fields[name].get_default(call_default_factory=True)
        )
    ]
    table = Table(("setting", "value"), given)._repr_html_() if given else ""
    return (
        f"<p>{html.escape(job.describe())}</p>"
        '<div style="display:flex;gap:2em;align-items:flex-start">'
        f"{_picture(job)}<div>{table}</div></div>"
    )


def _text(value: Any) -> str:
    if isinstance(value, (tuple, list)) and len(value) > SHOWN:
        return f"{', '.join(map(str, value[:SHOWN]))}, … ({len(value)})"
    if isinstance(value, (tuple, list)):
        return ", ".join(map(str, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={each}" for name, each in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)


def _picture(job: Any) -> str:
    """As SVG; empty where the job's ranks or their pairs are not known without a fabric."""
    known = job.ranks or getattr(job, "workers", None)
    wanted = known or _drawn(job)
    if not isinstance(wanted, int) or wanted > MOST_RANKS:
        return ""
    try:
        ranks = len(job.place(list(range(wanted))))
        pairs = list(dict.fromkeys(job.pairs_of(list(range(ranks)))))
    except (LoomnetError, OSError):  # more ranks than this, or a trace's own number
        return ""
    if len(pairs) > MOST_ARROWS:
        return ""
    switched = job.allreduce != "ring"
    said = f"{ranks} ranks" if known else f"as on {ranks} hosts; the job takes all there are"
    return ranks_svg(ranks, pairs, said, switched=switched)


def _drawn(job: Any) -> int:
    """How many ranks stand for those of a job that takes as many as the fabric has: those that its
    pairs name, and of a permutation enough that most arrows are as on any number of hosts."""
    if pairs := getattr(job, "pairs", ()):
        return 1 + max(max(pair) for pair in pairs)
    shift = getattr(job, "shift", 0)
    return max(SHOWN, 2 * abs(shift) + 2) if isinstance(shift, int) else SHOWN


def ranks_svg(ranks: int, pairs: Iterable[Pair], said: str, *, switched: bool = False) -> str:
    """`switched`: switches sum, so that all arrows go to the middle and back."""
    middle = _SIZE / 2
    place = [
        (middle + _RADIUS * math.cos(angle), middle + _RADIUS * math.sin(angle))
        for angle in (2 * math.pi * rank / ranks - math.pi / 2 for rank in range(ranks))
    ]
    node = _NODE if ranks <= 24 else 5
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_SIZE}" height="{_SIZE + 18}" '
        'font-family="sans-serif" font-size="11" text-anchor="middle">'
        '<defs><marker id="loomnet-arrow" viewBox="0 0 8 8" refX="7" refY="4" '
        'markerWidth="6" markerHeight="6" orient="auto-start-reverse">'
        '<path d="M0 0L8 4L0 8z" fill="#2b6cb0"/></marker></defs>'
        # Its text is black, on the dark page of a notebook too.
        '<rect width="100%" height="100%" rx="4" fill="white"/>'
    ]
    both = ' marker-start="url(#loomnet-arrow)"'
    if switched:
        lines = [(place[rank], (middle, middle), both) for rank in range(ranks)]
    else:
        known = set(pairs)
        lines = [
            (place[a], place[b], both if (b, a) in known else "")
            for a, b in known
            if (b, a) not in known or a < b
        ]
    for start, end, more in sorted(lines):
        (x, y), (u, v) = _cut(start, end, node), _cut(end, start, node)
        parts.append(
            f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{u:.1f}" y2="{v:.1f}" stroke="#2b6cb0" '
            f'marker-end="url(#loomnet-arrow)"{more}/>'
        )
    if switched:
        parts.append(
            f'<rect x="{middle - 26}" y="{middle - 11}" width="52" height="22" rx="4" '
            f'fill="white" stroke="#444"/><text x="{middle}" y="{middle + 4}">switch'
            "</text>"
        )
    for rank, (x, y) in enumerate(place):
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{node}" fill="white" stroke="#444"/>')
        if node == _NODE:
            parts.append(f'<text x="{x:.1f}" y="{y + 4:.1f}">{rank}</text>')
    parts.append(f'<text x="{middle}" y="{_SIZE + 12}">{html.escape(said)}</text></svg>')
    return "".join(parts)


def _cut(start: tuple[float, float], end: tuple[float, float], by: float) -> tuple[float, float]:
    """The point on the way from one to the other that lies `by` behind the first, so that an arrow
    ends at a circle's edge."""
    (x, y), (u, v) = start, end
    length = math.hypot(u - x, v - y) or 1.0
    return x + (u - x) * (by + 2) / length, y + (v - y) * (by + 2) / length
