"""One quantity of a run over time, and its line in a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from loomnet.base.table import Table
from loomnet.measures.training import Phase


@dataclass
class Series:
    """A quantity over time: `times` in seconds (the start of each bin), `values` in `unit`.

    `label` names the run in a legend; `hosts`: over how many a value is summed, where it is;
    `phases` are the run's, of which the faults are shaded."""

    name: str
    unit: str
    times: list[float]
    values: list[float]
    label: str = ""
    hosts: int | None = None
    phases: Sequence[Phase] = field(default_factory=list, repr=False)

    @property
    def binned(self) -> bool:
        """Whether a value holds for the time up to the next, as of goodput; an iteration's holds
        for the iteration that ended then."""
        return self.name == "goodput"

    @property
    def ends_at(self) -> float:
        """Seconds at which the last bin ends."""
        if not self.times:
            return 0.0
        step = self.times[-1] - self.times[-2] if len(self.times) > 1 else 1e-6
        return self.times[-1] + step

    @property
    def table(self) -> Table:
        """Its rows: time in seconds, value."""
        return Table(("time", "value"), ({"time": at, "value": value} for at, value in
                                         zip(self.times, self.values, strict=True)))

    def to_polars(self) -> Any:
        """The same as a polars.DataFrame."""
        return self.table.to_polars()

    def to_pandas(self) -> Any:
        """The same as a pandas.DataFrame."""
        return self.table.to_pandas()

    def plot(self, axes: Any = None, *, label: str | None = None) -> Any:
        """Draws itself on matplotlib axes (made if not given) and returns them, with the run's
        faults shaded; several series on the same axes have a legend, by their `label`, which is the
        run's label or transport by default. In a notebook the figure is shown below the cell."""
        from loomnet.results.series_plot import plot_series

        return plot_series(self, axes, self.label if label is None else label)
