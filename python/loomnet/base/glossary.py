"""The glossary: what each figure, counter, drop reason and event means. The entries are data, in
glossary.md beside this file, which the site shows as a page."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

from loomnet.base.argument_names import owners_of
from loomnet.base.errors import UsageError
from loomnet.base.names import MOST_COMPARED, in_quotes, nearest

ALIKE = 0.7  # names that are less alike are no slips of one another


@dataclass(frozen=True)
class Entry:
    """A name, the heading under which it stands, and its text as Markdown in one line."""

    name: str
    section: str
    text: str

    @property
    def plain(self) -> str:
        """The text without Markdown's signs."""
        return self.text.replace("`", "").replace("**", "")


def markdown() -> str:
    """The whole glossary as a page of Markdown."""
    return resources.files("loomnet.base").joinpath("glossary.md").read_text(encoding="utf-8")


@cache
def entries() -> tuple[Entry, ...]:
    """All entries in the order of the page."""
    found: list[Entry] = []
    for section in re.split(r"^## ", markdown(), flags=re.MULTILINE)[1:]:
        title, _, body = section.partition("\n")
        for name, text in re.findall(r"^`([^`\n]+)`\n:   (.*\n(?:    .*\n)*)", body, re.MULTILINE):
            found.append(Entry(name, title.strip(), " ".join(text.split())))
    return tuple(found)


def explain(name: str) -> tuple[Entry, ...]:
    """Every entry of this name; several where parts of Loomnet use one name. The name may have a
    label, a job and a phase before it and an object behind it, as `mrc.down.blip_s` and
    `slots_mean.p0.leaf0`, and a drop's reason stands for its counter. Raises UsageError for any
    other: of an argument it says whose help has it, else it has the nearest names."""
    folded = " ".join(name.casefold().split())
    parts = folded.split(".")
    forms = [folded, *(".".join(parts[i:]) for i in range(1, len(parts))), parts[0]]
    for form in forms:
        # Words of two parts are figures of some scenarios, as step_gap, and phrases at a prompt.
        wanted = {
            form,
            form.replace("_", " "),
            form.replace(" ", "_"),
            f"drop_{form}",
            f"{form}_dropped",
        }
        if form.endswith("s"):
            wanted.add(form.removesuffix("s"))
        if form.startswith("drop_"):  # counters of sockets that reports show as drops
            wanted.add(form.removeprefix("drop_"))
        if found := tuple(each for each in entries() if each.name.casefold() in wanted):
            return found
    if owners := owners_of(folded):
        helps = " and ".join(f"help({owner})" for owner in owners)
        raise UsageError(f"explain: {in_quotes(name)} is an argument; see {helps}")
    raise UsageError(f"explain: no entry {in_quotes(name)}{_alike(folded)}")


def _alike(folded: str) -> str:
    """The nearest names, of those that the user may have meant; without any, where all are."""
    known = {each.name for each in entries()}
    found = [each for each in nearest(folded, known) if _ratio(folded, each.casefold()) >= ALIKE]
    words = set(folded.replace("_", " ").split())
    found += sorted(
        each for each in known - {*found} if words & set(each.casefold().replace("_", " ").split())
    )[: 3 - len(found)]
    return f"; nearest: {', '.join(found)}" if found else "; `loomnet explain` lists all names"


def _ratio(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one[:MOST_COMPARED], other).ratio()
