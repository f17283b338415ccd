"""What installs Loomnet is true: extras hold what they are for, hints name installs that work."""

import ast
import importlib.metadata
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import loomnet
from loomnet.base import installing
from loomnet.base.installing import install_line

PACKAGE = Path(loomnet.__file__).parent
SCENARIOS = Path(__file__).parents[2] / "scenarios"


def declared(*extras: str) -> set[str]:
    """The distributions that `pip install '.[extras]'` asks for, by their names on the index."""
    names = set()
    for line in importlib.metadata.requires("loomnet") or []:
        requirement, _, marker = line.partition(";")
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", marker)
        if extra is None or extra[1] in extras:
            names.add(re.match(r"[\w.-]+", requirement.strip())[0].lower().replace("_", "-"))
    return names


@pytest.mark.parametrize("script", sorted(SCENARIOS.glob("*.py")), ids=lambda path: path.name)
def test_a_scenario_needs_nothing_beyond_the_extra_torch(script):
    tree = ast.parse(script.read_text())
    modules = {
        name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [node.module]
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names]
        )
    }
    modules -= set(sys.stdlib_module_names) | {"loomnet"}
    modules -= {path.stem for path in SCENARIOS.glob("*.py")}
    provider = importlib.metadata.packages_distributions()
    unknown = {name for name in modules if name not in provider}
    assert not unknown - declared("torch"), "no distribution of this name is asked for"
    for module in modules - unknown:
        assert {name.lower() for name in provider[module]} & declared("torch"), module


def test_the_hint_is_a_command_that_pip_carries_out():
    words = shlex.split(install_line("sweep"))
    assert words[:4] == [sys.executable, "-m", "pip", "install"]
    assert words[-1].endswith("[sweep]")
    # Nothing is changed, fetched or compiled: pip only reads what the clone or the wheel declares.
    options = ["--dry-run", "--no-deps", "--no-index", "-q"]
    if not words[-1].endswith(".whl[sweep]"):
        options.append("--no-build-isolation")
    done = subprocess.run([*words, *options], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("noted", "end"),
    [
        ({"url": "file://{here}", "dir_info": {"editable": True}}, "install -e '{here}[live]'"),
        ({"url": "file://{here}", "dir_info": {}}, "install '{here}[live]'"),
        ({"url": "file://{here}/gone.whl", "archive_info": {}}, "install '.[live]'"),
        ({"url": "https://example.org/loomnet.git", "vcs_info": {}}, "install '.[live]'"),
        (None, "install '.[live]'"),
        ([], "install '.[live]'"),
    ],
)
def test_the_hint_names_the_clone_or_the_wheel_that_is_installed(noted, end, tmp_path, monkeypatch):
    here = tmp_path / "a clone"
    here.mkdir()

    class Distribution:
        def read_text(self, name):
            assert name == "direct_url.json"
            return noted and json.dumps(noted).replace("{here}", str(here).replace(" ", "%20"))

    monkeypatch.setattr(installing.importlib.metadata, "distribution", lambda _: Distribution())
    line = install_line("live")
    assert line.endswith(end.replace("{here}", str(here)))
    assert line.startswith("in a clone of Loomnet: ") == end.endswith("'.[live]'")


def test_no_text_of_the_package_installs_loomnet_from_an_index():
    """No index has it, and the name there is free for anybody to take. A wheel is a file."""
    texts = [*PACKAGE.rglob("*.py"), *SCENARIOS.glob("*"), SCENARIOS.parent / "README.md"]
    named = [
        f"{path}: {line.strip()}"
        for path in texts
        if path.suffix in (".py", ".md", ".ipynb")
        for line in path.read_text().splitlines()
        if re.search(r"pip install [^#]*\bloomnet\b(?!\.git|-\S+\.whl)", line)
    ]
    assert not named
