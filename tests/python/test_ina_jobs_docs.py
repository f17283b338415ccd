"""docs/ina-jobs.md does what it says."""

import re
from pathlib import Path

import loomnet as ln

DOCS = Path(__file__).parents[2] / "docs" / "ina-jobs.md"


def test_the_example_runs(tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.S)
    file = tmp_path / "two_jobs.py"
    file.write_text(code)
    report = ln.load(file).run(directory=tmp_path / "runs")
    (result,) = report.results.values()
    table = result.pool("p0.leaf0", every="1 ms")
    assert set(table.column("job")) == {"a", "b"} and table.slots == 65536 // 1056
    assert result["a.slots_peak.p0.leaf0"] > 0 and (tmp_path / "runs" / "pools.csv").exists()


def test_values_of_the_scenario_that_the_page_names_are_its_parameters():
    scenario = ln.load(DOCS.parents[1] / "scenarios" / "ina" / "multi_job.py")
    text = DOCS.read_text()
    named = set(re.findall(r"--set (\w+)=", text)) | set(re.findall(r"\| `(\w+)=", text))
    assert {"memory", "levels", "jitter", "window", "scale"} <= named
    assert named <= {each.name for each in scenario.parameters}
