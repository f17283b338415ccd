"""The hosts' half of switches that sum gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loomnet.base.errors import UsageError
from loomnet.base.names import in_quotes, quoted
from loomnet.fabrics.link_settings import Frames, LinkDefaults
from loomnet.jobs.model import Job
from loomnet.plans.model import Plan
from loomnet.systems.ina.pool import QUANTS, WINDOW, SumPool, falls_back
from loomnet.systems.transport import Options, Transport

NAME = "ina"
# ATP's public switch code marks at a queue of 1000 cells; cells of 80 B are assumed.
MARK_BYTES = 80_000
# Of wall time, in which a machine's scheduler has its say: SwitchML's timeout; ours.
LIVE_RTO_PS, LIVE_REMIND_PS = 10 * 10**9, 2 * 10**9


class Ina(Transport):
    name = NAME
    what = "all-reduces that switches sum; other traffic has a transport beside it"
    model = NAME
    figures = ("lost", "retransmitted")
    own_options = ("quant", "overflow_fallback")

    def check(self, job: Job, clock: str) -> None:
        raise UsageError(
            f'{type(job).__name__}.transport: "ina" carries sums alone; give '
            'allreduce="ina", and transport= for the rest of the job'
        )

    def check_options(self, options: Options) -> None:
        super().check_options(options)
        if (quant := options.get("quant", QUANTS[0])) not in QUANTS:
            raise UsageError(
                f"run: ina: quant={in_quotes(quant)} is not one of {', '.join(QUANTS)}"
            )
        if type(fallback := options.get("overflow_fallback", False)) is not bool:
            raise UsageError(
                f"run: ina: overflow_fallback={quoted(fallback)} must be True or False"
            )
        if fallback and quant == QUANTS[0]:
            raise UsageError(
                f'run: ina: overflow_fallback is of quant="fixed"; {quant} cannot overflow'
            )
        if fallback and options.get("result_path") == "switch":
            raise UsageError(
                'run: ina: overflow_fallback needs result_path="ps": two answers of a '
                "fragment may differ in what overflowed"
            )
        for fixed in ("scheme", "values", "pool", "saturate"):
            if fixed in options:
                raise UsageError(
                    f"run: ina: {fixed} is the switches' to say; give it to "
                    'fabric.program("p0.*", "aggregate", …)'
                )

    def link_defaults(self, options: Options, *, switches_pause: bool) -> LinkDefaults:
        return LinkDefaults(mark_bytes=MARK_BYTES)

    def frames(self, options: Options, plan: Plan, *, live: bool = False) -> Frames:
        return Frames(payload=max(plan.frame_bytes - 94, 1), header=94, ack=94)

    def engine_options(self, options: Options, plan: Plan, rates: Sequence[int]) -> dict[str, Any]:
        chosen = {name: value for name, value in options.items() if name not in self.own_options}
        pool = SumPool.of(plan)
        if pool is None:
            return chosen
        return {
            "scheme": pool.policy.name,
            "values": pool.values,
            "saturate": pool.saturate,
            "pool": max(pool.slots.values()),
            "switch_rtt": plan.base_rtt_ps,
            **chosen,
        }

    def live_options(self, dilation: float) -> dict[str, Any]:
        return {
            "rto_min": round(LIVE_RTO_PS / dilation),
            "remind_min": round(LIVE_REMIND_PS / dilation),
        }

    def describe_model(self, options: Options, plan: Plan) -> dict[str, str]:
        pool = SumPool.of(plan)
        return (
            {}
            if pool is None
            else {
                "sums": f"{pool.policy.name}, {pool.values} int32 in a packet, window "
                f"{options.get('window', WINDOW)}, quant {options.get('quant', QUANTS[0])}"
                + ", overflows of scripts as float32"
                * falls_back(options, pool.policy)
            }
        )
