"""Whole random worlds, each drawn from one number: a fabric, a job whose bytes are compared,
faults. A program of its own, so that its memory is bounded and counted:

    python worlds.py FIRST COUNT

runs each world twice under 2 GB of address space and prints a line of JSON for each, with `failed`
where a world broke a promise. It exits 1 if any did."""

from __future__ import annotations

import json
import random
import resource
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

ADDRESS_SPACE = 2 << 30
WALL_S = 120  # of one run: a world is small, and this machine may be busy
TRANSPORTS = ("mrc", "roce", "tcp")
COLLECTIVES = (
    "AllReduce",
    "AllToAll",
    "AllGather",
    "ReduceScatter",
    "Broadcast",
    "Reduce",
    "SendRecv",
)


def log_uniform(draw, least, most):
    return least * (most / least) ** draw.random()


def quantity(value, units):
    """In the largest unit of which there is one, with three digits."""
    for unit, scale in units:
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{max(round(value), 1)} {units[-1][0]}"


def a_rate(draw):
    return quantity(log_uniform(draw, 1e6, 8e11), (("Gb/s", 1e9), ("Mb/s", 1e6), ("b/s", 1)))


def a_time(draw, least, most):
    """Of picoseconds."""
    return quantity(
        log_uniform(draw, least, most),
        (("s", 1e12), ("ms", 1e9), ("us", 1e6), ("ns", 1e3), ("ps", 1)),
    )


def a_size(draw, least, most):
    return f"{round(log_uniform(draw, least, most))} B"


def a_fabric(ln, draw):
    links = {"rate": a_rate(draw), "delay": a_time(draw, 1e3, 2e11 if draw.random() < 0.2 else 2e9)}
    links["payload"] = draw.choice(("1024 B", "2048 B", "4096 B"))
    if draw.random() < 0.2:
        links["pfc"] = draw.choice((True, False))
    up = {}
    if draw.random() < 0.5:
        up = {"uplink_rate": a_rate(draw), "uplink_delay": a_time(draw, 1e3, 2e9)}
    planes = draw.choice((1, 1, 2, 4))
    kind = draw.choice(("two_tier", "two_tier", "three_tier", "fat_tree", "star", "dumbbell"))
    if kind == "two_tier":
        return ln.clos.two_tier(
            planes=planes,
            leaves=draw.randint(1, 4),
            spines=draw.randint(1, 4),
            hosts_per_leaf=draw.randint(2, 4),
            order=draw.choice(("spread", "block")),
            **links,
            **up,
        )
    if kind == "three_tier":
        return ln.clos.three_tier(
            planes=planes,
            pods=2,
            leaves_per_pod=draw.randint(1, 2),
            aggs_per_pod=draw.randint(1, 2),
            cores_per_agg=draw.randint(1, 2),
            hosts_per_leaf=draw.randint(1, 3),
            **links,
            **up,
        )
    if kind == "fat_tree":
        return ln.clos.fat_tree(4, planes=min(planes, 2), **links)
    if kind == "star":
        return ln.star(hosts=draw.randint(2, 10), planes=planes, **links)
    more = {"bottleneck": a_rate(draw)} if draw.random() < 0.5 else {}
    return ln.dumbbell(
        left=draw.randint(1, 4), right=draw.randint(1, 4), planes=planes, **links, **more
    )


def a_job(ln, draw, hosts):
    common = {"transport": draw.choice(TRANSPORTS), "ranks": draw.randint(2, min(hosts, 10))}
    if draw.random() < 0.3:
        common["stall_timeout"] = a_time(draw, 1e10, 1e13)
    size = a_size(draw, 1, 2e7 if draw.random() < 0.2 else 1e6)
    kind = draw.choice((*COLLECTIVES, "Permutation", "Incast", "Flows", "Flows"))
    if kind == "Flows":
        count = draw.randint(1, 20)
        arrivals = draw.choice(
            ({}, {"gap": a_time(draw, 1e5, 1e9)}, {"load": round(draw.uniform(0.05, 1.5), 3)})
        )
        sizes = [a_size(draw, 1, 1e6) for _ in range(draw.randint(1, 3))]
        return ln.Flows(sizes, count=count, **arrivals, **common)
    repeat = draw.randint(1, 4)
    if draw.random() < 0.4:
        common["compute"] = a_time(draw, 1e3, 1e10)
    return getattr(ln, kind)(size, repeat, **common)


