"""What patching circuits during training is worth, by how often they follow which demand; minutes.

One region of MixNet (SIGCOMM 2025, doi 10.1145/3718958.3750465), 64 GPUs, trains Mixtral-8x22B.
Conditions are those of a real panel: only circuits that change go dark (dark_scope="changed"). Each
value is the iteration time to the fat-tree's of the same seed, the first iteration left out; the
mean of `seeds`, with the least and the greatest. Recorded gate counts are a file or folder of
weight matrices, `trace=`, of which each seed takes other steps; moe_gates.py records some.
worthwhile.py has the rules of when to patch against the best in hindsight."""

import itertools
from pathlib import Path
from statistics import fmean, stdev
from typing import Annotated

from pydantic import Field

import loomnet as ln

import lib as mfabric

# Baselines of mfabric.compared() in the order of the table; "random" and "static" never patch.
POLICIES = {
    "mixnet": "every layer",
    "worthwhile": "where worthwhile",
    "reuse": "every layer, reuse",
    "iteration": "every iteration",
    "oneshot": "once",
    "static": "mean demand",
    "random": "random circuits",
    "rotor": "rotating",
}
RULES = ("skip", "share")
NO_TRACE = "no recorded gate counts: give a file or folder with --set trace=PATH"


def seconds(
    lab,
    label,
    name,
    matrix,
    seed,
    *,
    rate,
    iterations,
    layers,
    micro_batches,
    profile,
    compute,
    split,
    **control,
):
    if name != "rotor":  # which goes by circuits alone
        control["split"] = split
    fabric, job = mfabric.compared(
        name,
        rate=rate,
        servers=8,
        preset=None,
        matrix=matrix,
        iterations=iterations,
        data=1,
        pipeline=1,
        layers=layers,
        micro_batches=micro_batches,
        profile=profile,
        control=control,
        compute=compute,
        seed=seed,
    )
    r = lab.run(fabric, job, model="fluid", label=label, seed=seed)
    rounds = r.experts.rounds[1:]
    return (
        sum(each.end_ps - each.begin_ps for each in rounds) / len(rounds) / 1e12,
        sum(each.exposed_ps for each in rounds) / len(rounds) / 1e12,
    )


def demands(trace, iterations, layers, seed, number):
    """Matrices or their name, by column, of the seed, which is the run's seed plus `number`."""
    return {
        "fixed": "fixed",
        "drift": "drift",
        "sparse": mfabric.moving_pairs(iterations, layers, seed),
        "mixed": mfabric.mixed(iterations, layers, seed),
        "recorded": None if trace is None else mfabric.recorded(trace, iterations, layers, number),
    }


@ln.scenario
def decisive(
    lab: ln.Lab,
    trace: Path | None = None,
    rate: str = "100 Gb/s",
    iterations: int = 4,
    layers: int = 4,
    micro_batches: int = 4,
    profile: str = "sim25",
    compute: str = "58.966 ms",
    split: str = "all_or_nothing",
    seeds: Annotated[int, Field(ge=1, le=1000)] = 10,
):
    common = {
        "rate": rate,
        "iterations": iterations,
        "layers": layers,
        "micro_batches": micro_batches,
        "profile": profile,
        "compute": compute,
        "split": split,
    }
    rows = list(itertools.product(POLICIES, RULES))
    found: dict[tuple, list[tuple[float, float]]] = {}  # (time, exposed) to the tree's, by seed
    for number in range(seeds):
        seed = lab.seed + number
        for matrix, given in demands(trace, iterations, layers, seed, number).items():
            if given is None:
                continue
            tree, _ = seconds(lab, f"{matrix}.fattree.{seed}", "fattree", given, seed, **common)
            for policy, rule in rows:
                took = seconds(
                    lab,
                    f"{matrix}.{policy}.{rule}.{seed}",
                    policy,
                    given,
                    seed,
                    rule=rule,
                    **common,
                )
                found.setdefault((matrix, policy, rule), []).append(
                    (took[0] / tree, took[1] / tree)
                )
    table = {key: tuple(map(fmean, zip(*each, strict=True))) for key, each in found.items()}
    for (matrix, policy, rule), (took, exposed) in table.items():
        lab.metric(f"{matrix}.{policy}.{rule}", took, unit="ratio")
        lab.metric(f"{matrix}.{policy}.{rule}.exposed", exposed, unit="ratio")
        lab.metric(
            f"{matrix}.{policy}.{rule}.most", max(found[matrix, policy, rule])[0], unit="ratio"
        )
    if trace is None:
        for policy, rule in rows:
            lab.metric(f"recorded.{policy}.{rule}", None, unit="ratio", reason=NO_TRACE)
    print(text(table, found))
    figure(table).savefig(lab.directory / "decisive.png", dpi=150)
    verdicts(lab, table)


