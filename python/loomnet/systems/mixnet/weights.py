"""Weight matrices: how many tokens of each source rank a layer's gate routes to each expert."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from loomnet.base.errors import UsageError
from loomnet.base.names import quoted
from loomnet.base.reading import parse_json, read_text, user_path

# The matrix of MixNet's public simulator: eight experts, 32,768 tokens of each rank.
PUBLISHED = np.array(
    [
        [9810, 5338, 1231, 3042, 4452, 2004, 841, 6050],
        [9278, 6282, 839, 3722, 3821, 2903, 909, 5014],
        [10684, 5165, 1044, 2634, 4344, 3333, 675, 4889],
        [10897, 5629, 1086, 2114, 2762, 3463, 1059, 5758],
        [8684, 5666, 1046, 3955, 4334, 2952, 944, 5187],
        [8361, 5908, 777, 3043, 3984, 3422, 897, 6376],
        [10208, 5507, 1117, 4148, 3967, 3119, 904, 3798],
        [9781, 5211, 902, 3343, 4289, 2839, 1008, 5395],
    ]
)
PUBLISHED.flags.writeable = False
_MOST_COUNT = 2**32 - 1  # tokens of one source for one expert, as the engine keeps them


def read_weights(path: str | Path) -> list[np.ndarray]:
    """The matrices of a file or folder, an iteration each: arrays (layers, sources, experts).

    A file holds one iteration, a JSON array of two dimensions (one layer) or three; of a folder the
    files `*.json` are read in the order of their names. Entries are whole numbers below 2^32, all
    rows of a matrix have one sum, above 0, and all matrices one size. Raises UsageError, which
    names the file and the row.
    """
    where = user_path("weights", path)
    files = sorted(where.glob("*.json")) if where.is_dir() else [where]
    if not files:
        raise UsageError(f"weights {where}: no file *.json in this folder")
    found = [_read(file) for file in files]
    for file, matrices in zip(files, found, strict=True):
        if matrices.shape != found[0].shape:
            raise UsageError(
                f"weights {file}: {_size(matrices)}, and {files[0].name} has {_size(found[0])}"
            )
    return found


def _size(matrices: np.ndarray) -> str:
    layers, experts, _ = matrices.shape
    return f"{layers} layers of {experts} experts"


def _read(file: Path) -> np.ndarray:
    try:
        data = parse_json(read_text(file), str(file))
    except UsageError as error:
        raise UsageError(f"weights {error}") from None
    return checked_counts(f"weights {file}", data)


def checked_counts(where: str, data: Any) -> np.ndarray:
    """The matrices of one iteration, (layers, sources, experts), of an array of two dimensions or
    three. Raises UsageError, beginning with `where`."""
    try:
        found = np.array(data)
    except ValueError:
        raise UsageError(f"{where}: its rows differ in length") from None
    if found.ndim == 2:
        found = found[None]
    if found.ndim != 3 or not found.size or found.shape[1] != found.shape[2]:
        had = quoted(data) if not found.size or found.ndim == 0 else _shape(np.array(data))
        raise UsageError(
            f"{where}: an array [source][expert] or [layer][source][expert] with as "
            f"many sources as experts is needed, not {had}"
        )
    if found.dtype.kind not in "iu" or int(found.min()) < 0:
        raise UsageError(f"{where}: its entries must be whole numbers from 0")
    if int(found.max()) > _MOST_COUNT:
        raise UsageError(f"{where}: its entries must be below 2^32, and {found.max()} is not")
    sums = found.sum(axis=2, dtype=np.int64)
    for layer, row in np.argwhere((sums != sums[:, :1]) | (sums == 0))[:1].tolist():
        if sums[layer, row] == 0:
            raise UsageError(f"{where}: layer {layer}: row {row} sums to 0: a source has tokens")
        raise UsageError(
            f"{where}: layer {layer}: row {row} sums to {sums[layer, row]}, and row 0 "
            f"to {sums[layer, 0]}: all rows of a matrix need the same sum"
        )
    return found.astype(np.int64)


def _shape(found: np.ndarray) -> str:
    return " x ".join(map(str, found.shape)) + (" numbers" if found.ndim == 1 else "")
