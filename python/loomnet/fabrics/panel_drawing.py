"""Draws a panel: its hosts in a circle, and a line for the circuits between two hosts."""

from __future__ import annotations

import html
import math
from collections import Counter
from collections.abc import Sequence

_SIZE, _RADIUS = 320, 120


def panel_svg(name: str, hosts: Sequence[str], table: Sequence[int], about: str) -> str:
    """The picture as SVG. `hosts`: the host at each port. `table`: for each port the port that it
    is joined to; below 0 for none."""
    places = list(dict.fromkeys(hosts))
    middle = _SIZE / 2
    at = {}
    for number, host in enumerate(places):
        angle = 2 * math.pi * number / max(len(places), 1) - math.pi / 2
        at[host] = (middle + _RADIUS * math.cos(angle), middle + _RADIUS * math.sin(angle))
    together: Counter[tuple[str, str]] = Counter()
    for port, far in enumerate(table[: len(hosts)]):
        if 0 <= far < len(hosts) and port < far:
            together[hosts[port], hosts[far]] += 1
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_SIZE}" height="{_SIZE + 24}" '
        'font-family="sans-serif" font-size="11" text-anchor="middle">',
        '<rect width="100%" height="100%" rx="4" fill="white"/>'  # the page may be dark
        f'<text x="{middle}" y="16">{html.escape(name)}: {html.escape(about)}</text>',
        '<g transform="translate(0 20)">',
    ]
    for (a, b), count in sorted(together.items()):
        (x, y), (u, v) = at[a], at[b]
        parts.append(
            f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{u:.1f}" y2="{v:.1f}" stroke="#2b6cb0" '
            f'stroke-opacity="0.7" stroke-width="{1 + count}">'
            f"<title>{html.escape(a)} - {html.escape(b)}: {count}</title></line>"
        )
    for host, (x, y) in at.items():
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="13" fill="white" stroke="#444"/>'
            f'<text x="{x:.1f}" y="{y + 4:.1f}">{html.escape(host)}</text>'
        )
    return "".join([*parts, "</g></svg>"])
