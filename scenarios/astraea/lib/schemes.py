"""Congestion controls that are compared, by the names that pictures and checks give them."""

from collections.abc import Sequence

import loomnet as ln

RULES = ("cubic", "bbr", "bbr3", "vegas", "copa", "vivace")
# What the network without learning does: the rule that cloning imitates, and doing nothing.
UNLEARNED = ("teacher", "hold")
KNOWN = ("astraea", *UNLEARNED, "reno", *RULES)


def control(name: str, policy: str) -> dict:
    """What tcp= takes for a scheme. `policy`: of "astraea"."""
    if name == "astraea":
        return {"cc": "astraea", "policy": policy}
    if name in UNLEARNED:
        return {"cc": "astraea", "policy": name}
    return {"cc": name}


def named(schemes: str | Sequence[str]) -> list[str]:
    """Names with commas between. Raises UsageError."""
    given = schemes.split(",") if isinstance(schemes, str) else schemes
    found = list(dict.fromkeys(each.strip() for each in given if each.strip()))
    for each in found:
        if each not in KNOWN:
            raise ln.UsageError(f"schemes: no {each!r}; there are {', '.join(KNOWN)}")
    if not found:
        raise ln.UsageError(f"schemes: names none; there are {', '.join(KNOWN)}")
    return found
