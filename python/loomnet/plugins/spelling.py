"""Names of a plug-in's that are no part of its contract, but look as if they were meant to be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from loomnet.base.names import did_you_mean, one_slip


def unknown_methods(plugin: type, known: Iterable[str]) -> Iterator[str]:
    """A line for each method on_… that is never called: the prefix is the contract's."""
    known = list(known)
    for name in dir(plugin):
        if name.startswith("on_") and name not in known and callable(getattr(plugin, name)):
            called = [each for each in known if each.startswith("on_")]
            yield f"{name} is no method that is ever called{did_you_mean(name, called)}"


def slips(names: Iterable[str], read: Iterable[str]) -> Iterator[str]:
    """A line for each attribute that is one slip of the pen away from one that is read. It may be
    the user's own, so that this is no breach."""
    read = list(read)
    for name in sorted(set(names) - set(read)):
        for meant in read:
            if one_slip(name, meant):
                yield f"nothing reads the attribute {name}; {meant} is read: is it meant?"
