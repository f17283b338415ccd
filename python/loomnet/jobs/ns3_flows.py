"""Flow lists of HPCC's simulator for ns-3, as it and its descendants read them
(github.com/alibaba-edu/High-Precision-Congestion-Control, simulation/scratch/third.cc): a first
line with the number of flows, then a line per flow, `source destination priority-group port size
start`: nodes by number, bytes, seconds. ConWeave's has no port. What comes after so many flows is
not read."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from loomnet.base.errors import UsageError
from loomnet.base.names import how_many
from loomnet.base.reading import exact_number, read_text
from loomnet.jobs.htsim_matrix import Connection, Matrix
from loomnet.jobs.task_graph import MOST_TASKS, TaskGraph

_ROW = "a flow is source, destination, priority group, port, bytes, seconds: 0 1 3 100 1000 2.0"
_MOST_NODE = (1 << 24) - 1
_MOST_BYTES = 10**15


def read_flows(path: Path) -> TaskGraph:
    """The flows as tasks; rank i is node i. Raises UsageError naming the line at fault."""
    text = read_text(path).removeprefix("\ufeff")
    lines = [
        (number, line.split()) for number, line in enumerate(text.split("\n"), 1) if line.strip()
    ]
    if not lines:
        raise UsageError(f"{path}: empty; the first line is the number of flows")
    first, words = lines.pop(0)
    if len(words) != 1:
        raise UsageError(
            f"{path}:{first}: the first line is the number of flows alone, not "
            f"{how_many(len(words), 'word')}"
        )
    count = exact_number(f"{path}:{first}", words[0], "number of flows")
    if not 1 <= count <= MOST_TASKS // 2:
        raise UsageError(f"{path}:{first}: {count} flows; there must be 1 to {MOST_TASKS // 2:,}")
    if len(lines) < count:
        raise UsageError(f"{path}:{first}: says {count} flows, the file holds {len(lines)}")
    matrix, groups = Matrix(str(path)), Counter[int]()
    for number, words in lines[:count]:
        connection, group = _flow(f"{path}:{number}", number, words)
        matrix.connections.append(connection)
        groups[group] += 1
    matrix.nodes = 1 + max(max(c.source, c.destination) for c in matrix.connections)
    graph = matrix.graph()
    if len(groups) > 1:
        graph.passed.append(f"priority groups ({how_many(count, 'flow')} of {len(groups)})")
    if (left := len(lines) - count) > 0:
        graph.passed.append(f"{how_many(left, 'line')} after the number of flows that it says")
    return graph


def _flow(where: str, line: int, words: list[str]) -> tuple[Connection, int]:
    if len(words) not in (5, 6):
        raise UsageError(f"{where}: {how_many(len(words), 'word')}; {_ROW}")
    source, destination = (exact_number(where, word, "node") for word in words[:2])
    for node in (source, destination):
        if node > _MOST_NODE:
            raise UsageError(f"{where}: node {node} is above {_MOST_NODE:,}")
    if source == destination:
        raise UsageError(f"{where}: node {source} sends to itself")
    group = exact_number(where, words[2], "priority group")
    if len(words) == 6:
        exact_number(where, words[3], "port")
    size = exact_number(where, words[-2], "bytes")
    if not 1 <= size <= _MOST_BYTES:
        raise UsageError(f"{where}: a flow has 1 B to 10^15 B, not {size}")
    start = exact_number(where, words[-1], "start", 10**12)
    return Connection(source, destination, size, start, line=line), group
