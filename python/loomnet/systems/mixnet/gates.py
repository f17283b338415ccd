"""The tokens that a job's gates route, in the array that the engine takes."""

from __future__ import annotations

import os

import numpy as np

from loomnet.base.errors import UsageError
from loomnet.jobs.moe_job import MoeJob
from loomnet.systems.mixnet.drift import Drift
from loomnet.systems.mixnet.weights import PUBLISHED, read_weights


def gate_counts(job: MoeJob, replicas: int, seed: int) -> np.ndarray:
    """Counts [iteration, micro-batch, region, layer of its stage, source, destination]. Where a
    dimension is shorter than in the job, its entries are repeated. `seed`: of the drift, where the
    job gives none. Raises UsageError."""
    experts, layers = job.expert_ranks, job.stage_layers
    if isinstance(job.matrix, str) and job.matrix == "fixed":
        times = experts // len(PUBLISHED)
        return np.tile(PUBLISHED, (times, times))[None, None, None, None].astype(np.uint32)
    if isinstance(job.matrix, str) and job.matrix == "drift":
        first = seed if job.seed is None else job.seed
        walks = [iter(Drift(experts, sum(layers), first + replica)) for replica in range(replicas)]
        given = np.array([[next(walk) for walk in walks] for _ in range(job.iterations)])
    else:
        given = _given(job, experts)
    # From [iteration][replica][layer of all stages] to [iteration][region][layer of its stage].
    stages, first = [], 0
    for count in layers:
        rows = (first + np.arange(max(layers)) % count) % given.shape[2]
        stages.append(given[:, :, rows])
        first += count
    # dimensions: iteration, replica, stage, layer, source, destination
    each = np.stack(stages, axis=2)
    return each.reshape(each.shape[0], 1, -1, *each.shape[3:]).astype(np.uint32)


def _given(job: MoeJob, experts: int) -> np.ndarray:
    """Gate counts of a file or an array: (iterations, 1, layers, experts, experts)."""
    if isinstance(job.matrix, (str, os.PathLike)):
        found = np.array(read_weights(os.fspath(job.matrix)))
    else:
        found = np.asarray(job.matrix.given)
        found = found[None, None] if found.ndim == 2 else found[None] if found.ndim == 3 else found
        if found.ndim != 4 or found.dtype.kind not in "iu" or found.min() < 0:
            raise UsageError("MoeJob.matrix: an array of whole numbers from 0 is needed, (layers, "
                             "experts, experts), or one for each iteration")
    if found.shape[-1] != experts:
        raise UsageError(f"MoeJob.matrix: it is of {found.shape[-1]} experts, and the job has "
                         f"{experts} expert ranks")
    if (found.sum(axis=-1) != found.sum(axis=-1)[..., :1]).any():
        raise UsageError("MoeJob.matrix: all rows of a layer need one sum")
    return found[:, None]