def verdicts(lab, table):
    """What follows from the table whatever its numbers are: how it was measured is right."""
    fixed = [
        table["fixed", policy, rule][1]
        for policy, rule in itertools.product(("mixnet", "static"), RULES)
    ]
    lab.check("nothing-is-dark-where-demand-is-fixed", max(fixed), le=1e-9)
    never = [
        value[1]
        for (_, policy, _), value in table.items()
        if policy in ("random", "static", "rotor")
    ]
    lab.check("nothing-waits-where-nothing-is-patched", max(never), le=1e-9)
    sparse = {
        policy: min(
            table["sparse", policy, rule][0] - table["sparse", policy, rule][1] for rule in RULES
        )
        for policy in ("mixnet", "static", "random")
    }
    # Without its waiting: circuits that follow a moving demand carry it better than any that stay.
    lab.check(
        "following-carries-sparse-demand-best",
        min(sparse["static"], sparse["random"]) / sparse["mixnet"],
        ge=1.0,
    )


def text(table, found):
    matrices = list(dict.fromkeys(matrix for matrix, _, _ in table))
    head = (
        "iteration time to the fat-tree's, of it exposed to missing circuits, least to greatest"
        "; * the least, and what seeds do not tell from it"
    )
    lines = [head, " " * 40 + "".join(f"{matrix:>30}" for matrix in matrices)]
    for policy, rule in itertools.product(POLICIES, RULES):
        cells = []
        for matrix in matrices:
            each = [took for took, _ in found[matrix, policy, rule]]
            mark = "*" if not slower(table, found, matrix, (policy, rule)) else " "
            took, exposed = table[matrix, policy, rule]
            cell = f"{took:.3f}{mark} {exposed:.3f} ({min(each):.3f}..{max(each):.3f})"
            cells.append(f"{cell:>30}")
        lines.append(f"{POLICIES[policy]:<34}{rule:<6}" + "".join(cells))
    return "\n".join(lines)


def slower(table, found, matrix, row):
    """Whether the row's times are above those of the least row of its column: the mean difference
    in the same seeds is more than two of its standard errors."""
    least = min((key for key in table if key[0] == matrix), key=lambda key: table[key][0])
    more = [a - b for (a, _), (b, _) in zip(found[matrix, *row], found[least], strict=True)]
    error = stdev(more) / len(more) ** 0.5 if len(more) > 1 else 0.0
    return fmean(more) > 2 * error + 1e-9


def figure(table):
    """Bars by demand and policy, rule share; hatched: the time that waits for circuits."""
    from matplotlib.figure import Figure

    matrices = list(dict.fromkeys(matrix for matrix, _, _ in table))
    made = Figure(figsize=(2.2 + 3.2 * len(matrices), 4.2), layout="constrained")
    axes = made.subplots(1, len(matrices), sharex=True, sharey=True, squeeze=False)[0]
    for axis, matrix in zip(axes, matrices, strict=True):
        for number, (policy, rule) in enumerate(itertools.product(POLICIES, RULES)):
            took, exposed = table[matrix, policy, rule]
            place = number // 2 + (number % 2 - 0.5) * 0.36
            colour = "#2b6cb0" if rule == "skip" else "#dd8a33"
            axis.barh(
                place,
                took - exposed,
                0.34,
                color=colour,
                label=rule if number < 2 and axis is axes[0] else None,
            )
            axis.barh(
                place,
                exposed,
                0.34,
                left=took - exposed,
                color="white",
                edgecolor=colour,
                hatch="////",
                linewidth=0.6,
            )
        axis.axvline(1, color="0.3", linewidth=0.8, linestyle=":")
        axis.set_title(matrix)
        axis.set_xlabel("iteration time / fat-tree's")
    axes[0].set_yticks(range(len(POLICIES)), list(POLICIES.values()))
    axes[0].invert_yaxis()
    made.legend(
        loc="outside upper right",
        ncols=2,
        frameon=False,
        title="rule (hatched: waits for circuits)",
    )
    return made
