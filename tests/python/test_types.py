"""The package as an editor and a type checker see it: basedpyright on what a user writes."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import loomnet

TYPED = Path(__file__).parent / "typed"
BIN = Path(sys.executable).parent


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A user's folder with these scripts, and with the packages of this interpreter."""
    folder = tmp_path_factory.mktemp("project")
    for file in TYPED.glob("*.py"):
        (folder / file.name).write_text(file.read_text())
    environment = Path(sys.prefix)
    (folder / "pyrightconfig.json").write_text(
        json.dumps(
            {
                "typeCheckingMode": "basic",
                "venvPath": str(environment.parent),
                "venv": environment.name,
            }
        )
    )
    return folder


@pytest.fixture(scope="module")
def found(project):
    """File name -> [(severity, line, rule, message)]."""
    done = subprocess.run(
        [BIN / "basedpyright", "--outputjson", "-p", project], capture_output=True, text=True
    )
    rows: dict[str, list[tuple[str, int, str, str]]] = {"scenario.py": [], "mistakes.py": []}
    for each in json.loads(done.stdout)["generalDiagnostics"]:
        rows[Path(each["file"]).name].append(
            (
                each["severity"],
                each["range"]["start"]["line"] + 1,
                each.get("rule", ""),
                each["message"],
            )
        )
    return rows


def marked(file, pattern):
    """Line -> what a comment on it names."""
    lines = (TYPED / file).read_text().splitlines()
    return {
        number: match[1]
        for number, line in enumerate(lines, 1)
        if (match := re.search(pattern, line))
    }


def test_what_users_write_checks(found):
    assert [row for row in found["scenario.py"] if row[0] != "information"] == []


def test_the_checker_knows_the_types(found):
    said = {
        line: re.search('is "(.*)"$', message)[1]
        for severity, line, _, message in found["scenario.py"]
        if severity == "information"
    }
    assert said == marked("scenario.py", r"# is: (.+)")


def test_mistakes_are_found(found):
    wanted = marked("mistakes.py", r"# (report\w+)")
    assert [(line, rule) for _, line, rule, _ in found["mistakes.py"]] == sorted(wanted.items())


def test_a_checker_reads_the_names_that_are_loaded():
    tree = ast.parse(Path(loomnet.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    homes, aliases = {}, set()
    for node in block.body:
        if isinstance(node, ast.ImportFrom):
            for each in node.names:
                if each.asname == each.name:
                    homes[each.name] = f"{node.module}".removeprefix("loomnet.")
        elif isinstance(node, ast.AnnAssign):
            aliases.add(node.target.id)
    assert aliases == {"Rate", "Time", "Size", "__version__"}
    loaded = {name: home for home, names in loomnet._HOMES.items() for name in names}
    modules = {name: home.rpartition(".")[0] for name, home in loomnet._MODULES.items()}
    assert homes == modules | {n: h for n, h in loaded.items() if n not in aliases}
    assert set(loomnet.__all__) == homes.keys() | aliases


def test_the_package_holds_what_checkers_read():
    folder = Path(loomnet.__file__).parent
    for name in ("py.typed", "_core/__init__.pyi", "_core/testing.pyi"):
        assert (folder / name).is_file(), name


class Editor:
    """As an editor talks to its language server (LSP 3.17)."""

    def __init__(self, folder):
        self.process = subprocess.Popen(
            [BIN / "basedpyright-langserver", "--stdio"],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.folder, self.number = folder, 0
        self.ask(
            "initialize",
            processId=None,
            rootUri=folder.as_uri(),
            capabilities={},
            workspaceFolders=[{"uri": folder.as_uri(), "name": "project"}],
        )
        self.send(method="initialized", params={})

    def send(self, **message):
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.process.stdin.flush()

    def receive(self):
        length = 0
        while line := self.process.stdout.readline().strip():
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        return json.loads(self.process.stdout.read(length))

    def ask(self, method, **params):
        self.number += 1
        self.send(id=self.number, method=method, params=params)
        while (message := self.receive()).get("id") != self.number or "method" in message:
            if "id" in message and "method" in message:
                self.send(id=message["id"], result=None)
        return message["result"]

    def offered(self, text):
        """The names that complete the end of this text."""
        uri = (self.folder / f"typed_{self.number}.py").as_uri()
        self.send(
            method="textDocument/didOpen",
            params={
                "textDocument": {"uri": uri, "languageId": "python", "version": 1, "text": text}
            },
        )
        lines = text.split("\n")
        result = self.ask(
            "textDocument/completion",
            textDocument={"uri": uri},
            position={"line": len(lines) - 1, "character": len(lines[-1])},
        )
        return {item["label"] for item in result["items"]}

    def close(self):
        self.process.kill()
        self.process.wait()


def test_an_editor_completes(project):
    editor = Editor(project)
    try:
        begin = "import loomnet as ln\n"
        assert editor.offered(f"{begin}ln.") >= set(loomnet.__all__) - {"__version__"}
        assert editor.offered(f"{begin}ln.clos.") >= {"two_tier", "three_tier"}
        assert editor.offered(f"{begin}ln.TorchJob('train.py', ") >= {
            "args=",
            "ranks=",
            "transport=",
            "compute=",
            "log=",
            "until=",
        }
        assert editor.offered(f"{begin}ln.down('h0--p0.leaf0', ") >= {"at=", "duration=", "phase="}
        assert editor.offered(f"{begin}def f(rate: ln.Rate = '1 Gb/s'):\n    rate.") >= {
            "bits_per_second",
            "serialization",
        }
        assert editor.offered(f"{begin}def f(lab: ln.Lab):\n    lab.") >= {"run", "check", "metric"}
    finally:
        editor.close()
