"""No code but a transport's own folder and its module in systems/ knows a transport by its name."""

from __future__ import annotations

import re
from pathlib import Path

import loomnet

ROOT = Path(__file__).parents[2]
NAMES = ("mrc", "roce", "tcp", "gloo")
ANY = "|".join(NAMES)
COMPARED = re.compile(rf'(?:==|!=)\s*"(?:{ANY})"|"(?:{ANY})"\s*(?:==|!=)')
CHOSEN = re.compile(rf'\bin\s*[(\[{{][^)\]}}]*"(?:{ANY})"|\bcase\s+"(?:{ANY})"')
INCLUDED = re.compile(rf'#\s*include "transport/(?:{ANY})/(?!dscp\.hpp)')


def offences(files, patterns):
    return [
        f"{path}:{number}: {line.strip()}"
        for path in files
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if any(pattern.search(line) for pattern in patterns)
    ]


def test_no_room_of_core_compares_or_includes_a_transport():
    own = ROOT / "core" / "transport"
    files = [
        path
        for path in sorted((ROOT / "core").rglob("*.?pp"))
        if not any((own / name) in path.parents for name in NAMES)
    ]
    assert len(files) > 100
    assert offences(files, (COMPARED, INCLUDED)) == []


def test_no_room_of_python_compares_a_transport():
    package = Path(loomnet.__file__).parent
    files = [
        path
        for path in sorted(package.rglob("*.py"))
        # A wheel carries the scenarios as examples, and those are a user's code.
        if not {package / "systems", package / "examples"} & set(path.parents)
    ]
    assert len(files) > 100
    assert offences(files, (COMPARED, CHOSEN)) == []


def test_the_look_sees_one():
    assert COMPARED.search('if (transport->name() == "mrc") return;')
    assert COMPARED.search('return "tcp" != name;')
    assert CHOSEN.search('if name in ("mrc", "roce"):')
    assert CHOSEN.search('        case "tcp":')
    assert INCLUDED.search('#include "transport/roce/options.hpp"')
