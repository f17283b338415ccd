"""docs/tcp-hosts.md does what it says, and its table of controls is the engine's."""

import re
from fractions import Fraction
from pathlib import Path

from loomnet import _core

DOCS = (Path(__file__).parents[2] / "docs" / "tcp-hosts.md").read_text()


def test_the_example_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec("\n".join(re.findall(r"```python\n(.*?)```", DOCS, re.S)), names)
    assert {*names["r"].jobs} == {"old", "new"}


def test_its_table_has_the_controls_and_their_options():
    rows = re.findall(r"^\| `(\w+)`(?: \(default\))? \| (.+?) \| (.*?) ?\|$", DOCS, re.M)
    rows = [row for row in rows if row[0] != "cc"]
    known = _core.congestion_controls()
    # Those that other tests have registered in this process are a user's, written in Python.
    controls = _core.transports()["tcp"]["congestion_controls"]
    built_in = {name for name in controls if not known[name]["virtual_only"]}
    assert {name for name, _, _ in rows} == built_in
    for name, rules, options in rows:
        assert rules
        said = {
            option: {"on": True, "off": False}.get(value)
            if value in ("on", "off")
            else value.strip('"')
            if value.startswith('"')
            else float(Fraction(value))
            for option, value in re.findall(r"`(\w+)` \(([^:)]*)", options)
        }
        assert said == {row["name"]: row["default"] for row in known[name]["options"]}, name
