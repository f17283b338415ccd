"""Names of simplex ports (`1A`) and of cross-connects (`1A-16B`), and lists and ranges of them,
as in SONiC's OCS design. Ports are numbered from 1 in names and from 0 in what these functions
return."""

from __future__ import annotations

import re
from collections.abc import Iterable

from loomnet.base.errors import UsageError
from loomnet.base.names import quoted

MOST_TEXT = 64 << 10  # characters of a list
MOST_NAMED = 1024  # cross-connects of one request, as many as the design's largest device has
_PORT = re.compile(r"([0-9]{1,9})([AB])", re.ASCII)
_CONNECT = re.compile(r"([0-9]{1,9}A)-([0-9]{1,9}B)", re.ASCII)
_RANGE = re.compile(r"([0-9]{1,9})A\.\.([0-9]{1,9})A-([0-9]{1,9})B\.\.([0-9]{1,9})B", re.ASCII)

Simplex = tuple[int, bool]  # port number from 0, and whether it is side B, where light leaves
Pair = tuple[int, int]  # ingress and egress port, from 0


class NameMistake(UsageError):
    """A text that is not the name of a port or cross-connect. The message begins with "Invalid"."""


class RangeMistake(UsageError):
    """The name of a port that the panel does not have. The message begins with "Error"."""


def port_name(port: int, out: bool) -> str:
    return f"{port + 1}{'B' if out else 'A'}"


def pair_name(a: int, b: int) -> str:
    return f"{a + 1}A-{b + 1}B"


def port(text: str, ports: int) -> Simplex:
    """The simplex port that a name stands for. Raises NameMistake, RangeMistake."""
    found = _PORT.fullmatch(text.strip().upper())
    if found is None:
        raise NameMistake(f"Invalid port name {quoted(text)}: write a number and A or B, as 1A")
    return _number(found[1], ports, text), found[2] == "B"


def pairs(text: str, ports: int) -> list[Pair]:
    """The cross-connects of a list such as `1A-1B,2A..4A-5B..7B`, in its order and without repeats.
    Raises NameMistake, RangeMistake."""
    if len(text) > MOST_TEXT:
        raise NameMistake(f"Invalid cross-connect list: it has more than {MOST_TEXT} characters")
    found: list[Pair] = []
    for part in text.split(","):
        name = part.strip().upper()
        if one := _CONNECT.fullmatch(name):
            found.append((_number(one[1][:-1], ports, part), _number(one[2][:-1], ports, part)))
        elif one := _RANGE.fullmatch(name):
            a, a_last, b, b_last = (_number(each, ports, part) for each in one.groups())
            if a_last < a or b_last < b or a_last - a != b_last - b:
                raise NameMistake(
                    f"Invalid cross-connect range {quoted(part)}: both sides go "
                    "upwards and have equal lengths, as 1A..4A-5B..8B"
                )
            found.extend(zip(range(a, a_last + 1), range(b, b_last + 1), strict=True))
        else:
            raise NameMistake(
                f"Invalid cross-connect id {quoted(part)}: write 1A-16B, from an A side to a B side"
            )
        if len(found) > MOST_NAMED:
            raise NameMistake(f"Invalid cross-connect list: more than {MOST_NAMED} in one request")
    return once(found)


def once(found: Iterable[Pair]) -> list[Pair]:
    """Raises RangeMistake for a port that is named twice: a port is in one cross-connect."""
    listed = list(found)
    for side, out in ((0, False), (1, True)):
        named: set[int] = set()
        for each in listed:
            if each[side] in named:
                raise RangeMistake(
                    f"Error: port {port_name(each[side], out)} is named twice; a "
                    "port is in one cross-connect"
                )
            named.add(each[side])
    return listed


def _number(digits: str, ports: int, text: str) -> int:
    if not 1 <= int(digits) <= ports:
        raise RangeMistake(
            f"Error: no port {int(digits)} in {quoted(text.strip())}; the panel has "
            f"ports 1 to {ports}"
        )
    return int(digits) - 1
