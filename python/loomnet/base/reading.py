"""Files that a user names: regular ones alone, up to a bound, so that neither a pipe nor a device
holds a command up, and every refusal is one line."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

from loomnet.base.errors import UsageError
from loomnet.base.names import quoted

MOST_TEXT = 1 << 28  # bytes of a report, a trace's text or a table
MOST_SOURCE = 1 << 24  # of a Python file
_PIECE = 1 << 20
_NO_FILE = "not a regular file"


def user_path(where: str, value: Any) -> Path:
    """A path that a user gave. Raises UsageError, beginning with `where`, for what is none."""
    if not isinstance(value, (str, Path)) or "\0" in str(value) or not str(value):
        raise UsageError(f"{where}: {quoted(value)} is not a path")
    return Path(value)


def is_file(path: str | Path) -> bool:
    """Whether a regular file is there. A name that no file can have (too long, with a NUL) is
    none; Path.is_file() raises OSError for some of those."""
    sys.audit("loomnet.looked", path)  # for processes.inputs: the answer may decide what is read
    return os.path.isfile(path)


def other_than_a_file(path: str | Path) -> str | None:
    """How a refusal calls what stands at `path`, if that is no regular file: "a folder, not a
    file"; None for a regular file and where nothing is."""
    try:
        return _other_kind(os.stat(path).st_mode)
    except (OSError, ValueError):
        return None


def _other_kind(mode: int) -> str | None:
    if stat.S_ISREG(mode):
        return None
    return "a folder, not a file" if stat.S_ISDIR(mode) else _NO_FILE


def read_bytes(path: str | Path, most: int = MOST_TEXT) -> bytes:
    """All of a regular file. Raises UsageError, naming the file, for one that cannot be read, is no
    regular file, or holds more than `most` bytes."""
    return read_owned(path, most)[0]


def read_owned(path: str | Path, most: int = MOST_TEXT) -> tuple[bytes, os.stat_result]:
    """The same, and whose the very file is that was read. Raises as read_bytes."""
    try:
        # Without O_NONBLOCK a pipe that nothing writes to would be waited for.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket
            raise UsageError(f"{path} is {_NO_FILE}") from None
        raise UsageError(f"{path}: {_why_not(path, error)}") from None
    except ValueError as error:  # a NUL in the name
        raise UsageError(f"{path}: {error}") from None
    owner = os.fstat(descriptor)
    if (other := _other_kind(owner.st_mode)) is not None:
        os.close(descriptor)
        raise UsageError(f"{path} is {other}")
    pieces, total = [], 0
    with open(descriptor, "rb") as file:
        try:
            # In pieces: read(most) would make room for all of `most` first.
            while piece := file.read(_PIECE):
                pieces.append(piece)
                if (total := total + len(piece)) > most:
                    raise UsageError(f"{path} holds more than {most >> 20} MiB")
        except OSError as error:
            raise UsageError(f"{path}: {_why_not(path, error)}") from None
    return b"".join(pieces), owner


def _why_not(path: str | Path, error: OSError) -> str:
    """With the folder in which a relative path was looked for, if nothing is there."""
    if error.errno == errno.ENOENT and not os.path.isabs(path):
        return f"{error.strerror} in {os.getcwd()}"
    return error.strerror or str(error)


def read_text(path: str | Path, most: int = MOST_TEXT) -> str:
    """All of a regular UTF-8 file. Raises UsageError as read_bytes does, and for other text."""
    return decoded(path, read_bytes(path, most))


def decoded(path: str | Path, content: bytes) -> str:
    """The text that a file holds as UTF-8. Raises UsageError, naming the file, for other text."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: byte {error.start} is not UTF-8") from None


def parse_json(text: str | bytes, where: str) -> Any:
    """The value of a JSON text. Raises UsageError, beginning with `where`."""
    try:
        return json.loads(text)
    except RecursionError:
        raise UsageError(f"{where}: brackets are nested too deeply") from None
    except json.JSONDecodeError as error:
        raise UsageError(f"{where}: not JSON: {error}") from None
    except ValueError:  # UnicodeDecodeError, and whole numbers beyond what int() reads
        raise UsageError(f"{where}: not JSON: not UTF-8, or thousands of digits") from None


_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,3})?")
MOST_NUMBER = 2**62


def exact_number(where: str, text: str, name: str, unit: int = 1) -> int:
    """A decimal number of a file, times `unit`. The product must be whole: nothing is cut in
    silence. Raises UsageError naming the place and the word."""
    value = Fraction(-1)
    if _NUMBER.fullmatch(text) and len(text) < 40:
        value = Fraction(text) * unit
    if not 0 <= value < MOST_NUMBER:
        raise UsageError(f'{where}: {name} "{text[:40]}" is not a number from 0 to 2^62')
    if value.denominator != 1:
        raise UsageError(
            f'{where}: {name} "{text[:40]}" is not whole'
            + (f" in units of 1/{unit}" if unit > 1 else "")
        )
    return int(value)
