"""ln.explain: entries of the glossary as a notebook or a prompt shows them."""

from __future__ import annotations

import html
import textwrap

from loomnet.base.arguments import checked_call
from loomnet.base.errors import UsageError
from loomnet.base.glossary import Entry, entries
from loomnet.base.glossary import explain as look_up
from loomnet.base.names import quoted

WIDTH = 80


class Explained(tuple[Entry, ...]):
    """Entries of the glossary: each has `name`, `section` and `plain`, its text."""

    def __repr__(self) -> str:
        return "\n".join(
            f"{entry.name}  ({entry.section.lower()})\n"
            + textwrap.fill(
                entry.plain,
                width=WIDTH,
                initial_indent="  ",
                subsequent_indent="  ",
                break_on_hyphens=False,
            )
            for entry in self
        )

    def _repr_html_(self) -> str:
        return "".join(
            f"<p><b>{html.escape(entry.name)}</b> ({html.escape(entry.section.lower())})"
            f": {html.escape(entry.plain)}</p>"
            for entry in self
        )


@checked_call
def explain(name: str | None = None) -> Explained:
    """What a name in a report or a word of the field means, as `loomnet explain NAME` says: a
    figure, with or without its label, job and phase ("down.blip_s"), a counter, a drop's reason, an
    event, a word ("ECMP"). Without a name all entries. Raises UsageError with the nearest names."""
    if name is not None and not isinstance(name, str):
        raise UsageError(f'explain: {quoted(name)} is no name, as "blip_s" is')
    return Explained(entries() if name is None else look_up(name))
