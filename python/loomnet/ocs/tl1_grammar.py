"""TL1 as optical circuit switches speak it: a command's blocks, its access identifiers, and the
frames of answers (after GR-831)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

MOST_COMMAND = 16 << 10  # characters
MOST_PORTS = 4096  # that one command names
_BLOCKS = 7  # verb, target, access identifier, correlation tag, reserved, two of parameters
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,20}", re.ASCII)
_CTAG = re.compile(r"[A-Za-z0-9_-]{1,20}", re.ASCII)


class Denied(Exception):
    """A command that is not carried out: its code and what is wrong."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(code, text)
        self.code, self.text = code, text


@dataclass
class Command:
    """`aid`: what it is about; `positional`: block 1 of its parameters, `named` block 2."""

    verb: str
    tid: str
    aid: str
    ctag: str
    positional: list[str] = field(default_factory=list)
    named: dict[str, str] = field(default_factory=dict)


def parse(text: str) -> Command:
    """One command, without its semicolon. Raises Denied, with the correlation tag, "0" where there
    is none, as its third argument."""
    parts, starts = _split(text)
    ctag = parts[3].strip() if len(parts) > 3 else ""
    if len(parts) > _BLOCKS:
        raise _mistake("IICT", starts[_BLOCKS], ctag)
    if not _CTAG.fullmatch(ctag):
        at = starts[3] if len(parts) > 3 else len(text) + 1
        raise _mistake("IICT", at, "")
    tid = parts[1].strip()
    if tid.startswith('"') and tid.endswith('"') and len(tid) >= 2:
        tid = tid[1:-1]
    positional = parts[5] if len(parts) > 5 else ""
    named: dict[str, str] = {}
    for each in parts[6].split(",") if len(parts) > 6 and parts[6].strip() else ():
        key, equals, value = each.partition("=")
        if not equals or not key.strip():
            raise _tagged(Denied("IPNV", "Parameter not valid"), ctag)
        named[key.strip().upper()] = value.strip()
    return Command(parts[0].strip().upper(), tid, parts[2].strip(), ctag,
                   [each.strip() for each in positional.split(",")] if positional.strip() else [],
                   named)


def tid_at(text: str) -> int:
    """Where a command's target begins, counted from 1."""
    return text.find(":") + 2


def _split(text: str) -> tuple[list[str], list[int]]:
    """Blocks between colons outside of quotes, and where each begins, counted from 1."""
    parts, starts, quoted = [""], [1], False
    for at, character in enumerate(text):
        quoted ^= character == '"'
        if character == ":" and not quoted:
            parts.append("")
            starts.append(at + 2)
        else:
            parts[-1] += character
    return parts, starts


def _mistake(code: str, at: int, ctag: str) -> Denied:
    return _tagged(Denied(code, f"Parse error at offset {at} in command"), ctag)


def _tagged(denied: Denied, ctag: str) -> Denied:
    denied.args = (denied.code, denied.text, ctag if _CTAG.fullmatch(ctag) else "0")
    return denied


def ports(text: str, first: int, last: int) -> list[int]:
    """Ports of a list, `11&12`, `1&&4`, `ALL` or nothing for all of first to last, each once.
    Raises Denied."""
    if text == "" or text.upper() == "ALL":
        return list(range(first, last + 1))
    found: dict[int, None] = {}
    # Between two ampersands nothing stands but in a range.
    for part in re.split(r"(?<!&)&(?!&)", text):
        ends = part.split("&&")
        numbers = [_port(end, first, last) for end in ends]
        if len(numbers) > 2 or numbers[0] > numbers[-1]:
            raise Denied("IDNV", f"Invalid value {part[:40]}")
        found.update(dict.fromkeys(range(numbers[0], numbers[-1] + 1)))
        if len(found) > MOST_PORTS:
            raise Denied("IDNV", f"Invalid value {part[:40]}")
    return list(found)


def _port(text: str, first: int, last: int) -> int:
    text = text.strip()
    if not re.fullmatch(r"[0-9]{1,9}", text, re.ASCII) or not first <= int(text) <= last:
        raise Denied("IDNV", f"Invalid OXC port: {text[:40]}")
    return int(text)


def sid_allowed(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def completed(sid: str, ctag: str, at: str, lines: list[str]) -> bytes:
    """`at`: `yy-mm-dd hh:mm:ss`."""
    body = "".join(f'   "{line}"\r\n' for line in lines)
    return f"\r\n\n   {sid} {at}\r\nM  {ctag} COMPLD\r\n{body};".encode("ascii", "replace")


def denied(sid: str, ctag: str, at: str, code: str, text: str) -> bytes:
    # A comment that closed itself would end the answer's text early.
    shown = "".join(c if c.isascii() and c.isprintable() else "?" for c in text)
    shown = shown.replace("*/", "* /").replace(";", ",")
    return (f"\r\n\n   {sid} {at}\r\nM  {ctag} DENY\r\n   {code}\r\n   /* {shown} */\r\n;"
            ).encode("ascii", "replace")
