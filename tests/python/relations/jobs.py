"""Jobs drawn at random: every kind that needs no PyTorch, over every transport."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import chakra_writer as chakra

import loomnet as ln

from .drafts import Draft, Draw, Written, a_size, a_time, draft, sometimes

COLLECTIVES = (
    "AllReduce",
    "AllToAll",
    "AllGather",
    "ReduceScatter",
    "Broadcast",
    "Reduce",
    "SendRecv",
)
RINGS = ("AllReduce", "AllGather", "ReduceScatter")
FLOWS = ("Permutation", "Incast", "Flows", "Trace", "Matrix")
ROUNDS = (*COLLECTIVES, "Permutation", "Incast")
KINDS = (*COLLECTIVES, *FLOWS, "Chakra", "ModelJob")
SUMS = ("AllReduce/ina", "ModelJob/ina")
EXPERTS = ("MoeJob",)
ALL = (*KINDS, *SUMS)
EVERY = (*ALL, *EXPERTS)
TORCH = ("TorchJob",)
TRANSPORTS = ("mrc", "roce", "tcp")
LARGEST = 200_000  # bytes of a job's size


def a_job(draw: Draw, kind: str, transport: str, ranks: int) -> Draft:
    """A job of that kind on so many ranks."""
    common: dict[str, Any] = {"transport": transport, "ranks": ranks}
    size = a_size(draw, 1, LARGEST)
    kind, _, sums = kind.partition("/")
    if sums:
        common["allreduce"] = "ina"
        size = max(size, ln.Size("4 B"))
    if kind == "TorchJob":
        return _torch(draw, common)
    if kind == "ModelJob":
        return _model(draw, common)
    if kind in _FILES:
        if kind != "Trace":  # which may have fewer ranks than it is given
            del common["ranks"]
        return draft(_MADE_BY.get(kind, kind), path=_FILES[kind](draw, ranks), **common)
    if kind == "Flows":
        return _flows(draw, common)
    if sometimes(draw, 0.4):
        common["compute"] = a_time(draw, 1e3, 1e9)
    if kind == "Permutation":
        common["shift"] = draw.choice(("random", draw.randint(1, ranks - 1)))
    if kind == "Incast":
        common["receiver"] = draw.randrange(ranks)
    if kind in RINGS and not sums and sometimes(draw, 0.4):
        common |= draw.choice(
            (
                {"channels": draw.choice((2, 4))},
                {"whole_steps": True},
                {"step_jitter": 0.3},
                {"queue_pair": "per-step"},
            )
        )
        if common.get("queue_pair") and transport != "roce":
            del common["queue_pair"]
    return draft(kind, size, draw.randint(1, 5), **common)


def rounds_of(job: Draft) -> int:
    """Iterations that a job is to have."""
    if job.name in ROUNDS:
        return job.given[1]
    if job.name == "TorchJob":
        return int(job.values["args"][1])
    return job.get("iterations", 1)


def _model(draw: Draw, common: dict[str, Any]) -> Draft:
    buckets = draw.choice((1, 3, tuple(ln.Size.of(4 * draw.randint(1, 9000)) for _ in range(2))))
    size = None if isinstance(buckets, tuple) else ln.Size.of(4 * draw.randint(6, LARGEST // 8))
    return draft(
        "ModelJob",
        size=size,
        compute=a_time(draw, 1e5, 1e9),
        buckets=buckets,
        iterations=draw.randint(1, 4),
        jitter=draw.choice((0.0, 0.0, 0.2)),
        **common,
    )


def _flows(draw: Draw, common: dict[str, Any]) -> Draft:
    ranks, count = common["ranks"], draw.randint(1, 12)
    sizes = tuple(a_size(draw, 1, LARGEST // 4) for _ in range(draw.randint(1, 3)))
    arrivals = draw.choice(
        (
            {},
            {"gap": a_time(draw, 1e5, 1e8)},
            {"load": round(draw.uniform(0.05, 1.5), 3)},
            {"starts": tuple(a_time(draw, 1, 1e8) for _ in range(count))},
        )
    )
    pairs = {}
    if sometimes(draw, 0.5):
        pairs["pairs"] = tuple(
            tuple(draw.sample(range(ranks), 2)) for _ in range(draw.randint(1, 4))
        )
    lasts = {}
    if sometimes(draw, 0.25):
        lasts["lifetimes"] = tuple(a_time(draw, 1e6, 1e9) for _ in range(count))
    return draft("Flows", sizes, count=count, **arrivals, **pairs, **lasts, **common)


def experts(draw: Draw, transport: str, servers: int) -> Draft:
    """A mixture of experts that fills so many servers of eight GPUs."""
    return draft(
        "MoeJob",
        "mixtral_8x7b",
        transport=transport,
        data=1,
        pipeline=1,
        expert=8,
        tensor=servers,
        layers=draw.randint(1, 2),
        micro_batches=draw.randint(1, 2),
        iterations=draw.randint(1, 3),
        exchange=a_size(draw, 1_000, 60_000),
        compute=a_time(draw, 1e6, 1e8),
        matrix=draw.choice(("drift", "fixed")),
    )


_SCRIPT = """
import sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
what, steps, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(size, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
if what == "ddp":
    model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(steps):
    model(torch.ones(4, size) * (dist.get_rank() + 1)).sum().backward()
    if what == "reduce":
        for each in model.parameters():
            dist.all_reduce(each.grad)
    elif what == "gather":
        one = torch.full((size,), float(step))
        dist.all_gather([torch.empty(size) for _ in range(dist.get_world_size())], one)
    optimizer.step()
    optimizer.zero_grad()
"""


def _torch(draw: Draw, common: dict[str, Any]) -> Draft:
    args = (
        draw.choice(("ddp", "reduce", "gather")),
        str(draw.randint(2, 5)),
        str(draw.randint(4, 3000)),
    )
    return draft(
        "TorchJob",
        args=args,
        compute=a_time(draw, 1e6, 1e9),
        script=Written({"train.py": _SCRIPT.encode()}, "train.py"),
        **{**common, "ranks": min(common["ranks"], 3)},
    )


# --- files ----------------------------------------------------------------------------------------
def _trace(draw: Draw, ranks: int) -> Written:
    rows = []
    for _ in range(draw.randint(1, 12)):
        source, destination = draw.sample(range(ranks), 2)
        rows.append(
            {
                "at": str(a_time(draw, 1, 1e8)),
                "source": source,
                "destination": destination,
                "size": str(a_size(draw, 1, LARGEST // 4)),
            }
        )
    text = "".join(f"{json.dumps(row)}\n" for row in rows)
    return Written({"flows.jsonl": text.encode()}, "flows.jsonl")


def _matrix(draw: Draw, ranks: int) -> Written:
    """Connections that start by themselves, and some that wait for another's end."""
    lines, triggers = [], 0
    for number in range(draw.randint(1, 10)):
        source, destination = draw.sample(range(ranks), 2)
        size = a_size(draw, 1, LARGEST // 4).count
        waits = triggers and sometimes(draw, 0.4)
        when = f"trigger {draw.randint(1, triggers)}" if waits else f"start {draw.randrange(10**8)}"
        line = f"{source}->{destination} id {number + 1} {when} size {size}"
        if not waits and sometimes(draw, 0.4):
            triggers += 1
            line += f" {draw.choice(('send', 'recv'))}_done_trigger {triggers}"
        lines.append(line)
    head = [f"Nodes {ranks}", f"Connections {len(lines)}"]
    tail = [f"trigger id {number + 1} oneshot" for number in range(triggers)]
    if triggers:
        head.append(f"Triggers {triggers}")
    return Written({"flows.cm": "\n".join([*head, *lines, *tail, ""]).encode()}, "flows.cm")


def _chakra(draw: Draw, ranks: int) -> Written:
    """Each rank computes, then takes part in a collective, some times over."""
    plan = [
        (
            draw.randrange(0, 400),
            draw.choice((chakra.ALL_REDUCE, chakra.ALL_GATHER, chakra.ALL_TO_ALL, chakra.BARRIER)),
            draw.randint(1, LARGEST // 4),
        )
        for _ in range(draw.randint(1, 4))
    ]
    files = {}
    for rank in range(ranks):
        nodes: list[Any] = []
        for i, (us, kind, size) in enumerate(plan):
            before = [2 * i] if i else []
            nodes.append(chakra.node(2 * i + 1, chakra.COMPUTE, after=before, us=us + rank))
            nodes.append(
                chakra.node(
                    2 * i + 2, chakra.COLLECTIVE, after=[2 * i + 1], comm_type=kind, comm_size=size
                )
            )
        files[f"trace.{rank}.et"] = chakra.encode(nodes)
    return Written(files)


_FILES: dict[str, Callable[[Draw, int], Written]] = {
    "Trace": _trace,
    "Matrix": _matrix,
    "Chakra": _chakra,
}
_MADE_BY = {"Matrix": "Flows.from_htsim", "Chakra": "Trace"}
