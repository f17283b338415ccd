"""docs/ranks-on-a-host.md does what it says."""

import re
from pathlib import Path

import pytest

import loomnet as ln

DOCS = Path(__file__).parents[2] / "docs" / "ranks-on-a-host.md"


def test_the_example_runs_and_its_local_link_is_a_parameter(tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.S)
    file = tmp_path / "two_servers.py"
    file.write_text(code)
    figures = {}
    for rate in ("900 GB/s", "10 GB/s"):
        report = ln.load(file).run(directory=tmp_path / rate.split()[0], local_link=rate)
        (result,) = report.results.values()
        assert result.data.ended == "finished"
        figures[rate] = result["before.iteration_s"]
    # 14 MB by a NIC of 200 Gb/s; three times that by a local link of 10 GB/s.
    assert figures["900 GB/s"] == pytest.approx(0.00056, rel=0.15)
    assert figures["10 GB/s"] == pytest.approx(0.0042, rel=0.02)
