"""Everything that a run says of itself, by name, and where two runs differ."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from loomnet.results.result import Result

from .worlds import Outcome

Path = tuple[str, ...]
MOST_SHOWN = 6


def facts(outcome: Outcome, job_names: dict[str, str] | None = None) -> dict[Path, Any]:
    """`job_names`: other names to give the jobs."""
    found: dict[Path, Any] = {}
    for part in outcome.parts:
        name = part.job_name or "job"
        found |= {
            ((job_names or {}).get(name, name), *path): value for path, value in _of_job(part)
        }
    for thing, counters in outcome.result.data.totals.items():
        found |= {("total", thing, counter): value for counter, value in counters.items()}
    return found


def _anywhere(text: str | None) -> str | None:
    """Without the name of the folder that a rank's script lies in, another one for each run."""
    return None if text is None else re.sub(r"(loomnet-relation-)\w+", r"\1", text)


def _of_job(part: Result) -> Iterator[tuple[Path, Any]]:
    data, names = part.data, part.plan.topology.names
    yield ("ended",), (data.ended, _anywhere(data.reason))
    yield ("errors",), tuple((each.at_ps, _anywhere(each.message)) for each in data.errors)
    yield ("completion_ps",), data.completion_ps
    yield ("end_ps",), data.end_ps
    yield ("wrong",), data.wrong
    # Where other jobs go on, faults begin after this one's end.
    yield (
        ("windows",),
        tuple(
            sorted(
                (each.phase, each.start_ps, -1 if each.end_ps is None else each.end_ps)
                for each in data.windows
                if each.start_ps <= data.end_ps
            )
        ),
    )
    yield ("iterations",), tuple((each.start_ps, each.end_ps) for each in data.iterations)
    yield (
        ("flows",),
        tuple((names[flow.source], names[flow.destination], *flow[2:]) for flow in data.flows),
    )
    for row in part.rows:
        yield ("figure", row.within_job), row.value
    for host, series in data.hosts.items():
        yield ("host", names[host], "work"), tuple(sorted(map(tuple, series.work)))
        yield ("host", names[host], "busy"), tuple(map(tuple, series.busy))
        yield (
            ("host", names[host], "silences"),
            tuple(tuple(map(int, each)) for each in series.silences),
        )
        yield ("host", names[host], "payload"), tuple(map(int, series.payload))


def differences(
    one: dict[Path, Any], other: dict[Path, Any], but: Callable[[Path], bool] = lambda path: False
) -> list[str]:
    """A line for each fact that differs, except those of which `but` is true."""
    found = []
    for path in dict.fromkeys((*one, *other)):
        a, b = one.get(path), other.get(path)
        if a != b and not but(path) and not _as_good(path, a, b):
            found.append(f"{'.'.join(path)}: {_difference(a, b)}")
    return found


def _as_good(path: Path, a: Any, b: Any) -> bool:
    """Two numbers that mean the same: the sum of an expected capacity has the order of its
    links."""
    if not (isinstance(a, float) and isinstance(b, float)):
        return False
    return (math.isnan(a) and math.isnan(b)) or (
        path[-1].endswith("expected_capacity") and math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)
    )


def _difference(a: Any, b: Any) -> str:
    if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
        unlike = [i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y]
        i = unlike[0]
        return (
            f"{len(unlike)} of {len(a)} entries, the first: [{i}] {_short(a[i])} <> {_short(b[i])}"
        )
    return f"{_short(a)} <> {_short(b)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 160 else f"{text[:160]}…"


def within(what: str, value: float, other: float, rel: float) -> list[str]:
    """A line where the two differ by more than this share of the larger."""
    if abs(value - other) <= rel * max(abs(value), abs(other)):
        return []
    return [f"{what}: {value:,} <> {other:,}, {abs(value - other) / max(value, other):.1%} apart"]


def not_above(what: str, value: float, most: float, rel: float) -> list[str]:
    """A line where the value is above `most` by more than this share of it."""
    if value <= most * (1 + rel):
        return []
    return [f"{what}: {value:,} is {value / most - 1 if most else 1:.1%} above {most:,}"]


def shown(lines: Iterable[str]) -> str:
    listed = list(lines)
    more = len(listed) - MOST_SHOWN
    return "\n".join(
        [
            *(f"    {line}" for line in listed[:MOST_SHOWN]),
            *([f"    and {more} more"] if more > 0 else []),
        ]
    )
