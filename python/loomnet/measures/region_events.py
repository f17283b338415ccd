"""Events of the controllers of a mixture's regions, which ask for circuits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, overload

import numpy as np

from loomnet.measures.columns import Column, Columns

KINDS = ("demand", "drain", "apply", "lit", "release", "fail", "outside")  # as the engine has them


class RegionNote(NamedTuple):
    """An event of a region's controller: demand, drain, apply, lit, release, fail, or outside where
    another client has patched its panel. `key`: iteration, layer, micro-batch, whether backward,
    whether guessed before the gate."""

    at_ps: int
    region: int
    generation: int
    key: tuple[int, int, int, bool, bool]
    event: str
    changed: int
    dark_ps: int


class RegionEvents(Sequence[RegionNote]):
    """Those of all regions, each region's in the order of time, one region behind another. Reads
    like a list; notes are made when they are asked for."""

    def __init__(self) -> None:
        self._columns = Columns(
            ("at_ps", np.int64),
            ("region", np.int32),
            ("generation", np.int64),
            ("iteration", np.int64),
            ("layer", np.int32),
            ("micro_batch", np.int32),
            ("backward", bool),
            ("guessed", bool),
            ("event", np.uint8),
            ("changed", np.int64),
            ("dark_ps", np.int64),
        )

    def add(self, region: int, rows: Column, origin_ps: int) -> None:
        """`rows`: as the engine gives them, in its time; they are kept in time since the origin."""
        columns = {name: rows[name] for name in rows.dtype.names or ()}
        columns["at_ps"] = rows["at_ps"] - origin_ps
        self._columns.add(len(rows), region=region, **columns)

    def __len__(self) -> int:
        return len(self._columns)

    @overload
    def __getitem__(self, index: int) -> RegionNote: ...
    @overload
    def __getitem__(self, index: slice) -> list[RegionNote]: ...
    def __getitem__(self, index: int | slice) -> RegionNote | list[RegionNote]:
        if isinstance(index, slice):
            return list(_notes(self._columns.rows[index]))
        return next(_notes(self._columns.rows[[index]]))

    def __iter__(self) -> Iterator[RegionNote]:
        return _notes(self._columns.rows)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RegionEvents):
            return NotImplemented
        return np.array_equal(self._columns.rows, other._columns.rows)

    def lines(self) -> bytes:
        """As JSON lines, in the order of time: circuits.jsonl."""
        rows = self._columns.rows
        words = ("false", "true")
        return "".join(
            f'{{"t_ns": {at // 1000}, "region": {region}, "gen": {generation}, '
            f'"key": {{"iteration": {iteration}, "layer": {layer}, "micro_batch": {micro_batch}, '
            f'"backward": {words[backward]}, "guessed": {words[guessed]}}}, '
            f'"event": "{KINDS[event]}", "n_changed": {changed}, "dark_ns": {dark // 1000}}}\n'
            for (
                at,
                region,
                generation,
                iteration,
                layer,
                micro_batch,
                backward,
                guessed,
                event,
                changed,
                dark,
            ) in rows[np.argsort(rows["at_ps"], kind="stable")].tolist()
        ).encode()


def _notes(rows: Column) -> Iterator[RegionNote]:
    for at, region, generation, *key, event, changed, dark in rows.tolist():
        yield RegionNote(at, region, generation, tuple(key), KINDS[event], changed, dark)
