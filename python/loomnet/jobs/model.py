"""What runs on a fabric: what all jobs have, and real PyTorch jobs. Specifications only, validated
on construction. Collectives are in collectives.py, flows between pairs in flows.py, traces in
graphs.py."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Unpack

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainValidator,
    PrivateAttr,
    StrictBool,
    StrictStr,
    field_validator,
    model_validator,
)

from loomnet.base.constructor import constructor
from loomnet.base.errors import UsageError
from loomnet.base.names import quoted
from loomnet.base.reading import is_file, other_than_a_file
from loomnet.base.spec import Spec, given
from loomnet.base.transport_names import TRANSPORT
from loomnet.base.units import Time, time_or_none
from loomnet.jobs.circuit_control import CircuitControl
from loomnet.jobs.compute import ComputeModel, compute_model
from loomnet.jobs.edges import Edge, Pair, ring
from loomnet.jobs.of_systems import RING, allreduce_name, job_options, transport_name
from loomnet.jobs.options import JobOptions
from loomnet.jobs.training_script import check_training_script

MIN_STALL = Time("5 s")


def _stall(value: Time | str | None) -> Time | Literal["auto"] | None:
    if value is None:
        return None
    if value == "auto":
        return "auto"
    if not (timeout := Time(value)):
        raise UsageError("must be above 0; None waits for ever")
    return timeout


def _no_single_text(values: Any) -> Any:
    """Raises UsageError for one text where a list of them belongs."""
    if isinstance(values, str):
        raise UsageError(
            f"{quoted(values)} is one text; write a list of texts, as "
            f"[{', '.join(map(quoted, values.split()))}]"
        )
    return values


def _strings(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(values)


MOST_COUNT = 10**9
MOST_ARGUMENTS = 10_000  # of a script; the kernel's limit is on their bytes
Count = Annotated[int, Field(ge=1, le=MOST_COUNT, strict=True)]
Seed = Annotated[int, Field(ge=0, lt=2**64, strict=True)]
MOST_RANKS = 1 << 17  # of one job: the NICs of the largest published fabric, all of them built
# Every two ranks of a collective have a queue pair.
MOST_MESHED = 4096


_NAME = re.compile("[A-Za-z0-9_][A-Za-z0-9_-]{0,39}")


def _name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise UsageError(f"{quoted(value)}: write up to 40 letters, digits, _ and -")
    return value


def _control(value: Any) -> dict[str, Any] | None:
    if isinstance(value, str):
        return {"cc": value}
    if value is None or (isinstance(value, Mapping) and all(isinstance(key, str) for key in value)):
        return None if value is None else dict(value)
    raise UsageError(
        f'cc={quoted(value)} is neither the name of a congestion control nor {{"cc": NAME}} with '
        "its options"
    )


def _start(value: Time) -> Time:
    if value.count < 0:
        raise UsageError(f"{value} is before the run")
    return value


def check_places(where: str, ranks: int, places: Sequence[int]) -> None:
    """Raises UsageError for more ranks than there are places on the hosts."""
    if ranks <= len(places):
        return
    hosts = len(set(places))
    if hosts == len(places):
        raise UsageError(f"{where}: {ranks} ranks but {hosts} hosts; one rank runs per host")
    raise UsageError(
        f"{where}: {ranks} ranks but {hosts} hosts, with {len(places)} places for "
        "ranks; a host has as many as its ranks= says"
    )


def check_ranks(where: str, ranks: int) -> None:
    """Raises UsageError for more ranks than one job has."""
    if ranks > MOST_RANKS:
        raise UsageError(
            f"{where}: {ranks:,} ranks are more than the {MOST_RANKS:,} of one job; give ranks="
        )


def check_meshed(job: str, ranks: int) -> None:
    """Raises UsageError for more ranks than one collective joins."""
    if ranks > MOST_MESHED:
        raise UsageError(
            f"{job}.ranks: {ranks} ranks are more than the {MOST_MESHED} "
            "that one collective joins: every two have a queue pair; give ranks="
        )


MeasuredAs = Literal["training", "collective", "flows"]


class Job(Spec):
    """Common to all jobs. `ranks` None: as many as the hosts of role rank have places for. Ranks
    fill the hosts in order: each host takes as many as its own `ranks` says, by default one.

    `name` tells the jobs of one run apart; `start` is the emulated time from the run's begin to the
    job's. `stop` is such a time, too: from it on the job begins nothing new, no round, flow, task
    or iteration; what is under way ends, and so does the job. `hosts`: the hosts to fill, by name;
    None: the next that no other job of the run has. Two jobs may share hosts, each with its own
    ranks, unless one of them is to be `alone` on its own.
    `stall_timeout`: emulated time without progress after which the job is ended; "auto" is three
    times the longest fault and at least 5 s, None waits for ever.
    `cc`: the congestion control of the job's own senders, by its name or with its options, as
    {"cc": "vegas", "vegas_alpha": 3}; None: that of the run, `tcp={"cc": …}`.
    `allreduce`: who sums in all-reduces: the ranks, round a "ring", or a system by its name: with
    "ina" the switches that run the program "aggregate". Systems have options of their own, which
    any job takes by name and `option()` reads: with "ina" `server`, the host of its parameter
    server, which finishes the sums that switches do not; None: the hosts of role server in turn, or
    without one the host of rank 0.
    """

    kind: ClassVar[str] = "job"
    # Whose figures it has: a training job's, a collective's, or those of flows.
    measured_as: ClassVar[MeasuredAs] = "training"
    # Whether others than its ranks can sum for such a job, and why not.
    reduces: ClassVar[bool] = False
    no_reduce: ClassVar[str] = "the job has no all-reduce; leave it out"
    transport: Annotated[StrictStr, AfterValidator(transport_name)] = TRANSPORT
    ranks: Count | None = None
    name: Annotated[str, AfterValidator(_name)] | None = None
    start: Annotated[Time, AfterValidator(_start)] = given(default=Time("0 s"), converter=Time)
    stop: Time | None = given(default=None, converter=time_or_none)
    hosts: tuple[StrictStr, ...] | None = None
    alone: StrictBool = False
    stall_timeout: Annotated[Time | Literal["auto"] | None, BeforeValidator(_stall)] = given(
        default="auto", converter=_stall
    )
    allreduce: Annotated[StrictStr, AfterValidator(allreduce_name)] = Field(
        default=RING, repr=False
    )
    cc: Annotated[dict[str, Any] | None, BeforeValidator(_control)] = given(
        default=None, converter=_control
    )
    queue_pairs: Any = Field(default=None, repr=False)
    _own: dict[str, Any] = PrivateAttr(default_factory=dict)  # options of systems

    @model_validator(mode="after")
    def _there_yet(self) -> Job:
        if self.allreduce != RING and not self.reduces:
            raise UsageError(f'allreduce="{self.allreduce}": {self.no_reduce}')
        if self.queue_pairs is not None:
            raise UsageError(
                f"queue_pairs={quoted(self.queue_pairs)} is not supported yet; leave it out"
            )
        return self

    @model_validator(mode="after")
    def _stop_after_start(self) -> Job:
        if self.stop is not None and self.stop <= self.start:
            raise UsageError(
                f"stop={self.stop} is not after start={self.start}: nothing of the "
                "job could begin; give a later stop"
            )
        return self

    def measured(self) -> MeasuredAs:
        """Whose figures the job has."""
        return self.measured_as

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """What was given."""
        return [
            (name, value)
            for name, value in super().__repr_args__()
            if name is None or name in self.model_fields_set
        ]

    def construct(self, args: tuple[Any, ...], values: dict[str, Any]) -> None:
        known: Mapping[str, Any] = {}
        if not values.keys() <= type(self).model_fields.keys():
            known = job_options()
        own = {
            name: values.pop(name)
            for name in list(values)
            if name in known and name not in type(self).model_fields
        }
        super().construct(args, values)
        self._own = own
        for name, value in own.items():
            try:
                known[name].check(self, value)
            except UsageError as error:
                raise UsageError(f"{type(self).__name__}: {error}") from None

    @classmethod
    def _names_known(cls) -> list[str]:
        return [*super()._names_known(), *job_options()]

    def option(self, name: str) -> Any:
        """The value of a system's option."""
        if name in type(self).model_fields:
            raise ImportError(
                f"loomnet.systems: JOB_OPTIONS: {name}: {type(self).__name__} has a "
                "parameter of this name"
            )
        return self._own.get(name, job_options()[name].default)

    @property
    def first_ps(self) -> int:
        """From the job's start to the first of its flows, in picoseconds."""
        return 0

    def place(self, places: list[int]) -> list[int]:
        """Host numbers of ranks 0, 1, …; `places`: those of all ranks that the hosts have room for.
        Raises UsageError when there are more ranks than places."""
        where = f"{type(self).__name__}.ranks"
        wanted = len(places) if self.ranks is None else self.ranks
        check_places(where, wanted, places)
        if wanted < 2:
            raise UsageError(f"{where}: a job needs 2 ranks or more")
        check_ranks(where, wanted)
        return places[:wanted]

    def pairs_of(self, placed: list[int]) -> list[Pair]:
        """Pairs of ranks that exchange data. `placed`: the host of each rank."""
        return ring(len(placed))

    def edges(self, places: list[int]) -> list[Edge]:
        """The hosts of pairs of ranks that exchange data, for the expected capacity. Two ranks on
        one host are a pair of that host with itself, which loads no link."""
        placed = self.place(places)
        return [(placed[a], placed[b]) for a, b in self.pairs_of(placed)]

    @property
    def synchronous(self) -> bool:
        """True where the slowest pair sets the pace of all."""
        return True

    def stall_after(self, longest_fault: Time) -> Time | None:
        """The stall timeout in force."""
        if self.stall_timeout == "auto":
            return max(longest_fault * 3, MIN_STALL)
        return self.stall_timeout

    @property
    def _carried_by(self) -> str:
        """As describe() says it."""
        return f"over {self.transport}" if self.allreduce == RING else "summed by switches"

    def describe(self) -> str:
        return f"{type(self).__name__} over {self.transport}"

    def _repr_html_(self) -> str:
        """For notebooks: a drawing of the pairs that send, and the parameters that were given."""
        from loomnet.jobs.job_drawing import job_html

        return job_html(self)

    @property
    def patches(self) -> bool:
        """Whether the job patches the circuits of its hosts' panels itself."""
        return False

    @property
    def over_sockets(self) -> bool:
        """Whether, live, sockets of the hosts' kernels can carry it: flows between pairs do."""
        return False

    @property
    def sends_immediates(self) -> bool:
        """Whether its flows' writes carry immediate values, by which receivers hear of the end."""
        return False

    def check_clock(self, clock: str) -> None:
        """Raises UsageError if this job cannot run on the clock, whatever its transport."""


