"""docs/roce-hosts.md does what it says, and its table is the engine's."""

import re
from pathlib import Path

from loomnet.systems.roce import presets

DOCS = (Path(__file__).parents[2] / "docs" / "roce-hosts.md").read_text()


def test_the_example_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec("\n".join(re.findall(r"```python\n(.*?)```", DOCS, re.S)), names)
    assert names["value"] == 1.25 and names["reason"] is None


def test_its_table_has_the_presets_constants():
    def number(text):
        text = text.split(":")[0]
        if text in ("yes", "no"):
            return text == "yes"
        return int(text.removesuffix(" us")) * (10**6 if text.endswith(" us") else 1)

    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \| (.+?) \|$", DOCS, re.M)
    assert len(rows) == 6
    for name, *values in rows:
        assert [number(value) for value in values] == [presets()[p][name] for p in "ABC"], name
