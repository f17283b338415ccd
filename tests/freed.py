"""A run's engine, job, ranks' memory and descriptors are freed when the run is over, and not when
Python next collects garbage: a notebook or a test may run a hundred scenarios in one process."""

import contextlib
import gc
import os
from pathlib import Path

from loomnet.running.engine import Engine
from loomnet.running.torch_ranks import RankJob


def _held() -> set[str]:
    """Engines, jobs, ranks' memory and eventfds of this process, a name each."""
    found = {
        f"{type(each).__name__} {id(each)}"
        for each in gc.get_objects()
        if issubclass(type(each), (Engine, RankJob))
    }  # not by __class__, which may lie
    for fd in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the listing's own
            target = os.readlink(fd)
            if "memfd:" in target or "eventfd" in target:
                found.add(f"{fd.name} {target}")
    return found


@contextlib.contextmanager
def without_collector():
    """Fails if what runs inside leaves a part of a run behind that only a collection would free."""
    gc.collect()
    before = _held()
    gc.disable()
    try:
        yield
        left = _held() - before
    finally:
        gc.enable()
    assert not left, f"kept after the run: {sorted(left)}"
