"""Which of its parts a scenario is asked for: bars, conditions, attacks or workloads by name."""

from __future__ import annotations

from collections.abc import Iterable

from loomnet.base.errors import UsageError
from loomnet.base.names import did_you_mean, in_quotes


def chosen(only: str, known: Iterable[str], what: str, *, between: str = ",") -> list[str]:
    """The names that `only` lists with `between` between them, in its order and without regard to
    case; all of `known` where it lists none. `what`: one of them, as an error calls it. Raises
    UsageError for a name that is not known."""
    names = list(known)
    by_case = {name.casefold(): name for name in names}
    found = []
    for each in filter(None, map(str.strip, only.split(between))):
        if each.casefold() not in by_case:
            raise UsageError(
                f"only: no {what} {in_quotes(each)}{did_you_mean(each, names)}; there "
                f"are {f'{between} '.join(names)}"
            )
        found.append(by_case[each.casefold()])
    return found or names
