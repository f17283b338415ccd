"""The dilation that dilation="auto" gives: the least whole number at which the lab's first run fits
this machine, for all runs of the lab."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from loomnet.base.errors import UsageError
from loomnet.running.request import RunRequest

AUTO = "auto"


class AutoDilation:
    """The dilation that one lab's runs share."""

    def __init__(self) -> None:
        self.chosen: int | None = None

    def fit(self, request: RunRequest, clock: str, say: Callable[[str], None]) -> RunRequest:
        """The request with its dilation. The lab's first run chooses, so that all are compared at
        one. Raises UsageError for kernel TCP and for a run that needs more than the first did."""
        if clock != "live":
            return request  # emulated time passes by itself
        from loomnet.live.dilation import least_dilation, refuse_kernel_tcp
        from loomnet.live.network import require_live

        refuse_kernel_tcp(request)
        require_live()
        least = least_dilation(request)
        if self.chosen is None:
            self.chosen = least
            say(f'dilation="auto": D = {least}, for all runs of this lab')
        elif least > self.chosen:
            raise UsageError(
                f'run: dilation="auto": this run needs D = {least}, and the lab\'s first run took '
                f"{self.chosen}, which all share; run the most demanding one first, or give "
                f"dilation={least} to all"
            )
        return dataclasses.replace(request, dilation=float(self.chosen))
