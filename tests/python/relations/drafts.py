"""Calls of Loomnet's public names that are yet to be made, as plain data, so that a world can be
changed and built again; and quantities drawn at random."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import loomnet as ln
from loomnet.fabrics.ecn import Ecn
from loomnet.fabrics.pfc import Pfc

Draw = random.Random


@dataclass(frozen=True)
class Written:
    """A file that a job reads. `content`: by name in a folder of the job's own; `path`: which of
    them, or the folder itself, the job is given."""

    content: Mapping[str, bytes]
    path: str = ""

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in self.content.items():
            (folder / name).write_bytes(data)
        return folder / self.path


@dataclass(frozen=True)
class Draft:
    """A call of `ln.<name>`, or of the fabric's method of that name, with these arguments."""

    name: str
    given: tuple[Any, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)

    def change(self, **values: Any) -> Draft:
        """With these arguments instead; one that is None is left out."""
        kept = {**self.values, **values}
        return replace(self, values={k: v for k, v in kept.items() if v is not None})

    def get(self, name: str, default: Any = None) -> Any:
        return self.values.get(name, default)

    def make(self, owner: Any, folder: Path | None = None) -> Any:
        found = owner
        for part in self.name.split("."):
            found = getattr(found, part)
        return found(
            *self.given,
            **{
                name: value.write(folder) if isinstance(value, Written) and folder else value
                for name, value in self.values.items()
            },
        )

    def __str__(self) -> str:
        shown = [
            *map(_shown, self.given),
            *(f"{name}={_shown(value)}" for name, value in self.values.items()),
        ]
        return f"{self.name}({', '.join(shown)})"


def draft(name: str, /, *given: Any, **values: Any) -> Draft:
    return Draft(name, given, {k: v for k, v in values.items() if v is not None})


def _shown(value: Any) -> str:
    if isinstance(value, Written):
        text = b"\n".join(value.content.values())
        return f"<{value.path or 'folder'}: {text[:600].decode(errors='replace')!r}>"
    if isinstance(value, (ln.Rate, ln.Time, ln.Size)):
        return f'"{value}"'
    return repr(value)


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """The value with `change` applied to each leaf: quantities, texts and numbers inside drafts,
    lists and tables."""
    if isinstance(value, Draft):
        return replace(
            value, given=mapped(value.given, change), values=mapped(value.values, change)
        )
    if isinstance(value, Mapping):
        return {name: mapped(each, change) for name, each in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(mapped(each, change) for each in value)
    return change(value)


def scaled(
    value: Any, *, time: Fraction | int = 1, rate: Fraction | int = 1, size: Fraction | int = 1
) -> Any:
    """With every quantity inside multiplied by the factor of its kind."""

    def change(leaf: Any) -> Any:
        for kind, factor in ((ln.Time, time), (ln.Rate, rate), (ln.Size, size)):
            if isinstance(leaf, kind):
                return kind.of(int(leaf.count * factor))
        if isinstance(leaf, Ecn):
            return Ecn(
                *(
                    None if each is None else scaled(each, size=size)
                    for each in (leaf.low, leaf.high)
                ),
                share=leaf.share,
            )
        if isinstance(leaf, Pfc):
            return Pfc(
                *(
                    None if each is None else scaled(each, size=size)
                    for each in (leaf.xoff, leaf.xon)
                )
            )
        return leaf

    return mapped(value, change)


# --- quantities ---------------------------------------------------------------------------------
def log_uniform(draw: Draw, least: float, most: float) -> float:
    return least * (most / least) ** draw.random()


def _rounded(value: float) -> int:
    """To three digits, and even, so that half of it is whole."""
    scale = 10 ** max(len(str(int(value))) - 3, 0)
    return max(int(value) // scale * scale // 2 * 2, 2)


def a_rate(draw: Draw, least: float = 1e8, most: float = 8e11) -> ln.Rate:
    usual = [each for each in (10e9, 25e9, 100e9, 400e9) if least <= each <= most]
    return ln.Rate.of(
        int(draw.choice(usual))
        if usual and draw.random() < 0.5
        else _rounded(log_uniform(draw, least, most))
    )


def a_time(draw: Draw, least: float, most: float) -> ln.Time:
    """`least` and `most` in picoseconds."""
    return ln.Time.of(_rounded(log_uniform(draw, least, most)))


def a_size(draw: Draw, least: int, most: int) -> ln.Size:
    return ln.Size.of(round(log_uniform(draw, least, most)))


def sometimes(draw: Draw, share: float) -> bool:
    return draw.random() < share
