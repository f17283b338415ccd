"""Slots of the switches that sum, by job and over time, where a run is given pools=."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from loomnet.base.notebook import picture_and_rows, since_text, time_unit
from loomnet.base.number_text import number_text
from loomnet.base.table import Table
from loomnet.base.units import Time
from loomnet.measures.columns import Column, Columns, first_of_steps

COLUMNS = ("time", "job", "held", "summing", "done")
# Counts of all series together; beyond it every second look goes, and the step doubles.
MOST_COUNTS = 4_000_000
# Okabe and Ito's palette, then four of Tol's: told apart by colour-blind readers.
COLOURS = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
    "#f0e442",
    "#525252",
    "#882255",
    "#999933",
    "#44aa99",
    "#332288",
)


class PoolSeries:
    """Of each look at a switch and each job: slots with a partial sum, slots with a whole one that
    is kept, and whether the job had begun and not ended. `jobs`: names; `slots`: by switch."""

    def __init__(self, every_ps: int, jobs: tuple[str, ...], slots: Mapping[str, int]) -> None:
        self.every_ps, self.jobs, self.slots = every_ps, jobs, slots
        self._looks = {
            switch: Columns(
                ("at_ps", np.int64),
                ("summing", np.int64, (len(jobs),)),
                ("done", np.int64, (len(jobs),)),
                ("playing", bool, (len(jobs),)),
            )
            for switch in slots
        }

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

    def rows(self, switch: str, every_ps: int = 0) -> Iterator[tuple[float, str, int, int, int]]:
        """(seconds, job, slots held, summing, done), the first look of each `every_ps`."""
        looks = self._looks[switch].rows
        if every_ps:
            looks = looks[first_of_steps(looks["at_ps"], every_ps)]
        for at, all_summing, all_done in zip(
            *(looks[name].tolist() for name in ("at_ps", "summing", "done")), strict=True
        ):
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
    switch. `taken`: how often any job took one, sampled or not."""

    slots: int
    taken: int = 0
    held_ps: int = 0  # from being taken to being free again, all together, where that is counted
    first_job: str | None = None  # of the run, from whose time 0 times count

    @classmethod
    def of(
        cls,
        series: PoolSeries,
        switch: str,
        every: Time | None,
        counters: Mapping[str, int] | None = None,
    ) -> PoolTable:
        """`counters`: of the switch."""
        rows = series.rows(switch, 0 if every is None else every.count)
        made = cls(COLUMNS, [dict(zip(COLUMNS, row, strict=True)) for row in rows])
        made.slots = series.slots[switch]
        made.taken, made.held_ps = taken_slots(counters or {})
        return made

    @property
    def unseen(self) -> bool:
        """Whether slots were taken and no sample met one that was held."""
        return self.taken > 0 and not any(self.column("held"))

    @property
    def taken_text(self) -> str:
        """How often slots were taken, and for how long each on average."""
        return taken_text(self.taken, self.held_ps, self.unseen)

    def _repr_html_(self) -> str:
        said = f"<p>{html.escape(self.taken_text)}</p>" if self.taken else ""
        return picture_and_rows(self) + said

    def plot(self, axes: Any = None) -> Any:
        """Draws the slots held as areas, one job's upon another's, on matplotlib axes (made if not
        given) and returns them. In a notebook the figure is shown below the cell."""
        if axes is None:
            from loomnet.base.notebook import new_axes

            axes = new_axes()
        names = list(dict.fromkeys(self.column("job")))
        times = list(dict.fromkeys(self.column("time")))
        held = {name: [row["held"] for row in self.rows if row["job"] == name] for name in names}
        unit, factor = time_unit(max(times, default=0.0))
        axes.stackplot(
            [at / factor for at in times],
            list(held.values()),
            labels=names,
            step="post",
            linewidth=0,
            colors=[COLOURS[n % len(COLOURS)] for n in range(len(names))],
        )
        axes.axhline(self.slots, color="#333333", linewidth=0.8, linestyle=":")
        axes.set_xlabel(f"emulated time{since_text(self.first_job)} ({unit})")
        axes.set_ylabel(f"slots held, of {self.slots}")
        axes.set_ylim(0, self.slots * 1.3)  # with room for the legend
        axes.yaxis.get_major_locator().set_params(integer=True)
        if self.unseen:
            axes.text(
                0.5,
                0.4,
                f"No sample met a slot that was held.\n{self.taken_text}.",
                transform=axes.transAxes,
                ha="center",
                va="center",
                fontsize="small",
            )
        if 0 < len(names) <= len(COLOURS):
            axes.legend(fontsize="small", loc="upper right", ncols=2)
        return axes


def taken_slots(counters: Mapping[str, int]) -> tuple[int, int]:
    """How often slots of a switch were taken, and picoseconds for which they were held, all
    together: 0 too where that is not counted, as of slots that are a job's own (SwitchML)."""
    return counters.get("claim", 0), counters.get("held_ps", 0)


def taken_text(taken: int, held_ps: int, unseen: bool) -> str:
    """`unseen`: no sample met a slot that was held."""
    text = f"Slots were taken {taken:,} times"
    if held_ps:
        return f"{text}, each for {number_text(held_ps / taken / 1e12, 's')} on average"
    return f"{text}, each for no time: all packets of a sum came at once" if unseen else text
