"""TL1's access identifiers of ports: ingress ports are 1 to N, egress ports N+1 to 2N; `&` makes a
list, `&&` a range, `ALL` or nothing means all, and `,` stands between ingress and egress."""

from __future__ import annotations

import re
from collections.abc import Iterable

from loomnet.ocs.names import Simplex
from loomnet.ocs.tl1_syntax import Denied, echoed

_NUMBER = re.compile(r"[0-9]{1,6}", re.ASCII)
_SINGLE = re.compile(r"(?<!&)&(?!&)")


def number(port: Simplex, ports: int) -> int:
    return port[0] + 1 + (ports if port[1] else 0)


def simplex(named: int, ports: int) -> Simplex:
    return (named - 1, False) if named <= ports else (named - 1 - ports, True)


def no_port(text: str) -> Denied:
    return Denied("IDNV", f"Invalid OXC port: {echoed(text)}")


def one_side(text: str, ports: int, out: bool | None) -> list[int]:
    """TL1 numbers of a list without `,`, in its order. `out` says which side's ports are allowed;
    None allows both. Raises Denied."""
    low, high = {False: (1, ports), True: (ports + 1, 2 * ports), None: (1, 2 * ports)}[out]
    if not text or text.upper() == "ALL":
        return list(range(low, high + 1))
    found: dict[int, None] = {}
    for item in _SINGLE.split(text):
        ends = [_one(word, low, high) for word in item.split("&&")]
        if len(ends) > 2 or ends[-1] < ends[0]:
            raise no_port(item)
        for each in range(ends[0], ends[-1] + 1):
            if each in found:  # each port may be named once
                raise no_port(str(each))
            found[each] = None
    return list(found)


def _one(text: str, low: int, high: int) -> int:
    text = text.strip()
    if not _NUMBER.fullmatch(text) or not low <= int(text) <= high:
        raise no_port(text)
    return int(text)


def listed(aid: str, ports: int, out: bool | None = None) -> list[int]:
    """TL1 numbers of `ports`, or of `ingress,egress` where the command allows both sides. Raises
    Denied."""
    first, sign, second = aid.partition(",")
    if not sign:
        return one_side(aid, ports, out)
    if out is not None:
        raise no_port(aid)
    found: list[int] = []
    if first.strip():
        found += one_side(first.strip(), ports, False)
    if second.strip():
        found += one_side(second.strip(), ports, True)
    if not found:
        raise Denied("IIAC", "Empty parameters")
    return found


def pairs(aid: str, ports: int) -> list[tuple[int, int]]:
    """The pairs of ingress and egress port, numbered from 0, that `ingress,egress` lists in this
    order. Raises Denied."""
    if not aid.strip():
        raise Denied("IIAC", "Empty parameters")
    sides = [side.strip() for side in aid.split(",")]
    if len(sides) > 2:
        raise Denied("IDNV", "Bad parameter value")
    if len(sides) < 2 or not all(sides):
        raise Denied("IIAC", "Too few parameters (0/1)")
    ingress, egress = one_side(sides[0], ports, False), one_side(sides[1], ports, True)
    if len(ingress) != len(egress):
        raise Denied("IDNV", "Bad parameter value")
    return [(a - 1, b - 1 - ports) for a, b in zip(ingress, egress, strict=True)]


def named_pairs(crosses: Iterable[tuple[int, int]], ports: int, chosen: set[int]) -> list[str]:
    """Each cross-connect with a port among the chosen, as text such as `11,28`."""
    return [
        f"{a + 1},{b + 1 + ports}" for a, b in crosses if a + 1 in chosen or b + 1 + ports in chosen
    ]
