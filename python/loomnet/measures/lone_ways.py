"""The ways of a flow that is alone in a fabric: how long a frame takes to cross, and how much they
carry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from loomnet.fabrics.link_settings import FRAMING_BYTES
from loomnet.plans.model import Plan


def clocking_ps(frame: int, rate_bps: int) -> int:
    """Time in which a link clocks out one frame of so many bytes: to the nearest picosecond, as the
    engine counts it."""
    return ((frame + FRAMING_BYTES) * 8 * 10**12 + rate_bps // 2) // rate_bps


@dataclass
class LoneWay:
    """All shortest ways between two hosts in one plane. `rate_bps`: what they carry together, at
    most; `abreast`, `fastest_bps`: how many links the narrowest place has, and the rate of its
    fastest; `widest_bps`: what one of the ways carries, at most; `forks`: there are several."""

    rate_bps: int
    abreast: int
    fastest_bps: int
    widest_bps: int
    forks: bool
    # Of links one behind another: (delay, rate) of each that a frame may take, there and back.
    _there: list[set[tuple[int, int]]]
    _back: list[set[tuple[int, int]]]
    _known: dict[tuple[int, bool], int] = field(default_factory=dict)

    def crossing_ps(self, frame: int, *, back: bool = False) -> int:
        """Least time of a frame of so many bytes on the empty fabric."""
        if (frame, back) not in self._known:
            self._known[frame, back] = sum(
                min(delay + clocking_ps(frame, rate) for delay, rate in links)
                for links in (self._back if back else self._there)
            )
        return self._known[frame, back]

    def passing_ps(self, frames: Sequence[tuple[int, int]], *, fluid: bool) -> int:
        """Least time in which frames, bytes and how many in a row, cross one after another.

        Of one way alone it is exact: on each link a frame waits until the one ahead has left. So
        the first crosses to some link, all leave that link one after another, the last but one goes
        on ahead of the last, and the link for which this takes longest decides. Where ways fork,
        frames may go by any of them: it is the time of all but the last on the widest link and of
        the last on its way or, if that is more, the same of the frames before the last. Without
        packets (`fluid`) it is the first of these two.
        """
        *before, (last, _) = [(frame, times) for frame, times in frames if times]
        if not before:
            return self.crossing_ps(last)
        ahead = before[-1][0]
        if self.forks or fluid:
            queued = sum(clocking_ps(frame, self.widest_bps) * times for frame, times in before)
            if fluid:
                return queued + self.crossing_ps(last)
            alone = queued - clocking_ps(ahead, self.widest_bps)
            return max(queued + self.crossing_ps(last), alone + self.crossing_ps(ahead))
        way = [link for links in self._there for link in links]
        rates = [rate for _, rate in way]
        of_first, of_ahead, of_last = (
            [clocking_ps(frame, rate) for rate in rates] for frame in (before[0][0], ahead, last)
        )
        longest = 0
        for link, rate in enumerate(rates):
            queued = sum(of_first[:link]) + sum(
                clocking_ps(frame, rate) * times for frame, times in before
            )
            longest = max(
                longest,
                queued + sum(of_last[link:]),
                queued + sum(of_ahead[link + 1 :]) + of_last[-1],
            )
        return sum(delay for delay, _ in way) + longest


class LoneWays:
    """Ways by pair of hosts and plane, each found once. In a fabric whose links are as they were
    built one way stands for all."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._found: dict[tuple[object, ...], LoneWay] = {}
        self._between: dict[tuple[int, int], list[list[tuple[int, int]]]] = {}
        self._ends: dict[tuple[int, int], tuple[int, int, tuple[object, ...]]] = {}

    def of(self, source: int, destination: int, plane: int) -> LoneWay:
        first, leaving, there = self._end(source, plane)
        last, arriving, back = self._end(destination, plane)
        alike = self._plan.topology.alike(first, last)
        key = ((first, last) if alike is None else alike, there, back)
        if key not in self._found:
            levels = [[(leaving, 1)], *self._levels(first, last), [(arriving ^ 1, 1)]]
            self._found[key] = self._way(levels)
        return self._found[key]

    def _end(self, host: int, plane: int) -> tuple[int, int, tuple[object, ...]]:
        """Of a host: its leaf, the direction of its link to it, and what the link is, both ways."""
        if (host, plane) not in self._ends:
            leaf = self._plan.topology.leaf_of(host, plane).node
            leaving = self._leaving(host, leaf)
            link = self._link(leaving), self._link(leaving ^ 1)
            self._ends[host, plane] = leaf, leaving, link
        return self._ends[host, plane]

    def _way(self, levels: Sequence[list[tuple[int, int]]]) -> LoneWay:
        """From levels of directions of links; each stands for so many like it."""
        rate = {number: self._link(number)[1] for level in levels for number, _ in level}
        places = [
            (
                sum(rate[number] * times for number, times in level),
                sum(times for _, times in level),
                max(rate[number] for number, _ in level),
            )
            for level in levels
        ]
        widest = min(fastest for _, _, fastest in places)
        there, back = (
            [{self._link(number ^ turned) for number, _ in level} for level in levels]
            for turned in (0, 1)
        )
        forks = any(links > 1 for _, links, _ in places)
        return LoneWay(*min(places), widest, forks, there, back)

    def _link(self, half: int) -> tuple[int, int]:
        setting = self._plan.links.setting
        return setting(half, "delay_ps"), setting(half, "rate_bps")

    def _leaving(self, node: int, far: int) -> int:
        link = self._plan.topology.link_between(node, far)
        return 2 * link + (self._plan.topology.ends[link][0].node != node)

    def _levels(self, first: int, last: int) -> list[list[tuple[int, int]]]:
        """The directions of links that shortest ways take, by hops from the first leaf."""
        if (first, last) not in self._between:
            topology, routes = self._plan.topology, self._plan.routes
            levels: list[list[tuple[int, int]]] = []
            nodes = [first] if first != last else []
            alike = topology.alike(first, last) is not None
            times = 1
            while nodes:
                level: list[tuple[int, int]] = []
                after: dict[int, None] = {}
                for node in nodes:
                    ports = routes.ports_towards(node, last)
                    times *= len(ports) if alike else 1
                    for port in ports[:1] if alike else ports:
                        far = topology.far(node, port).node
                        level.append((self._leaving(node, far), times))
                        after[far] = None
                levels.append(level)
                nodes = [node for node in after if node != last]
            self._between[first, last] = levels
        return self._between[first, last]
