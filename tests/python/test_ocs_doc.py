"""The page on control interfaces of panels: its code runs."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "ocs.md"


def test_code_of_the_page_runs(capsys):
    [code] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    exec(compile(code, str(PAGE), "exec"), {})
    out = capsys.readouterr().out
    assert "2 succeeded ()" in out and "127.0.0.1" in out
