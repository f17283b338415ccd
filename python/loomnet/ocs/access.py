"""What the control interfaces of one panel share: access to its device, its settings, and a note
for each request that changes something."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from loomnet.base.errors import printable
from loomnet.ocs.settings import Settings
from loomnet.ocs.switch import Operate

T = TypeVar("T")
MOST_NOTED = 200  # characters of a request that a note keeps
# Called with the time of the device in picoseconds and the text of the request.
Note = Callable[[int, str], None]


class Access:
    """`operate` has the signature of StandaloneSwitch.operate; `note` is called from inside it."""

    def __init__(
        self, operate: Operate, settings: Settings | None = None, note: Note | None = None
    ) -> None:
        self.operate, self.settings, self._note = operate, settings or Settings(), note

    def noted(self, request: str) -> Operate:
        """An `operate` for one request. When its first call has succeeded, the request is noted
        with the time of the device."""
        if self._note is None:
            return self.operate
        note, told = self._note, False
        text = printable(request[:MOST_NOTED])
        text = text if len(request) <= MOST_NOTED else f"{text} …"

        def operate(fn: Callable[[Any, int], T]) -> T:
            def asked(device: Any, now_ps: int) -> T:
                nonlocal told
                result = fn(device, now_ps)
                if not told:
                    told = True
                    note(now_ps, text)
                return result

            return self.operate(asked)

        return operate
