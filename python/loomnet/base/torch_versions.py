"""The versions of PyTorch that Loomnet is tried with."""

from __future__ import annotations

from importlib import metadata

# Minors that `script/test torch --all` runs; the bounds of pyproject.toml are these.
TRIED = ("2.12", "2.13", "2.14", "2.15")


def untried() -> str | None:
    """The version of the installed PyTorch where its minor was never tried, else None."""
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        return None
    return None if ".".join(version.split(".")[:2]) in TRIED else version
