"""What can go wrong, as one hierarchy; each class knows the exit status it stands for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# Where several apply to a run, the report has the first of 130, 4, 3, 2, 1.
EXIT_OK, EXIT_CHECK_FAILED, EXIT_USAGE, EXIT_FIDELITY, EXIT_SCENARIO = 0, 1, 2, 3, 4
EXIT_INTERRUPTED = 130
MOST_SHOWN = 1500  # characters of a message; a value given by the user may be of any length


class LoomnetError(Exception):
    """Base of all errors raised by Loomnet. The message is one line: what failed, and the fix."""

    exit_code = EXIT_CHECK_FAILED

    def __str__(self) -> str:
        """One line, whatever a name in it holds: a line break or another control character that
        came with a user's value is written as its escape, and a long text loses its middle."""
        return _line(self)

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows in place of a traceback: the line says what to do."""
        return [f"{type(self).__name__}: {self}"]


def _line(error: BaseException) -> str:
    # Of a class that is a KeyError, too, not the text in quotes.
    text = printable(BaseException.__str__(error))
    if len(text) <= MOST_SHOWN:
        return text
    return f"{text[: MOST_SHOWN * 2 // 3]} … {text[-MOST_SHOWN // 3 :]}"


def printable(text: str, keep: str = "") -> str:
    """The text with escapes for what a terminal acts on, but for the characters in `keep`."""
    return "".join(c if c.isprintable() or c in keep else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


class UsageError(LoomnetError, ValueError):
    """Bad input: a field that does not validate, a name that does not exist. Exit status 2."""

    exit_code = EXIT_USAGE


class UnitError(UsageError):
    """A quantity without a unit, with an unknown unit, or out of range."""


class FabricError(UsageError):
    """Nodes, links or ports that do not add up."""


class AddressError(FabricError):
    """The uSID or entropy-value space is too small for this fabric."""


class PluginError(UsageError):
    """A plug-in's class does not keep its contract, or its own code raised. Exit status 2."""


class ContractError(PluginError):
    """What check_plugin found: a line for each breach, all of them in `breaches`."""

    def __init__(self, name: str, breaches: Sequence[str]) -> None:
        super().__init__(name)
        self.name, self.breaches = name, tuple(breaches)

    def __str__(self) -> str:
        return "\n".join(printable(f"{self.name}: {line}")[:MOST_SHOWN] for line in self.breaches)


class PrivilegeError(LoomnetError):
    """The run needs root or a capability; the message holds the line to type. Exit status 2."""

    exit_code = EXIT_USAGE


class UnavailableError(LoomnetError):
    """A kernel feature, tool or optional part is missing. Exit status 2."""

    exit_code = EXIT_USAGE


class FidelityError(LoomnetError):
    """The engine fell behind, or lost packets of its own. Exit status 3, above a failed check."""

    exit_code = EXIT_FIDELITY


class RunInterrupted(KeyboardInterrupt):
    """Ctrl-C: what was measured so far is in the partial report, and in `result` where a run was
    under way, which a notebook reads as `sys.last_value.result`. Exit status 130. No error of
    Loomnet's: `except Exception` in a loop over runs does not take it for a run that failed."""

    exit_code = EXIT_INTERRUPTED
    result: Any = None

    def __str__(self) -> str:
        return _line(self)

    def _render_traceback_(self) -> list[str]:
        """In a notebook: with where the result is, since the cell's variables have none."""
        said = [f"RunInterrupted: {self}"]
        if self.result is not None:
            said[-1] += "; what was measured until then: import sys; sys.last_value.result"
        return said


class WallTimeError(LoomnetError):
    """--max-wall is over, and the scenario's own code was still running, or a run had not begun.
    Exit status 1."""


class UnknownAttributeError(UsageError, AttributeError):
    """A name that the package does not have; also an AttributeError, as of a module."""

    __str__ = LoomnetError.__str__


class UnknownNameError(UsageError, KeyError):
    """A figure or column that a report does not have; also a KeyError, as of a mapping."""

    __str__ = LoomnetError.__str__
