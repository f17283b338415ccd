"""A run's Perfetto trace: the recorder's timeline, and beside it what only Python knows: phases,
iterations, events of the transports, and what torch.profiler saw inside the ranks."""

from __future__ import annotations

import bisect
import json
import re
import time
from collections.abc import Iterator, Sequence

import loomnet._core as _core
from loomnet.measures.run_data import RunData
from loomnet.plans.job_request import JobRequest
from loomnet.processes.folder import Folder
from loomnet.running.engine import Engine
from loomnet.running.engine_numbers import EngineNode

MOST_PROFILE_SLICES = 100_000  # of one rank
MOST_PROFILE_BYTES = 512 << 20  # of one file
MOST_THREADS = 10_000  # of one rank
MOST_EVENTS = 20_000  # transport events of one host
JOB_PID = 1_000_000  # the group of the run's own tracks
OBSERVED_PID = JOB_PID - 1  # and of its series
_LAST = 2**31 - 1  # a track's rank: below all others of its host


def write_trace(
    engine: Engine,
    data: RunData,
    origin_ps: int,
    *,
    recorder: _core.Recorder,
    profiles: Sequence[tuple[JobRequest, Folder]],
) -> Iterator[bytes]:
    """The trace file, piece by piece. It counts time from `origin_ps` in engine time, the first
    job's time 0. `recorder`: the engine's; `profiles`: where ranks of a job have written theirs."""
    writer = _core.PerfettoWriter(origin_ps)
    writer.attribute("loomnet.fabric", engine.plan.name)
    writer.attribute("loomnet.job_origin_ps", origin_ps)
    recorder.write(
        writer,
        host=lambda node: engine.names.get(node, f"host {node}"),
        half=lambda half: engine.planned(half).name,
    )
    yield writer.take()
    _job_tracks(writer, data, origin_ps)
    _transport_events(writer, engine)
    _observed_tracks(writer, data, origin_ps)
    yield writer.take()
    yield from _profiles(writer, recorder, profiles, engine, origin_ps)


def _job_tracks(writer: _core.PerfettoWriter, data: RunData, origin_ps: int) -> None:
    job = writer.process(JOB_PID, "job")
    if data.windows:
        for window in data.windows:
            track = writer.track(job, f"phase {window.phase}")
            writer.begin(track, origin_ps + window.start_ps, window.phase or "fault", "phase")
            end = data.end_ps if window.end_ps is None else window.end_ps
            writer.end(track, origin_ps + max(end, window.start_ps))
    track, last = writer.track(job, "iterations of rank 0"), 0
    for iteration in data.iterations:
        begin = max(iteration.start_ps, last)
        last = max(iteration.end_ps, begin)
        writer.begin(track, origin_ps + begin, f"iteration {iteration.number}", "iteration")
        writer.end(track, origin_ps + last)


def _observed_tracks(writer: _core.PerfettoWriter, data: RunData, origin_ps: int) -> None:
    """A counter for each series that the run was told to observe."""
    series = {} if data.observed is None else data.observed.series()
    if not series:
        return
    group = writer.process(OBSERVED_PID, "observed")
    for (where, name), (times, values) in series.items():
        track = writer.counter(group, f"{name} {where}")
        for at_ps, value in zip(times.tolist(), values.tolist(), strict=True):
            writer.measure(track, origin_ps + at_ps, value)


def _transport_events(writer: _core.PerfettoWriter, engine: Engine) -> None:
    left_out = 0
    for host in engine.plan.hosts:
        node = engine.node(host.number)
        events = engine.network.transport_events(node)
        if not events:
            continue
        track = writer.track(
            writer.process(node + 1, host.name), f"{host.name} transport events", _LAST
        )
        for at_ps, kind, qp, value in events[:MOST_EVENTS]:
            writer.instant(track, at_ps, kind, "transport", [("queue_pair", qp), ("value", value)])
        left_out += max(len(events) - MOST_EVENTS, 0)
    if left_out:
        writer.attribute("loomnet.transport_events_left_out", left_out)


# --- torch.profiler -------------------------------------------------------------------------------
class RankClock:
    """A rank's monotonic clock as emulated time: a line between every two moments whose emulated
    time is known. On the virtual clock the network stands while a rank computes, and its declared
    compute time passes in a pause at the end of its step. The pause is taken out of the rank's
    time, and what follows it up to the next operation is stretched over the declared time.

    `points`: (monotonic ns, emulated ps), at least one; `pauses`: (begin, end) in monotonic ns.
    """

    def __init__(
        self, points: Sequence[tuple[int, int]], pauses: Sequence[tuple[int, int]] = ()
    ) -> None:
        self._pause_begins: list[int] = []
        self._pause_ends: list[int] = []
        self._paused_before: list[int] = []  # ns of all earlier pauses
        total = 0
        for begin, end in sorted(pauses):
            if end <= begin or (self._pause_ends and begin < self._pause_ends[-1]):
                continue
            self._pause_begins.append(begin)
            self._pause_ends.append(end)
            self._paused_before.append(total)
            total += end - begin
        ordered = sorted(points)
        self.span = ordered[0][0], ordered[-1][0]  # between which times are known
        self._active = [self._unpaused(wall) for wall, _ in ordered]
        self._emulated: list[int] = []
        for _, at_ps in ordered:
            self._emulated.append(max(at_ps, self._emulated[-1] if self._emulated else at_ps))

    def _unpaused(self, wall_ns: int) -> int:
        """The same time on a clock that stands in pauses."""
        i = bisect.bisect_right(self._pause_begins, wall_ns) - 1
        if i < 0:
            return wall_ns
        inside = min(wall_ns, self._pause_ends[i]) - self._pause_begins[i]
        return wall_ns - self._paused_before[i] - inside

    def at(self, wall_ns: int) -> int:
        """Emulated picoseconds; the ends' outside the span."""
        active = self._unpaused(wall_ns)
        i = bisect.bisect_right(self._active, active)
        if i == 0:
            return self._emulated[0]
        if i == len(self._active):
            return self._emulated[-1]
        before, after = self._active[i - 1 : i + 1]
        low, high = self._emulated[i - 1 : i + 1]
        return low + (high - low) * (active - before) // (after - before)


