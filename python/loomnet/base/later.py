"""Public names whose systems are not there yet: each call is refused in one line."""

from __future__ import annotations

from typing import Any, NoReturn

from loomnet.base.errors import UsageError


def mixnet(*_: Any, **__: Any) -> NoReturn:
    """A fabric with an optical circuit switch. Not there yet: raises UsageError."""
    raise UsageError("mixnet: not there yet; build a fabric by ln.clos or ln.Fabric")
