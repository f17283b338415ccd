"""Compares what a case computed in two placements: whole numbers, truth values and words to the
bit, floats within what another order of additions may change."""

from __future__ import annotations

from typing import Any

import torch


def differences(mine: Any, theirs: Any, spread: float, where: str = "") -> list[str]:
    """What differs, a line each; none: equal.

    `spread`: floats may differ by so many epsilons of their type times the tensor's largest finite
    value; 0: they may not differ by a bit, but that NaN equals NaN.
    """
    if type(mine) is not type(theirs):
        return [f"{where}: {type(mine).__name__} is not {type(theirs).__name__}"]
    if isinstance(mine, dict):
        if list(mine) != list(theirs):
            return [f"{where}: keys {list(mine)} are not {list(theirs)}"]
        return [
            line
            for key in mine
            for line in differences(mine[key], theirs[key], spread, f"{where}.{key}")
        ]
    if isinstance(mine, list):
        if len(mine) != len(theirs):
            return [f"{where}: {len(mine)} values are not {len(theirs)}"]
        return [
            line
            for place, pair in enumerate(zip(mine, theirs, strict=True))
            for line in differences(*pair, spread, f"{where}[{place}]")
        ]
    if isinstance(mine, float):
        # Python's floats come from the default type by item().
        return _tensors(
            torch.tensor(mine, dtype=torch.float32),
            torch.tensor(theirs, dtype=torch.float32),
            spread,
            where,
        )
    if isinstance(mine, torch.Tensor):
        return _tensors(mine, theirs, spread, where)
    return [] if mine == theirs else [f"{where}: {mine!r} is not {theirs!r}"]


def _tensors(mine: torch.Tensor, theirs: torch.Tensor, spread: float, where: str) -> list[str]:
    if mine.dtype != theirs.dtype or mine.shape != theirs.shape:
        return [
            f"{where}: {mine.dtype} {tuple(mine.shape)} is not {theirs.dtype} {tuple(theirs.shape)}"
        ]
    if mine.is_complex():
        mine, theirs = torch.view_as_real(mine), torch.view_as_real(theirs)
    if not mine.dtype.is_floating_point:
        wrong = mine != theirs
        if not wrong.any():
            return []
        place = wrong.flatten().nonzero()[0].item()
        return [
            f"{where}: element {place} is {mine.flatten()[place].item()}, not "
            f"{theirs.flatten()[place].item()} ({int(wrong.sum())} of {wrong.numel()} differ)"
        ]
    eps = torch.finfo(mine.dtype).eps
    a, b = mine.double().flatten(), theirs.double().flatten()
    same = (a == b) | (a.isnan() & b.isnan())
    if same.all():
        return []
    finite = a.isfinite() & b.isfinite()
    largest = b[finite].abs().max().item() if finite.any() else 0.0
    off = torch.where(finite, (a - b).abs(), torch.inf).masked_fill(same, 0.0)
    if off.max().item() <= spread * eps * largest:
        return []
    place = int(off.argmax())
    return [
        f"{where}: element {place} is {a[place].item():.9g}, not {b[place].item():.9g}: "
        f"{off[place].item() / (eps * largest or eps):.1f} epsilons of {mine.dtype} off"
    ]


def largest_distance(mine: Any, theirs: Any) -> float:
    """The spread at which both would be equal; for whoever sets a case's."""
    if not differences(mine, theirs, 0):
        return 0.0
    spread = 1.0
    while differences(mine, theirs, spread):
        spread *= 2
        if spread > 2**60:
            return float("inf")
    return spread