def _profiles(
    writer: _core.PerfettoWriter,
    recorder: _core.Recorder,
    profiles: Sequence[tuple[JobRequest, Folder]],
    engine: Engine,
    origin_ps: int,
) -> Iterator[bytes]:
    found = [
        (asked, folder, name)
        for asked, folder in profiles
        for name in folder.names()
        if name.endswith(".json")
    ]
    unread: list[str] = []
    left_out = 0
    # Kineto's times are the system clock's, the ranks' marks the monotonic clock's.
    ahead = time.time_ns() - time.monotonic_ns()
    for asked, folder, name in found:
        rank = name.partition(".")[0]
        if not re.fullmatch("[0-9]{1,9}", rank) or int(rank) >= len(asked.placement):
            unread.append(name)
            continue
        host = engine.node(asked.placement[int(rank)])
        points = recorder.clock_points(host)
        slices = _read(folder, name)
        if slices is None or not points:
            unread.append(name)
            continue
        clock = RankClock(points, _read_pauses(folder, name.removesuffix(".json") + ".pauses"))
        left_out += _write_rank(writer, host, asked, int(rank), slices, clock, ahead, origin_ps)
        yield writer.take()
    writer.attribute("loomnet.profiles", len(found) - len(unread))
    if unread:
        writer.attribute("loomnet.profiles_unread", ", ".join(unread))
    if left_out:
        writer.attribute("loomnet.profile_slices_left_out", left_out)
    yield writer.take()


_Slice = tuple[str, int, int, str, str]  # thread, begin and end in system ns, name, category


def _read(folder: Folder, name: str) -> list[_Slice] | None:
    """Complete events ("ph": "X") of a chrome trace; None where it is none. A rank wrote it:
    nothing in it is believed."""
    try:
        content = json.loads(folder.read(name, MOST_PROFILE_BYTES))
        base = int(content.get("baseTimeNanoseconds", 0))
        found = []
        for event in content["traceEvents"]:
            if event.get("ph") != "X" or event.get("cat") == "Trace":
                continue
            begin = base + round(float(event["ts"]) * 1000)
            end = begin + max(round(float(event.get("dur", 0)) * 1000), 0)
            found.append(
                (
                    f"{event.get('tid')}",
                    begin,
                    end,
                    str(event["name"])[:200],
                    str(event.get("cat", ""))[:40],
                )
            )
        return found
    except (
        OSError,
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        OverflowError,
        RecursionError,
    ):
        return None


def _read_pauses(folder: Folder, name: str) -> list[tuple[int, int]]:
    try:
        return [(int(begin), int(end)) for begin, end in json.loads(folder.read(name))]
    except (OSError, ValueError, TypeError, OverflowError, RecursionError):
        return []


def _write_rank(
    writer: _core.PerfettoWriter,
    host: EngineNode,
    asked: JobRequest,
    rank: int,
    slices: list[_Slice],
    clock: RankClock,
    ahead: int,
    origin_ps: int,
) -> int:
    """Slices of one rank that end after `origin_ps`, thread by thread, properly nested. Returns how
    many were left out."""
    first_track = 1 + asked.number * MOST_THREADS
    whose = f"rank {rank}" if asked.name is None else f"{asked.name} rank {rank}"
    first, last = clock.span
    inside = [
        s
        for s in slices
        if s[2] - ahead > first and s[1] - ahead < last and clock.at(s[2] - ahead) >= origin_ps
    ]
    # Long ones tell more than short ones.
    kept = sorted(inside, key=lambda s: s[1] - s[2])[:MOST_PROFILE_SLICES]
    threads: dict[str, list[_Slice]] = {}
    for each in kept:
        threads.setdefault(each[0], []).append(each)
    for number, (tid, rows) in enumerate(sorted(threads.items())[:MOST_THREADS]):
        track = writer.thread(host + 1, first_track + number, f"{whose} torch thread {tid}")
        open_until: list[int] = []
        for _, begin, end, name, category in sorted(rows, key=lambda s: (s[1], -s[2])):
            while open_until and open_until[-1] <= begin:
                writer.end(track, clock.at(open_until.pop() - ahead))
            end = min(end, open_until[-1]) if open_until else end
            open_until.append(end)
            writer.begin(track, clock.at(begin - ahead), name, f"torch.{category or 'profiler'}")
        while open_until:
            writer.end(track, clock.at(open_until.pop() - ahead))
    return len(slices) - len(kept)
