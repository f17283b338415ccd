"""The memory in which the switches of a fabric sum, and what their hosts must know of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from loomnet.base.errors import UsageError
from loomnet.plans.entries import SwitchPlan
from loomnet.plans.model import Plan

PROGRAM = "aggregate"
WINDOW, MOST_WINDOW = 256, 32768  # fragments of a worker under way at once (SwitchML's packets)
# float32 as int32: by block exponents (SwitchML), or times 10^6 (ATP)
QUANTS = ("block_exp", "fixed")
# Windows that SwitchML's worker goes on behind a fragment that is missing: MOST_SUM_SLOTS requests
# of a quarter each. Other workers have results in order.
OWN_REACH, REACH = 16, 2
MOST_SUM_SLOTS = 64  # core/collective: requests of sums under way at once
SUM_STAGING = 32 << 20  # bytes of a rank's memory for them, where two windows need no more
FIXED_SCALE = 10**6  # the factor of "fixed" (ATP)
_ROOT_MAY_ANSWER, _ROOT_ANSWERS = 1, 2  # enum aggregate_answering
SLOT_HEADER = 32  # bytes of a slot beside its int32


@dataclass(frozen=True)
class Policy:
    """A row of the engine's table of policies (ebpf/aggregate_policies.h)."""

    number: int  # on the wire
    name: str
    has_servers: bool
    root_may_answer: bool  # as an option of the run, beside the server

    @classmethod
    @cache
    def all(cls) -> Mapping[str, Policy]:
        """By name, in the order of their numbers."""
        import loomnet._core as _core

        return {
            row["name"]: cls(
                number,
                row["name"],
                row["answering"] != _ROOT_ANSWERS,
                row["answering"] == _ROOT_MAY_ANSWER,
            )
            for number, row in enumerate(_core.aggregate_policies())
        }

    @classmethod
    def names(cls, trait: str) -> str:
        """Those with a trait, as a user may choose among them."""
        return " or ".join(f'"{each.name}"' for each in cls.all().values() if getattr(each, trait))


@dataclass(frozen=True)
class SumPool:
    """What the switches that sum have in common, and how many slots each has, by node number."""

    policy: Policy
    values: int
    saturate: bool
    slots: Mapping[int, int]

    @classmethod
    def of(cls, plan: Plan) -> SumPool | None:
        """None: no switch runs the program. Raises UsageError where two differ in what hosts must
        know."""
        found: dict[str, tuple[str, Any]] = {}
        slots: dict[int, int] = {}
        for switch in plan.switches:
            if switch.program != PROGRAM:
                continue
            options = program_options(switch)
            for name in ("policy", "values", "saturate"):
                first, value = found.setdefault(name, (switch.name, options[name]))
                if value != options[name]:
                    raise UsageError(
                        f"run: {first} sums with {name}={value}, {switch.name} with "
                        f"{options[name]}; give all switches that sum the same"
                    )
            slots[switch.number] = options["pool"] // (SLOT_HEADER + 4 * options["values"])
        if not slots:
            return None
        policy, values, saturate = (found[name][1] for name in ("policy", "values", "saturate"))
        return cls(Policy.all()[policy], values, saturate, slots)


def falls_back(options: Mapping[str, Any], policy: Policy) -> bool:
    """Whether parameter servers add as float32 what a fixed scale cannot hold of a script's sums,
    under a run's options of ina (ATP); by default where a server answers the workers."""
    stated = options.get("overflow_fallback")
    return (
        stated
        if stated is not None
        else (
            options.get("quant", QUANTS[0]) == "fixed"
            and policy.has_servers
            and options.get("result_path", "ps") == "ps"
        )
    )


def program_options(switch: SwitchPlan) -> dict[str, Any]:
    """All options of a switch's program, with its defaults."""
    import loomnet._core as _core

    known = _core.switch_programs()[switch.program]["options"]
    return {name: default for name, (default, _) in known.items()} | dict(switch.options)
