"""PyTorch's own distributed suite over the loopback NIC: some of it always, all of it with --soak,
where Gloo's outcomes in the same machine and minute are the yardstick."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
SUITE = Path(__file__).parent / "torch_ranks" / "suite.py"

# One test of each kind: collectives, events, texts of timeouts, DDP's logger.
SOME = (
    "test_all_reduce_sum",
    "test_all_gather_coalesced_simple",
    "test_barrier_timeout_full_group",
    "test_ddp_logging_data_cpu",
    "test_monitored_barrier_failure_order",
    "test_monitored_barrier_gloo",
    "test_monitored_barrier_wait_all_ranks",
    "test_send_recv_any_source_torch_profiler",
    "test_send_recv_autograd_profiler",
)
# Tests that pass over Gloo and not here, each with its reason.
NOT_HERE: dict[str, str] = {}


def suite(backend: str, tmp_path: Path, *more: str, limit: float = 240) -> dict[str, list]:
    results = tmp_path / f"{backend}.json"
    command = [
        sys.executable,
        str(SUITE),
        backend,
        str(results),
        "--logs",
        str(tmp_path / backend),
        *more,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout.splitlines()[-1])
    return json.loads(results.read_text())


@pytest.mark.in_turns
@pytest.mark.parametrize("backend", ["mapped", "loomnet"])
def test_some_of_it(backend: str, tmp_path: Path) -> None:
    outcomes = suite(backend, tmp_path, "--only", f"^({'|'.join(SOME)})$")
    assert {o[0] for o in outcomes.values()} <= {"passed", "skipped"}, outcomes
    passed = [name for name, o in outcomes.items() if o[0] == "passed"]
    assert len(passed) == {"mapped": 9, "loomnet": 5}[backend], outcomes


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("on", [[], ["--cpu-for-cuda"]], ids=["plain", "cpu-for-cuda"])
def test_all_that_passes_over_gloo(on: list[str], tmp_path: Path) -> None:
    """`mapped` runs what Gloo runs; by its own name torch runs less of it over any backend."""
    gloo, mapped, named = (
        suite(backend, tmp_path, *on, limit=7200) for backend in ("gloo", "mapped", "loomnet")
    )
    expected = {name for name, o in gloo.items() if o[0] == "passed"} - NOT_HERE.keys()
    missing = {name: mapped[name] for name in expected if mapped[name][0] != "passed"}
    failed = {name: named[name] for name in expected if named[name][0] == "failed"}
    more = sorted(name for name, o in mapped.items() if o[0] == "passed" and name not in expected)
    print(
        f"over Gloo {len(expected)} pass; mapped {len(missing)} of them do not: {missing}; by "
        f"name {len(failed)} fail: {failed}; only here pass {len(more)}: {more}; excused: "
        f"{NOT_HERE}"
    )
    assert not missing and not failed
