"""How long a rank computes on the virtual clock: so long a step, a table by layer, or what its own
processor took, times a factor."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from loomnet.base.errors import UsageError
from loomnet.base.names import quoted
from loomnet.base.units import Time

STEP = "optimizer"  # a table's row for the optimizer's own step
# Backward computes two gradients (of inputs and of weights) for forward's one product.
BACKWARD = 2
_FACTOR = re.compile(r"[0-9]{0,20}\.?[0-9]{1,20}(?:[eE][+-]?[0-9]{1,3})?")
_MEASURED = re.compile(r"measured(?:\s*[*x×]\s*(?P<factor>\S+))?")


class MeasuredCompute(str):
    """The rank's own CPU time times `factor`; such a run is not deterministic."""

    @property
    def factor(self) -> float:
        match = _MEASURED.fullmatch(self)
        assert match is not None
        return float(match["factor"] or 1)


class LayerTable(dict[str, tuple[Time, Time]]):
    """(forward, backward) of every module whose qualified name matches a pattern (fnmatch's, the
    first that does), and, under "optimizer", (time, 0) of the optimizer's step."""


ComputeModel = Time | MeasuredCompute | LayerTable


def compute_model(value: Time | str | Mapping[str, Any] | None) -> ComputeModel | None:
    """What `compute=` of a TorchJob says: "2 ms", "measured", "measured x 0.1", or {"layers.*":
    "0.1 ms"} (backward takes twice that), {"layers.*": ("0.1 ms", "0.3 ms")}. Raises UsageError."""
    if value is None or isinstance(value, (MeasuredCompute, LayerTable)):
        return value
    if isinstance(value, Mapping):
        if not value:
            raise UsageError('an empty table; write {"layers.*": "0.1 ms"} or one time, "2 ms"')
        return LayerTable({str(name): _row(str(name), time) for name, time in value.items()})
    if isinstance(value, str) and (match := _MEASURED.fullmatch(value.strip())):
        text = match["factor"] or "1"
        factor = float(text) if _FACTOR.fullmatch(text) else math.nan
        if not (0 < factor < math.inf):
            raise UsageError(
                f'"{value}": the factor must be a number above 0, as in "measured x 0.1"'
            )
        return MeasuredCompute(value.strip())
    return Time(value)


def _row(name: str, value: Any) -> tuple[Time, Time]:
    if isinstance(value, Sequence) and not isinstance(value, str):
        if len(value) != 2 or name == STEP:
            raise UsageError(
                f'"{name}": {quoted(value)} is not a time'
                + ("" if name == STEP else " or (forward, backward)")
            )
        return Time(value[0]), Time(value[1])
    forward = Time(value)
    return forward, Time.of(0 if name == STEP else forward.count * BACKWARD)


def encoded(model: ComputeModel) -> str:
    """What a rank's environment says of it, read by loomnet.torch.steps."""
    if isinstance(model, LayerTable):
        return json.dumps({name: [time.count for time in row] for name, row in model.items()})
    if isinstance(model, MeasuredCompute):
        return f"measured {model.factor!r}"
    return str(model.count)


def longest_pause(text: str) -> int:
    """Picoseconds that an iteration computes at most by what :func:`encoded` wrote, as far as that
    says; several, joined by commas, are one per iteration."""
    if text.startswith("{"):
        return sum(sum(row) for row in json.loads(text).values())
    return 0 if text.startswith("measured") else max(map(int, text.split(",")))
