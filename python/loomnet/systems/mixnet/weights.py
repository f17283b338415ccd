"""Weight matrices: how many tokens of each source rank a layer's gate routes to each expert."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from loomnet.base.errors import UsageError
from loomnet.base.names import quoted

# The matrix of MixNet's public simulator: eight experts, 32,768 tokens of each rank.
PUBLISHED = np.array([
    [9810, 5338, 1231, 3042, 4452, 2004, 841, 6050],
    [9278, 6282, 839, 3722, 3821, 2903, 909, 5014],
    [10684, 5165, 1044, 2634, 4344, 3333, 675, 4889],
    [10897, 5629, 1086, 2114, 2762, 3463, 1059, 5758],
    [8684, 5666, 1046, 3955, 4334, 2952, 944, 5187],
    [8361, 5908, 777, 3043, 3984, 3422, 897, 6376],
    [10208, 5507, 1117, 4148, 3967, 3119, 904, 3798],
    [9781, 5211, 902, 3343, 4289, 2839, 1008, 5395],
])
PUBLISHED.flags.writeable = False
_MOST_BYTES = 256 << 20


def read_weights(path: str | Path) -> list[np.ndarray]:
    """The matrices of a file or folder, an iteration each: arrays (layers, sources, experts).

    A file holds one iteration, a JSON array of two dimensions (one layer) or three; of a folder the
    files `*.json` are read in the order of their names. All rows of a matrix have one sum, above 0,
    and all matrices one size. Raises UsageError, which names the file and the row.
    """
    where = Path(path)
    files = sorted(where.glob("*.json")) if where.is_dir() else [where]
    if not files:
        raise UsageError(f"weights {where}: no file *.json in this folder")
    found = [_read(file) for file in files]
    for file, matrices in zip(files, found, strict=True):
        if matrices.shape != found[0].shape:
            raise UsageError(f"weights {file}: {_size(matrices)}, and {files[0].name} has "
                             f"{_size(found[0])}")
    return found


def _size(matrices: np.ndarray) -> str:
    layers, experts, _ = matrices.shape
    return f"{layers} layers of {experts} experts"


def _read(file: Path) -> np.ndarray:
    try:
        if file.stat().st_size > _MOST_BYTES:
            raise UsageError(f"weights {file}: more than {_MOST_BYTES >> 20} MiB")
        data = json.loads(file.read_text())
    except OSError as error:
        raise UsageError(f"weights {file}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"weights {file}: no JSON array: {error}") from None
    return _checked(f"weights {file}", data)


def _checked(where: str, data: Any) -> np.ndarray:
    try:
        found = np.array(data)
    except ValueError:
        raise UsageError(f"{where}: its rows differ in length") from None
    if found.ndim == 2:
        found = found[None]
    if found.ndim != 3 or not found.size or found.shape[1] != found.shape[2]:
        raise UsageError(f"{where}: an array [source][expert] or [layer][source][expert] with as "
                         f"many sources as experts is needed, not {quoted(data)}")
    if found.dtype.kind not in "iu" or int(found.min()) < 0:
        raise UsageError(f"{where}: its entries must be whole numbers from 0")
    sums = found.astype(object).sum(axis=2)
    for layer, row in np.ndindex(sums.shape):
        if sums[layer, row] != sums[layer, 0] or sums[layer, row] == 0:
            raise UsageError(f"{where}: layer {layer}: row {row} sums to {sums[layer, row]}, and "
                             f"row 0 to {sums[layer, 0]}: all rows of a matrix need one sum above "
                             "0")
    return found.astype(np.int64)