def some_faults(ln, draw, fabric):
    links = [row["link"] for row in fabric.links.rows]
    switches = list(fabric.switches)
    faults = []
    for number in range(draw.choice((0, 0, 1, 1, 2, 3))):
        link = draw.choice(links)
        if draw.random() < 0.4:
            a, _, b = link.partition("--")
            link = draw.choice((f"{a}->{b}", f"{b}->{a}"))
        when = {"at": a_time(draw, 1e3, 1e11), "phase": f"fault{number}"}
        if draw.random() < 0.8:
            when["duration"] = a_time(draw, 1e6, 1e12)
        faults.append(
            draw.choice(
                (
                    lambda link=link, when=when: ln.down(link, **when),
                    lambda link=link, when=when: ln.loss(
                        link,
                        round(log_uniform(draw, 1e-4, 1), 6),
                        burst=draw.choice((1.0, 8.0)),
                        **when,
                    ),
                    lambda link=link, when=when: ln.delay(link, a_time(draw, 1e4, 1e10), **when),
                    lambda link=link, when=when: ln.degrade(
                        link, draw.randint(1, 99) / 100, **when
                    ),
                    lambda when=when: ln.kill(draw.choice(switches), **when),
                )
            )()
        )
    return faults


def run_world(ln, seed, folder):
    """What a world is and how it ended. Raises what the run raises."""
    draw = random.Random(f"world {seed}")
    fabric = a_fabric(ln, draw)
    job = a_job(ln, draw, len(fabric.hosts))
    faults = some_faults(ln, draw, fabric)
    options = {"reroute_delay": draw.choice(("off", "1 ms", "1 s"))}
    if job.transport == "tcp" and draw.random() < 0.5:
        options["tcp"] = {"cc": draw.choice(("reno", "cubic", "dctcp", "bbr"))}
    if job.transport == "roce" and draw.random() < 0.3:
        options["roce"] = {"dcqcn": True}
    lab = ln.Lab("world", seed=seed, directory=folder, max_wall_s=WALL_S)
    result = lab.run(fabric, job, faults, payload=True, **options)
    lab.write()
    data, about = result.data, f"{fabric.name}: {job.describe()}, {len(faults)} faults"
    return about, {
        "ended": data.ended,
        "reason": data.reason,
        "wrong": data.wrong,
        "unexplained": data.fidelity.unexplained,
        "packets": data.fidelity.packets,
    }


def judge(ln, seed):
    """One world twice: a row of what it was, and `failed` if it broke a promise."""
    from loomnet.base.errors import LoomnetError

    row, endings, files, began = {"seed": seed}, [], [], time.monotonic()
    for _ in range(2):
        folder = Path(tempfile.mkdtemp(prefix="loomnet-world-"))
        try:
            row["world"], ending = run_world(ln, seed, folder)
            files.append(
                [(folder / name).read_bytes() for name in ("report.json", "counters.json")]
            )
        except LoomnetError as error:
            # What is free of the machine's memory may be another amount a moment later.
            reason = "memory" if str(error).startswith("memory: ") else str(error)
            ending = {"ended": "refused", "reason": reason}
            files.append([])
            if "\n" in str(error):
                row["failed"] = "a refusal of more than one line"
        except BaseException:
            ending = {"ended": "traceback", "reason": traceback.format_exc()}
            row["failed"] = "traceback"
        finally:
            shutil.rmtree(folder, ignore_errors=True)  # a refused run leaves none
        endings.append(ending)
    row |= endings[0]
    row["seconds"] = round(time.monotonic() - began, 2)
    row["rss_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    if row.get("failed"):
        return row
    if endings[0] != endings[1] or files[0] != files[1]:
        row["failed"] = "two runs differ"
    elif row.get("unexplained") or row.get("wrong"):
        row["failed"] = "packets unexplained or elements altered"
    elif "--max-wall" in str(row["reason"]):
        row["failed"] = "does not end"
    return row


def main(first, count):
    import loomnet as ln

    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    failed = 0
    for seed in range(first, first + count):
        row = judge(ln, seed)
        failed += "failed" in row
        print(json.dumps(row), flush=True)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
