"""What a run needs of memory, descriptors and threads is freed when the run is over, and not when
Python next collects garbage: a notebook or a test may run a hundred scenarios in one process."""

import contextlib
import gc
import os
from pathlib import Path

from loomnet.engine import Engine
from loomnet.rankjob import RankJob


def _held() -> set[str]:
    """Engines, jobs and kept memory of this process, a name each."""
    found = {f"{type(each).__name__} {id(each)}" for each in gc.get_objects()
             if isinstance(each, Engine | RankJob)}
    for fd in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the listing's own
            found.add(f"{fd.name} {os.readlink(fd)}")
    return {each for each in found if "memfd" in each or "/" not in each}


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
