"""What can go wrong, as one hierarchy; each class knows the exit status it stands for."""

from __future__ import annotations


class LoomnetError(Exception):
    """Base of all errors raised by Loomnet. The message is one line: what failed, and the fix."""

    exit_code = 1


class UsageError(LoomnetError, ValueError):
    """Bad input: a field that does not validate, a name that does not exist. Exit status 2."""

    exit_code = 2


class UnitError(UsageError):
    """A quantity without a unit, with an unknown unit, or out of range."""


class FabricError(UsageError):
    """Nodes, links or ports that do not add up."""


class AddressError(FabricError):
    """The uSID or entropy-value space is too small for this fabric."""


class PrivilegeError(LoomnetError):
    """The run needs root or a capability; the message holds the line to type. Exit status 2."""

    exit_code = 2


class UnavailableError(LoomnetError):
    """A kernel feature, tool or optional part is missing. Exit status 2."""

    exit_code = 2


class FidelityError(LoomnetError):
    """The engine fell behind, or lost packets of its own. Exit status 3, above a failed check."""

    exit_code = 3


class RunInterrupted(LoomnetError):
    """Ctrl-C: what was measured so far is in the partial report. Exit status 130."""

    exit_code = 130


class JobError(LoomnetError):
    """A rank failed or the job stalled; holds the first failing rank's traceback."""


EXIT_OK, EXIT_CHECK_FAILED, EXIT_USAGE, EXIT_FIDELITY, EXIT_INTERRUPTED = 0, 1, 2, 3, 130
