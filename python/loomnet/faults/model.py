"""Faults as rows: what breaks, when, for how long, and the phase it is called in the metrics."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, model_validator

from loomnet.base.arguments import checked_call
from loomnet.base.errors import UsageError
from loomnet.base.names import did_you_mean, quoted
from loomnet.base.spec import Spec, given
from loomnet.base.units import Rate, Time, time_or_none
from loomnet.fabrics.links import Link
from loomnet.fabrics.model import Fabric

RESERVED_PHASES = ("before", "after")
MOST_STEPS = 10**9
MOST_FAULTS = 100_000


@dataclass(frozen=True, order=True)
class StepMark:
    """The moment rank 0 has finished step `number`."""

    number: int

    def __str__(self) -> str:
        return f"step {self.number}"


@dataclass(frozen=True, order=True)
class IterationCount:
    """`number` medians of the undisturbed iteration, from the end of one to the end of the next,
    fixed when the fault starts."""

    number: int

    def __str__(self) -> str:
        return f"{self.number} iterations"


@checked_call
def step(number: int) -> StepMark:
    """`at=ln.step(40)`: when rank 0 has finished step 40."""
    return StepMark(_whole("step", number))


@checked_call
def iterations(number: int) -> IterationCount:
    """`duration=ln.iterations(30)`: 30 medians of the undisturbed iteration, with what a
    collective's ranks compute between two rounds."""
    return IterationCount(_whole("iterations", number))


def _whole(what: str, number: int) -> int:
    if type(number) is not int or not 1 <= number <= MOST_STEPS:
        raise UsageError(f"{what}({quoted(number)}): must be a whole number from 1 to {MOST_STEPS}")
    return number


# What `at=` and `duration=` take.
Moment = Time | str | StepMark
Span = Time | str | IterationCount | None


def _moment(value: Moment) -> Time | StepMark:
    return value if isinstance(value, (StepMark, Time)) else Time(value)


def _span(value: Span) -> Time | IterationCount | None:
    if value is None or isinstance(value, IterationCount):
        return value
    return Time(value)