class TorchJob(Job):
    """A PyTorch script and its arguments, as for torchrun; the script holds nothing of Loomnet.

    `compute`: emulated compute time on the virtual clock; a live run computes for real. One time is
    an iteration's. A table has a row per layer, by qualified module name or pattern, {"layers.*":
    "0.1 ms"} or {"layers.*": (forward, backward)} (one time is forward's, backward takes twice
    that), and "optimizer" for the step; gradients then leave while backward goes on. "measured" is
    each rank's own CPU time, "measured x 0.1" a share of it: such a run is not deterministic.
    `log`: a regular expression for rank 0's output, with groups `step`, `loss` and `mark`
    (Result.marks). `log_from`: the script's number of its first step; None: 0 if its log begins at
    0, else 1. `until`: emulated time, from the first iteration on, at which the ranks are told to
    stop after the iteration that follows the one at hand, as at `stop`, which counts from the run's
    begin; the earlier holds. A script without an optimizer's steps hears of neither. `stall_wall`:
    on the virtual clock, wall time after which the job is ended when emulated time stands and no
    process of a rank uses the processor; None: never. `circuits`: how the controllers of the ranks'
    regions patch the panels of their hosts, by what a script's loomnet.torch.mixnet.all_to_all
    reports; None: panels stay as they are. `steps`: how many steps of its optimizer the script
    takes, by which a run shows its share. `priority`: how urgent sums in the network are whose
    script does not say, from the second step on: "esa" and the other formulas of ln.ModelJob, or a
    class registered by @ln.plugin.priority. Layers are the sums of the step before, the last one
    the front-most; compute is the time with no sum under way. It needs `steps`. `allow_no_network`:
    a job whose ranks made no process group over the emulated network, or sent no byte over it, is
    an error, since no figure would be of the network; True: none. `script_time`: what time.time,
    time.perf_counter and their _ns forms show to a script: "wall", the time of this machine, or
    "emulated", the time of the run's clock. `cuda`: "cpu" gives a script that asks for cuda the CPU
    under that name; "off" does not. `env`: variables for the ranks, which have of the caller's
    those that Python, PyTorch and its libraries read (see loomnet.processes.ranks), and no secrets.
    """

    kind: ClassVar[str] = "torch"
    reduces: ClassVar[bool] = True
    positional: ClassVar[tuple[str, ...]] = ("script",)
    script: Path = given(converter=Path, kw_only=False)
    args: Annotated[
        tuple[str, ...],
        Field(max_length=MOST_ARGUMENTS, fail_fast=True),
        BeforeValidator(_no_single_text),
    ] = given(default=(), converter=_strings)
    compute: Annotated[ComputeModel | None, PlainValidator(compute_model)] = given(
        default=None, converter=compute_model
    )
    log: str | None = None
    log_from: Annotated[int, Field(ge=0, strict=True)] | None = None
    map_backend: bool = True
    allow_no_network: StrictBool = False
    until: Time | None = given(default=None, converter=time_or_none)
    steps: Count | None = None
    priority: StrictStr | None = None
    script_time: Literal["wall", "emulated"] = "wall"
    cuda: Literal["off", "cpu"] = "off"
    stall_wall: Time | None = given(default=Time("60 s"), converter=time_or_none)
    circuits: CircuitControl | None = Field(default=None, repr=False)
    env: dict[str, str] = Field(default_factory=dict)

    @constructor
    def __init__(
        self,
        script: str | Path,
        *,
        args: Iterable[str] = (),
        compute: Time | str | Mapping[str, Any] | None = None,
        log: str | None = None,
        log_from: int | None = None,
        map_backend: bool = True,
        allow_no_network: bool = False,
        until: Time | str | None = None,
        steps: int | None = None,
        priority: str | None = None,
        script_time: Literal["wall", "emulated"] = "wall",
        cuda: Literal["off", "cpu"] = "off",
        stall_wall: Time | str | None = "60 s",
        circuits: CircuitControl | None = None,
        env: Mapping[str, str] = {},
        **rest: Unpack[JobOptions],
    ) -> None: ...

    @field_validator("log")
    @classmethod
    def _pattern(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                names = re.compile(value).groupindex
            except (re.error, OverflowError, RecursionError) as error:
                raise UsageError(f"{quoted(value)} is not a regular expression: {error}") from None
            if "step" not in names:
                raise UsageError(
                    f"{quoted(value)} has no group (?P<step>…): the step a line speaks of"
                )
        return value

    @model_validator(mode="after")
    def _weighable(self) -> TorchJob:
        if self.priority is None:
            return self
        if self.allreduce == RING:
            raise UsageError(
                'priority: packets of a ring have none; give allreduce="ina", whose '
                "switches go by it, or leave it out"
            )
        if self.steps is None:
            raise UsageError(
                "priority: give steps=, how many the script takes, by which it knows "
                "the time that is left"
            )
        return self

    @model_validator(mode="after")
    def _patchable(self) -> TorchJob:
        control = self.circuits
        if control is None:
            return self
        for field, value, known in (
            ("fp_dispatch", control.fp_dispatch, ("block", "reuse")),
            ("repatch", control.repatch, ("layer", "worthwhile", "iteration", "once", "never")),
            ("eps_during_dark", control.eps_during_dark, ("hold",)),
            ("members", control.members, ("links",)),
        ):
            if value not in known:
                raise UsageError(
                    f"circuits.{field}={quoted(value)}: of real ranks there is "
                    f"{' and '.join(known)}; ln.ModelJob has the others"
                )
        return self

    @model_validator(mode="after")
    def _passable(self) -> TorchJob:
        """A process can be given no argument and no variable with a NUL, and none of half a
        character."""
        texts = [("args", text) for text in self.args]
        for name, value in self.env.items():
            if not name or "=" in name:
                raise UsageError(f"env: {quoted(name)} is no name of a variable")
            texts += [("env", name), ("env", value)]
        for field, text in [("script", str(self.script)), *texts]:
            try:
                bad = b"\0" in os.fsencode(text)
            except UnicodeEncodeError:
                bad = True
            if bad:
                raise UsageError(f"{field}: {quoted(text)} cannot be handed to a process")
        return self

    def located(self, *folders: Path) -> Path:
        """The script's path, tried in each folder. Raises UsageError if it is in none, or if no
        rank could run it."""
        for folder in folders:
            if is_file(folder / self.script):
                path = (folder / self.script).resolve()
                check_training_script(path, self.env)
                return path
            if (other := other_than_a_file(folder / self.script)) is not None:
                raise UsageError(f"TorchJob.script: {folder / self.script} is {other}")
        tried = ", ".join(dict.fromkeys(map(str, folders)))
        raise UsageError(f"TorchJob.script: no file {self.script} in {tried}")

    def check_clock(self, clock: str) -> None:
        if clock == "virtual" and self.compute is None:
            raise UsageError(
                "TorchJob.compute: the virtual clock needs the compute time of an "
                'iteration, for example compute="2 ms", or a table by layer'
            )

    @property
    def patches(self) -> bool:
        return self.circuits is not None

    def describe(self) -> str:
        return f"{self.script.name} over {self.transport}"
