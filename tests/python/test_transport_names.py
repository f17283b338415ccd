"""No code but a transport's own folder and its module in systems/ knows a transport by its name."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import loomnet

ROOT = Path(__file__).parents[2]
NAMES = ("mrc", "roce", "tcp", "gloo", "ina")
ANY = "|".join(NAMES)
# Over whole texts, since a formatter breaks long lines anywhere.
COMPARED = re.compile(
    rf'(?:==|!=)\s*"(?:{ANY})"|"(?:{ANY})"\s*(?:==|!=)|\b(?:starts|ends)_with\(\s*"(?:{ANY})"'
)
INCLUDED = re.compile(rf'#\s*include "transport/(?:{ANY})/(?!dscp\.hpp)')


def in_cpp(text):
    """Numbers of the lines where C++ compares with a transport's name, or includes its folder."""
    return [
        text.count("\n", 0, found.start()) + 1
        for pattern in (COMPARED, INCLUDED)
        for found in pattern.finditer(text)
    ]


def in_python(text):
    """Numbers of the lines where Python compares with a transport's name, looks for one among
    others, or matches it."""
    found = []
    for node in ast.walk(ast.parse(text)):
        sides = []
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            sides = [node.value]
        for side in sides:
            listed = side.elts if isinstance(side, (ast.Tuple, ast.List, ast.Set)) else [side]
            if any(isinstance(each, ast.Constant) and each.value in NAMES for each in listed):
                found.append(side.lineno)
    return found


def offences(files, look):
    return [f"{path}:{line}" for path in files for line in look(path.read_text())]


def test_no_room_of_core_compares_or_includes_a_transport():
    own = ROOT / "core" / "transport"
    files = [
        path
        for path in sorted((ROOT / "core").rglob("*.?pp"))
        if not any((own / name) in path.parents for name in NAMES)
    ]
    assert len(files) > 100
    assert offences(files, in_cpp) == []


def test_no_room_of_python_compares_a_transport():
    package = Path(loomnet.__file__).parent
    files = [
        path
        for path in sorted(package.rglob("*.py"))
        # A wheel carries the scenarios as examples, and those are a user's code.
        if not {package / "systems", package / "examples"} & set(path.parents)
    ]
    assert len(files) > 100
    assert offences(files, in_python) == []


def test_the_look_sees_one():
    for text in (
        'if (transport->name() == "mrc") return;',
        'return "tcp" != name;',
        'return transport->name() ==\n       "mrc";',
        'if (name.starts_with(\n"ina")) return;',
        '#include "transport/roce/options.hpp"',
    ):
        assert in_cpp(text)
    for text in (
        'x = name == "roce"',
        'x = name in ("mrc", "roce")',
        'x = a.transport_name in (\n    "other",\n    "tcp",\n)',
        'match name:\n    case "x" | "roce":\n        pass',
    ):
        assert in_python(text)
    assert not in_cpp('#include "transport/mrc/dscp.hpp"') and not in_python('x = "roce"')
