"""A congestion control of ours in the kernel's TCP, for one run: its program, registered under a
name of the run's, and the engine's thread that decides for the flows, or that watches the program
decide."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import loomnet._core as _core
from loomnet.base.errors import UnavailableError, UsageError
from loomnet.base.names import how_many
from loomnet.measures.observed import Observed
from loomnet.processes.journal import RunLock
from loomnet.systems.transport import Notes, control_facts, control_notes

# Wake-ups are 5 ms apart: where one in a hundred comes a whole one late, flows were decided for by
# measurements of another time than those that a policy is trained on.
LATEST_PS = 5 * 10**9
# Series, each with the column of the decisions that it shows, and the factor to its unit.
_SERIES = {
    "window_packets": ("window", 1),
    "command_packets": ("commanded", 1),
    "kernel_mode": ("mode", 1),
    "fallbacks": ("fallbacks", 1),
    "throughput_bps": ("throughput_Bps", 8),
    "rtt_us": ("rtt_us", 1),
    "min_rtt_us": ("least_rtt_us", 1),
    "loss_bps": ("loss_Bps", 8),
    "queue_packets": ("queue_packets", 1),
    "action": ("action", 1),
}


def steers(control: object) -> bool:
    """Whether the kernel's TCP can have this control by a program of ours."""
    return bool(control_facts(control).get("in_kernel", False)) and hasattr(_core, "KernelControl")


def check_steering(control: str, options: Mapping[str, Any]) -> None:
    """Raises UsageError for options that the control refuses."""
    try:
        _core.check_kernel_control(control, dict(options))
    except ValueError as error:
        raise UsageError(f"run: tcp: {error}") from None


class Steering:
    """A context manager: sockets may ask for `name` while it lasts. `record`: decisions are kept,
    for fill().

    Raises:
        UnavailableError: this kernel cannot have it, one line with the reason.
    """

    def __init__(
        self, lock: RunLock, control: str, options: Mapping[str, Any], *, record: bool = False
    ) -> None:
        self.control, self._options = control, dict(options)
        self.name = lock.name(f"_{control}"[: 15 - len(lock.prefix)])
        try:
            self._core = _core.KernelControl(control, self.name, self._options)
        except RuntimeError as error:
            raise UnavailableError(
                f'tcp.cc: this kernel cannot have "{control}": {" ".join(str(error).split())}; '
                "see loomnet doctor, or run on the virtual clock"
            ) from None
        if record:
            self._core.record()

    def __enter__(self) -> Steering:
        self._core.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        del self._core  # the kernel takes the name away

    def stop(self) -> None:
        """Nothing is decided any more. Idempotent."""
        self._core.stop()

    @property
    def fell_behind(self) -> str | None:
        """Why flows were not decided for, or not in time, after stop(); None: all were."""
        if left := self._core.counts()["flows_without_slot"]:
            return (
                f"{how_many(left, 'flow')} of {self.control} found no slot and kept to the "
                "kernel's own rules; open fewer connections at a time"
            )
        pace = self._core.pace()
        if self._core.decides or pace["p99_ps"] <= LATEST_PS:
            return None
        return (
            f"the agent of {self.control} woke {pace['p99_ps'] / 1e9:.2g} ms late (p99): the "
            "machine had no processor for it"
        )

    def notes(self) -> Notes:
        """For the report's fidelity."""
        pace, counts = self._core.pace(), self._core.counts()
        share = pace["worked_ns"] / max(pace["lasted_ns"], 1)
        named = "; ".join(f"{name} {count}" for name, count in counts.items() if count)
        seat = "the program decides, a thread watches; " if self._core.decides else ""
        return {
            **control_notes(self.control, self._options),
            f"{self.control} in the kernel": f"{seat}{named}; wake-ups {pace['wakes']}, p99 "
            f"{pace['p99_ps'] / 1e6:.0f} us late, {pace['missed']} missed; "
            f"{100 * share:.1f} % of a core, {self._core.scheduling}",
        }

    def fill(self, observed: Observed, hosts: Mapping[int, str], zero_ns: int) -> None:
        """Gives the series that a run asked for what was decided. `hosts`: names by the inode of
        the network namespace; `zero_ns`: CLOCK_MONOTONIC at time 0 of the series."""
        rows = self._core.take_decisions()
        names = observed.choose(_SERIES, complete=False)
        flows = np.unique(rows[["netns", "local_port", "remote_port"]])
        for flow in flows:
            mine = rows[rows[["netns", "local_port", "remote_port"]] == flow]
            mine = mine[mine["at_ns"] >= zero_ns]
            host = hosts.get(int(flow["netns"]), f"namespace {flow['netns']}")
            where = f"{host} port {flow['local_port']}->{flow['remote_port']}"
            at_ps = (mine["at_ns"].astype(np.int64) - zero_ns) * 1000
            for name in names:
                column, factor = _SERIES[name]
                values = factor * mine[column].astype(float)
                observed.take(at_ps, observed.key(where, name), values)
