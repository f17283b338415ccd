"""Scenarios whose ranks begin and end at once, for tests that are not about that: a rank whose
script imports Loomnet has its optimizer import torch._dynamo by itself, three seconds of it, and
what an interpreter takes down at its end is another."""

import shutil
from pathlib import Path

SCENARIOS = Path(__file__).parents[2] / "scenarios"
END = "    dist.destroy_process_group()\n"


def scenario(name: str, training: str, folder: Path) -> Path:
    """A scenario in a copy of them all, by its path in their folder, whose training script (by its
    path too) imports once for all ranks and ends them with its last line."""
    copies = folder / "scenarios"
    shutil.copytree(SCENARIOS, copies, ignore=shutil.ignore_patterns("__pycache__"))
    script = copies / training
    text = script.read_text()
    assert text.count("\nimport torch\n") == text.count(END) == 1
    text = text.replace("\nimport torch\n", "\nimport torch\nimport torch._dynamo\n")
    script.write_text(text.replace(END, END + "    import os\n\n    os._exit(0)\n"))
    return copies / name
