"""docs/model-jobs.md does what it says."""

import re
from pathlib import Path

import pytest

import loomnet as ln
from loomnet.jobs.model_job import MODELS
from loomnet.plugins.priorities import FORMULAS

TEXT = (Path(__file__).parents[2] / "docs" / "model-jobs.md").read_text()


def test_the_example_runs(tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.S)
    file = tmp_path / "two_models.py"
    file.write_text(code)
    report = ln.load(file).run(directory=tmp_path / "runs")
    (result,) = report.results.values()
    assert result["b.jct_s"] < result["a.jct_s"]


def test_the_table_of_models():
    rows = re.findall(r"^\| `(\w+)`.*? \| ([\d.]+) M \| (\d+ ms) \| ([\d.]+) \|$", TEXT, re.M)
    assert [name for name, *_ in rows] == list(MODELS)
    for name, millions, compute, ratio in rows:
        model = MODELS[name]
        assert model.parameters == round(float(millions) * 10**6)
        assert model.compute == ln.Time(compute)
        assert 32 * model.parameters / 10e9 / model.compute.seconds == pytest.approx(
            float(ratio), rel=0.02
        )


def test_the_table_of_priorities():
    names = re.findall(
        r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", TEXT.split("## Priority")[1], re.M))
    )
    assert tuple(names) == FORMULAS
