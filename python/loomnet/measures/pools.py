"""Slots of the switches that sum, by job and over time, where a run is given pools=."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from loomnet.base.table import Table
from loomnet.base.units import Time
from loomnet.measures.columns import Column, Columns, first_of_steps

COLUMNS = ("time", "job", "held", "summing", "done")
# Counts of all series together; beyond it every second look goes, and the step doubles.
MOST_COUNTS = 4_000_000
# Okabe and Ito's palette, then four of Tol's: told apart by colour-blind readers.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#f0e442", "#525252",
           "#882255", "#999933", "#44aa99", "#332288")


class PoolSeries:
    """Of each look at a switch and each job: slots with a partial sum, slots with a whole one that
    is kept, and whether the job had begun and not ended. `jobs`: names; `slots`: by switch."""

    def __init__(self, every_ps: int, jobs: tuple[str, ...], slots: Mapping[str, int]) -> None:
        self.every_ps, self.jobs, self.slots = every_ps, jobs, slots
        self._looks = {switch: Columns(("at_ps", np.int64), ("summing", np.int64, (len(jobs),)),
                                       ("done", np.int64, (len(jobs),)),
                                       ("playing", bool, (len(jobs),)))
                       for switch in slots}

    def add(self, switch: str, at_ps: int, summing: Column, done: Column, playing: Column) -> None:
        """One look at a switch, by job."""
        self._looks[switch].add(1, at_ps=at_ps, summing=summing, done=done, playing=playing)

    def thin(self) -> None:
        """Doubles the step where there are too many counts, and keeps the first look of each."""
        if 2 * len(self.jobs) * sum(map(len, self._looks.values())) <= MOST_COUNTS:
            return
        self.every_ps *= 2
        for looks in self._looks.values():
            looks.keep(first_of_steps(looks["at_ps"], self.every_ps))

    def used(self, switch: str, job: str) -> tuple[float, int] | None:
        """Mean and most slots that a job held at a switch while it played; None without a sample in
        that time."""
        number, looks = self.jobs.index(job), self._looks[switch]
        held = (looks["summing"] + looks["done"])[looks["playing"][:, number], number]
        return (int(held.sum()) / len(held), int(held.max())) if len(held) else None

    def rows(self, switch: str, every_ps: int = 0
             ) -> Iterator[tuple[float, str, int, int, int]]:
        """(seconds, job, slots held, summing, done), the first look of each `every_ps`."""
        looks = self._looks[switch].rows
        if every_ps:
            looks = looks[first_of_steps(looks["at_ps"], every_ps)]
        for at, all_summing, all_done in zip(*(looks[name].tolist() for name in (
                "at_ps", "summing", "done")), strict=True):
            for name, summing, done in zip(self.jobs, all_summing, all_done, strict=True):
                yield at / 1e12, name, summing + done, summing, done

    def csv(self) -> bytes:
        """All of it as comma-separated values with a line of names; times in seconds."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(("switch", *COLUMNS))
        for switch in self.slots:
            writer.writerows((switch, f"{at:.12g}", *rest) for at, *rest in self.rows(switch))
        return text.getvalue().encode()


class PoolTable(Table):
    """Rows of time (seconds), job, and the slots that it held then: summing are those with a
    partial sum, done those with a whole one that waits to be freed, held is both. `slots`: of the
    switch."""

    slots: int

    @classmethod
    def of(cls, series: PoolSeries, switch: str, every: Time | None) -> PoolTable:
        rows = series.rows(switch, 0 if every is None else every.count)
        made = cls(COLUMNS, [dict(zip(COLUMNS, row, strict=True)) for row in rows])
        made.slots = series.slots[switch]
        return made

    def plot(self, axes: Any = None) -> Any:
        """Draws the slots held as areas, one job's upon another's, on matplotlib axes (made if not
        given) and returns them. In a notebook the figure is shown below the cell."""
        if axes is None:
            from loomnet.base.notebook import new_axes

            axes = new_axes()
        names = list(dict.fromkeys(self.column("job")))
        times = list(dict.fromkeys(self.column("time")))
        held = {name: [row["held"] for row in self.rows if row["job"] == name] for name in names}
        axes.stackplot(times, list(held.values()), labels=names, step="post", linewidth=0,
                       colors=[COLOURS[n % len(COLOURS)] for n in range(len(names))])
        axes.axhline(self.slots, color="#333333", linewidth=0.8, linestyle=":")
        axes.set_xlabel("emulated time, s")
        axes.set_ylabel("slots held")
        axes.set_ylim(0, self.slots * 1.05)
        if 0 < len(names) <= len(COLOURS):
            axes.legend(fontsize="small", loc="upper right", ncols=2)
        return axes
