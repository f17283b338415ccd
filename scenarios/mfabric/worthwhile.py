"""When patching circuits during training is worthwhile: rules against never, always, rent or buy
and the best in hindsight; some seconds for each seed and column.

One region of MixNet (SIGCOMM 2025, doi 10.1145/3718958.3750465), 64 GPUs, trains Mixtral-8x22B, as
in decisive.py. The whole run counts, its first iteration too. Regret is what a rule takes longer
than the clairvoyant, to the clairvoyant's time. Closed forms have exchanges
end as soon as their busiest port and circuits can; in a run flows that meet at a port share it, and
are hashed onto parallel ways, except on the "even" fabric. `trace=` is a folder of recorded gate
counts (moe_gates.py)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import ClassVar

import numpy as np

import loomnet as ln

import lib as mfabric

MAKERS = {"sparse": mfabric.moving_pairs, "mixed": mfabric.mixed, "bursts": mfabric.bursts}
NAMED = ("fixed", "drift")
COLUMNS = (*NAMED, "sparse", "mixed", "recorded", "bursts")
SPLITS = ("all_or_nothing", "weighted")
RULE = "share"  # of what is chosen in hindsight, and of rent or buy
WIRES, ALPHA = 2, 6
# Rows that a run's own controller plays.
CONTROLS = {
    "never": {"repatch": "never"},
    "always, share": {"rule": "share"},
    "always, skip": {"rule": "skip"},
    "always, htsim": {"rule": "htsim"},
    "always, skip by the sum": {"rule": "skip", "demand": "sum", "ties": "index"},
    "worthwhile, share": {"rule": "share", "repatch": "worthwhile"},
    "worthwhile, skip": {"rule": "skip", "repatch": "worthwhile"},
}
PLANNED = ("rent or buy", "clairvoyant")
OURS, BEST, ALWAYS, NEVER = "worthwhile, share", "clairvoyant", "always, share", "never"
HASHED = (
    "its flows are hashed onto wires and circuits, which moves an exchange by more than this "
    "dark time; by closed forms see the check of the same name"
)


@ln.plugin.assignment("in_turn")
class InTurn:
    """Circuits that were chosen before the run, for one request after another."""

    plan: ClassVar[list[tuple[np.ndarray, np.ndarray]]] = []  # a request's demand, its circuits

    def __init__(self) -> None:
        self.turn = 0

    def assign(self, demand, free, previous):
        expected, circuits = self.plan[self.turn]
        if (expected != demand).any():
            raise RuntimeError(f"request {self.turn} is not the one that circuits were chosen for")
        self.turn += 1
        return circuits


@dataclass(frozen=True)
class Took:
    """Of a run, in seconds: all iterations, and the part that waits for circuits. `closed`: its
    exchanges and dark times by closed forms; 0 where its choices have none."""

    whole: float
    exposed: float
    patches: int
    closed: float = 0.0


class Region:
    """The region, its demand and its circuits before the run."""

    def __init__(self, lab: ln.Lab, column: str, matrix, seed: int, **job) -> None:
        self.lab, self.matrix, self.seed, self.job = lab, matrix, seed, job
        self.label, self.runs = f"{column}.{seed}", 0
        self.rate = job.pop("rate")
        self.games: dict[tuple[str, str], mfabric.Game] = {}
        self.tree = took(self.run("fattree", "0 s")).whole

    def made(self, name: str, dark: str, even: bool, **control):
        if even:
            control["members"] = "lumped"
        return mfabric.compared(
            name,
            rate=self.rate,
            servers=8,
            alpha=ALPHA,
            preset=None,
            matrix=self.matrix,
            data=1,
            pipeline=1,
            profile=dark,
            control=control,
            seed=self.seed,
            fabric={"eps": "lumped"} if even else {},
            **self.job,
        )

    def run(self, name: str, dark: str, even: bool = False, **control):
        fabric, job = self.made(name, dark, even, **control)
        self.runs += 1
        r = self.lab.run(
            fabric, job, model="fluid", label=f"{self.label}.{self.runs}", seed=self.seed
        )
        return r.experts

    def row(self, row: str, split: str, dark: str, even: bool = False) -> Took:
        if row not in PLANNED:
            found = self.run("mixnet", dark, even, split=split, **CONTROLS[row])
            if row == OURS:
                game = self.game(split, dark)
                return took(found, game.cost(game.numbers(mfabric.played(game, found))))
            choice = {ALWAYS: "always", NEVER: "never"}.get(row)
            return took(found, self.chosen(choice, split, dark)[1] if choice else 0.0)
        InTurn.plan, closed = self.chosen(row, split, dark)
        return took(self.run("mixnet", dark, even, rule="in_turn", split=split), closed)

    def chosen(self, choice: str, split: str, dark: str):
        """Its demands and circuits by request, and their cost."""
        game = self.game(split, dark)
        chosen = mfabric.CHOICES[choice](game)
        return [
            (request.demand, game.choices[number])
            for request, number in zip(game.requests, chosen, strict=True)
        ], game.cost(chosen)

    def game(self, split: str, dark: str) -> mfabric.Game:
        if (split, dark) not in self.games:
            fabric, job = self.made("mixnet", dark, False, rule=RULE, split=split)
            start = np.zeros((8, 8), np.int64)
            [panel] = fabric.panels.values()
            for port, peer in panel.first:
                start[port // ALPHA, peer // ALPHA] += 1
                start[peer // ALPHA, port // ALPHA] += 1
            bps = float(ln.Rate(self.rate).count)
            self.games[split, dark] = mfabric.game(
                job,
                self.seed,
                start,
                rule=RULE,
                split=split,
                dark_s=ln.Time(dark).count / 1e12,
                circuit_bps=bps,
                electrical_bps=WIRES * bps,
            )
        return self.games[split, dark]


def took(experts, closed: float = 0.0) -> Took:
    return Took(
        sum(each.end_ps - each.begin_ps for each in experts.rounds) / 1e12,
        sum(each.exposed_ps for each in experts.rounds) / 1e12,
        experts.patches,
        closed,
    )


@ln.scenario
def worthwhile(
    lab: ln.Lab,
    trace: Path | None = None,
    only: str = "",
    seeds: int = 10,
    first: int = 1,
    darks: str = "25 us,25 ms",
    rate: str = "100 Gb/s",
    iterations: int = 4,
    layers: int = 4,
    micro_batches: int = 4,
    compute: str = "58.966 ms",
):
    columns = only.split(",") if only else COLUMNS
    for column in columns:
        if column == "recorded" and trace is None:
            lab.metric("recorded", None, reason="no recorded gate counts: --set trace=FOLDER")
            continue
        found: dict[tuple[str, str, str], list[Took]] = {}
        trees = []
        for seed in range(first, first + seeds):
            region = Region(
                lab,
                column,
                demand(column, trace, iterations, layers, seed),
                seed,
                rate=rate,
                iterations=iterations,
                layers=layers,
                compute=compute,
                micro_batches=micro_batches,
            )
            trees.append(region.tree)
            for split, dark in itertools.product(SPLITS, darks.split(",")):
                for row in (*CONTROLS, *PLANNED):
                    found.setdefault((split, dark, row), []).append(region.row(row, split, dark))
                for row in (OURS, ALWAYS):
                    found.setdefault((split, dark, f"{row}, even"), []).append(
                        region.row(row, split, dark, True)
                    )
        shown(lab, column, found, trees)


def demand(column: str, trace: Path | None, iterations: int, layers: int, seed: int):
    if column in NAMED:
        return column
    if column == "recorded":
        assert trace is not None
        return mfabric.recorded(trace, iterations, layers, seed - 1)
    return MAKERS[column](iterations, layers, seed)


def shown(lab, column, found, trees):
    """The column's table, metrics and checks."""
    splits, darks = (list(dict.fromkeys(key[at] for key in found)) for at in (0, 1))
    for split, dark in itertools.product(splits, darks):
        rows = {row: runs for (*where, row), runs in found.items() if where == [split, dark]}
        name = f"{column}.{split}.{dark.replace(' ', '')}"
        print(
            f"{name}: to the fat-tree's (exposed), patches, regret % mean (most); the same by "
            "closed forms"
        )
        compute = [a.whole - a.closed for a in rows[BEST]]
        for row in (*CONTROLS, *PLANNED):
            runs = rows[row]
            ratio = mean(a.whole / tree for a, tree in zip(runs, trees, strict=True))
            exposed = mean(a.exposed / tree for a, tree in zip(runs, trees, strict=True))
            regret = [100 * (a.whole / b.whole - 1) for a, b in zip(runs, rows[BEST], strict=True)]
            line = (
                f"  {row:<24}{ratio:6.3f} ({exposed:.3f}) {mean(a.patches for a in runs):6.1f} "
                f"{mean(regret):7.2f} ({max(regret):6.2f})"
            )
            lab.metric(f"{name}.{row}", ratio, unit="ratio")
            lab.metric(f"{name}.{row}.regret", mean(regret), unit="%")
            if runs[0].closed:
                closed = [
                    100 * (a.closed - b.closed) / (b.closed + rest)
                    for a, b, rest in zip(runs, rows[BEST], compute, strict=True)
                ]
                line += f" {mean(closed):7.2f} ({max(closed):6.2f})"
                lab.metric(f"{name}.{row}.regret-closed", mean(closed), unit="%")
            print(line)
        checks(lab, name, ln.Time(dark).count / 1e12, rows)


