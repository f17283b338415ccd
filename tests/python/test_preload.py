"""Which imports of a script its ranks may share: those that run before anything else of it, and
PyTorch's compiler only where nothing can have changed what that reads."""

import textwrap

import pytest

from loomnet.processes.shared_imports import LATE, shared_imports

TRAINS = "\noptimizer = torch.optim.SGD(parameters, lr=0.1)\n"


def shared(tmp_path, script, **others):
    for name, source in {"train": script, **others}.items():
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(source))
    return shared_imports(tmp_path / "train.py")


@pytest.mark.parametrize(
    ("script", "found"),
    [
        (
            '"""Doc."""\nfrom __future__ import annotations\n'
            "import os, torch, numpy as np\nx = 1\n",
            ("import torch", "import numpy as np"),
        ),
        (
            "import torch\nfrom torch import nn" + TRAINS,
            ("import torch", "from torch import nn", LATE),
        ),
        ("import torch\n", ("import torch",)),  # no optimizer in sight
        (
            "import torch\nmodel = torch.nn.parallel.DistributedDataParallel(net)\n",
            ("import torch", LATE),
        ),
        ("import torch\nx = 1\nimport numpy" + TRAINS, ("import torch", LATE)),
        # Something runs before PyTorch is imported: what it does might matter.
        ("import os\nos.environ['OMP_NUM_THREADS'] = '2'\nimport torch\n", ()),
        ("try:\n    import torch\nexcept ImportError:\n    pass\n", ()),
        ("import lightning\nimport torch\n", ()),
        ("from .model import net\nimport torch\n", ()),
        ("import torch\nimport lightning\nimport numpy" + TRAINS, ("import torch",)),
        # Ours: each rank imports it, and what the others share does not depend on it.
        (
            "import torch\nfrom loomnet.torch import mixnet\nimport numpy" + TRAINS,
            ("import torch", "import numpy", LATE),
        ),
        ("import numpy\n", ()),
        ("import torch\nthis is no Python", ()),
    ],
)
def test_what_a_script_begins_with(tmp_path, script, found):
    assert shared(tmp_path, script) == found


@pytest.mark.parametrize(
    "line",
    [
        "os.environ['TORCH_LOGS'] = '+dynamo'",
        "os.environ.setdefault('A', 'b')",
        "del os.environ['A']",
        "os.environ |= {}",
        "settings(os.environ)",
        "os.putenv('A', 'b')",
        "from dotenv import load_dotenv",
        "from os import environ as e; e['A'] = 'b'; f(environ)",
        "def late():\n    import lightning",
    ],
)
def test_the_compiler_waits_where_the_environment_may_change(tmp_path, line):
    assert shared(tmp_path, f"import os\nimport torch\n{line}\n{TRAINS}") == ("import torch",)


@pytest.mark.parametrize(
    "line",
    [
        "rank = int(os.environ['RANK'])",
        "rank = os.environ.get('RANK', 0)",
        "os.getenv('RANK')",
        "inside = 'RANK' in os.environ",
        "mine = {**os.environ.copy()}",
    ],
)
def test_reading_the_environment_is_no_change(tmp_path, line):
    assert LATE in shared(tmp_path, f"import os\nimport torch\n{line}\n{TRAINS}")


MAIN = "from model import main\nimport numpy\nmain()\n"


@pytest.mark.parametrize(
    ("model", "found"),
    [
        (
            "import torch\nSIZE = 3\ndef main():\n    torch.optim.SGD\n",
            ("import torch", "import numpy", LATE),
        ),
        ("import os\nimport torch\nos.environ['A'] = 'b'\n", ("import torch",)),
        ("import os\nos.environ['A'] = 'b'\nimport torch\n", ()),
        ("import torch\nprint(torch.rand(1))\n", ("import torch",)),
    ],
)
def test_modules_beside_the_script_are_read_too(tmp_path, model, found):
    assert shared(tmp_path, MAIN, model=model) == found


def test_a_module_that_hides_one_of_pythons(tmp_path):
    assert shared(tmp_path, "import torch\n", random="") == ()
    assert shared(tmp_path, "import torch\n", loomnet="") == ()
