"""docs/panels.md does what it says."""

import re
from pathlib import Path

import loomnet as ln

DOCS = Path(__file__).parents[2] / "docs" / "panels.md"


def test_the_example_runs(tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.S)
    file = tmp_path / "panels.py"
    file.write_text(code)
    scenario = ln.load(file)
    for transport in ("mrc", "roce", "tcp"):
        report = scenario.run(directory=tmp_path / transport, transport=transport)
        assert report.ok, report.failed
        (result,) = report.results.values()
        assert result.data.ended == "finished" and result.data.fidelity.unexplained == 0
