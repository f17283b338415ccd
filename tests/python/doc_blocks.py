"""The Python blocks of README.md and docs/, each as a module that a type checker can read. Tests
only."""

from __future__ import annotations

import ast
import builtins
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
BLOCK = re.compile(r"^(?P<indent> *)```python.*\n(?P<code>(?:.*\n)*?)(?P=indent)```$", re.MULTILINE)

# What a fragment of a training script takes from the script around it.
AROUND = {
    # As PyTorch is annotated, an asynchronous operation may be None.
    "dist": "from typing import Any\nimport torch.distributed\ndist: Any = torch.distributed",
    "torch": "import torch",
    "gradient": "import torch\ngradient = torch.empty(1)",
    "gradients": "import torch\ngradients = torch.empty(1)",
    "rows": "import torch\nrows = torch.empty(1)",
    "answers": "import torch\nanswers = torch.empty(1)",
    "sent": "sent: list[int] = []",
    "came": "came: list[int] = []",
    "ddp": "import torch\nfrom torch.nn.parallel import DistributedDataParallel\n"
    "ddp = DistributedDataParallel(torch.nn.Linear(1, 1))",
    "default_hooks": "from torch.distributed.algorithms.ddp_comm_hooks import default_hooks",
    "ln": "import loomnet as ln",
    "fabric": "import loomnet as ln\nfabric = ln.Fabric()",
    "lab": "import loomnet as ln\nlab = ln.Lab()",
    "r": "import loomnet as ln\nr = ln.run(ln.Fabric(), ln.AllReduce('1 MB'))",
}


@dataclass(frozen=True)
class Block:
    """The `number`th block of a page, from 0, and the line of the page that it begins on."""

    page: Path
    number: int
    line: int
    code: str

    @property
    def name(self) -> str:
        stem = re.sub(r"\W", "_", str(self.page.relative_to(ROOT).with_suffix("")))
        return f"{stem}_{self.number}"

    @property
    def foreign(self) -> bool:
        """Whether it is a whole script of PyTorch's, with no name of Loomnet in it to check."""
        return "import torch" in self.code and not re.search(r"loomnet|\bln\.", self.code)

    def names(self) -> tuple[set[str], set[str]]:
        """(names that the block defines at its top level or below, names that it reads)."""
        tree = ast.parse(self.code)
        made, read = set(), set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                (read if isinstance(node.ctx, ast.Load) else made).add(node.id)
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                made.add(node.name)
            elif isinstance(node, ast.arg):
                made.add(node.arg)
            elif isinstance(node, ast.alias):
                made.add((node.asname or node.name).partition(".")[0])
            elif isinstance(node, ast.ExceptHandler) and node.name:
                made.add(node.name)
        return made, read - made - set(dir(builtins))


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    found = []
    for number, match in enumerate(BLOCK.finditer(text)):
        indent = match["indent"]
        code = "".join(line.removeprefix(indent) for line in match["code"].splitlines(True))
        found.append(Block(page, number, text.count("\n", 0, match.start()) + 2, code))
    return found


def modules() -> dict[str, str]:
    """File name -> source: a block behind those blocks of its page whose names it reads, and behind
    declarations of the names that the page leaves to the reader's own script."""
    found = {}
    for page in PAGES:
        earlier: list[Block] = []
        for block in blocks(page):
            if block.foreign:
                continue
            needed, open_names = [], block.names()[1]
            for other in reversed(earlier):
                made, read = other.names()
                if open_names & made:
                    needed.insert(0, other)
                    open_names = (open_names - made) | read
            around = dict.fromkeys(AROUND[name] for name in sorted(open_names) if name in AROUND)
            parts = [
                *around,
                *(each.code for each in needed),
                f"# {page.relative_to(ROOT)}, line {block.line}",
                block.code,
            ]
            found[f"{block.name}.py"] = "\n".join(parts)
            earlier.append(block)
    return found
