"""How the controllers of a job's regions patch circuits. Specification only, validated on
construction."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, StrictStr, model_validator

from loomnet.base.constructor import constructor
from loomnet.base.errors import UsageError
from loomnet.base.spec import Spec, given
from loomnet.base.units import Time

Repatch = Literal["layer", "worthwhile", "iteration", "once", "never", "rotor"]


def _some_time(value: Time) -> Time:
    if value.count < 0:
        raise UsageError(f"{value} must be 0 or more")
    return value


class CircuitControl(Spec):
    """How the controllers of a job's regions patch their panels (MixNet, SIGCOMM 2025, doi
    10.1145/3718958.3750465).

    `rule`: which servers get circuits: "skip", "literal", "htsim", "share", "random", or a class
    registered by @ln.plugin.assignment. `demand`: what two servers exchange, the busier direction
    ("max") or the "sum" of both, by which the server of the coldest experts, which sends as much as
    any other, seems to need little. `ties`: which of pairs with equal demand comes first: the one
    with a server that has most "free" ports, or the one with the lowest numbers ("index"). `split`:
    a pair's bytes go by its circuits, if it has one ("all_or_nothing"), or are divided so that
    circuits and wires end together ("weighted").
    `fp_dispatch`: by which circuits tokens are dispatched forward: "block" waits until those of the
    gate's counts have light, "reuse" takes those there are, "random" and "copilot" guess while
    attention computes. `repatch`: for every "layer"; for a layer where that is "worthwhile": its
    all-to-alls save more than the part of the dark time that nothing hides (ours); when an
    "iteration" begins, "once" after the first, "never", or "rotor": circuits rotate through all
    pairs of servers whatever the demand, a `slot` each and dark for the panel's time between two,
    and experts' bytes take these alone (RotorNet, SIGCOMM 2017). `eps_during_dark`: all-to-alls
    wait for circuits ("hold") or begin at once by wires and move over ("eps_first"). `dark_scope`:
    a request darkens circuits that are "changed", or "all" of its region. `drain`: packets still
    on circuits after this time are lost.
    `members`: parallel circuits are "links" among which flows are hashed, or "lumped". `preset`:
    "paper" has dark_scope "all" and members "lumped", as the publication's simulator, and demand
    "sum" and ties "index", as we first read the publication, so that figures of that reading can be
    repeated; what is given beside it holds.
    """

    preset: Literal["paper"] | None = None
    rule: StrictStr = "skip"
    demand: Literal["sum", "max"] = "max"
    ties: Literal["free", "index"] = "free"
    split: Literal["all_or_nothing", "weighted"] = "all_or_nothing"
    fp_dispatch: Literal["block", "reuse", "random", "copilot"] = "block"
    repatch: Repatch = "layer"
    slot: Annotated[Time, AfterValidator(_some_time)] = given(
        default=Time("200 us"), converter=Time
    )
    eps_during_dark: Literal["hold", "eps_first"] = "hold"
    dark_scope: Literal["changed", "all"] = "changed"
    drain: Annotated[Time, AfterValidator(_some_time)] = given(
        default=Time("10 ms"), converter=Time
    )
    members: Literal["links", "lumped"] = "links"
    copilot_records: Annotated[int, Field(ge=2, le=1024, strict=True)] = 16

    @constructor
    def __init__(
        self,
        *,
        preset: Literal["paper"] | None = None,
        rule: str = "skip",
        demand: Literal["sum", "max"] = "max",
        ties: Literal["free", "index"] = "free",
        split: Literal["all_or_nothing", "weighted"] = "all_or_nothing",
        fp_dispatch: Literal["block", "reuse", "random", "copilot"] = "block",
        repatch: Repatch = "layer",
        slot: Time | str = "200 us",
        eps_during_dark: Literal["hold", "eps_first"] = "hold",
        dark_scope: Literal["changed", "all"] = "changed",
        drain: Time | str = "10 ms",
        members: Literal["links", "lumped"] = "links",
        copilot_records: int = 16,
    ) -> None: ...

    @model_validator(mode="after")
    def _rotor(self) -> CircuitControl:
        if self.repatch == "rotor":
            if self.slot.count == 0:
                raise UsageError("CircuitControl.slot: 0 s carries nothing; give a time above 0")
            if self.split != "all_or_nothing" or self.eps_during_dark != "hold":
                raise UsageError(
                    'CircuitControl: repatch="rotor" sends by circuits alone; leave '
                    "split and eps_during_dark out"
                )
        return self

    @model_validator(mode="after")
    def _worthwhile(self) -> CircuitControl:
        if self.repatch == "worthwhile":
            if self.eps_during_dark != "hold":
                raise UsageError(
                    'CircuitControl: repatch="worthwhile" weighs how long all-to-alls '
                    'wait for circuits: leave eps_during_dark at "hold"'
                )
            if self.fp_dispatch == "random":
                raise UsageError(
                    'CircuitControl: repatch="worthwhile" patches for a demand, which '
                    "a random guess has not: give another fp_dispatch"
                )
        return self

    @model_validator(mode="before")
    @classmethod
    def _preset(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("preset") == "paper":
            return {
                "dark_scope": "all",
                "members": "lumped",
                "demand": "sum",
                "ties": "index",
            } | values
        return values
