"""The modules that a folder of scenarios keeps for itself, as its scenarios have them."""

import importlib.util
import sys
from pathlib import Path

SCENARIOS = Path(__file__).parents[2] / "scenarios"


def lib(folder):
    """scenarios/FOLDER/lib as a package of a name of its own: several folders have one."""
    name, home = f"lib_of_{folder}", SCENARIOS / folder / "lib"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            name, home / "__init__.py", submodule_search_locations=[str(home)]
        )
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]
