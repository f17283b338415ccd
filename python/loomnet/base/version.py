"""Which Loomnet this is."""

from __future__ import annotations


def version() -> str:
    """The installed package's version; "0+source" from a source tree that is not installed."""
    from importlib import metadata

    try:
        return metadata.version("loomnet")
    except metadata.PackageNotFoundError:
        return "0+source"
