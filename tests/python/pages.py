"""What README.md and docs/ tell their reader to type, as it stands there. Tests only."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = "README.md"
PAGES = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in (ROOT / README, *sorted((ROOT / "docs").glob("*.md")))
}
LOOMNET = r"(?:sudo )?(?:\.venv/bin/)?loomnet "


def _blocks(text: str) -> list[str]:
    """Blocks indented by four spaces, and fenced ones without a language."""
    plain = re.sub(r"^```\w+\n.*?^```$", "", text, flags=re.M | re.S)
    fenced = re.findall(r"^```\n(.*?)^```$", plain, re.M | re.S)
    return [*re.findall(r"(?:^    .*\n(?:\n(?=    ))?)+", plain, re.M), *fenced]


def commands(page: str) -> list[str]:
    """Every line of a page's blocks that runs loomnet, without its comment."""
    lines = [line.strip() for block in _blocks(PAGES[page]) for line in block.splitlines()]
    return [re.sub(r"\s+# .*", "", line) for line in lines if re.match(LOOMNET, line)]


def all_commands() -> dict[str, str]:
    """Every command of all pages, once, with the page that has it first."""
    found: dict[str, str] = {}
    for page in PAGES:
        for command in commands(page):
            found.setdefault(command, page)
    return found


def is_live(command: str) -> bool:
    """Whether it needs the live clock, and so root."""
    return bool(re.search(r"--clock live|loomnet (crosscheck|capture|exec|shell) ", command))


def python_blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", PAGES[page], re.M | re.S)


def output_after(page: str, words: str) -> list[str]:
    """The lines of the block that follows these words."""
    rest = PAGES[page].partition(words)[2]
    block = re.match(r"\s*\n((?:    .*\n|\n(?=    |\n))+)", rest)
    assert block, f"{page}: no block after {words!r}"
    return [line[4:].rstrip() for line in block[1].splitlines()]


def environment() -> dict[str, str]:
    """One in which `loomnet` is this interpreter's, and output is as in a pipe of any width."""
    found = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    return found | {"PATH": f"{Path(sys.executable).parent}:{found.get('PATH', '')}"}


def shell_line(command: str) -> str:
    """The command for a shell that is root already."""
    return re.sub(r"^(sudo )?(\.venv/bin/)?", "", command)


def typed(command: str, folder: Path, timeout: float = 280) -> subprocess.CompletedProcess[str]:
    """Runs the command by a shell in that folder, as a reader would."""
    return subprocess.run(
        ["bash", "-c", shell_line(command)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=timeout,
        env=environment(),
    )
