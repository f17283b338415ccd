"""The text format of TL1: how a command is parsed, the codes of mistakes, and the frame of an
answer (Telcordia GR-831, in the dialect of the panels of MixNet's prototype)."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass

MOST_COMMAND = 16 << 10  # characters
_BLOCKS = 7  # verb, tid, aid, ctag, reserved, positional parameters, keyed ones
_VERB = re.compile(r"[A-Z]{2,8}(-[A-Z]{1,16}){1,3}")
_CTAG = re.compile(r"[A-Za-z0-9._-]*")
_MOST_CTAG = 32
_MOST_ECHO = 60  # characters of a command that an answer repeats


class Denied(Exception):
    """A command is refused. Has the code of the mistake, and the text of the comment."""

    def __init__(self, code: str, comment: str) -> None:
        super().__init__(f"{code}: {comment}")
        self.code, self.comment = code, comment


def echoed(text: str) -> str:
    """A part of a command, made safe to stand in a comment: it cannot end the comment."""
    text = text.replace("*/", "* /")
    return text if len(text) <= _MOST_ECHO else f"{text[:_MOST_ECHO]}..."


def invalid_value(text: str) -> Denied:
    return Denied("IDNV", f"Invalid value {echoed(text)}")


def parse_error(code: str, at: int) -> Denied:
    """`at`: index of the wrong character in the command, from 0."""
    return Denied(code, f"Parse error at offset {at + 1} in command")


@dataclass(frozen=True)
class Command:
    """`positional` and `keyed` are the parameters of blocks 1 and 2."""

    verb: str
    aid: str
    ctag: str
    positional: tuple[str, ...]
    keyed: dict[str, str]


def parse(text: str, sid: str) -> Command:
    """Parses a command, given without its `;`. `sid`: the device's name; a command that has a tid
    must have this one. Raises Denied."""
    for at, character in enumerate(text):
        if not " " <= character <= "~":
            raise parse_error("IICT", at)
    blocks = _split(text, ":", 0)
    ctag, ctag_at = blocks[3] if len(blocks) > 3 else ("", len(text))
    if len(blocks) > _BLOCKS:
        raise parse_error("IICT", blocks[_BLOCKS][1] - 1)
    wrong = _CTAG.match(ctag)
    assert wrong is not None
    if not ctag or wrong.end() < len(ctag) or len(ctag) > _MOST_CTAG:
        raise parse_error("IICT", ctag_at + min(wrong.end(), _MOST_CTAG))
    verb = blocks[0][0].upper()
    if not _VERB.fullmatch(verb):
        raise Denied("ICNV", f"Command not valid: {echoed(blocks[0][0])}")
    tid, tid_at = blocks[1]
    if tid and _unquoted(tid).upper() != sid.upper():
        raise parse_error("IITA", tid_at)
    rest = [block for block, _ in blocks[5:]] + ["", ""]
    positional = tuple(_unquoted(part) for part, _ in _split(rest[0], ",", 0)) if rest[0] else ()
    keyed: dict[str, str] = {}
    for part, _ in _split(rest[1], ",", 0) if rest[1] else ():
        key, sign, value = part.partition("=")
        key = key.strip().upper()
        if not sign or not key or key in keyed:
            raise Denied("IPNV", "Parameter not valid")
        keyed[key] = value.strip()
    return Command(verb, blocks[2][0], ctag, positional, keyed)


def ctag_of(text: str) -> str:
    """The ctag of a command, also of one that is malformed; "0" where it has none."""
    blocks = text.split(":", 4)
    ctag = blocks[3].strip() if len(blocks) > 3 else ""
    return ctag if 0 < len(ctag) <= _MOST_CTAG and _CTAG.fullmatch(ctag) else "0"


def _split(text: str, sign: str, begin: int) -> list[tuple[str, int]]:
    """The parts between separators outside of double quotes, each with the index where it begins.
    Raises Denied for a quote that is not closed."""
    found: list[tuple[str, int]] = []
    start, quote = begin, -1
    for at in range(begin, len(text)):
        if text[at] == '"':
            quote = at if quote < 0 else -1
        elif text[at] == sign and quote < 0:
            found.append((text[start:at].strip(), start))
            start = at + 1
    if quote >= 0:
        raise parse_error("IICT", quote)
    return [*found, (text[start:].strip(), start)]


def values_of(text: str) -> list[str]:
    """The values that are separated by `&`, without their quotes."""
    return [_unquoted(part) for part, _ in _split(text, "&", 0)]


def _unquoted(text: str) -> str:
    text = text.strip()
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text


# --- answers --------------------------------------------------------------------------------------


def completed(sid: str, ctag: str, lines: Iterable[str], at: float) -> bytes:
    body = "".join(f'   "{line}"\r\n' for line in lines)
    return f"{_header(sid, at)}M  {ctag} COMPLD\r\n{body};".encode("ascii")


def denied(sid: str, ctag: str, why: Denied, at: float) -> bytes:
    return (
        f"{_header(sid, at)}M  {ctag} DENY\r\n   {why.code}\r\n   /* {why.comment} */\r\n;"
    ).encode("ascii", "replace")


def _header(sid: str, at: float) -> str:
    name = f'"{sid}"' if " " in sid else sid
    return f"\r\n\n   {name} {time.strftime('%y-%m-%d %H:%M:%S', time.gmtime(at))}\r\n"