class Fault(Spec):
    """One row. Made by down(), loss(), duplicate(), reorder(), delay(), jitter(), bunch(),
    degrade(), kill(); `target` may be a glob."""

    kind: Literal[
        "down", "loss", "duplicate", "reorder", "delay", "jitter", "bunch", "degrade", "kill"
    ]
    target: str
    at: Annotated[Time | StepMark, BeforeValidator(_moment)] = given(converter=_moment)
    duration: Annotated[Time | IterationCount | None, BeforeValidator(_span)] = given(
        default=None, converter=_span
    )
    phase: str | None = None
    probability: float | None = None
    burst: float = 1.0
    extra: Time | None = given(default=None, converter=time_or_none)
    to: Rate | float | None = None
    keep_thresholds: bool = False
    reboot: Time | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Fault:
        if self.phase is not None:
            if self.phase in RESERVED_PHASES:
                raise UsageError(
                    f'phase "{self.phase}" is what the report calls the undisturbed '
                    "part; choose another name"
                )
            if not re.fullmatch(r"[a-z][a-z0-9_]*", self.phase):
                raise UsageError(f'phase "{self.phase}" must be small letters, digits and _')
        if self.kind == "loss" and not 0 < (self.probability or 0) <= 1:
            raise UsageError(f"loss probability {self.probability} must be above 0, at most 1")
        if self.kind in ("duplicate", "reorder") and not 0 < (self.probability or 0) <= 1:
            raise UsageError(f"{self.kind}: share {self.probability} must be above 0, at most 1")
        if self.kind == "reorder" and self.extra == Time("0 s"):
            raise UsageError("reorder: by=0 s moves no packet; give a time, or leave it out")
        if self.kind in ("jitter", "bunch") and not (self.extra and self.extra.count):
            raise UsageError(f"{self.kind}: 0 s moves no packet; give a time")
        if not (math.isfinite(self.burst) and self.burst >= 1):
            raise UsageError(f"burst {self.burst} must be 1 or more: mean packets per burst")
        if self.kind == "degrade" and isinstance(self.to, float) and not 0 < self.to < 1:
            raise UsageError(
                f'degrade to {self.to}: a share between 0 and 1, or a rate such as "10 Gb/s"'
            )
        if self.reboot is not None and self.duration is None:
            raise UsageError("reboot needs a duration: for how long the switch is off before")
        if self.duration is not None and self.duration in (Time("0 s"), IterationCount(0)):
            raise UsageError("duration must be longer than zero")
        return self

    def check(self, fabric: Fabric) -> None:
        """Raises UsageError, with the three nearest names, if the target does not exist."""
        links: list[tuple[Link, int]] = []
        try:
            if self.kind == "kill":
                self._check_killed(fabric)
            else:
                links = fabric.match(self.target)
        except UsageError as error:
            raise UsageError(f"fault {self.label}: {error}") from None
        if self.kind == "degrade":
            for link, direction in links:
                for panel in {link.a, link.b} & set(fabric.panels):
                    if direction != (1 if link.b == panel else -1):
                        host = link.a if link.b == panel else link.b
                        raise UsageError(
                            f"fault {self.label}: a panel passes light on at the rate of the host "
                            f'that sent it; degrade "{host}->{panel}{link.suffix}"'
                        )
        if self.kind == "degrade" and isinstance(self.to, Rate):
            for link, direction in links:
                half = link.backward if direction < 0 else link.forward
                if self.to >= half.rate:
                    raise UsageError(
                        f"fault {self.label}: {self.to} is not below {link.name}'s rate {half.rate}"
                    )

    def _check_killed(self, fabric: Fabric) -> None:
        panels = [*fabric.panels, *(f"{panel}.controller" for panel in fabric.panels)]
        if self.target in panels:
            return
        try:
            fabric.match_switches(self.target)
        except UsageError:
            if not panels or self.target in fabric.hosts:
                raise
            raise UsageError(
                f'no switch "{self.target}", and no panel or controller of one'
                f"{did_you_mean(self.target, [*panels, *fabric.switches])}"
            ) from None

    @property
    def label(self) -> str:
        return self.phase or f"{self.kind}({self.target})"

    def describe(self) -> str:
        """The row as one line: `nic_link_down: down h0--p0.leaf0 at 8 s for 8 s`."""
        detail = {
            "loss": f" {self.probability:g}" if self.probability else "",
            "duplicate": f" {self.probability:g}" if self.probability else "",
            "reorder": f" {self.probability:g}" + (f" by up to {self.extra}" if self.extra else "")
            if self.probability
            else "",
            "delay": f" +{self.extra}",
            "jitter": f" up to {self.extra}",
            "bunch": f" every {self.extra}",
            "degrade": f" to {self.to}",
        }.get(self.kind, "")
        lasts = f"for {self.duration}" if self.duration else "to the end"
        if self.reboot is not None:
            lasts += f", then boots for {self.reboot}"
        head = f"{self.phase}: " if self.phase else ""
        return f"{head}{self.kind} {self.target}{detail} at {self.at} {lasts}"

    @property
    def happened(self) -> str:
        """The fault as a clause for a sentence: `h0--p0.leaf0 went down`."""
        share = f"{100 * (self.probability or 0):g} %"
        return (
            self.target
            + {
                "down": " went down",
                "kill": " was switched off",
                "loss": f" lost {share} of its packets",
                "duplicate": f" duplicated {share} of its packets",
                "reorder": f" reordered {share} of its packets",
                "delay": f" took {self.extra} longer",
                "jitter": f" took up to {self.extra} longer",
                "bunch": f" delivered every {self.extra}",
                "degrade": (
                    f" slowed to {100 * self.to:g} % of its rate"
                    if isinstance(self.to, float)
                    else f" slowed to {self.to}"
                ),
            }[self.kind]
        )


def panel_of_controller(target: str, panels: Iterable[str]) -> str | None:
    """ "ocs0.controller" is what patches ocs0 while a job runs; None: no such name."""
    panel, dot, what = target.rpartition(".")
    return panel if dot and what == "controller" and panel in set(panels) else None


@checked_call
def down(link: str, *, at: Moment, duration: Span = None, phase: str | None = None) -> Fault:
    """Takes a link (`a--b`) or one direction (`a->b`) down: carrier is lost at both ends."""
    return Fault(kind="down", target=link, at=at, duration=duration, phase=phase)


@checked_call
def loss(
    link: str,
    probability: float,
    *,
    at: Moment,
    duration: Span = None,
    burst: float = 1.0,
    phase: str | None = None,
) -> Fault:
    """Loses a share `probability` of packets while carrier stays, in bursts of mean `burst`."""
    return Fault(
        kind="loss",
        target=link,
        at=at,
        duration=duration,
        phase=phase,
        probability=probability,
        burst=burst,
    )


@checked_call
def duplicate(
    link: str, share: float, *, at: Moment, duration: Span = None, phase: str | None = None
) -> Fault:
    """Delivers a share of packets twice. The copy takes no time on this link."""
    return Fault(
        kind="duplicate", target=link, at=at, duration=duration, phase=phase, probability=share
    )


