"""docs/several-jobs.md does what it says."""

import re
from pathlib import Path

import loomnet as ln

DOCS = Path(__file__).parents[2] / "docs" / "several-jobs.md"


def test_the_example_runs(tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.S)
    file = tmp_path / "several_jobs.py"
    file.write_text(code)
    report = ln.load(file).run(directory=tmp_path / "runs")
    (result,) = report.results.values()
    for job in "ab":
        assert result.job(job).data.ended == "finished"
    (fidelity,) = report.to_dict()["fidelity"]
    assert "spare every 2 ms" in str(fidelity)
    assert result.switch("p0.leaf0").counters["received"] > 1000