def checks(lab, name, dark_s, rows):
    ours, best, never, always = (rows[row] for row in (OURS, BEST, NEVER, ALWAYS))
    regret = mean(a.whole / b.whole - 1 for a, b in zip(ours, best, strict=True))
    lab.check(f"{name}.regret", regret, le=0.05)
    # The clairvoyant is the best of closed forms; in runs another row may be faster.
    fastest = min((mean(a.whole for a in rows[row]), row) for row in (*CONTROLS, *PLANNED))
    lab.check(
        f"{name}.regret-to-fastest",
        mean(a.whole for a in ours) / fastest[0] - 1,
        le=0.05,
        reason=f"the fastest row in runs is {fastest[1]}",
    )
    over = [(a.whole - n.whole, a.closed - n.closed) for a, n in zip(ours, never, strict=True)]
    lab.check(
        f"{name}.dark-times-over-never",
        max(each for each, _ in over) / dark_s,
        le=1.0,
        reason=HASHED,
    )
    lab.check(
        f"{name}.dark-times-over-never.closed",
        max(each for _, each in over) / dark_s,
        le=1.0 + 1e-6,
    )
    # What it gains against patching always, by cause.
    even = zip(rows[f"{OURS}, even"], rows[f"{ALWAYS}, even"], strict=True)
    gain = mean(c.whole - a.whole for a, c in zip(ours, always, strict=True))
    patches = mean(c.exposed - a.exposed for a, c in zip(ours, always, strict=True))
    circuits = mean(c.closed - a.closed for a, c in zip(ours, always, strict=True)) - patches
    shared = mean(c.whole - a.whole for a, c in even) - patches - circuits
    whole = mean(c.whole for c in always)
    parts = {
        "gain": gain,
        "gain.fewer-patches": patches,
        "gain.better-circuits": circuits,
        "gain.shared-ports": shared,
        "gain.hash": gain - patches - circuits - shared,
    }
    print("  " + ", ".join(f"{part} {100 * value / whole:.2f} %" for part, value in parts.items()))
    for part, value in parts.items():
        lab.metric(f"{name}.{part}", 100 * value / whole, unit="%")
