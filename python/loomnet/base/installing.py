"""The command that adds an extra to this installation. No package index has Loomnet, so the command
names the clone or the wheel that this installation came from."""

from __future__ import annotations

import importlib.metadata
import json
import shlex
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit


def install_line(extra: str) -> str:
    """The line that installs `extra` (``sweep``, ``live``, …) for the interpreter that runs."""
    pip = f"{shlex.quote(sys.executable)} -m pip install"
    source = _source()
    if source is None:
        return f"in a clone of Loomnet: {pip} '.[{extra}]'"
    path, editable = source
    return f"{pip} {'-e ' if editable else ''}{shlex.quote(f'{path}[{extra}]')}"


def _source() -> tuple[Path, bool] | None:
    """The clone or the wheel that pip installed, and whether editably; None where that is gone or
    pip did not note it (PEP 610)."""
    try:
        text = importlib.metadata.distribution("loomnet").read_text("direct_url.json")
        noted = json.loads(text or "{}")
        url = urlsplit(noted.get("url", ""))
        editable = noted.get("dir_info", {}).get("editable") is True
    except (importlib.metadata.PackageNotFoundError, ValueError, AttributeError):
        return None
    path = Path(unquote(url.path))
    if url.scheme != "file" or not path.exists():
        return None
    return path, editable
