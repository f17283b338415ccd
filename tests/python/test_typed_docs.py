"""The code of README.md and docs/ as type checkers see it: mypy --strict, and pyright in its own
default mode, find nothing."""

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import doc_blocks
import pytest

import loomnet as ln

pytest.importorskip("mypy")
TYPED = Path(__file__).parent / "typed"
BIN = Path(sys.executable).parent
# PyTorch itself is not read: it would take most of the time, and its code is not ours. networkx has
# no types.
MYPY = """[mypy]
strict = true
python_executable = {python}
[mypy-torch.*]
follow_imports = skip
[mypy-networkx.*]
ignore_missing_imports = true
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A folder with a module per block, what users write, and a setting for either checker."""
    folder = tmp_path_factory.mktemp("docs")
    for name, code in doc_blocks.modules().items():
        (folder / name).write_text(code)
    (folder / "scenario.py").write_text((TYPED / "scenario.py").read_text())
    (folder / "mypy.ini").write_text(MYPY.format(python=sys.executable))
    environment = Path(sys.prefix)
    (folder / "pyrightconfig.json").write_text(
        json.dumps(
            {
                "typeCheckingMode": "standard",
                "reportUnusedExpression": False,
                "venvPath": str(environment.parent),
                "venv": environment.name,
            }
        )
    )
    return folder


def test_there_are_blocks(project):
    names = [path.name for path in project.glob("*.py")]
    assert "README_0.py" in names and any(name.startswith("docs_plugins_") for name in names)


@pytest.mark.in_turns
def test_mypy_strict(project):
    files = sorted(path.name for path in project.glob("*.py"))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", *files],
        cwd=project,
        capture_output=True,
        text=True,
    )
    found = [line for line in done.stdout.splitlines() if ": note: " not in line]
    assert not found and done.returncode == 0, "\n".join(found) + done.stderr


@pytest.mark.in_turns
def test_pyright(project):
    done = subprocess.run(
        [BIN / "basedpyright", "--outputjson", "-p", project], capture_output=True, text=True
    )
    found = [
        f"{Path(each['file']).name}:{each['range']['start']['line'] + 1}: {each['message']}"
        for each in json.loads(done.stdout)["generalDiagnostics"]
        if each["severity"] != "information"
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "name",
    [
        "TorchJob",
        "AllReduce",
        "Permutation",
        "Incast",
        "Flows",
        "Trace",
        "ModelJob",
        "MoeJob",
        "CircuitControl",
        "Pfc",
    ],
)
def test_constructors_are_readable_and_say_what_the_fields_say(name):
    kind = getattr(ln, name)
    signature = inspect.signature(kind)
    text = str(signature)
    assert not re.search(r"Annotated|Validator|Strict|FieldInfo|Unpack|\*args|\*\*|'\w+ \|", text)
    assert set(signature.parameters) == set(kind.model_fields) - {"queue_pairs"}
    example = {
        "TorchJob": ("train.py",),
        "AllReduce": ("1 MB",),
        "Permutation": ("1 MB",),
        "Incast": ("1 MB",),
        "Flows": ("1 MB",),
        "Trace": ("t.jsonl",),
        "ModelJob": ("vgg16",),
        "MoeJob": ("mixtral_8x7b",),
    }.get(name, ())
    plain = kind(*example)
    stated = {
        each.name: each.default
        for each in list(signature.parameters.values())[len(example) :]
        if not str(each.default).endswith("()")
    }
    assert kind(*example, **stated) == plain


def test_help_has_nothing_of_pydantic():
    import pydoc

    text = pydoc.render_doc(ln.TorchJob, renderer=pydoc.plaintext)
    assert "TorchJob(script: str | Path, *, args: Iterable[str] = ()" in text
    assert not re.search(r"pydantic_|model_(fields|dump|config)|core_schema|FieldInfo", text)
    assert len(text.splitlines()) < 110


def test_unknown_names_of_a_constructor_are_one_line():
    with pytest.raises(ln.UsageError, match=r"unknown name .rank.; nearest: ranks"):
        ln.TorchJob("train.py", rank=4)
    with pytest.raises(ln.UsageError, match=r"TorchJob\.script is missing"):
        ln.TorchJob()
