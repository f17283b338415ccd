"""Entry of the command line: fast where nothing is to be done, and every error becomes one line and
its exit status."""

from __future__ import annotations

import contextlib
import errno
import gc
import io
import os
import sys
from collections.abc import Sequence

from loomnet.base.errors import EXIT_INTERRUPTED, EXIT_USAGE, UnavailableError
from loomnet.base.wall_time import importing
from loomnet.cli.leaving import end_threads, exits_named
from loomnet.processes.interrupts import Interrupts, caught_signals


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns the exit status, as errors.py numbers them. An interrupted
    command says so in one line, wherever the signal found it."""
    if arguments is not None:
        status = _run(list(arguments))
        if status == EXIT_INTERRUPTED:
            _say_interrupted()
        return status
    if not _streams():
        return EXIT_USAGE
    gc.set_threshold(20_000)  # imports and plans make many objects and hardly any garbage
    try:
        caught_signals()
    except UnavailableError as error:
        print(f"loomnet: {error}", file=sys.stderr)
        return error.exit_code
    with Interrupts() as interrupts:
        try:
            with interrupts.listen():
                status = _run(sys.argv[1:])
        except KeyboardInterrupt:
            status = EXIT_INTERRUPTED
        except OSError as error:
            # A terminal that was closed sends SIGHUP, and takes nothing more.
            if interrupts.pending is None or error.errno != errno.EIO:
                raise
        if interrupts.pending:
            interrupts.ignore()
            status = EXIT_INTERRUPTED
        if status == EXIT_INTERRUPTED:
            _say_interrupted()
        if interrupts.pending:
            _flush()
    end_threads(status)
    return status


def _streams() -> bool:
    """Whether the command can say what it has to say. A stream that was closed before the start
    (`<&-`) is /dev/null, so that no file that is opened later takes its number."""
    without = sys.stdout is None
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))
    if without:
        print(
            "loomnet: standard output is closed, so nothing was run; write >/dev/null to run "
            "without it",
            file=sys.stderr,
        )
    return not without


def _say_interrupted() -> None:
    # A KeyboardInterrupt that has left an exec() of a string, as namedtuple calls it, makes Python
    # end by SIGINT in place of the exit status. The next exec() undoes that.
    exec("")
    with contextlib.suppress(OSError):
        print("loomnet: interrupted", file=sys.stderr)


def _flush() -> None:
    """Where the terminal has gone, what is left for it goes to /dev/null: Python would fail on it
    at its end."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _run(words: list[str]) -> int:
    if isinstance(sys.stdout, io.TextIOWrapper):  # a file's name may hold bytes that are no text
        sys.stdout.reconfigure(errors="backslashreplace")
    if words == ["--version"]:
        from loomnet.base.version import version

        print(f"loomnet {version()}")
        return 0
    if not words and "_LOOMNET_COMPLETE" not in os.environ:  # the shell asks for completions so
        from loomnet.cli.greeting import greeting

        print(greeting())
        return 0
    from loomnet.base.errors import LoomnetError

    try:
        with importing():
            from loomnet.cli.commands import app
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except ImportError as error:
        print(f"loomnet: {error}; in a clone of Loomnet: pip install .", file=sys.stderr)
        return EXIT_USAGE
    try:
        with exits_named(), importing():
            status = _status(app.only(words)(words, prog_name="loomnet", standalone_mode=False))
        sys.stdout.flush()  # what cannot be written must not fail silently behind this line
        return status
    except LoomnetError as error:
        print(f"loomnet: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt as error:
        return _interrupted(error)
    except BaseException as error:
        return _other(error)


def _status(value: object) -> int:
    return value if isinstance(value, int) else 0


def _interrupted(error: BaseException | None) -> int:
    from loomnet.base.errors import RunInterrupted

    if isinstance(error, RunInterrupted):  # says when the run ended, and where
        print(f"loomnet: {error}", file=sys.stderr)
    return EXIT_INTERRUPTED


def _other(error: BaseException) -> int:
    """Typer's own (usage errors and Abort), what a scenario's code raised, a standard output that
    takes nothing more; raises everything else again: that is a defect of Loomnet's."""
    from loomnet.base.errors import EXIT_OK, EXIT_SCENARIO

    kind = type(error).__name__
    if kind == "Exit" and (code := getattr(error, "exit_code", None)) is not None:
        return int(code)
    if kind == "Abort":  # Typer's KeyboardInterrupt
        return _interrupted(error.__cause__)
    message = getattr(error, "format_message", None)
    if kind == "NoArgsIsHelpError" and message:  # `loomnet ocs` alone
        print(message())
        return EXIT_OK
    if message is not None:
        text = " ".join(str(message()).split()).rstrip(".")
        context = getattr(error, "ctx", None)
        command = "loomnet" if context is None else context.command_path
        print(f"loomnet: {text}; see {command} --help", file=sys.stderr)
        return EXIT_USAGE
    gone = _output_error(error)
    if gone is not None:
        # A reader that has enough, as of `loomnet list | head`, needs no word.
        if not isinstance(gone, BrokenPipeError):
            print(f"loomnet: standard output: {gone.strerror}", file=sys.stderr)
        return EXIT_USAGE
    from loomnet.labs.typed_function import own_traceback

    if (lines := own_traceback(error)) is not None:
        print("".join(lines), end="", file=sys.stderr)
        print("loomnet: the scenario's own code raised the exception above", file=sys.stderr)
        return EXIT_SCENARIO
    raise error


def _output_error(error: BaseException) -> OSError | None:
    """What keeps standard output from taking more, where that is what `error` tells of: its reader
    has left, or its disk is full. Python must not try again at its end, so what is left goes to
    /dev/null."""
    cause = error.__context__ if isinstance(error, SystemExit) else error
    if isinstance(cause, BrokenPipeError) and cause is not error:
        return cause  # rich has sent the rest to /dev/null already
    if not isinstance(error, OSError):
        return None
    try:
        sys.stdout.write("\n")
        sys.stdout.flush()
    except OSError as again:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return again
    return None
