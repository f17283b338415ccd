"""The same job on MixNet and on each of its baselines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from loomnet.base.errors import UsageError
from loomnet.base.names import did_you_mean, quoted
from loomnet.base.units import Rate
from loomnet.fabrics.model import Fabric
from loomnet.jobs.circuit_control import CircuitControl
from loomnet.jobs.moe_job import GPUS, MoeJob
from loomnet.systems.mixnet.assignment import assign, map_ports, pair_demand
from loomnet.systems.mixnet.fabric import mixnet
from loomnet.systems.mixnet.gates import gate_counts

from .topoopt import topoopt_links


@dataclass(frozen=True)
class Baseline:
    """A fabric and a control of circuits. `network`: as mixnet() takes it. `cost`: the fabric's
    name in ln.cost. `control`: the settings of CircuitControl that make the baseline. `first`:
    circuits before the run: "random" ones, or those for the job's "mean" demand."""

    network: str
    cost: str
    control: dict[str, Any]
    first: str = "random"


# What MixNet is compared with. "oneshot" is the same panel, patched once: the difference to it is
# what patching during training is worth. "static" has the circuits for the mean demand of the whole
# job, which it knows before the run.
BASELINES = {
    "mixnet": Baseline("mixnet", "mixnet", {}),
    "reuse": Baseline("mixnet", "mixnet", {"fp_dispatch": "reuse"}),
    "copilot": Baseline("mixnet", "mixnet", {"fp_dispatch": "copilot"}),
    "guess": Baseline("mixnet", "mixnet", {"fp_dispatch": "random"}),
    "worthwhile": Baseline("mixnet", "mixnet", {"repatch": "worthwhile"}),
    "iteration": Baseline("mixnet", "mixnet", {"repatch": "iteration"}),
    "oneshot": Baseline("mixnet", "mixnet", {"repatch": "once"}),
    "random": Baseline("mixnet", "mixnet", {"repatch": "never"}),
    "static": Baseline("mixnet", "mixnet", {"repatch": "never"}, "mean"),
    # Circuits rotate through all pairs of servers, whatever the demand.
    "rotor": Baseline("mixnet", "mixnet", {"repatch": "rotor"}),
    "eps_only": Baseline("eps_only", "mixnet", {}),
    "fattree": Baseline("fattree", "fattree", {}),
    "fattree31": Baseline("fattree31", "fattree31", {}),
    "rail": Baseline("rail", "rail", {}),
    "topoopt": Baseline("topoopt", "topoopt", {}),
}


def compared(
    name: str,
    model: str = "mixtral_8x22b",
    *,
    rate: Rate | str = "400 Gb/s",
    servers: int = 128,
    alpha: int = 6,
    profile: str = "sim25",
    seed: int = 1,
    control: dict[str, Any] | None = None,
    fabric: dict[str, Any] | None = None,
    preset: Literal["paper"] | None = "paper",
    **job: Any,
) -> tuple[Fabric, MoeJob]:
    """The fabric of that name (BASELINES) and the job on it.

    Args:
        model, job: of ln.MoeJob; without `matrix` the published one at the preset "paper".
        rate, servers, alpha, profile, fabric: of ln.mixnet().
        control: settings of ln.CircuitControl, before those that make the baseline.
        seed: of circuits that are there before the run, and of the job's drift.
        preset: "paper" for the publication's conditions, or None.

    Raises:
        UsageError: there is no such baseline.
    """
    if name not in BASELINES:
        raise UsageError(
            f"compared: {quoted(name)} is none of {', '.join(BASELINES)}"
            f"{did_you_mean(name, BASELINES)}"
        )
    base = BASELINES[name]
    if preset == "paper":
        job = {"matrix": "fixed"} | job
    made = MoeJob(
        model,
        seed=seed,
        **job,
        circuits=CircuitControl(preset=preset, **((control or {}) | base.control)),
    )
    region = made.region_servers
    given = {
        "servers": servers,
        "rate": rate,
        "alpha": alpha,
        "preset": preset,
        "region": region,
        "profile": profile,
    } | (fabric or {})
    if name == "rotor" and profile == "sim25":
        given["profile"] = "rotor10us"  # its dark time is the guard between two slots
    if base.network == "topoopt":
        return mixnet(network="topoopt", links=_static_links(made, servers, seed), **given), made
    built = mixnet(network=base.network, **given)
    if base.network == "mixnet" and region > 1:
        _first_circuits(built, made, base.first, alpha, seed)
    return built, made


def _means(job: MoeJob, servers: int, seed: int) -> list[np.ndarray]:
    """For each region the demand of its pairs of servers, summed over layers and iterations."""
    replicas = max(servers // (job.region_servers * job.stages), 1)
    counts = gate_counts(job, replicas, seed)
    mean = []
    for region in range(replicas * job.stages):
        each = counts[:, :, region % counts.shape[2]].reshape(-1, *counts.shape[-2:])
        mean.append(
            sum(
                pair_demand(
                    one,
                    tensor_parallel=job.tensor_ranks,
                    gpus_per_server=GPUS,
                    duplex=job.circuits.demand if job.circuits else "max",
                )
                for one in each
            )
        )
    return [np.asarray(one) for one in mean]


def _first_circuits(fabric: Fabric, job: MoeJob, first: str, alpha: int, seed: int) -> None:
    """Circuits before the run."""
    region = job.region_servers
    means = _means(job, len(fabric.hosts), seed) if first == "mean" else []
    control = job.circuits or CircuitControl()
    rule = control.rule if first == "mean" else "random"
    for number, panel in enumerate(fabric.panels.values()):
        demand = means[number] if means else np.zeros((region, region), np.int64)
        found = assign(demand, alpha, rule=rule, seed=seed + number, ties=control.ties)
        peers = map_ports(found.circuits, demand, nics=max(GPUS, alpha), alpha=alpha)
        panel.circuits([(port, int(peer)) for port, peer in enumerate(peers) if port < peer])


def _static_links(job: MoeJob, servers: int, seed: int) -> Sequence[tuple[int, int]]:
    """TopoOpt's links for the bytes of an iteration of the whole job."""
    region = job.region_servers
    demand = np.zeros((servers, servers))
    for number, tokens in enumerate(_means(job, servers, seed)):
        first = number * region
        # Bytes of the part of a token on one GPU, times the four all-to-alls of each layer and
        # micro-batch.
        each = job.bytes_per_rank / _row_sum(job, servers, seed)
        times = 4 * job.stage_layers[number % job.stages] * job.micro_batches
        demand[first : first + region, first : first + region] += tokens * each * times
    for server in range(servers - region):
        if (server // region) % job.stages != job.stages - 1:
            both = 2 * job.activation_bytes * job.micro_batches
            demand[server, server + region] += both
            demand[server + region, server] += both
    replicas = servers // (region * job.stages)
    sums: dict[tuple[int, ...], float] = {}
    if replicas > 1:
        for server in range(region * job.stages):
            group = tuple(server + replica * region * job.stages for replica in range(replicas))
            sums[group] = 2.0 * (replicas - 1) * job.gradient_bytes
    return topoopt_links(sums, demand, GPUS)


def _row_sum(job: MoeJob, servers: int, seed: int) -> float:
    """Tokens of a source rank in all the gate counts that _means() adds up."""
    replicas = max(servers // (job.region_servers * job.stages), 1)
    counts = gate_counts(job, replicas, seed)
    return float(counts[:, :, 0, :, 0].sum())
