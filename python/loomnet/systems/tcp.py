"""TCP: of the hosts' kernels on the live clock, its model in the engine on the virtual clock. Flows
are carried by sockets of ours, PyTorch jobs by stock Gloo."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loomnet.base.errors import UsageError
from loomnet.base.transport_names import LIVE_MTU
from loomnet.fabrics.link_settings import Frames, LinkDefaults
from loomnet.jobs.model import Job, TorchJob
from loomnet.plans.model import Plan
from loomnet.systems.transport import (
    Notes,
    Options,
    RunEngine,
    SequenceNumbers,
    Transport,
    Window,
    control_notes,
    largest_frame,
    size_option,
)

# MTU of a live fabric's ports, which kernel TCP fills; its model does too unless told otherwise.
SEND_BUFFER, RECEIVE_BUFFER = 4_194_304, 6_291_456  # Linux's most of tcp_wmem and tcp_rmem
ETHERNET_BYTES = 14
IP_TCP_BYTES = 40 + 20 + 12  # IPv6, TCP, time stamps
MESSAGE_HEADER_BYTES = 32  # in the stream before each message's payload, which a new segment begins
HANDSHAKE_RTTS, START_PS = 4, 100 * 10**9  # TCP only greets, so no later than on live links


class Tcp(Transport):
    name = "tcp"
    what = "kernel TCP, one connection per flow, ECMP; on the virtual clock its model"
    model = "tcp"
    by_kernel = True
    await_sends = False
    control_option = "cc"
    size_options = ("mtu",)
    delays_acks = sender_states = tells_when_to_post = True
    figures = ("lost", "retransmitted")

    def check(self, job: Job, clock: str) -> None:
        if clock != "live":
            return
        field = f"{type(job).__name__}.transport"
        if isinstance(job, TorchJob):
            raise UsageError(
                f'{field}: "tcp" is a model, of the virtual clock; live, kernel TCP '
                'under PyTorch is transport="gloo"'
            )
        if not job.over_sockets:
            raise UsageError(
                f'{field}: live, "tcp" is the kernel\'s sockets and carries flows '
                'alone; use TorchJob(transport="gloo"), or mrc or roce'
            )

    def link_defaults(self, options: Options, *, switches_pause: bool) -> LinkDefaults:
        return LinkDefaults(
            largest_frame=largest_frame(options.get("mtu"), ETHERNET_BYTES),
            full_packet=size_option(options, "mtu", LIVE_MTU) + ETHERNET_BYTES,
        )

    def start_ps(self, plan: Plan) -> int:
        return max(plan.base_rtt_ps * HANDSHAKE_RTTS, min(super().start_ps(plan), START_PS))

    def engine_options(self, options: Options, plan: Plan, rates: Sequence[int]) -> dict[str, Any]:
        return {"mtu": LIVE_MTU, **options}

    def packet_bytes(self, options: Options, plan: Plan) -> int:
        return size_option(options, "mtu", LIVE_MTU) + ETHERNET_BYTES

    def frames(self, options: Options, plan: Plan, *, live: bool = False) -> Frames:
        """One connection, which takes one path. What a live kernel puts before a message is the
        sockets' own affair."""
        header = ETHERNET_BYTES + IP_TCP_BYTES
        return Frames(
            payload=max(self.packet_bytes(options, plan) - header, 1),
            header=header,
            ack=header,
            stream=0 if live else MESSAGE_HEADER_BYTES,
            ways="one",
        )

    def sequence_numbers(self, options: Options, plan: Plan) -> SequenceNumbers | None:
        return SequenceNumbers()

    def window(self, options: Options, plan: Plan, rates: Sequence[int]) -> Window | None:
        buffers = {"send_buffer": SEND_BUFFER, "receive_buffer": RECEIVE_BUFFER}
        sizes = {name: options.get(name, default) for name, default in buffers.items()}
        if not all(isinstance(size, int) for size in sizes.values()):
            return None
        name = min(sizes, key=lambda each: sizes[each])
        return Window(
            f'tcp={{"{name}": {sizes[name]}}}',
            sizes[name],
            "connection",
            max(rates),
            f"raise {name}"
            if name in options
            else f"that is Linux's default; a larger {name} lifts it",
        )

    def notes(self, engine: RunEngine, options: Options) -> Notes:
        return control_notes(options.get("cc"), options)

    def describe_model(self, options: Options, plan: Plan) -> dict[str, str]:
        return {self.name: f"model: TCP, {options.get('cc', 'cubic')}"}


class Gloo(Tcp):
    name = "gloo"
    what = "stock torch Gloo over kernel TCP, ECMP; on the virtual clock its model, tcp"
    stock_gloo = True
    has_options = False
    figures = ("lost",)  # live; on the virtual clock its model has more

    def check(self, job: Job, clock: str) -> None:
        if clock != "live" or isinstance(job, TorchJob):
            return
        fix = (
            'flows over kernel TCP are transport="tcp"'
            if job.over_sockets
            else "use TorchJob, or mrc or roce"
        )
        raise UsageError(
            f'{type(job).__name__}.transport: live, "gloo" is stock Gloo and carries '
            f"PyTorch jobs; {fix}"
        )

    def packet_bytes(self, options: Options, plan: Plan) -> int:
        return plan.frame_bytes

    def sequence_numbers(self, options: Options, plan: Plan) -> SequenceNumbers | None:
        return None  # stock Gloo chooses its own steps


TRANSPORTS = (Tcp(), Gloo())
