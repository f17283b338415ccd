"""No code but a transport's own folder and its module in systems/ knows a transport by its name."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMES = ("mrc", "roce", "tcp", "gloo")
ANY = "|".join(NAMES)
COMPARED = re.compile(rf'(?:==|!=)\s*"(?:{ANY})"|"(?:{ANY})"\s*(?:==|!=)')
INCLUDED = re.compile(rf'#\s*include "transport/(?:{ANY})/(?!dscp\.hpp)')


def offences(files, patterns):
    return [f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
            for path in files for number, line in enumerate(path.read_text().splitlines(), 1)
            if any(pattern.search(line) for pattern in patterns)]


def test_no_room_of_core_compares_or_includes_a_transport():
    own = ROOT / "core" / "transport"
    files = [path for path in sorted((ROOT / "core").rglob("*.?pp"))
             if not any((own / name) in path.parents for name in NAMES)]
    assert len(files) > 100
    assert offences(files, (COMPARED, INCLUDED)) == []


def test_the_look_sees_one():
    assert COMPARED.search('if (transport->name() == "mrc") return;')
    assert COMPARED.search('return "tcp" != name;')
    assert INCLUDED.search('#include "transport/roce/options.hpp"')
