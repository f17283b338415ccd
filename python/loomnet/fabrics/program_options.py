"""Options of a switch program, as a user writes them and as the program takes them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from typing import Any

from loomnet.base.errors import FabricError, UnitError
from loomnet.base.names import did_you_mean, quoted
from loomnet.base.units import Size, Time


def program_options(where: str, program: str, given: dict[str, Any]) -> dict[str, Any]:
    """The options as the program takes them: sizes in bytes, distances between the senders of a
    ring and lists of jobs as text. Raises FabricError."""
    import loomnet._core as _core  # only a fabric that names programs loads the engine

    try:
        made = _core.switch_program(program)
    except ValueError as error:
        raise FabricError(f"{where}: {error}") from None
    units, options = made["units"], {}
    for name, value in given.items():
        if name not in made["options"] and "@" in program:  # of a C file
            raise FabricError(
                f'{where}: {program} has no option "{name}"{did_you_mean(name, made["options"])}'
            )
        if units.get(name) == "run":
            raise FabricError(f"{where}: option {name} is set by the run; leave it out")
        options[name] = _in_units(
            f"{where}: {name}", units.get(name), value, bare="@" not in program
        )
    try:
        _core.check_switch_program(program, 1, options)
    except (ValueError, TypeError, OverflowError) as error:
        raise FabricError(f"{where}: {_bounds_in_units(str(error), units)}") from None
    return options


def _bounds_in_units(said: str, units: Mapping[str, str]) -> str:
    """The engine's refusal of a number, with its bounds as a user writes them."""
    found = re.search(r"option (\w+): must be (\d+) to (\d+), not (\d+)$", said)
    kind = {"ps": Time, "bytes": Size}.get(units.get(found[1], "")) if found else None
    if found is None or kind is None:
        return said
    least, most, given = (kind.of(int(number)) for number in found.groups()[1:])
    return f"{said[: found.start()]}option {found[1]}: must be {least} to {most}, not {given}"


def _in_units(where: str, unit: str | None, value: Any, *, bare: bool) -> Any:
    """`bare`: whether numbers without a unit are taken where there is one."""
    if unit == "bytes" and (isinstance(value, (str, Size)) or not bare):
        return Size.given(where, value).bytes
    if unit == "ps" and (isinstance(value, (str, Time)) or not bare):
        return Time.given(where, value).count
    if unit == "distance":  # "1 step", or units of progress: bytes where packets count bytes
        if isinstance(value, str) and value.rstrip("s").endswith("step"):
            return value
        with contextlib.suppress(UnitError):  # not a size: the program refuses it, with its units
            if isinstance(value, (str, Size)):
                return str(Size(value).bytes)
        return str(value) if type(value) is int else value
    if unit == "jobs" and isinstance(value, (list, tuple)):
        if not value or not all(isinstance(each, str) and each for each in value):
            raise FabricError(f"{where}: {quoted(value)} is no list of jobs' names")
        return ",".join(value)
    return value
