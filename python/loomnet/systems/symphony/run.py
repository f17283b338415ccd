"""Switches that run "symphony": the length of their epochs, the jobs that they track, and the rules
by which they know the ring and rank of packets without a step header."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loomnet.base.errors import UsageError
from loomnet.base.names import in_quotes
from loomnet.base.units import Time
from loomnet.plans.entries import SwitchPlan
from loomnet.plans.job_request import JobRequest
from loomnet.plans.model import Plan
from loomnet.systems.registry import transport
from loomnet.systems.symphony.identity import reading
from loomnet.systems.symphony.lint import silent_rings
from loomnet.systems.symphony.ways import PROGRAM, ring_ways
from loomnet.systems.system import RunPart

CNP_GAP_PS = 50 * 10**6  # between congestion notifications of a queue pair, by default
_LEAST_SHIFT, _MOST_SHIFT = 10, 30


def epoch_shift(switch: SwitchPlan, plan: Plan, options: Mapping[str, Any]) -> int:
    """log2 of an epoch in nanoseconds: the smallest power of two that is not less than two
    intervals between congestion notifications, four round trips of the empty network, and 32 full
    packets on the slowest of the switch's links to other switches."""
    given = options.get("roce", {}).get("cnp_gap")
    try:
        gap = CNP_GAP_PS if given is None else Time(given).count
    except UsageError:
        gap = CNP_GAP_PS  # its transport refuses it
    rates = []
    for number in switch.ports:
        link = plan.links[number]
        half = link.forward if link.forward.source == switch.number else link.backward
        if not half.last_hop and not half.glass:
            rates.append(half.rate_bps)
    packet = plan.frame_bytes * 8 * 10**12 // min(rates) if rates else 0
    epoch_ns = -(-max(2 * gap, 4 * plan.base_rtt_ps, 32 * packet) // 1000)
    return min(max((epoch_ns - 1).bit_length(), _LEAST_SHIFT), _MOST_SHIFT)


@dataclass(frozen=True)
class Rings(RunPart):
    """The rings of a run's jobs, as switches are told of them. Raises UsageError."""

    plan: Plan
    requests: tuple[JobRequest, ...]
    options: Mapping[str, Any]

    @classmethod
    def of(
        cls, plan: Plan, requests: Sequence[JobRequest], options: Mapping[str, Any]
    ) -> Rings | None:
        switches = [each for each in plan.switches if each.program == PROGRAM]
        if not switches:
            return None
        rings = cls(plan, tuple(requests), options)
        for each in {each.options: each for each in switches}.values():
            rings.rows(each)  # refused before anything is built
        return rings

    @property
    def reads_steps(self) -> bool:
        return True

    def lint(self) -> Iterator[str]:
        return silent_rings(self.plan, self.requests, self.options)

    def rows(self, switch: SwitchPlan) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """What a switch's tables hold beside its routes: listed jobs, and rules, as symphony_tables
        takes them. Raises UsageError where the switch's options ask for what the run has not."""
        asked = dict(switch.options)
        names = [each for each in asked.get("jobs", "").split(",") if each]
        return [self._job(each.strip(), asked) for each in names], self._rules(asked)

    def _job(self, name: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        found = [each for each in self.requests if each.name == name]
        if not found:
            there = ", ".join(each.name for each in self.requests if each.name is not None)
            raise UsageError(
                f'program "{PROGRAM}": jobs: the run has no job {in_quotes(name)}; it '
                "has " + (there or "one job without a name, so leave jobs= out")
            )
        prob = asked.get("mode") == "prob"
        return {"job": found[0].number, "enable": True, "prob": prob, "g": 0}

    def identity(self, asked: Mapping[str, Any]) -> str:
        """By which a switch of these options reads ring steps in this run; never "auto"."""
        return reading(asked, self.plan, self.requests, self.options).identity

    def _rules(self, asked: Mapping[str, Any]) -> list[dict[str, Any]]:
        read = reading(asked, self.plan, self.requests, self.options)
        identity = read.identity
        if identity not in ("seq", "sport"):
            return []
        if identity == "seq" and asked.get("identity") == "seq" and not asked.get("step"):
            raise UsageError(
                f'program "{PROGRAM}": identity="seq" knows no steps; give step= the '
                'bytes that a rank sends in one, as step="1 MB"'
            )
        rules: dict[tuple[int, int, str], dict[str, Any]] = {}
        for each in self.requests:
            model = transport(each.job.transport)
            numbers = None
            if identity == "seq":
                if each.number not in read.steps:
                    continue
                numbers = model.sequence_numbers(self.options.get(model.name, {}), self.plan)
                if numbers is None:
                    continue
            carrier = "udp" if numbers is None else model.model
            ways = ring_ways(each)
            for rank, (source, target) in enumerate(ways):
                if source == target:
                    continue  # by the host's local link
                if (source, target, carrier) in rules:
                    raise UsageError(
                        f'program "{PROGRAM}": identity="{identity}" tells flows by their hosts, '
                        f"and two of {self.plan.hosts[source].name} to "
                        f"{self.plan.hosts[target].name} are of different rings or ranks; use "
                        'identity="hdr"'
                    )
                rules[source, target, carrier] = {
                    "source": self._address(source),
                    "destination": self._address(target),
                    "carrier": carrier,
                    "port": None,
                    "job": each.number,
                    "ring": 0,
                    "rank": rank,
                    "nranks": len(ways),
                    "gen": 0,
                    "step_bytes": 0 if numbers is None else read.steps[each.number],
                    "mtu": 0 if numbers is None else numbers.packet_bytes,
                    "base": None if numbers is None else numbers.first,
                }
        return list(rules.values())

    def _address(self, host: int) -> bytes:
        return ipaddress.ip_address(self.plan.hosts[host].address).packed
