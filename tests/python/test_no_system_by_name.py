"""The run loop, the harness, the live clock and the jobs know no system by name: a system is a
folder of loomnet.systems, which they find. Names are listed from the folders."""

import ast
import pkgutil
from pathlib import Path

import pytest

pytest.importorskip("loomnet._core")

import loomnet
import loomnet._core as _core
import loomnet.systems
from loomnet.systems import registry

ROOMS = (
    *("running", "labs", "live", "jobs", "worlds", "sweeps", "faults"),
    *("plugins", "results", "fabrics", "programs", "ocs"),
)
# What the package of systems has beside systems: the contract.
CONTRACT = {"answers", "controls", "registry", "system", "given", "transport", "servers"}
# Programs whose names are words of the field: what all switches do, and what reductions are.
WORDS = {"forward", "sum", "mirror", "ring"}
PROTOCOL = {"tcp"}  # a parameter of this name is of the kernel's protocol, not of the model


def systems():
    return {entry.name for entry in pkgutil.iter_modules(loomnet.systems.__path__)} - CONTRACT


def names():
    found = systems() | set(registry.transports()) | set(registry.reducers())
    return (found | set(_core.switch_programs())) - WORDS


def modules():
    root = Path(loomnet.__file__).parent
    return sorted(path for room in ROOMS for path in (root / room).rglob("*.py"))


def spoken(tree, forbidden):
    """(line, what) of string constants, parameters, keywords, fields, attributes and imports that
    name a system."""
    named = (forbidden | set(registry.job_options())) - PROTOCOL
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if node.value in forbidden:
                yield node.lineno, repr(node.value)
        elif isinstance(node, ast.arg) and node.arg in named:
            yield node.lineno, f"parameter {node.arg}"
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            if node.target.id in named:
                yield node.lineno, f"field {node.target.id}"
        elif isinstance(node, ast.keyword) and node.arg in named:
            yield node.value.lineno, f"keyword {node.arg}"
        elif isinstance(node, ast.Attribute) and node.attr in named:
            yield node.lineno, f"attribute {node.attr}"
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            whole = [each.name for each in node.names]
            if isinstance(node, ast.ImportFrom):
                whole = [f"{node.module}.{name}" for name in whole]
            for name in whole:
                parts = name.split(".")
                if parts[:2] == ["loomnet", "systems"] and parts[2:3] and parts[2] in systems():
                    yield node.lineno, f"import {name}"


def test_the_names_are_there():
    assert {"ina", "symphony", "mixnet", "mrc", "tcp", "gloo", "aggregate"} <= names()
    assert "server" in registry.job_options() and len(modules()) > 80


def test_no_room_below_the_systems_or_above_them_names_one():
    forbidden = names()
    found = [
        f"{path.parent.name}/{path.name}:{line}: {what}"
        for path in modules()
        for line, what in spoken(ast.parse(path.read_text()), forbidden)
    ]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "if job.allreduce == 'ina': pass",
        "def run(server=None): pass",
        "class Request:\n    ina: int = 0",
        "self.symphony = 1",
        "options.server.hosts",
        "run(job, ina={})",
        "from loomnet.systems.ina.run import Sums",
        "from loomnet.systems import mixnet",
        "import loomnet.systems.symphony.run",
    ],
)
def test_one_that_does_is_found(text):
    assert list(spoken(ast.parse(text), names()))


def test_the_contract_is_short():
    lines = Path(registry.__file__).with_name("system.py").read_text().splitlines()
    assert len(lines) <= 150
