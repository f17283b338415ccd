"""What patching circuits during training is worth, by how often they follow which demand; minutes.

One region of MixNet (SIGCOMM 2025, doi 10.1145/3718958.3750465), 64 GPUs, trains Mixtral-8x22B.
Conditions are those of a real panel: only circuits that change go dark (dark_scope="changed"). Each
value is the iteration time to the fat-tree's, the first iteration left out. Recorded gate counts
are a file or folder of weight matrices, `trace=`; moe_gates.py records some. worthwhile.py has the
rules of when to patch over ten seeds, against the best in hindsight."""

import itertools
from pathlib import Path

import loomnet as ln

import lib as mfabric

# Baselines of mfabric.compared() in the order of the table; "random" and "static" never patch.
POLICIES = {"mixnet": "every layer", "worthwhile": "where worthwhile",
            "reuse": "every layer, reuse", "iteration": "every iteration",
            "oneshot": "once", "static": "mean demand", "random": "random circuits",
            "rotor": "rotating"}
RULES = ("skip", "share")
NO_TRACE = "no recorded gate counts: give a file or folder with --set trace=PATH"


def seconds(lab, label, name, matrix, *, rate, iterations, layers, micro_batches, profile, compute,
            split, **control):
    if name != "rotor":  # which goes by circuits alone
        control["split"] = split
    fabric, job = mfabric.compared(
        name, rate=rate, servers=8, preset=None, matrix=matrix, iterations=iterations, data=1,
        pipeline=1, layers=layers, micro_batches=micro_batches, profile=profile, control=control,
        compute=compute, seed=lab.seed)
    r = lab.run(fabric, job, model="fluid", label=label)
    rounds = r.experts.rounds[1:]
    return (sum(each.end_ps - each.begin_ps for each in rounds) / len(rounds) / 1e12,
            sum(each.exposed_ps for each in rounds) / len(rounds) / 1e12)


@ln.scenario
def decisive(lab: ln.Lab, trace: Path | None = None, rate: str = "100 Gb/s", iterations: int = 4,
             layers: int = 4, micro_batches: int = 4, profile: str = "sim25",
             compute: str = "58.966 ms", split: str = "all_or_nothing"):
    matrices = {"fixed": "fixed", "drift": "drift",
                "sparse": mfabric.moving_pairs(iterations, layers, lab.seed),
                "mixed": mfabric.mixed(iterations, layers, lab.seed),
                "recorded": None if trace is None else str(trace)}
    common = {"rate": rate, "iterations": iterations, "layers": layers,
              "micro_batches": micro_batches, "profile": profile, "compute": compute,
              "split": split}
    table = {}
    for matrix, given in matrices.items():
        if given is None:
            for policy, rule in itertools.product(POLICIES, RULES):
                lab.metric(f"{matrix}.{policy}.{rule}", None, unit="ratio", reason=NO_TRACE)
            continue
        tree, _ = seconds(lab, f"{matrix}.fattree", "fattree", given, **common)
        for policy, rule in itertools.product(POLICIES, RULES):
            took, exposed = seconds(lab, f"{matrix}.{policy}.{rule}", policy, given, rule=rule,
                                    **common)
            table[matrix, policy, rule] = took / tree, exposed / tree
            lab.metric(f"{matrix}.{policy}.{rule}", took / tree, unit="ratio")
            lab.metric(f"{matrix}.{policy}.{rule}.exposed", exposed / tree, unit="ratio")
    print(text(table))
    figure(table).savefig(lab.directory / "decisive.png", dpi=150)
    verdicts(lab, table)


def verdicts(lab, table):
    """What follows from the table whatever its numbers are: how it was measured is right."""
    fixed = [table["fixed", policy, rule][1] for policy, rule in
             itertools.product(("mixnet", "static"), RULES)]
    lab.check("nothing-is-dark-where-demand-is-fixed", max(fixed), le=1e-9)
    never = [value[1] for (_, policy, _), value in table.items()
             if policy in ("random", "static", "rotor")]
    lab.check("nothing-waits-where-nothing-is-patched", max(never), le=1e-9)
    sparse = {policy: min(table["sparse", policy, rule][0] - table["sparse", policy, rule][1]
                          for rule in RULES) for policy in ("mixnet", "static", "random")}
    # Without its waiting: circuits that follow a moving demand carry it better than any that stay.
    lab.check("following-carries-sparse-demand-best",
              min(sparse["static"], sparse["random"]) / sparse["mixnet"], ge=1.0)


def text(table):
    matrices = list(dict.fromkeys(matrix for matrix, _, _ in table))
    head = "iteration time to the fat-tree's (of it exposed to missing circuits)"
    lines = [head, " " * 40 + "".join(f"{matrix:>18}" for matrix in matrices)]
    for policy, rule in itertools.product(POLICIES, RULES):
        cells = "".join("{:>10.3f} ({:.3f})".format(*table[matrix, policy, rule])
                        for matrix in matrices)
        lines.append(f"{POLICIES[policy]:<34}{rule:<6}{cells}")
    return "\n".join(lines)


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
            axis.barh(place, took - exposed, 0.34, color=colour,
                      label=rule if number < 2 and axis is axes[0] else None)
            axis.barh(place, exposed, 0.34, left=took - exposed, color="white", edgecolor=colour,
                      hatch="////", linewidth=0.6)
        axis.axvline(1, color="0.3", linewidth=0.8, linestyle=":")
        axis.set_title(matrix)
        axis.set_xlabel("iteration time / fat-tree's")
    axes[0].set_yticks(range(len(POLICIES)), list(POLICIES.values()))
    axes[0].invert_yaxis()
    made.legend(loc="outside upper right", ncols=2, frameon=False,
                title="rule (hatched: waits for circuits)")
    return made
