"""What README.md tells its reader to type, as it stands there. Tests only."""

import re
import shlex
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text()


def _blocks() -> list[str]:
    """Blocks indented by four spaces."""
    return re.findall(r"(?:^    .*\n(?:\n(?=    ))?)+", TEXT, re.MULTILINE)


def commands() -> list[str]:
    """Every line of a block that runs loomnet, without its comment."""
    lines = [line.strip() for block in _blocks() for line in block.splitlines()]
    return [re.sub(r"\s+# .*", "", line) for line in lines
            if re.match(r"(sudo )?(\.venv/bin/)?loomnet ", line)]


def is_live(command: str) -> bool:
    return any(word in command for word in ("--clock live", "crosscheck ", "capture "))


def words(command: str, **replacements: str) -> list[str]:
    """The command's words, run by this interpreter; RUN and the like replaced."""
    parts = [replacements.get(word, word) for word in shlex.split(command)]
    parts = parts[1:] if parts[0] == "sudo" else parts
    assert Path(parts[0]).name == "loomnet", command
    return [sys.executable, "-m", "loomnet", *parts[1:]]


def python_blocks() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def output_after(words: str) -> list[str]:
    """The lines of the block that follows these words."""
    rest = TEXT.partition(words)[2]
    block = re.match(r"\s*\n((?:    .*\n|\n(?=    |\n))+)", rest)
    assert block, f"README.md: no block after {words!r}"
    return [line[4:].rstrip() for line in block[1].splitlines()]
