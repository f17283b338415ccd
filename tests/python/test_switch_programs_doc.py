"""docs/switch-programs.md keeps its word: followed from an empty folder, its commands run and its
code does what the page says."""

import re
import shutil

import pages
import pytest

from loomnet import _core
from loomnet.cli.new import SWITCH_TEMPLATES
from loomnet.programs import compiler, contract

PAGE = "docs/switch-programs.md"
TEXT = pages.PAGES[PAGE]
pytestmark = pytest.mark.skipif(
    not any(map(shutil.which, compiler.ENGINE.compilers)), reason="no C compiler"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("empty")


def test_the_commands_work_from_an_empty_folder(folder):
    block = re.search(r"(?:^    .*\n)+", TEXT, re.M)[0]
    commands = [line.strip() for line in block.splitlines()]
    assert commands[0].startswith("loomnet new --switch ") and len(commands) == 3
    said = []
    for command in commands:
        command = command.replace("pytest", "python -m pytest -p no:cacheprovider")
        done = pages.typed(command, folder)
        assert done.returncode == 0, done.stdout + done.stderr
        said.append(done.stdout)
    assert "ok   all-packets-are-in-rows" in said[1] and "FAIL" not in said[1]
    assert "1 passed" in said[2]
    # The file on the page is the file that was written.
    shown = re.findall(r"^```c\n(.*?)^```$", TEXT, re.M | re.S)[0]
    assert (folder / "heavy.c").read_text() == shown == (SWITCH_TEMPLATES / "heavy.c").read_text()


def test_the_code_runs_beside_the_file(folder):
    (folder / "heavy.c").write_text((SWITCH_TEMPLATES / "heavy.c").read_text())
    (folder / "page.py").write_text("\n".join(pages.python_blocks(PAGE)))
    done = pages.typed("python page.py", folder)
    assert done.returncode == 0, done.stderr
    counted, heaviest, program = done.stdout.splitlines()
    number, total = re.fullmatch(r"(\d+) of (\d+) packets", counted).groups()
    assert int(number) == int(total) > 1000
    assert {"row", "packets", "bytes"} == set(eval(heaviest))
    assert re.fullmatch(r"heavy\.c@[0-9a-f]{12} \{'limit': 0\}", program)


def test_the_live_command_names_parameters_of_the_scenario():
    (live,) = [each for each in pages.commands(PAGE) if pages.is_live(each)]
    assert live.startswith("sudo .venv/bin/loomnet run heavy.py")
    for name in re.findall(r"--set (\w+)=", live):
        assert f"{name}: " in (SWITCH_TEMPLATES / "heavy.py").read_text()


def test_the_page_names_what_there_is():
    header = "".join(each.read_text() for each in compiler._all_headers())
    names = set(re.findall(r"`(ln_\w+|LN_[A-Z_]+)\b", TEXT)) - {"LN_EGRESS_"}
    in_tree = {name for name in names if name.startswith(("LN_EGRESS", "ln_egress"))}
    missing = [name for name in names - in_tree if not re.search(rf"\b{name}\b", header)]
    assert not missing, missing
    for name in (
        "LN_CONTRACT",
        "LN_SUMMARY",
        "LN_COUNTERS",
        "LN_OPTIONS",
        "LN_ROWS",
        "LN_ROW",
        "LN_PAYLOAD_AT",
        "LN_PAYLOAD_BYTES",
    ):
        assert f"| `{name}" in TEXT, name
    assert f"{contract.MOST_ROW:,} bytes at most" in TEXT
    assert f"{contract.MOST_STATE >> 20} MiB" in TEXT
    for name, row in _core.switch_programs().items():
        assert f"| `{name}` |" in TEXT, row


def test_header_and_package_have_one_contract():
    header = (compiler.headers() / "loomnet" / "switch_program.h").read_text()
    assert f"#define LN_CONTRACT_HERE {contract.CONTRACT}\n" in header
    assert f"the file is written for, {contract.CONTRACT}." in TEXT
