"""Synthetic runs whose figures are known by construction. Tests only."""

from loomnet.faults.timetable import Window
from loomnet.measures.run_data import Fidelity, HostSeries, Iteration, RunData

S = 10**12
PHASES = (("nic_link_down", 8, 16), ("leaf_spine_down", 20, 28))


def steady_run(hosts=2, end=40, windows=PHASES, slow=4 / 3, bytes_each=1_000_000, **changes):
    """Iterations of 0.5 s, 0.3 of them communication, which takes `slow` times as long in the
    first window. Every host moves `bytes_each` per iteration."""
    data = RunData("finished", end * S, {h: HostSeries() for h in range(hosts)})
    data.windows = [Window(name, a * S, b * S) for name, a, b in windows]
    now, number = 0, 0
    while now < end * S:
        disturbed = bool(windows) and windows[0][1] * S <= now < windows[0][2] * S
        talk = int(3 * S // 10 * (slow if disturbed else 1))
        begin, finish = now + S // 5, now + S // 5 + talk
        if finish > end * S:
            break
        number += 1
        data.iterations.append(Iteration(number, now, finish))
        data.log.append((finish, {"step": str(number), "loss": f"{2 / number:.6f}"}))
        for series in data.hosts.values():
            series.work.append((begin, finish, bytes_each))
            series.busy.append((begin, finish))
        now = finish
    data.counters = {"lost": [(0, 0), (9 * S, 7), (21 * S, 9)], "retransmitted": [(9 * S, 7)]}
    data.fidelity = Fidelity(packets=1000, emulated_ps=end * S)
    for name, value in changes.items():
        setattr(data, name, value)
    return data
