"""A job as a graph of transfers and delays between ranks, and collectives written as transfers."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from loomnet.base.errors import UsageError

MOST_TASKS = 4_000_000
PASSED_OVER = "passed over in "  # begins the note of what a file says without effect


@dataclass(slots=True)
class Task:
    """A transfer if `source` >= 0, else a delay. `lane`: delays of one lane run one after another;
    0 none. `channel`: transfers of one pair and channel share a queue pair. `what` names it in
    errors."""

    source: int = -1
    destination: int = -1
    bytes: int = 0
    duration_ps: int = 0
    lane: int = 0
    channel: int = 0
    what: str = ""
    flow: bool = False  # one of the flows that the user asked for
    any: bool = False  # begins when the first of what it waits for has ended, not the last
    rank: int = -1  # of a delay: whose it is, if anyone's


def acked(task: int) -> int:
    """In `TaskGraph.after`: the task's sender has the last acknowledgement, a way back after the
    last byte has arrived."""
    return ~task


def task_of(dependency: int) -> int:
    """The task that a number in `TaskGraph.after` is about."""
    return dependency if dependency >= 0 else ~dependency


@dataclass
class TaskGraph:
    """`after[i]`: tasks that must have ended before task i begins; a transfer has when its last
    byte has arrived, and for its sender when that is acknowledged: see :func:`acked`."""

    name: str
    ranks: int
    tasks: list[Task] = field(default_factory=list)
    after: list[list[int]] = field(default_factory=list)
    never: list[str] = field(default_factory=list)  # what waits for something that never comes
    passed: list[str] = field(default_factory=list)  # what of the file has no effect, and how often

    def add(self, task: Task, after: Iterable[int] = ()) -> int:
        if len(self.tasks) >= MOST_TASKS:
            raise UsageError(f"{self.name}: more than {MOST_TASKS:,} transfers and delays")
        self.tasks.append(task)
        self.after.append(list(after))
        return len(self.tasks) - 1

    def join(self, after: Iterable[int] = (), what: str = "", rank: int = -1) -> int:
        """A point in time: when all of these have ended, as `rank` sees it."""
        return self.add(Task(what=what, rank=rank), after)

    def send(
        self, source: int, destination: int, size: int, after: Iterable[int] = (), what: str = ""
    ) -> int:
        return self.add(Task(source, destination, size, what=what), after)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Pairs of ranks that exchange something, in order of first use."""
        return list(dict.fromkeys((t.source, t.destination) for t in self.tasks if t.source >= 0))

    def check(self) -> TaskGraph:
        """Raises UsageError if some tasks wait for each other. Returns itself."""
        waits = [
            min(len(on), 1) if task.any else len(on)
            for task, on in zip(self.tasks, self.after, strict=True)
        ]
        following: list[list[int]] = [[] for _ in self.tasks]
        for task, on in enumerate(self.after):
            for other in on:
                following[task_of(other)].append(task)
        todo = deque(task for task, count in enumerate(waits) if count == 0)
        met = 0
        while todo:
            met += 1
            for task in following[todo.popleft()]:
                waits[task] -= 1
                if waits[task] == 0:  # below: another firing of what has begun
                    todo.append(task)
        if met < len(self.tasks):
            raise UsageError(f"{self.name}: a cycle of dependencies: {self._cycle(waits)}")
        return self

    def _cycle(self, waits: list[int]) -> str:
        """Names along a cycle: walking back from a task that never began must close one."""
        at = next(task for task, count in enumerate(waits) if count > 0)
        seen: dict[int, int] = {}
        path: list[int] = []
        while at not in seen:
            seen[at] = len(path)
            path.append(at)
            at = next(found for other in self.after[at] if waits[found := task_of(other)] > 0)
        names = [self.tasks[task].what for task in path[seen[at] :][::-1]]
        shown = list(dict.fromkeys(name for name in names if name)) or ["unnamed tasks"]
        return " -> ".join([*shown[:6], *(["…"] if len(shown) > 6 else []), shown[0]])

    # --- collectives ------------------------------------------------------------------------------
    # `enter[i]`: the task after which the i-th member takes part; each returns, per member, the
    # task after which it is done. Rings and direct exchanges, as the engine's own schedules have
    # them.
    def _ring(
        self, members: Sequence[int], chunk: int, steps: int, enter: Sequence[int], what: str
    ) -> list[int]:
        n = len(members)
        # received[i]: what member i must have before it may send its next chunk.
        received, sent = list(enter), list(enter)
        for _ in range(steps):
            sent = [
                self.send(members[i], members[(i + 1) % n], chunk, {received[i], enter[i]}, what)
                for i in range(n)
            ]
            received = [sent[i - 1] for i in range(n)]
        return [self.join({received[i], acked(sent[i])}, what) for i in range(n)]

    def _direct(
        self, members: Sequence[int], size: int, enter: Sequence[int], what: str
    ) -> list[int]:
        n = len(members)
        chunk = -(-size // n)
        done: list[list[int]] = [[task] for task in enter]
        for shift in range(1, n):
            for i in range(n):
                j = (i + shift) % n
                task = self.send(members[i], members[j], chunk, [enter[i]], what)
                done[i].append(acked(task))
                done[j].append(task)
        return [self.join(tasks, what) for tasks in done]

    def _tree(
        self,
        members: Sequence[int],
        size: int,
        enter: Sequence[int],
        what: str,
        root: int,
        *,
        down: bool,
    ) -> list[int]:
        """A binomial tree from the root down, or up to it."""
        n = len(members)
        order = [(root + i) % n for i in range(n)]
        has = list(enter)
        done: list[set[int]] = [{task} for task in enter]
        rounds = [1 << bit for bit in range((n - 1).bit_length())]
        for stride in rounds if down else rounds[::-1]:
            for low in range(stride):
                high = low + stride
                if high >= n:
                    continue
                a, b = (order[low], order[high]) if down else (order[high], order[low])
                task = self.send(members[a], members[b], size, {has[a], enter[b]}, what)
                has[b] = self.join({has[b], task}, what)
                done[a].add(acked(task))
                done[b].add(task)
        return [self.join(tasks, what) for tasks in done]

    def collective(
        self,
        kind: str,
        members: Sequence[int],
        size: int,
        enter: Sequence[int],
        what: str,
        root: int = 0,
    ) -> list[int]:
        """`size` bytes are what a member puts in: the part that all-gather and gather hand round,
        the whole that the others reduce or divide, own part included; of a scatter, what its root
        puts in."""
        n = len(members)
        if n == 1:
            return list(enter)
        part = -(-size // n)
        if kind == "all_reduce":
            return self._ring(members, part, 2 * (n - 1), enter, what)
        if kind in ("all_gather", "reduce_scatter"):
            return self._ring(members, size if kind == "all_gather" else part, n - 1, enter, what)
        if kind == "all_to_all":
            return self._direct(members, size, enter, what)
        if kind == "barrier":
            up = self._tree(members, 0, enter, what, root, down=False)
            return self._tree(members, 0, up, what, root, down=True)
        if kind in ("broadcast", "reduce"):
            return self._tree(members, size, enter, what, root, down=kind == "broadcast")
        if kind in ("scatter", "gather"):
            done: list[list[int]] = [[task] for task in enter]
            for i in range(n):
                if i == root:
                    continue
                a, b = (root, i) if kind == "scatter" else (i, root)
                task = self.send(
                    members[a],
                    members[b],
                    part if kind == "scatter" else size,
                    {enter[a], enter[b]},
                    what,
                )
                done[a].append(acked(task))
                done[b].append(task)
            return [self.join(tasks, what) for tasks in done]
        raise UsageError(f"{what}: no schedule of collective {kind}")


COLLECTIVE_KINDS: Mapping[int, str] = {
    0: "all_reduce",
    1: "reduce",
    2: "all_gather",
    3: "gather",
    4: "scatter",
    5: "broadcast",
    6: "all_to_all",
    7: "reduce_scatter",
    8: "reduce_scatter",
    9: "barrier",
}
