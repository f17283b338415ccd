"""The circuits of panels over time: for each port a strip that says which port its light goes to,
and when it goes nowhere."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from loomnet.base.errors import UsageError
from loomnet.base.names import how_many
from loomnet.base.units import Time
from loomnet.measures.pools import COLOURS as OF_JOBS
from loomnet.plans.entries import PanelPlan
from loomnet.results.drawing import WIDTH, Size, inches, mark_phases, title
from loomnet.results.drawn import Drawn
from loomnet.results.time_span import EDGE, TimeSpan, clock_of, time_axis

MOST_PORTS, MOST_PANELS = 64, 2  # rows of a panel and panels of a picture: the first
ROW, LEAST_ROW, HEIGHT = 0.28, 0.2, 6.0  # inches of a strip, and of all where there are many
FONT = 9  # of names, which a projector must show: LEAST_ROW has room for it
NARROW = 0.055  # of the axis: a strip that is narrower has no name in it
LIGHT, DARK = "tuned", "tuning"
UNJOINED = "#f4f4f4"
BLACK = "#111111"  # of a dark time; the palette's grey would be taken for it
COLOURS = tuple(colour for colour in OF_JOBS if colour != "#525252")
PALE = ("#e69f00", "#56b4e9", "#f0e442", "#44aa99", "#999933")  # on which white is not read
ROUNDED_PS = 1000  # the panel rounds dark times up to nanoseconds; with none there is that much
LEGEND = 10  # far ends that a legend names
WHY = "circuits: the run has no panel whose circuits are known"


@dataclass(frozen=True)
class Strip:
    """A port's light goes to port `far` from `start_ps` to `end_ps`; `status`: as r.events says of
    the port then."""

    port: int
    far: int
    start_ps: int
    end_ps: int
    status: str


def strips_of(result: Drawn, panel: PanelPlan, until_ps: int) -> list[Strip]:
    """Of all ports, in order of ports and time; times without a circuit have none."""
    events = result.data.events
    assert events is not None
    joined: dict[int, list[tuple[int, int]]] = {}
    for at, port, far in events.patches.get(panel.name, ()):
        joined.setdefault(port, []).append((max(at, 0), far))
    statuses: dict[int, list[tuple[int, str]]] = {}
    for at, where, kind, value in events.rows:
        name, _, place = where.rpartition(" ")
        if kind == "status" and name == panel.name and place.endswith("A"):
            statuses.setdefault(int(place[:-1]) - 1, []).append((max(at, 0), value))
    found = []
    for port in sorted(joined):
        # Until its first event a port is as it was patched long before the run: there is light.
        told = [(0, LIGHT), *statuses.get(port, ())]
        moments = sorted({0, until_ps, *(at for at, _ in joined[port]), *(at for at, _ in told)})
        for start, end in itertools.pairwise(moments):
            far = _at(joined[port], start, -1)
            if far < 0 or start >= until_ps:
                continue
            status = _at(told, start, LIGHT)
            if status == DARK and end - start <= ROUNDED_PS:
                status = LIGHT
            last = found[-1] if found else None
            if last and (last.port, last.far, last.status, last.end_ps) == (
                port,
                far,
                status,
                start,
            ):
                found[-1] = Strip(port, far, last.start_ps, end, status)
            else:
                found.append(Strip(port, far, start, end, status))
    return found


def _at(rows: Sequence[tuple[int, Any]], time: int, none: Any) -> Any:
    """The value that holds at this time: the last that began by then."""
    number = bisect_right(rows, time, key=lambda row: row[0])
    return rows[number - 1][1] if number else none


def circuit_figure(
    result: Drawn, *, until: Time | str | None = None, size: Size | None = None
) -> Any:
    """A part of the picture for each panel of the fabric, of many the first two. `size`: width and
    height in inches. Raises UsageError for a run without."""
    from loomnet.results.picture import Picture

    part = result.parts[0].on_run_clock
    panels = [
        panel
        for panel in part.plan.panels
        if part.data.events is not None and part.data.events.patches.get(panel.name)
    ]
    if not panels:
        raise UsageError(f"plot: {WHY}; a fabric has panels by fabric.add_panel() or ln.mixnet()")
    # Ports keep their circuits through quiet stretches, so the axis is whole.
    end = max(part.data.end_ps, 1) / 1e12 * (1 + EDGE) if until is None else Time(until).seconds
    span = TimeSpan(end, since=clock_of({"": part}))
    left = len(panels) - MOST_PANELS
    panels = panels[:MOST_PANELS]
    rows = [min(len(panel.ports), MOST_PORTS) for panel in panels]
    row = min(max(HEIGHT / sum(rows), LEAST_ROW), ROW)
    usual = WIDTH, 0.5 + sum(0.75 + row * each for each in rows)
    figure = Picture(figsize=inches(size) or usual, layout="constrained")
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False, height_ratios=rows)
    for number, (panel, (each,)) in enumerate(zip(panels, axes, strict=True)):
        _draw(each, part, panel, end)
        mark_phases(each, part.phases, time_axis(each, span), named=number == 0, until=end)
        if number < len(panels) - 1:
            each.set_xlabel("")
    more = f"; {how_many(left, 'panel')} more" if left > 0 else ""
    title(axes[0][0], f"Circuits: where the light of each port goes{more}", part.phases)
    return figure


def _draw(axes: Any, result: Drawn, panel: PanelPlan, end: float) -> None:
    from matplotlib.patches import Patch

    names = port_names(result, panel)
    shown = min(len(panel.ports), MOST_PORTS)
    time = time_axis(axes, TimeSpan(end))
    hosts = list(dict.fromkeys(name.partition(":")[0] for name in names))
    colour = {host: COLOURS[number % len(COLOURS)] for number, host in enumerate(hosts)}
    seen: dict[str, None] = {}
    darkened = False
    joined = 0  # picoseconds in which the ports have a circuit, all together
    for strip in strips_of(result, panel, round(end * 1e12)):
        if strip.port >= shown:
            continue
        far = names[strip.far] if strip.far < len(names) else f"port {strip.far}"
        host = far.partition(":")[0]
        start, stop = time((strip.start_ps / 1e12, strip.end_ps / 1e12))
        lit = strip.status == LIGHT
        look = (
            {"color": colour.get(host, "#999999")}
            if lit
            else {
                "facecolor": BLACK if strip.status == DARK else "#ffffff",
                "edgecolor": BLACK,
                "hatch": "" if strip.status == DARK else "////",
            }
        )
        axes.barh(strip.port, stop - start, left=start, height=0.78, linewidth=0, **look)
        darkened |= not lit
        joined += strip.end_ps - strip.start_ps
        if lit:
            seen[host] = None
            if (stop - start) * time.factor > NARROW * end:
                axes.text(
                    (start + stop) / 2,
                    strip.port,
                    far,
                    ha="center",
                    va="center",
                    fontsize=FONT,
                    clip_on=True,
                    color="black" if colour.get(host) in PALE else "white",
                )
    axes.set_yticks(range(shown), names[:shown], fontsize=FONT)
    axes.set_ylim(shown - 0.4, -0.6)
    left = len(panel.ports) - shown
    axes.set_ylabel(f"{panel.name}" + (f"\n({how_many(left, 'port')} more)" if left else ""))
    axes.set_facecolor(UNJOINED)
    marks = [Patch(color=colour[host], label=f"to {host}") for host in hosts if host in seen]
    marks = marks[:LEGEND] if len(marks) <= LEGEND else []
    if darkened:
        marks.append(Patch(facecolor=BLACK, label="dark: the panel switches"))
    if joined < shown * end * 1e12 * (1 - 1e-6):
        marks.append(Patch(facecolor=UNJOINED, edgecolor="#999999", label="no circuit"))
    if marks:
        axes.legend(
            handles=marks,
            fontsize=FONT,
            loc="center left",
            bbox_to_anchor=(1.0, 0.5),
            framealpha=0.9,
        )


def port_names(result: Drawn, panel: PanelPlan) -> list[str]:
    """Of each port the host at it, as a circuit's end names it: "h0", or "h0:1" for the second of
    its links to the panel."""
    counts: dict[str, int] = {}
    names: list[str] = []
    host_of = {link: host.name for host in result.plan.hosts for link in host.ports}
    for link in panel.ports:
        host = host_of[link]
        nth = counts[host] = counts.get(host, -1) + 1
        names.append(f"{host}:{nth}")
    return [
        name.partition(":")[0] if counts[name.partition(":")[0]] == 0 else name for name in names
    ]
