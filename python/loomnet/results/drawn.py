"""The part of a Result that pictures read. Pictures import this protocol in place of Result, so
that Result can import the pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from loomnet.base.table import Table
from loomnet.base.units import Time
from loomnet.measures.run_data import RunData
from loomnet.measures.training import Phase
from loomnet.plans.model import Plan
from loomnet.results.series import Series

if TYPE_CHECKING:
    from loomnet.measures.flow_completion import FlowRecord


class Drawn(Protocol):
    """One run, or one job of a run of several."""

    @property
    def plan(self) -> Plan: ...
    @property
    def data(self) -> RunData: ...
    @property
    def phases(self) -> list[Phase]: ...
    @property
    def label(self) -> str | None: ...
    @property
    def transport(self) -> str | None: ...
    @property
    def jobs(self) -> Mapping[str, Drawn]:
        """By name, where the run had several."""
        ...

    @property
    def first_job(self) -> str | None:
        """Of the run, where it had several: its time 0 is the clock of pictures."""
        ...

    @property
    def on_run_clock(self) -> Drawn:
        """The same in time since time 0 of the run's first job."""
        ...

    @property
    def marks(self) -> Table:
        """step, time_s, mark."""
        ...

    @property
    def parts(self) -> Sequence[Drawn]:
        """One per job."""
        ...

    @property
    def flow_records(self) -> Sequence[FlowRecord]: ...
    def goodput(self, step: Time | None = None, until: float | None = None) -> Series:
        """As Result.goodput()."""
        ...
