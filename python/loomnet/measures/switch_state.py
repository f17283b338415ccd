"""What the program of one switch held and counted in a run."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from loomnet.base.errors import UsageError
from loomnet.base.names import how_many, in_quotes, quoted
from loomnet.base.table import Table
from loomnet.base.units import Time
from loomnet.fabrics.nodes import FORWARD
from loomnet.plans.entries import SwitchPlan
from loomnet.plans.model import Plan

# Name of the rows -> the rows that are not all zeros, each with its number as "row".
Snapshot = Mapping[str, list[dict[str, Any]]]


@dataclass(frozen=True)
class SwitchState:
    """`program` and `options` are as the fabric names them; `counters` are those above zero."""

    name: str
    program: str
    options: Mapping[str, Any] = field(default_factory=dict)
    counters: Mapping[str, int] = field(default_factory=dict)
    state: Snapshot = field(default_factory=dict, repr=False)
    earlier: Mapping[int, Snapshot] = field(default_factory=dict, repr=False)  # by picosecond

    def snapshot(self, at: Time | str | None = None) -> Snapshot:
        """The program's state at the run's end: name of its rows -> rows, without those that are
        all zeros. Empty for a program without state, as "forward" is. `at`: a time of those that
        the run was given as snapshots=["2 ms"]; raises UsageError for any other."""
        if at is None:
            return self.state
        wanted = Time.given("snapshot: at", at)
        if wanted.count not in self.earlier:
            taken = ", ".join(str(Time.of(each)) for each in sorted(self.earlier)) or "none"
            raise UsageError(
                f"snapshot: at={wanted}: none was taken then; give the run "
                f'snapshots=["{wanted}"]; there are {taken}'
            )
        return self.earlier[wanted.count]

    def _repr_html_(self) -> str:
        table = Table(
            ("counter", "count"),
            ({"counter": name, "count": count} for name, count in self.counters.items()),
        )
        said = [
            f"switch {self.name}, program {self.program}; ln.explain(NAME) says what a counter "
            "counts",
            *(
                f'.snapshot()["{name}"]: {how_many(len(rows), "row")} of its memory at the '
                "run's end that are not all zeros"
                for name, rows in self.state.items()
            ),
        ]
        above = "".join(f"<p>{html.escape(line)}</p>" for line in said)
        return f"{above}{table._repr_html_()}"

    def by_job(self) -> dict[int, dict[str, int]]:
        """What a program has counted of each job, by the job's number on the wire: over all ports
        the sums, of `largest_…` the largest. Empty for a program that counts no jobs apart."""
        found: dict[int, dict[str, int]] = {}
        for row in self.state.get("jobs", []):
            sums = found.setdefault(row["job"], {})
            for name, value in row.items():
                if name in ("row", "job", "egress"):
                    continue
                before = sums.get(name, 0)
                sums[name] = max(before, value) if name.startswith("largest_") else before + value
        return found

    @classmethod
    def of(
        cls,
        switch: SwitchPlan | str,
        counters: Mapping[str, int],
        state: Snapshot,
        earlier: Mapping[int, Snapshot] | None = None,
    ) -> SwitchState:
        """Of a switch that has counted this. A name stands for a switch that was not built because
        no packet of the run could meet it."""
        if isinstance(switch, str):
            return cls(switch, FORWARD)
        return cls(
            switch.name,
            switch.program,
            dict(switch.options),
            {name: n for name, n in counters.items() if n},
            state,
            earlier or {},
        )


def snapshot_times(options: Mapping[str, Any]) -> list[int]:
    """Picoseconds that `lab.run(…, snapshots=["2 ms"])` names, in order. Raises UsageError."""
    asked = options.get("snapshots", ())
    times = [asked] if isinstance(asked, (str, Time)) else asked
    if not isinstance(times, (list, tuple)):
        raise UsageError(f'run: snapshots={quoted(asked)} is no list of times, as ["2 ms"]')
    found = {Time.given("run: snapshots", each).count for each in times}
    if found and min(found) < 0:
        raise UsageError(f"run: snapshots: {Time.of(min(found))} is before the run")
    return sorted(found)


def switch_named(plan: Plan, name: str) -> SwitchPlan | str:
    """The switch of that name, or the name of one that the plan has left out. Raises UsageError
    with the three nearest names."""
    found = plan.topology.fabric.match_switches(name)
    if found != [name]:  # a glob
        raise UsageError(
            f"switch: {in_quotes(name)} stands for {len(found)} switches; name one, as {found[0]}"
        )
    return next((each for each in plan.switches if each.name == name), name)
