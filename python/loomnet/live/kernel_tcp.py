"""What the kernel's TCP of a live run's hosts is told: the options of the model that a kernel has
too. The machine's own settings never decide a figure."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loomnet.base.errors import UsageError
from loomnet.base.names import did_you_mean
from loomnet.base.transport_names import LIVE_MTU
from loomnet.live.steering import check_steering, steers
from loomnet.running.request import RunRequest
from loomnet.systems.registry import transport
from loomnet.systems.transport import control_facts

DEFAULT = "cubic"
_OPTIONS = ("cc", "mtu", "ecn")
RECEIVE_BUFFER, SEND_BUFFER = 6_291_456, 4_194_304  # the model's defaults, and Linux's maxima
_LEAST_MTU = 1280  # IPv6's
_SYSCTL = "net.ipv4.tcp_allowed_congestion_control"
_PROC = Path("/proc/sys/net/ipv4")


@dataclass(frozen=True)
class KernelTcp:
    """`cc`: congestion control by the kernel's name; `mtu`: bytes of IPv6 packet at most; `ecn`:
    asked for (RFC 3168). `stock`: sockets of programs that are not ours, which keep the machine's
    buffers and have `cc` from their namespace; else each socket asks for `cc`, and the buffers are
    the model's, of full size from the start. `steered`: the control of ours that the kernel gets
    for the run, with its `options`; `cc` is then the name under which the run registers it."""

    cc: str = DEFAULT
    mtu: int = LIVE_MTU
    ecn: bool = False
    stock: bool = False
    steered: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, options: Mapping[str, Any], *, stock: bool) -> KernelTcp:
        """From `lab.run(…, tcp={…})`. Raises UsageError for what this kernel cannot be told."""
        steered = options.get("cc") if steers(options.get("cc")) else None
        own = [each["name"] for each in control_facts(steered).get("options", ())]
        for name in options:
            if name not in _OPTIONS and name not in own:
                raise UsageError(
                    f"tcp.{name}: live, the kernel's TCP takes {', '.join(_OPTIONS)}; "
                    "leave it out, or run on the virtual clock"
                )
        mtu, ecn = options.get("mtu", LIVE_MTU), bool(options.get("ecn", False))
        if not isinstance(mtu, int) or not _LEAST_MTU <= mtu <= LIVE_MTU:
            raise UsageError(f"tcp.mtu: {mtu} must be {_LEAST_MTU} to {LIVE_MTU} on the live clock")
        if steered is not None:
            of_control = {name: value for name, value in options.items() if name in own}
            check_steering(steered, of_control)
            return cls(steered, mtu, ecn, stock, steered, of_control)
        known = _read("tcp_available_congestion_control")
        # A namespace may only have for default what the machine allows all its users.
        usable = _read("tcp_allowed_congestion_control") if stock else known
        (machine,) = _read("tcp_congestion_control")
        # Where the run names none: what every distribution ships and the model assumes.
        cc = options.get("cc", DEFAULT if DEFAULT in usable else machine)
        if cc not in known:
            raise UsageError(
                f'tcp.cc: this kernel has no "{cc}"{did_you_mean(str(cc), known)}; '
                f"it has {', '.join(known)}"
            )
        if cc not in usable:
            raise UsageError(
                f'tcp.cc: this machine does not allow "{cc}" to every socket: sysctl '
                f"-w {_SYSCTL}='{' '.join([*usable, cc])}'"
            )
        return cls(cc, mtu, ecn, stock)

    @classmethod
    def wanted_by(cls, request: RunRequest) -> KernelTcp | None:
        """What a run's hosts need; None where no kernel carries a job of it. Raises
        UsageError."""
        asked = [each for each in request.jobs if transport(each.job.transport).by_kernel]
        if not asked:
            return None
        carrier = transport(asked[0].job.transport)
        for number, each in enumerate(asked):
            if each.job.transport != carrier.name:
                raise UsageError(
                    f"run: live, the hosts' kernels have the settings of one of "
                    f'"{carrier.name}" and "{each.job.transport}"; give all jobs over '
                    "kernel TCP the same transport"
                )
            if len(each.hosts) < len(each.placement):
                host = next(h for h in each.hosts if each.placement.count(h) > 1)
                raise UsageError(
                    f"run: live, a job over {carrier.name} has several ranks on "
                    f"{request.plan.hosts[host].name}, whose kernel joins them by loopback and not "
                    "at the rate of its local_link; use transport mrc or roce, or hosts of one "
                    "rank"
                )
            for other in asked[:number]:
                if shared := sorted(set(each.placement) & set(other.placement)):
                    raise UsageError(
                        f"run: live, jobs {other.name} and {each.name} are over the kernel of "
                        f"{request.plan.hosts[shared[0]].name}, which does not tell whose bytes "
                        "it receives; give them different hosts"
                    )
        if request.dilation != 1:
            raise UsageError(
                "dilation: kernel TCP's timers run on wall time, so it is compared at D = 1 only"
            )
        return cls.of(request.options.get(carrier.model, {}), stock=carrier.stock_gloo)

    @property
    def sysctls(self) -> dict[str, object]:
        """Of every host's namespace. tcp_ecn 2: ECN if the peer asks for it, and no peer does."""
        found: dict[str, object] = {
            "net/ipv4/tcp_ecn": 1 if self.ecn else 2,
            "net/ipv4/tcp_no_metrics_save": 1,  # No flow begins with what another has learnt.
        }
        if self.stock:
            found["net/ipv4/tcp_congestion_control"] = self.cc
        else:
            # Of a receive buffer the kernel offers half, and leaves the rest for overhead.
            found["net/ipv4/tcp_rmem"] = f"4096 {2 * RECEIVE_BUFFER} {2 * RECEIVE_BUFFER}"
            found["net/ipv4/tcp_wmem"] = f"4096 {SEND_BUFFER} {SEND_BUFFER}"
        return found

    def note(self) -> str:
        """For the report's fidelity."""
        return f"kernel: Linux {platform.release()}, {self.steered or self.cc}"


def _read(name: str) -> list[str]:
    return (_PROC / name).read_text().split()
