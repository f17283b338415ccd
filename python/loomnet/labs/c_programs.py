"""Switch programs of C files in a run: what its clock needs of them, and copies that it keeps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from loomnet.fabrics.model import Fabric
from loomnet.fabrics.view import FabricView
from loomnet.programs.c_file import CFile, known, needs_engine, needs_kernel


def check_c_programs(fabric: Fabric, clock: str) -> None:
    """Compiles for the kernel what runs there. Raises UsageError, UnavailableError where a program
    cannot run on the clock where its switch is placed."""
    for switch, program in _c_programs(fabric):
        if clock == "live" and fabric.switches[switch].placement != "engine":
            needs_kernel(program)
        else:
            needs_engine(program)


def sources_of(fabric: FabricView, scenario: Path | None) -> dict[str, bytes]:
    """The C files of a fabric's programs by the paths of their copies in a run's folder: as from
    the folder of the scenario's file where they are below it; a replay finds them there."""
    home = None if scenario is None else scenario.absolute().parent
    found: dict[str, bytes] = {}
    for _, program in _c_programs(fabric):
        below = home is not None and program.path.is_relative_to(home)
        name = str(program.path.relative_to(home)) if home and below else program.path.name
        if found.get(name, program.source) != program.source:
            name = program.name.removesuffix(".c")
        found[name] = program.source
    return found


def _c_programs(fabric: FabricView) -> Iterator[tuple[str, CFile]]:
    for switch, name in fabric.programs.items():
        if (program := known(name)) is not None:
            yield switch, program
