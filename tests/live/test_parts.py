"""The scenario of single parts of the switches that sum reads what the programs print."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from loomnet.base.errors import EXIT_CHECK_FAILED, EXIT_OK

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "cpp"


def test_every_bar_of_single_parts_has_a_figure(tmp_path, uses_machine):
    if not (BUILD / "live_aggregate_benchmark").is_file():
        pytest.skip(f"{BUILD} has no programs; script/test cpp builds them")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "loomnet",
            "run",
            str(ROOT / "scenarios" / "ina" / "parts.py"),
            "--set",
            f"build={BUILD}",
            "--set",
            "xdp=true",
            "--json",
            str(tmp_path / "parts.json"),
        ],
        # One of eight parts of the C++ tests, which run whole elsewhere.
        env={**os.environ, "GTEST_TOTAL_SHARDS": "8", "GTEST_SHARD_INDEX": "0"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode in (EXIT_OK, EXIT_CHECK_FAILED), done.stdout + done.stderr
    report = json.loads((tmp_path / "parts.json").read_text())
    checks = {row["name"]: row for row in report["checks"]}
    # How fast this machine is now is not this test's matter.
    assert all(checks[name]["value"] > 0 for name in ("XDP-1-add", "XDP-1-swap", "XDP-2"))
    assert {name for name, row in checks.items() if not row["ok"]} <= {
        "XDP-1-add",
        "XDP-1-swap",
        "XDP-2",
    }, done.stdout
    figures = {row["name"]: row["value"] for row in report["metrics"]}
    assert figures["tests.LIVE-1"] >= 3 and figures["tests.QUANT-1"] >= 1
