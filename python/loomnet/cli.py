"""Entry of the command line: fast where nothing is to be done, and every error becomes one line and
its exit status."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from loomnet.live.interrupts import Interrupts


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns the exit status: 0 all checks hold; 1 a check failed; 2 bad
    input or missing privilege; 3 the engine fell behind; 130 interrupted."""
    if arguments is not None:
        return _run(list(arguments))
    with Interrupts() as interrupts:
        try:
            with interrupts.listen():
                status = _run(sys.argv[1:])
        except KeyboardInterrupt:
            print("loomnet: interrupted", file=sys.stderr)
            status = 130
        if interrupts.pending:
            interrupts.ignore()
    return status


def _run(words: list[str]) -> int:
    if words == ["--version"]:
        from loomnet import version

        print(f"loomnet {version()}")
        return 0
    from loomnet.errors import EXIT_INTERRUPTED, LoomnetError

    try:
        from loomnet.commands import app
    except ImportError as error:
        print(f"loomnet: {error}; install the package: pip install .", file=sys.stderr)
        return 2
    try:
        return _status(app(words, prog_name="loomnet", standalone_mode=False))
    except LoomnetError as error:
        print(f"loomnet: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("loomnet: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except Exception as error:  # typer's own: usage errors and Abort
        return _typer_status(error)


def _status(value: object) -> int:
    return value if isinstance(value, int) else 0


def _typer_status(error: Exception) -> int:
    kind = type(error).__name__
    if kind == "Exit":
        return int(getattr(error, "exit_code", 0))
    if kind == "Abort":
        return 130
    if kind == "NoArgsIsHelpError":  # `loomnet` alone: help is the answer, not a mistake
        print(error.format_message())  # type: ignore[attr-defined]
        return 0
    if hasattr(error, "format_message"):
        text = str(error.format_message()).rstrip(".")
        context = getattr(error, "ctx", None)
        command = "loomnet" if context is None else context.command_path
        print(f"loomnet: {text}; see {command} --help", file=sys.stderr)
        return 2
    raise error