@checked_call
def reorder(
    link: str,
    share: float,
    *,
    at: Moment,
    by: Time | str | None = None,
    duration: Span = None,
    phase: str | None = None,
) -> Fault:
    """Delays a share of packets by a random time up to `by`, so that packets sent behind them
    arrive before them. Without `by` it is the time that eight full packets take on the link."""
    late = None if by is None else Time.given("reorder: by", by)
    return Fault(
        kind="reorder",
        target=link,
        at=at,
        duration=duration,
        phase=phase,
        probability=share,
        extra=late,
    )


@checked_call
def delay(
    link: str, extra: Time | str, *, at: Moment, duration: Span = None, phase: str | None = None
) -> Fault:
    """Lengthens a link by `extra` in each direction named."""
    return Fault(kind="delay", target=link, at=at, duration=duration, phase=phase, extra=extra)


@checked_call
def jitter(
    link: str, by: Time | str, *, at: Moment, duration: Span = None, phase: str | None = None
) -> Fault:
    """Lengthens the way of each packet by a random time up to `by`, uniformly; none overtakes
    another, unlike under reorder()."""
    late = Time.given("jitter: by", by)
    return Fault(kind="jitter", target=link, at=at, duration=duration, phase=phase, extra=late)


@checked_call
def bunch(
    link: str, every: Time | str, *, at: Moment, duration: Span = None, phase: str | None = None
) -> Fault:
    """Delivers packets in bunches: those that would arrive within one slot of `every`, counted from
    the fault's begin, all arrive at its end, in order. So do radio links, cable modems and
    interrupts that a NIC holds back."""
    slot = Time.given("bunch: every", every)
    return Fault(kind="bunch", target=link, at=at, duration=duration, phase=phase, extra=slot)


@checked_call
def degrade(
    link: str,
    to: Rate | str | float,
    *,
    at: Moment,
    duration: Span = None,
    phase: str | None = None,
    keep_thresholds: bool = False,
) -> Fault:
    """Slows a link to a rate ("10 Gb/s") or to a share of its own (0.25). Its queues and marking
    thresholds shrink with it, down to 8 packets, as a port that has negotiated the lower rate has
    them; with `keep_thresholds` they stay, and packets wait the longer."""
    value = to if isinstance(to, float) else Rate.given("degrade: to", to)
    return Fault(
        kind="degrade",
        target=link,
        at=at,
        duration=duration,
        phase=phase,
        to=value,
        keep_thresholds=keep_thresholds,
    )


@checked_call
def kill(
    switch: str,
    *,
    at: Moment,
    duration: Span = None,
    phase: str | None = None,
    reboot: Time | str | None = None,
) -> Fault:
    """A switch dies for `duration`: all its links lose carrier, and what it held is lost. Then it
    boots for `reboot` (0): its links have carrier but its tables are empty, so it drops all that
    comes (`drop_no_route`). It ends with the tables that the others have by then.

    Of a panel, "ocs0", all fibres lose their light. "ocs0.controller" is the controller that an
    ln.MoeJob patches ocs0 with: while it is dead the panel stays as it is and the job goes by
    wires; a new one reads the circuits off the panel and hears the last demand."""
    boots = None if reboot is None else Time.given("kill: reboot", reboot)
    return Fault(kind="kill", target=switch, at=at, duration=duration, phase=phase, reboot=boots)


def list_of_faults(faults: Any) -> list[Any]:
    """Raises UsageError where it is no list of rows."""
    if isinstance(faults, Fault):
        raise UsageError(
            f"faults: {faults.label} stands alone; write a list: [ln.{faults.kind}(…)]"
        )
    if not isinstance(faults, Iterable) or isinstance(faults, (str, bytes)):
        raise UsageError(f"faults: {quoted(faults)} is not a list of faults; write [ln.down(…)]")
    found = list(itertools.islice(faults, MOST_FAULTS + 1))
    if len(found) > MOST_FAULTS:
        raise UsageError(f"faults: more than {MOST_FAULTS:,} of them")
    return found


def check_faults(faults: list[Fault], fabric: Fabric) -> None:
    """Checks every row against a fabric. Raises UsageError naming the first row at fault."""
    for row in faults:
        if not isinstance(row, Fault):
            raise UsageError(
                f"faults: {quoted(row)} is not a fault; write ln.down(…), ln.loss(…), "
                "ln.duplicate(…), ln.reorder(…), ln.delay(…), ln.jitter(…), ln.bunch(…), "
                "ln.degrade(…) or ln.kill(…)"
            )
        row.check(fabric)
