"""What a run will need of the machine's memory at most, known before it starts: exact where it is
buffers of a known size, an estimate where it is objects of the engine or processes of PyTorch."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from pathlib import Path

from loomnet.base.errors import UsageError
from loomnet.jobs.collectives import COLLECTIVES
from loomnet.jobs.kinds import is_model_job
from loomnet.jobs.model import TorchJob
from loomnet.labs.run_lint import most_flows
from loomnet.plans.job_request import JobRequest
from loomnet.plans.model import MESSAGE_BYTES, writes_outstanding
from loomnet.running.engine_settings import staging_for
from loomnet.running.flow_rounds import LIVING_BYTES, told_writes
from loomnet.running.request import RunRequest
from loomnet.systems.registry import transport

GIB = 1 << 30
# Estimates, measured on fabrics of 128 and 1,024 hosts: a link with its share of switches and
# hosts; a queue pair with its paths; a PyTorch process, which shares its imports with the others
# on the virtual clock.
PER_LINK, PER_FLOW = 16 << 10, 2 << 10
PER_RANK = {"virtual": 100 << 20, "live": 300 << 20}


@dataclass(frozen=True)
class Need:
    """`resident`: bytes that are written at some time; `mapped`: of address space; `lower`: what
    the user lowers to lower it."""

    what: str
    resident: int
    lower: str
    mapped: int = 0


def needs(request: RunRequest, *, payload: bool, clock: str) -> list[Need]:
    """What a run needs, largest first. `payload`: its traffic models move bytes."""
    plan = request.plan
    found = [Need("the fabric", PER_LINK * len(plan.links), "hosts, planes or switches")]
    for asked in request.jobs:
        own = [
            Need(need.what, need.bytes, need.lower)
            for part in request.parts
            if part.carries(asked)
            for need in part.memory(asked, payload=payload)
        ]
        found += _needs_of_job(request, asked, payload=payload, clock=clock, summed=bool(own)) + own
    return sorted(found, key=lambda need: -need.resident)


def _needs_of_job(
    request: RunRequest, asked: JobRequest, *, payload: bool, clock: str, summed: bool
) -> list[Need]:
    plan, job, ranks = request.plan, asked.job, len(asked.placement)
    name = type(job).__name__ + (f' "{asked.name}"' if asked.name else "")
    found = []
    flows = most_flows(plan, asked)
    # The part that sums in the ranks' place counts its own needs.
    if is_model_job(job) and summed:
        return found
    if isinstance(job, (*COLLECTIVES, TorchJob)) or is_model_job(job):
        pairs = ranks * (ranks - 1)
        each = transport(job.transport).queue_pair_bytes
        found.append(Need(f"{pairs} queue pairs", pairs * each, f"{name}.ranks"))
        shape = staging_for(plan)
        slots = shape["slots"]
        if isinstance(job, TorchJob):
            # Of 16 channels between two ranks a communicator's collectives and messages use two.
            slot = shape["slot_payload"] + 64
            found.append(
                Need(
                    "staging",
                    2 * ranks * 2 * 2 * slots * slot,
                    "the links' rate or delay, or ranks",
                    2 * ranks * ranks * 16 * slots * slot,
                )
            )
            found.append(
                Need(f"{ranks} PyTorch processes", ranks * PER_RANK[clock], f"{name}.ranks")
            )
        elif payload and not is_model_job(job):  # over a ring it moves lengths only
            size = job.size.bytes
            slot = min(shape["slot_payload"], -(-size // 64) * 64) + 64
            # A ring, chain or tree has a peer before and a peer behind; an all-to-all has all.
            peers = ranks - 1 if job.kind == "all_to_all" else min(ranks - 1, 2)
            found.append(
                Need(
                    "staging",
                    2 * ranks * peers * slots * slot,
                    f"the links' rate or delay, or {name}.ranks",
                    2 * ranks * ranks * slots * slot,
                )
            )
            found.append(Need("tensors", 3 * ranks * size, f"{name}.size or {name}.ranks"))
    else:
        found.append(Need(f"{flows} flows", flows * PER_FLOW, f"{name}.count or repeat"))
        if payload:
            found.append(
                Need(
                    "bytes compared",
                    flows * 2 * _under_way(request, asked),
                    f"{name}.count or repeat, or payload",
                )
            )
    return found


def _under_way(request: RunRequest, asked: JobRequest) -> int:
    """Bytes that a flow of a job has room for, at each end."""
    plan, job = request.plan, asked.job
    model = transport(transport(job.transport).model)
    if getattr(job, "lifetimes", ()) and model.tells_when_to_post:
        options = request.options.get(model.name) or {}
        window = model.window(options, plan, plan.port_rates(plan.hosts[asked.placement[0]]))
        if window is not None:
            return told_writes(window.bytes) * LIVING_BYTES
    size = getattr(job, "size", None)
    message = min(size.bytes, MESSAGE_BYTES) if size is not None else MESSAGE_BYTES
    return writes_outstanding(plan) * message


def check_memory(request: RunRequest, clock: str) -> str:
    """What is to be said of the memory that a run needs: nothing where it is little. Raises
    UsageError where the machine has less."""
    payload = clock == "live" or bool(request.options.get("payload", False))
    rows = needs(request, payload=payload, clock=clock)
    total = sum(need.resident for need in rows)
    mapped = sum(max(need.mapped, need.resident) for need in rows)
    detail = ", ".join(f"{need.what} {_size(need.resident)}" for need in rows[:3])
    free, whose = _free()
    if total > free:
        raise UsageError(
            f"memory: this run needs up to {_size(total)} ({detail}; in part an estimate) and "
            f"{_size(free)} are free ({whose}); lower {rows[0].lower}"
        )
    room = _address_space()
    if room is not None and mapped > room:
        largest = max(rows, key=lambda need: max(need.mapped, need.resident))
        raise UsageError(
            f"memory: this run maps up to {_size(mapped)} ({largest.what} "
            f"{_size(max(largest.mapped, largest.resident))}) and {_size(room)} of address space "
            f"are left (RLIMIT_AS, ulimit -v); lower {largest.lower}"
        )
    if total > min(GIB, free // 4):
        return f"; needs up to {_size(total)} of memory ({detail}; in part an estimate)"
    return ""


def _free() -> tuple[int, str]:
    """Bytes that this process may still write, and what says so."""
    found = [(1 << 63, "unknown")]
    for line in _lines(Path("/proc/meminfo")):
        if line.startswith("MemAvailable:"):
            found.append((int(line.split()[1]) << 10, "MemAvailable"))
    for line in _lines(Path("/proc/self/cgroup")):
        if line.startswith("0::"):
            root = Path("/sys/fs/cgroup")
            folder = root / line[3:].lstrip("/")
            for group in (folder, *folder.parents):
                if not group.is_relative_to(root):
                    break
                most, now = (_lines(group / f"memory.{name}") for name in ("max", "current"))
                if most and now and most[0].isdigit() and now[0].isdigit():
                    found.append((max(int(most[0]) - int(now[0]), 0), f"memory.max of {group}"))
    return min(found)


def _address_space() -> int | None:
    """Bytes of address space that this process may still map; None: no limit."""
    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    if most == resource.RLIM_INFINITY:
        return None
    pages = _lines(Path("/proc/self/statm"))
    return max(most - int(pages[0].split()[0]) * resource.getpagesize(), 0) if pages else most


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _size(count: int) -> str:
    for unit, scale in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count / 1e3:.3g} kB"
