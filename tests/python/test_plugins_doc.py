"""docs/plugins.md keeps its word: its code runs as it stands."""

import re
import sys
import types
from pathlib import Path

import loomnet as ln

TEXT = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text()


def test_the_code_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 6
    page = types.ModuleType("page_on_plugins")
    monkeypatch.setitem(sys.modules, page.__name__, page)
    heard = []
    before = ln.change.routes
    monkeypatch.setattr(ln.change, "routes", lambda **given: heard.append(given) or before(**given))
    for number, block in enumerate(blocks):
        exec(compile(block, f"plugins.md block {number}", "exec"), page.__dict__)
    assert {"avoid": ["p0.spine0"]} in heard and {"avoid": []} in heard, "the page's run changes"
    said = capsys.readouterr().out.splitlines()
    assert said and all(line.startswith('congestion control "careless": ') for line in said)
    assert any(
        re.search(r"is negative \(plugins\.md block \d:\d+\), over tcp where packets are l", line)
        for line in said
    ), said


def test_the_page_names_what_there_is():
    for name in re.findall(r"ln\.change\.(\w+)", TEXT):
        assert hasattr(ln.change, name)
    for name in re.findall(r"ln\.plugin\.(\w+)", TEXT):
        assert hasattr(ln.plugin, name)
    kinds = re.search(r"`subscribes`: (.*?)\. Both", TEXT, re.DOTALL)[1]
    assert tuple(re.findall(r"`(\w+)`", kinds)) == ln.plugin.EVENTS
