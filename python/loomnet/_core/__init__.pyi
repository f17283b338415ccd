"""
Loomnet's engine: fabrics, NICs, traffic and ranks, on the virtual and the live clock.
"""

from __future__ import annotations

import collections.abc
import typing

import numpy
import numpy.typing

from loomnet.running.engine_numbers import EngineHalf, EngineLink, EngineNode

from . import astraea, testing

__all__: list[str] = [
    "AckSample",
    "BucketFacts",
    "BucketSums",
    "COLLECTIVES",
    "CollectiveTraffic",
    "CongestionEvent",
    "CongestionFlow",
    "Copilot",
    "DATA_TYPES",
    "Episodes",
    "ExecutorSums",
    "FlowProbe",
    "FlowTraffic",
    "FluidFabric",
    "GraphTraffic",
    "HostRoutes",
    "KernelControl",
    "LinkConfig",
    "ListedWays",
    "LiveRun",
    "MARK_KINDS",
    "MAX_COMMUNICATOR_ID",
    "ModelTraffic",
    "MoeTraffic",
    "Network",
    "PanelDevice",
    "PerfettoWriter",
    "PluginError",
    "ProgramFault",
    "REDUCE_OPS",
    "RankBridge",
    "RankRegion",
    "RankSession",
    "RankWork",
    "Recorder",
    "RegionDriver",
    "TableBatch",
    "VERSION",
    "VirtualRanks",
    "aggregate_policies",
    "assign_circuits",
    "astraea",
    "astraea_forget",
    "astraea_policy",
    "check_kernel_control",
    "check_switch_program",
    "circuit_map",
    "cong_control_arguments",
    "congestion_controls",
    "congestion_note",
    "demand_report",
    "exchange_seconds",
    "fluid_ring",
    "load_switch_program",
    "map_ports",
    "monotonic_ns",
    "pair_demand",
    "panel_profiles",
    "plugin_under_way",
    "priority_of",
    "probe_budget",
    "queue_disciplines",
    "register_congestion_control",
    "set_switch_object",
    "switch_program",
    "switch_programs",
    "table_batch",
    "testing",
    "transports",
    "trim_dscps",
    "try_kernel_control",
    "try_switch_program",
    "weighted_seconds",
]

class RankWork:
    """
    One started call. Its result counts once done.
    """

    @property
    def bytes(self) -> int: ...
    @property
    def delivered(self) -> int:
        """
        Of the bytes expected, those that have arrived.
        """

    @property
    def done(self) -> bool: ...
    @property
    def ended_ns(self) -> int: ...
    @property
    def expected(self) -> int:
        """
        Payload bytes that peers have sent for it.
        """

    @property
    def id(self) -> int: ...
    @property
    def message(self) -> str: ...
    @property
    def missing(self) -> list[tuple[int, int]]:
        """
        [(address, bytes)] in the operations' memory for which a peer's bytes were lost.
        """

    @property
    def name(self) -> str: ...
    @property
    def ok(self) -> bool: ...
    @property
    def source(self) -> int: ...
    @property
    def started_ns(self) -> int: ...
    @property
    def status(self) -> str: ...

class RankSession:
    """
    This process's use of its emulated NIC, by inherited descriptors.
    """

    def __init__(self, memory_fd: int, engine_event_fd: int, await_sends: bool = True) -> None: ...
    def abort(self, id: int, reason: str) -> None: ...
    def answer(self, report: int, timeout_ns: int = 0) -> bytes | None:
        """
        Waits for the answer to a report, once; None where the time passed first.
        """

    def close(self, id: int) -> None: ...
    def compute(self, picoseconds: int, poll: bool = False) -> None:
        """
        Virtual clock: blocks while so much emulated time passes.
        """

    def counters(self) -> list[tuple[str, int]]: ...
    def create(self, id: int, members: collections.abc.Sequence[int]) -> None: ...
    def foreign_begin(self) -> int: ...
    def foreign_end(self, number: int, began_ns: int, bytes: int, ok: bool) -> None: ...
    def future_call(self, enters: bool) -> None:
        """
        The thread enters or leaves a call that may block on a future of the session.
        """

    def leave(self, linger_ns: int = 0) -> None: ...
    def local_call(self, enters: bool) -> None:
        """
        The thread enters or leaves a call that this machine ends: emulated time stands.
        """

    def mark(self, kind: int, value: int, a: int = 0, b: int = 0, status: int = 0) -> bool: ...
    def mark_ring_steps(self) -> None:
        """
        From now on the run learns of each ring step that the rank receives; before create().
        """

    def meet(
        self,
        name_high: int,
        name_low: int,
        position: int,
        size: int,
        timeout_ns: int,
        asked: bool,
        whole: bool = False,
    ) -> tuple[int | None, list[tuple[int, int]], list[int]]:
        """
        (number of the new group or None, [(rank in it, rank in the job)] that came, [job ranks that claim this rank's place in it]); `whole`: it is the rank's default group.
        """

    def next_finished(self) -> RankWork: ...
    def report(self, report: bytes) -> int | None:
        """
        Sends bytes to the controller of the rank's region; the report's number, None where it has no room.
        """

    def start(
        self,
        id: int,
        operations: collections.abc.Sequence[
            tuple[
                int,
                int,
                int,
                int,
                collections.abc.Sequence[int],
                collections.abc.Sequence[int],
                collections.abc.Sequence[int],
                collections.abc.Sequence[int],
                int,
                int,
                int,
                float,
            ]
        ],
        timeout_ns: int,
        asked: bool = True,
        layer: int | None = None,
        priority: int | None = None,
        loss_tolerance: float = 0.0,
        tag: int = 0,
    ) -> RankWork:
        """
        operations: [(collective, data type, reduction, count, inputs, outputs, input counts, output counts, root, peer, tag, factor)]. Memory must live until the work is done. The arguments from layer on are attributes of all of them.
        """

    def thread_begins(self, name: str) -> None:
        """
        Virtual clock: the thread that calls has been started by the script, under this name.
        """

    def thread_ends(self) -> None:
        """
        ... and is about to end.
        """

    def use_dilation(self, dilation: float) -> None: ...
    def wait(self, work: RankWork, timeout_ns: int) -> bool: ...
    def want(self, work: RankWork) -> bool: ...
    @property
    def last_step(self) -> int:
        """
        Step after which the run wants the job to end; -1: none.
        """

    @property
    def now_ps(self) -> int:
        """
        Emulated time.
        """

    @property
    def rank(self) -> int: ...
    @property
    def strays(self) -> list[str]:
        """
        Names of threads that began to communicate while the rank counted as waiting.
        """

    @property
    def world(self) -> int: ...

class PluginError(RuntimeError):
    """
    A plug-in broke its contract, or raised: the cause is chained.
    """

class CongestionFlow:
    """
    A flow, as the maker of its congestion control sees it.
    """

    def __getattr__(self, arg0: str) -> None: ...
    @property
    def base_rtt_ps(self) -> typing.Any:
        """
        Picoseconds that a full packet takes there and back on the idle path; None: not known.
        """

    @property
    def initial_window(self) -> int:
        """
        Bytes that the transport lets go before the first acknowledgement.
        """

    @property
    def line_rate_bps(self) -> int:
        """
        Bits per second of all ports that the flow uses; 0 where the transport does not know.
        """

    @property
    def mss(self) -> int:
        """
        Bytes of a full packet's payload.
        """

    @property
    def network_rtt_ps(self) -> typing.Any:
        """
        Picoseconds of the longest such round trip in the fabric; None where it is not known.
        """

    @property
    def options(self) -> dict:
        """
        Options of the class by name, as the run gave them.
        """

    @property
    def seed(self) -> int:
        """
        Of the run.
        """

    @property
    def stream(self) -> int:
        """
        Number of the flow: with `seed` it begins a random generator of its own.
        """

    @property
    def trimming(self) -> bool:
        """
        Whether switches trim what does not fit into a queue.
        """

class AckSample:
    """
    What one acknowledgement told: bytes, picoseconds.
    """

    def __getattr__(self, arg0: str) -> None: ...
    def __init__(self) -> None: ...
    @property
    def acked(self) -> int:
        """
        Bytes newly acknowledged in order.
        """

    @property
    def acked_end(self) -> int:
        """
        Bytes: offset of the oldest byte that is not acknowledged.
        """

    @property
    def app_limited(self) -> bool:
        """
        Whether the sender had nothing to send when the packet delivered last was sent.
        """

    @property
    def ce_delivered(self) -> int:
        """
        Bytes of `delivered` that this acknowledgement reports marked.
        """

    @property
    def cwnd_limited(self) -> bool:
        """
        Whether the window kept the sender from sending.
        """

    @property
    def delay_ps(self) -> typing.Any:
        """
        Picoseconds of that round trip in queues; None: the transport does not judge it.
        """

    @property
    def delivered(self) -> int:
        """
        Bytes newly acknowledged, in order or not.
        """

    @property
    def delivered_total(self) -> int:
        """
        Bytes delivered since the sender began; never more than its messages have.
        """

    @property
    def in_flight(self) -> int:
        """
        Bytes in flight after it.
        """

    @property
    def in_recovery(self) -> bool:
        """
        Whether the sender repairs losses, those of timeouts included.
        """

    @property
    def lost(self) -> int:
        """
        Bytes newly taken for lost.
        """

    @property
    def lost_total(self) -> int:
        """
        Bytes taken for lost since the flow began.
        """

    @property
    def marked(self) -> bool:
        """
        Whether the packet that caused this acknowledgement was marked.
        """

    @property
    def min_rtt_ps(self) -> typing.Any:
        """
        Picoseconds, least round trip so far; None before the first sample.
        """

    @property
    def now_ps(self) -> int:
        """
        Picoseconds of the engine's clock; less `r.time_zero_ps` it is the job's time.
        """

    @property
    def packets_out(self) -> int:
        """
        Packets that are not acknowledged in order.
        """

    @property
    def penalty(self) -> int:
        """
        The receiver's back-pressure: 0 none, 64 halves the rate, 127 is the most.
        """

    @property
    def prior_delivered(self) -> int:
        """
        Bytes: `delivered_total` when the packet delivered last was sent.
        """

    @property
    def prior_in_flight(self) -> int:
        """
        Bytes in flight before this acknowledgement.
        """

    @property
    def rate_bps(self) -> float:
        """
        Bits per second delivered over the flight of the packet delivered last; 0: no sample.
        """

    @property
    def restore(self) -> bool:
        """
        Whether back-pressure is over and the window of before holds again.
        """

    @property
    def retransmissions_out(self) -> int:
        """
        Packets in flight that were sent again.
        """

    @property
    def retransmitted_total(self) -> int:
        """
        Bytes sent again since the flow began.
        """

    @property
    def rtt_ps(self) -> typing.Any:
        """
        Picoseconds, round trip of the newest packet delivered; None: no sample.
        """

    @property
    def sent_end(self) -> int:
        """
        Bytes: offset of the next new byte; a sender's first byte is at 0.
        """

    @property
    def shorter_ps(self) -> int:
        """
        Picoseconds that a full packet would have taken longer than that packet.
        """

    @property
    def srtt_ps(self) -> int:
        """
        Picoseconds, smoothed round trip.
        """

class CongestionEvent:
    """
    A sign of congestion.
    """

    def __getattr__(self, arg0: str) -> None: ...
    @property
    def bytes(self) -> int:
        """
        Bytes of the packet that was refused or timed out.
        """

    @property
    def flight(self) -> int:
        """
        Bytes in flight; TCP: not acknowledged in order.
        """

    @property
    def kind(self) -> str:
        """
        loss, ecn, timeout, refused (a switch or the receiver dropped the payload and said so: MRC) or notified (the receiver saw marks and sent a message of its own: RoCE).
        """

    @property
    def now_ps(self) -> int:
        """
        Picoseconds of the engine's clock; less `r.time_zero_ps` it is the job's time.
        """

    @property
    def sent_ps(self) -> typing.Any:
        """
        Picosecond of the same clock at which that packet was sent; None where it is not known.
        """

class ListedWays:
    """
    uSIDs of ways between two leaves, a row for each; queue pairs share them.
    """

    def __init__(self, rows: collections.abc.Sequence[collections.abc.Sequence[int]]) -> None: ...

class LinkConfig:
    def __init__(
        self,
        *,
        rate_bps: int,
        delay_ps: int,
        data_limit: int = 0,
        control_limit: int = 0,
        ecn_low: int = 0,
        ecn_high: int = 0,
        trim_size: int = 0,
        trim_dscp: int = 0,
        last_hop: bool = False,
        pfc_xoff: int = 0,
        pfc_xon: int = 0,
        pfc_headroom: int = 0,
        ecn_share: float = 1.0,
        control_share: float = 0.25,
        trim_coin: bool = True,
        largest_frame: int = 4238,
        carriers: collections.abc.Sequence[tuple[str, int, int, float, int, int]] = [],
        queue: str = "priority",
        queue_options: collections.abc.Sequence[tuple[str, int]] = [],
    ) -> None: ...

class Network:
    def __init__(self, *, seed: int, meter_bin_ps: int, meter_bins: int = 1048576) -> None: ...
    def add_host(self, ports: int, identity: int | None = None) -> EngineNode: ...
    def add_panel(
        self,
        circuits: collections.abc.Sequence[int],
        profile: str = "ideal",
        carrier: str = "both",
        kernel: bool = False,
        dark_ps: int | None = None,
    ) -> EngineNode:
        """
        An optical circuit switch. circuits: of each port the port that it is joined to long before the run, -1 for none; its egress links have rate 0. dark_ps: in place of the profile's.
        """

    def add_switch(
        self,
        ports: int,
        *,
        kernel: bool = False,
        hash_seed: int = 0,
        buffer_bytes: int = 0,
        buffer_alpha: float = 1.0,
        pfc: bool = False,
        program: str = "forward",
        options: dict = {},
    ) -> EngineNode: ...
    def carried(self, halves: collections.abc.Sequence[EngineHalf]) -> list[int]:
        """
        Bytes that these directions of links (2 * link, + 1 for the way back) have carried so far.
        """

    def change_panel(
        self,
        panel: EngineNode,
        remove: collections.abc.Sequence[tuple[int, int]],
        add: collections.abc.Sequence[tuple[int, int]],
        mode: str = "update",
    ) -> int:
        """
        Removes and adds simplex cross-connects (ingress, egress) as one generation, whose number is returned; ports from 0. mode: update, safe or overwrite.
        """

    def clear(self) -> None: ...
    def clients(self, host: EngineNode) -> list[tuple[int, int, str]]:
        """
        [(client, job, role)] of the host's NIC: role is rank, collective, flows or graph.
        """

    def close_meter(self, host: EngineNode, job: int = 0) -> None: ...
    def connect(
        self,
        a: EngineNode,
        a_port: int,
        b: EngineNode,
        b_port: int,
        forward: LinkConfig,
        backward: LinkConfig,
        stream: int = 0,
    ) -> EngineLink: ...
    def connect_many(
        self,
        rows: numpy.typing.ArrayLike,
        streams: numpy.typing.ArrayLike,
        kinds: numpy.typing.ArrayLike,
        configs: collections.abc.Sequence[LinkConfig],
    ) -> None:
        """
        Links in order. rows: int64[n, 4] of node, port, node, port; streams: uint64[n], each link's random stream; kinds: int64[n, 2], which of `configs` each direction has.
        """

    def connect_qp(
        self,
        source: EngineNode,
        local: int,
        destination: EngineNode,
        remote: int,
        flow: int,
        paths: collections.abc.Sequence[
            tuple[
                collections.abc.Sequence[int],
                int,
                collections.abc.Sequence[int],
                int,
                int,
                ListedWays,
                float,
            ]
        ],
        reverse: collections.abc.Sequence[
            tuple[
                collections.abc.Sequence[int],
                int,
                collections.abc.Sequence[int],
                int,
                int,
                ListedWays,
                float,
            ]
        ],
        *,
        job: int = 0,
        client: int = 0,
        transport: str = "",
        planes: collections.abc.Sequence[int] = [],
        group: tuple[
            int, int, int | None, int, collections.abc.Sequence[collections.abc.Sequence[int]]
        ]
        | None = None,
        at_ps: int = 0,
    ) -> None:
        """
        One end of a queue pair of `job`. paths and reverse: per port (uSIDs, uplink slot, uplinks, mask of aggregation slots, cores per aggregation switch, ListedWays or None, capacity); planes: the plane of each port of the source, empty: plane k at port k. Results go to `client` of the source's NIC; 0: to the job's first client, until a client takes the queue pair. transport: by name, empty: the host's first; where source and destination are one host, its local link carries the queue pair, unless it is of a group: (group, members, member or None for its server, window, numbers of the switches of each tree). at_ps: when it is connected; a time that is over: now.
        """

    def cross_connects(self, panel: EngineNode) -> list[tuple[int, int]]:
        """
        Simplex cross-connects (ingress, egress) of a panel, by ingress.
        """

    def link_counters(self) -> dict[str, numpy.typing.NDArray[numpy.uint64]]:
        """
        The directions of links that have counted something, by column: `half` (2 * link and, for the way back, 2 * link + 1), and each counter.
        """

    def meter(self, host: EngineNode, job: int = 0) -> dict[str, typing.Any]:
        """
        What the host saw of the job. work: int64[n, 3] of begin, end (ps) and bytes; busy and silences: int64[n, 2] of begin and end (ps); bins: uint64[n], bytes per bin_ps; bytes: their sum.
        """

    def nic_counters(self, host: EngineNode) -> dict[str, int]: ...
    def operate(self, panel: EngineNode, request: collections.abc.Callable) -> typing.Any:
        """
        Calls request(device, now_ps) with a panel's device, lets the packets and hosts see what it has changed, and returns its result. The device is the panel's own: it must not be kept.
        """

    def panel_counters(self, node: EngineNode) -> dict[str, int]: ...
    def panel_events(self, panel: EngineNode) -> tuple[numpy.ndarray, int]:
        """
        What has happened to a panel's ports so far, a numpy structured array, and how many more events there were than are kept. at_ps; port; side: 0 of the port where light comes in, 1 where it leaves, 2 of the host's carrier; value: 0 blocked, 1 tuning, 2 tuned, 3 failed, or whether there is carrier.
        """

    def panel_patches(self, panel: EngineNode) -> numpy.ndarray:
        """
        Cross-connects of a panel over time, a numpy structured array, oldest first; those of before the run come first. at_ps; port: where light comes in; peer: where it leaves from then on, -1: nowhere.
        """

    def pause_cycle(self) -> list[EngineHalf]:
        """
        Half-links (2 * link, or one more for b->a) that wait for one another in a circle now.
        """

    def queued(self, halves: collections.abc.Sequence[EngineHalf]) -> list[int]:
        """
        Bytes that wait in these sending ports (2 * link, + 1 for the way back) now.
        """

    def reserve_qps(self, host: EngineNode, count: int = 1) -> int:
        """
        First of `count` numbers in a row that no queue pair of the host's NIC has.
        """

    def reset_switch(self, node: EngineNode) -> None:
        """
        The switch reboots: its program's state is zeros and its tables are gone, counters stay.
        """

    def run_counters(
        self, hosts: collections.abc.Sequence[EngineNode], job: int | None = None
    ) -> dict[str, int]:
        """
        Sums over these hosts' NICs. With `job`, payload, working and finished are that job's alone.
        """

    def run_until(self, end_ps: int, most_events: int = 18446744073709551615) -> bool: ...
    def schedule_link(
        self,
        at_ps: int,
        link: EngineLink,
        *,
        forward: bool = True,
        backward: bool = True,
        up: bool | None = None,
        rate_bps: int | None = None,
        queue_share: float | None = None,
        delay_ps: int | None = None,
        impairment: dict | None = None,
    ) -> None: ...
    def schedule_tables(self, at_ps: int, node: EngineNode, tables: TableBatch) -> None: ...
    def set_circuits(self, panel: EngineNode, circuits: collections.abc.Sequence[int]) -> None:
        """
        The panel patches these circuits now; hosts see their carriers go and, with the light, come.
        """

    def set_kernel_job(self, host: EngineNode, job: int) -> None:
        """
        Payload that the host's kernel receives counts for this job; without this call for the first that the host knows.
        """

    def set_limits(
        self,
        rows: numpy.typing.ArrayLike,
        cwnd: numpy.typing.ArrayLike | None = None,
        pacing: numpy.typing.ArrayLike | None = None,
    ) -> None:
        """
        What senders may send by from now on. rows: int64[n, 3] of host, queue pair and part; cwnd: bytes, pacing: bits per second, float64[n], not finite: as it is.
        """

    def set_local_link(
        self, host: EngineNode, *, rate_bps: int = 7200000000000, delay_ps: int = 1000000
    ) -> None:
        """
        What joins the ranks of one host. Without this call the first queue pair with both ends on the host makes it with these defaults.
        """

    def set_paths(
        self,
        host: EngineNode,
        qp: int,
        rows: collections.abc.Sequence[
            tuple[
                collections.abc.Sequence[int],
                int,
                collections.abc.Sequence[int],
                int,
                int,
                ListedWays,
                float,
            ]
        ],
        *,
        planes: collections.abc.Sequence[int] = [],
    ) -> None:
        """
        The paths of one end of a queue pair are these from now on; rows and planes as in connect_qp.
        """

    def set_tables(self, node: EngineNode, tables: TableBatch) -> None: ...
    def set_transport(self, host: EngineNode, name: str, options: dict) -> None: ...
    def set_trees(
        self,
        host: EngineNode,
        qp: int,
        trees: collections.abc.Sequence[collections.abc.Sequence[int]],
    ) -> None:
        """
        The trees of a queue pair's group are these from now on; as connect_qp's group has them.
        """

    def switch_columns(self, node: EngineNode, names: collections.abc.Sequence[str]) -> list:
        """
        [array]: of each named field its values in all rows of the program's state, in the order of the names. ValueError for a field that the state does not have.
        """

    def switch_counters(self, node: EngineNode) -> dict[str, int]: ...
    def switch_snapshot(self, node: EngineNode) -> dict:
        """
        {name of the rows: [{'row': number, field: value, …}]}: the program's state, without rows of zeros, and the rows that its egress hooks keep; {} of a program without state.
        """

    def take_moved(self) -> list[int]:
        """
        Numbers of the jobs that ended, or of which an iteration ended that run_until returned for, since the last call; each once.
        """

    def transport_events(self, host: EngineNode) -> list[tuple[int, str, int, int]]:
        """
        [(at_ps, name, queue pair, value)] in order of time.
        """

    def transport_state(
        self, host: EngineNode, qp: int, part: int = 0, transport: str = ""
    ) -> dict[str, float]:
        """
        What the sender of a queue pair holds now, by name: bytes, picoseconds, bits per second.
        """

    def transport_timeouts(self, host: EngineNode) -> list[tuple[int, int, int]]:
        """
        [(at_ps, queue pair, waited_ps)] of the retransmission timeouts that ran out, in order of time; waited_ps: for how long the sender had waited for an acknowledgement.
        """

    def use_lookahead(self) -> None:
        """
        Serves each node's events of a window together: for jobs whose hosts hear of one another by packets alone.
        """

    def watch_iterations(self, watch: bool) -> None:
        """
        Whether run_until returns after every iteration of a model's job, which it does unless told otherwise.
        """

    @property
    def events(self) -> int: ...
    @property
    def leaked(self) -> int: ...
    @property
    def next_event_ps(self) -> int: ...
    @property
    def now_ps(self) -> int: ...
    @property
    def packets(self) -> int: ...
    @property
    def pfc_deadlocks(self) -> int: ...
    @property
    def unconnected(self) -> int: ...

class ProgramFault(RuntimeError):
    pass

class TableBatch:
    """
    One generation of a switch's tables, as bytes that its program reads.
    """

    def __init__(
        self,
        *,
        generation: int,
        bytes: bytes,
        groups: collections.abc.Sequence[collections.abc.Sequence[int]] = [],
    ) -> None:
        """
        groups: the ports that each get a copy, by a replicate verdict's group number.
        """

    @property
    def bytes(self) -> bytes: ...
    @property
    def generation(self) -> int: ...
    @property
    def groups(self) -> list[list[int]]: ...

class PanelDevice:
    """
    The state of an optical circuit switch. Ports are numbered from 0; `out` is the simplex port that light leaves by, B. Requests take the time, and are applied whole or, where they raise ValueError, not at all.
    """

    def __init__(
        self,
        ports: int,
        profile: str = "sim25",
        carrier: str = "both",
        seed: int = 1,
        dark_by_port: bool = False,
    ) -> None: ...
    def advance(self, now_ps: int) -> None: ...
    def attenuation(self, egress: int) -> float:
        """
        In dB.
        """

    def carrier(self, port: int, now_ps: int) -> bool:
        """
        Whether the port's host has carrier.
        """

    def change(
        self,
        remove: collections.abc.Sequence[tuple[int, int]],
        add: collections.abc.Sequence[tuple[int, int]],
        mode: str,
        now_ps: int,
        all_dark: collections.abc.Sequence[int] = [],
    ) -> int:
        """
        Removes and adds cross-connects (ingress, egress) as one generation, whose number is returned. mode: update, safe or overwrite.
        """

    def cross_connects(self) -> list[tuple[int, int]]:
        """
        (ingress, egress), by ingress.
        """

    def dark_until(self, ingress: int) -> int: ...
    def insertion_loss(self, a: int, b: int) -> int:
        """
        In hundredths of a dB.
        """

    def next_time(self) -> int | None:
        """
        When a status or a carrier changes next by itself.
        """

    def override_of(self, port: int, out: bool) -> str: ...
    def power_dbm(self, egress: int, now_ps: int) -> float | None:
        """
        Of the light that leaves by this port; None where there is none.
        """

    def set_attenuation(self, egress: int, db: float, now_ps: int) -> None: ...
    def set_failed(self, port: int, out: bool, failed: bool, now_ps: int) -> None: ...
    def set_override(self, port: int, out: bool, value: str, now_ps: int) -> None:
        """
        value: normal, force_blocked or powered_off.
        """

    def set_shutter(self, port: int, out: bool, closed: bool, now_ps: int) -> None: ...
    def set_transmit_power(self, ingress: int, dbm: float, now_ps: int) -> None: ...
    def shutter_closed(self, port: int, out: bool) -> bool: ...
    def status(self, port: int, out: bool, now_ps: int) -> str:
        """
        blocked, tuning, tuned or failed.
        """

    def take_events(self) -> list[tuple[str, int, int, bool, str, int]]:
        """
        Since the last call: (status or carrier, at_ps, port, out, value, generation).
        """

    def target(self, port: int, out: bool) -> int | None:
        """
        The port at the cross-connect's other end.
        """

    def transmit_power(self, ingress: int) -> float:
        """
        In dBm.
        """

    @property
    def generation(self) -> int: ...
    @property
    def ports(self) -> int: ...

class Copilot:
    """
    Predicts a layer's expert loads from those of the layer before it.
    """

    def __init__(
        self,
        experts: int,
        *,
        records: int = 16,
        fading: float = 0.8,
        most_steps: int = 3000,
        tolerance: float = 1e-08,
    ) -> None: ...
    def fit(self) -> int:
        """
        Returns the steps that were taken.
        """

    def predict(self, before: collections.abc.Sequence[float]) -> list[float]:
        """
        Shares of the experts.
        """

    def record(
        self, before: collections.abc.Sequence[float], loads: collections.abc.Sequence[float]
    ) -> None: ...
    @property
    def matrix(self) -> list[float]:
        """
        By rows: to * experts + from.
        """

class FlowProbe:
    """
    The state of many senders, taken at once. A row per part of each queue pair (RoCE: one per plane), a column per name; where a sender has no value of that name: NaN.
    """

    def __init__(
        self, network: Network, queue_pairs: collections.abc.Sequence[tuple[int, int]]
    ) -> None: ...
    def add(self, network: Network, queue_pairs: collections.abc.Sequence[tuple[int, int]]) -> None:
        """
        Senders whose rows follow those that are there; names may come behind the known ones.
        """

    def rows(self, since: int = 0) -> list[tuple[int, int]]:
        """
        Of each row from number `since` on: number of the queue pair, and part.
        """

    def take(self) -> numpy.typing.NDArray[numpy.float64]:
        """
        An array of float64, rows by names.
        """

    @property
    def names(self) -> list[str]: ...

class FlowTraffic:
    def __init__(self, network: Network, payload: bool, job: int = 0) -> None: ...
    def acked_before(self, number: int, part: int) -> int:
        """
        Bytes that were acknowledged to a part of a flow's queue pair when the flow of this number began, which is under way.
        """

    def add(
        self,
        *,
        source: EngineNode,
        destination: EngineNode,
        qp: int,
        bytes: int,
        message: int,
        depth: int,
        start_ps: int,
        steps: int = 0,
        rank: int = 0,
        ranks: int = 0,
        claim: tuple[int, int, int, int, int] | None = None,
        until_ps: int | None = None,
    ) -> int:
        """
        claim: (job, communicator, first step, rank, ranks) that its packets say in place of the truth. until_ps: from then on nothing is posted, and the flow ends with what is under way.
        """

    def ended_flows(self, since: int = 0) -> numpy.typing.NDArray[numpy.uint32]:
        """
        Numbers in results() of the flows that have ended, from the one of this place on.
        """

    def failures(self) -> list[tuple[int, int, str]]:
        """
        [(number in results(), at_ps, status)] of the flows that failed.
        """

    def iterations(self, since: int = 0) -> numpy.ndarray:
        """
        (begin_ps, end_ps) of the finished iterations from number `since` on, the first being 0: a numpy structured array.
        """

    def repeat(
        self,
        *,
        rounds: int,
        gap_ps: int = 0,
        apart_ps: int = 0,
        stop_ps: int | None = None,
        whole: bool = True,
    ) -> None:
        """
        Before start(): the flows are sent so many times, a round gap_ps after the end of the one before, in a later round each by less than apart_ps later. No flow begins at stop_ps or later. whole: the first round has all of its flows; else it is the last, and no iteration.
        """

    def results(self, since: int = 0) -> numpy.ndarray:
        """
        Flows that were launched, from number `since` on, as a numpy structured array: flow (number of its add()), start_ps, end_ps, arrived_ps (-1: not yet), bytes that were completed, ok (no failure so far).
        """

    def start(self) -> None: ...
    def steps(self) -> numpy.typing.NDArray[numpy.int64]:
        """
        int64[steps, 4] of flows in ring steps: rank, 0, step and when its sender knew it had arrived (ps).
        """

    def under_way(self) -> numpy.typing.NDArray[numpy.uint64]:
        """
        Numbers in results() of the flows under way now, rising.
        """

    @property
    def done(self) -> bool: ...
    @property
    def ended_ps(self) -> int:
        """
        When the last flow ended so far.
        """

    @property
    def steps_unlogged(self) -> int: ...
    @property
    def wrong(self) -> int: ...

class GraphTraffic:
    def __init__(self, network: Network, depth: int, job: int = 0) -> None: ...
    def delay(
        self, duration_ps: int, lane: int = 0, any: bool = False, host: EngineNode | None = None
    ) -> int: ...
    def depend(self, task: int, on: int, acked: bool = False) -> None: ...
    def results(self) -> numpy.typing.NDArray[numpy.int64]:
        """
        int64[tasks, 3]: begin, end and acknowledgement in picoseconds; -1: not yet.
        """

    def start(self, at_ps: int, stop_ps: int | None = None) -> None: ...
    def transfer(self, source: EngineNode, destination: EngineNode, qp: int, bytes: int) -> int: ...
    @property
    def done(self) -> bool: ...
    @property
    def ended_ps(self) -> int:
        """
        When the last task ended so far, or the first failed.
        """

    @property
    def failed(self) -> tuple[int, int, str] | None:
        """
        (task, at_ps, status) of the first that failed.
        """

class CollectiveTraffic:
    def __init__(
        self,
        network: Network,
        *,
        hosts: collections.abc.Sequence[EngineNode],
        collective: str,
        bytes: int,
        repeat: int,
        start_ps: int = 0,
        compute_ps: int = 0,
        gaps_ps: collections.abc.Sequence[int] = [],
        payload: bool = False,
        slots: int = 8,
        slot_payload: int = 65536,
        shift: int = 0,
        await_sends: bool = True,
        job: int = 0,
        stop_ps: int | None = None,
        sums: collections.abc.Mapping[str, int] | None = None,
        channels: int = 1,
        first_step: int = 0,
        whole_steps: bool = False,
        step_compute_ps: int = 0,
        renew_every: int = 0,
    ) -> None:
        """
        sums: {sum_slots, sum_values, sum_window, sum_scale, sum_floats, sum_servers, sum_reach} as RankBridge takes them: switches sum, and every rank has a queue pair for each server (set_sum_pair, in their order).
        """

    def failures(self) -> list[tuple[int, int, str]]:
        """
        [(rank, at_ps, message)] of the ranks whose operation failed, in the order of time.
        """

    def iterations(self, since: int = 0) -> numpy.ndarray:
        """
        (begin_ps, end_ps) of the finished iterations from number `since` on, the first being 0: a numpy structured array.
        """

    def set_queue_pair(self, rank: int, peer: int, qp: int, channel: int = 0) -> None: ...
    def set_sum_pair(self, rank: int, qp: int) -> None: ...
    def start(self) -> None: ...
    def steps(self) -> numpy.typing.NDArray[numpy.int64]:
        """
        int64[steps, 4]: rank, channel, ring step and when the rank had received it (ps), in the order of time.
        """

    def take_by_step(
        self,
        rank: int,
        peer: int,
        pairs: collections.abc.Sequence[tuple[int, int]],
        channel: int = 0,
    ) -> None:
        """
        Ring steps from rank to peer take these queue pairs, (number at rank, number at peer), in turn.
        """

    @property
    def done(self) -> bool: ...
    @property
    def ended_ps(self) -> int:
        """
        When the last rank was through so far.
        """

    @property
    def steps_unlogged(self) -> int: ...
    @property
    def wrong(self) -> int: ...

class Episodes:
    """
    Networks whose flows a learner decides for (congestion control "astraea" with policy="outside"), stepped together. Rows of its arrays are [episode, flow].
    """

    TERMS: typing.ClassVar[list] = [
        "seconds",
        "throughput_Bps",
        "rtt_us",
        "least_rtt_us",
        "loss_Bps",
        "queue_loss_Bps",
        "pacing_Bps",
        "window_packets",
        "most_throughput_Bps",
    ]

    def __init__(self, flows: int, inputs: int) -> None:
        """
        flows: rows of each episode. inputs: numbers that a policy sees.
        """

    def __len__(self) -> int: ...
    def act(self, actions: numpy.typing.ArrayLike) -> None:
        """
        Decides: float64[episodes, flows], -1 to 1 for flows that are due, NaN for none.
        """

    def advance(
        self, until_ps: numpy.typing.ArrayLike, which: numpy.typing.ArrayLike
    ) -> numpy.typing.NDArray[numpy.uint8]:
        """
        Passes time in those episodes, int64[episodes] at most up to then, to the next moment at which a flow is due. uint8[episodes]: 0 a flow is due, 1 the time is reached, 2 the run must be looked at.
        """

    def arrays(self) -> dict:
        """
        The arrays by name, always the same: present, due, born, left (bool[episodes, flows]), terms (float64[episodes, flows, terms]), inputs (float32[episodes, flows, inputs]: of flows that are due), reward, reward_terms, global_state, now_ps.
        """

    def put(
        self,
        index: int,
        network: typing.Any,
        traffics: collections.abc.Sequence[typing.Any],
        *,
        capacity_Bps: float,
        buffer_bytes: float,
        base_rtt_us: collections.abc.Sequence[float],
        c0: float,
        c1: float,
        c2: float,
        c3: float,
        c4: float,
        beta: float,
        lat_cap: float | None,
        changes: collections.abc.Sequence[tuple[int, float]],
    ) -> None:
        """
        One more, before arrays(), or one in place of that at `index`. base_rtt_us: of each flow. c0 … lat_cap: of the reward. changes: picoseconds and capacity from then on.
        """

    def show(self) -> None:
        """
        Writes what the flows show now into arrays().
        """

class BucketSums:
    """
    How the gradients of a model job's buckets are summed.
    """

class ExecutorSums(BucketSums):
    def __init__(
        self,
        network: Network,
        *,
        job: int,
        hosts: collections.abc.Sequence[EngineNode],
        longest: int,
        await_sends: bool = True,
        slots: int = 8,
        slot_payload: int = 65536,
        sums: collections.abc.Mapping[str, int] | None = None,
        payload: bool = False,
    ) -> None:
        """
        sums: {sum_slots, sum_values, sum_window, sum_scale, sum_floats, sum_servers, sum_reach} as RankBridge takes them: switches sum, and every rank has a queue pair for each server (set_sum_pair, in their order).
        """

    def set_queue_pair(self, rank: int, peer: int, qp: int) -> None: ...
    def set_sum_pair(self, rank: int, qp: int) -> None: ...
    @property
    def wrong(self) -> int | None: ...

class BucketFacts:
    """
    What a priority is told of a bucket that is about to be summed.
    """

    @property
    def bytes(self) -> int: ...
    @property
    def communication_ratio(self) -> float: ...
    @property
    def iteration(self) -> int: ...
    @property
    def layer(self) -> int: ...
    @property
    def layers(self) -> int: ...
    @property
    def progress(self) -> float: ...
    @property
    def rank(self) -> int: ...
    @property
    def remaining_s(self) -> float: ...

class ModelTraffic:
    def __init__(
        self,
        network: Network,
        sums: BucketSums,
        *,
        job: int,
        hosts: collections.abc.Sequence[EngineNode],
        buckets: collections.abc.Sequence[int],
        iterations: int,
        start_ps: int = 0,
        stop_ps: int | None = None,
        compute_ps: int = 0,
        forward: float = 0.3333333333333333,
        jitter: float = 0.0,
        link_bps: int = 1,
        priority: str = "esa",
        ask: collections.abc.Callable[[BucketFacts], int] | None = None,
    ) -> None:
        """
        `ask` is called with the BucketFacts of each bucket, in place of `priority`; it must not raise.
        """

    def computed(self, rank: int) -> list[int]:
        """
        Compute times, in picoseconds, of the rank's iterations that have begun.
        """

    def failures(self) -> list[tuple[int, int, str]]:
        """
        [(rank, at_ps, message)] of the ranks that got no sum, in the order of time.
        """

    def iterations(self, since: int = 0) -> numpy.ndarray:
        """
        (begin_ps, end_ps) of the finished iterations from number `since` on, the first being 0: a numpy structured array.
        """

    def start(self) -> None: ...
    @property
    def done(self) -> bool: ...
    @property
    def ended_ps(self) -> int:
        """
        When the last rank was through so far.
        """

class FluidFabric:
    """
    A network whose transfers are flows that share links max-min; made when all its links are there. There are no packets.
    """

    def __init__(self, network: Network) -> None: ...
    def set_transport(
        self,
        host: EngineNode,
        name: str,
        *,
        payload_bytes: int,
        overhead_bytes: int,
        ack_bytes: int,
        first_bytes: int = 0,
        stream_bytes: int = 0,
        one_port: bool = False,
        part_bytes: int = 1,
        align_bytes: int = 1,
        immediate_bytes: int = 0,
    ) -> None:
        """
        The host's queue pairs over the transport of that name are fluid. Bytes of a full packet's payload; on the wire beside it, and of an acknowledgement, framing included; more of a part's first packet; before a write, in the place of payload. one_port: a queue pair sends by one port of those with a path; else by all of them, each a part that is a multiple of part_bytes. A packet's payload is padded to a multiple of align_bytes. Each part of a write with an immediate value has immediate_bytes more, one without payload too.
        """

    @property
    def solved(self) -> int:
        """
        Parts of the network whose rates were computed.
        """

class RegionDriver:
    """
    The controller of a region's circuits at work.
    """

    def circuits(self) -> list[int]:
        """
        Of each port of the region the port that it is joined to, -1: none.
        """

    def events(self) -> numpy.ndarray:
        """
        A numpy structured array: at_ps, generation, iteration, layer, micro_batch, backward, guessed, event, changed, dark_ps. event: 0 demand, 1 drain, 2 apply, 3 lit, 4 release, 5 fail, 6 outside.
        """

    def keep_maps(self, most: int) -> None:
        """
        Keeps this many maps from now on, for kept_maps().
        """

    def kept_maps(self) -> list[tuple[int, int, list[int]]]:
        """
        [(at_ps, lit_ps, by port the port that it is joined to, -1: none)] of the first maps.
        """

    def restart(self, now_ps: int) -> None:
        """
        Starts a new controller, which reads the circuits off the panel and hears the last demand again.
        """

    def stop(self, now_ps: int) -> None:
        """
        Ends the controller; what it held goes by the electrical fabric.
        """

    @property
    def events_left_out(self) -> int:
        """
        Events beyond those that are kept.
        """

    @property
    def maps(self) -> int:
        """
        Distinct circuit maps among them.
        """

    @property
    def patches(self) -> int:
        """
        Requests that have reached the panel.
        """

    @property
    def refusal(self) -> str:
        """
        Of the last request that the panel did not take.
        """

class MoeTraffic:
    """
    A mixture of experts in training: its regions, stages and replicas.
    """

    def __init__(
        self,
        network: Network,
        *,
        job: int,
        degrees: collections.abc.Sequence[int],
        gpus: int,
        micro_batches: int,
        layers: collections.abc.Sequence[int],
        counts: numpy.typing.ArrayLike,
        work: dict,
        exchange: dict,
        activations: int,
        gradients: int,
        iterations: int,
        start_ps: int,
        stop_ps: int | None,
        message: int,
        depth: int,
    ) -> None:
        """
        degrees: of expert, tensor, pipeline and data parallelism. layers: of each stage. counts: tokens by iteration, micro-batch, region, layer, source and destination, each repeated in turn.
        """

    def driver(self, region: int) -> RegionDriver:
        """
        The region's controller. Raises ValueError where the region has no circuits.
        """

    def failures(self) -> list[tuple[int, int, int, str]]:
        """
        [(region, server, at_ps, message)]
        """

    def iterations(self) -> list[tuple[int, int, int, typing.Any, typing.Any, int, int]]:
        """
        [(begin_ps, end_ps, exposed_ps, mean, most, optical bytes, electrical bytes)]; exposed_ps: waits for circuits in the iteration's longest chain of work; mean and most over regions of the picoseconds waiting for circuits, exchanging and computing.
        """

    def keep_spans(self, region: int, most: int) -> None: ...
    def set_circuits(
        self,
        region: int,
        panel: EngineNode,
        nics: collections.abc.Sequence[tuple[int, int]],
        *,
        first_port: int,
        nics_of_server: int,
        rule: str,
        ties: str,
        seed: int,
        all_dark: bool,
        drain_limit_ps: int,
        assigner: collections.abc.Callable[[list[int], list[int]], collections.abc.Sequence[int]]
        | None = None,
    ) -> None:
        """
        The region's circuits are patched at this panel. nics: (node, port) of each server's optical NICs, in the order of the panel's ports from first_port on.
        """

    def set_electrical(
        self,
        region: int,
        from_server: int,
        to_server: int,
        ways: collections.abc.Sequence[tuple[int, int, int]],
    ) -> None:
        """
        ways: (node, node, queue pair) between two servers of a region.
        """

    def set_optical(
        self,
        region: int,
        from_server: int,
        to_server: int,
        ways: collections.abc.Sequence[tuple[int, int, int]],
        fallback: collections.abc.Sequence[
            tuple[
                collections.abc.Sequence[int],
                int,
                collections.abc.Sequence[int],
                int,
                int,
                ListedWays,
                float,
            ]
        ],
    ) -> None: ...
    def set_ring_ways(
        self, region: int, server: int, ways: collections.abc.Sequence[tuple[int, int, int]]
    ) -> None: ...
    def set_rotor(
        self,
        region: int,
        panel: EngineNode,
        nics: collections.abc.Sequence[tuple[int, int]],
        *,
        first_port: int,
        slot_ps: int,
        slot_bytes: int,
    ) -> None:
        """
        The region's circuits rotate while it exchanges. slot_bytes: that a circuit carries in a slot.
        """

    def set_spare(self, region: int, server: int, gpu: int) -> None:
        """
        A spare does the work of this GPU: what it exchanges with other servers goes by wires alone.
        """

    def set_stage_ways(
        self,
        region: int,
        server: int,
        backward: bool,
        ways: collections.abc.Sequence[tuple[int, int, int]],
    ) -> None: ...
    def spans(self, region: int) -> list[tuple[str, bool, int, int, int, int, int]]:
        """
        [(step, backward, layer, micro-batch, iteration, begin_ps, end_ps)] of what is kept.
        """

    def spans_of_iterations(self, since: int = 0) -> numpy.ndarray:
        """
        (begin_ps, end_ps) of the finished iterations from number `since` on, the first being 0: a numpy structured array.
        """

    def start(self) -> None: ...
    def turns(self, region: int) -> tuple[int, int]:
        """
        Turns that were played, and the picoseconds by which they were longer than their slots.
        """

    @property
    def done(self) -> bool: ...
    @property
    def ended_ps(self) -> int:
        """
        When it was done.
        """

class RankBridge:
    """
    One rank process on one host of a network.
    """

    def __init__(
        self,
        network: Network,
        host: EngineNode,
        *,
        rank: int,
        world: int,
        slots: int = 8,
        slot_payload: int = 32768,
        channels: int = 16,
        job: int = 0,
        sum_slots: int = 0,
        sum_values: int = 0,
        sum_window: int = 0,
        sum_scale: int = 0,
        sum_floats: int = 0,
        sum_servers: int = 1,
        sum_reach: int = 2,
        queue_pairs: int = 1,
    ) -> None:
        """
        queue_pairs: towards each other rank of the job.
        """

    def bind(self, peer: int, qp: int, key: int = 1, number: int = 0) -> None:
        """
        Requests to `peer` go by this queue pair, the one of this number; `key` is the peer's RankBridge.key.
        """

    def bind_sum(self, qp: int) -> None:
        """
        Parts of sums go by this queue pair, in turn with those of earlier calls, for a rank with `sum_slots`.
        """

    def fds(self) -> tuple[int, int]:
        """
        (memory, engine's eventfd), to be inherited by the rank's process.
        """

    def steps(self) -> numpy.typing.NDArray[numpy.int64]:
        """
        int64[steps, 4]: rank, communicator, ring step and when the rank had received it (ps), where it marks ring steps; of live ranks once the run has stopped.
        """

    def stop_at(self, step: int, now_ps: int) -> None:
        """
        The rank's script ends itself after this optimizer step.
        """

    def take_marks(self) -> list[tuple[int, int, int, int, int, int]]:
        """
        [(kind, status, at_ps, value, a, b)] since the last call; works are in the host's meter.
        """

    def tell(self, kind: str, peer: int, reason: str, now_ps: int, status: int = 0) -> None:
        """
        `status`: of a peer that has gone, its exit status or signal.
        """

    def unfinished_works(self, now_ps: int) -> int:
        """
        Virtual clock: operations that a rank which has ended began and never saw the end of.
        """

    def weigh_sums(
        self,
        *,
        steps: int,
        link_bps: int,
        priority: str,
        ask: collections.abc.Callable[[BucketFacts], int] | None = None,
    ) -> None:
        """
        Sums whose priority the script does not state get one, from the rank's second training step on. `ask` is called with the BucketFacts of each sum, in place of `priority`; it must not raise.
        """

    @property
    def alarm_ps(self) -> int:
        """
        When the first time limit or pause ends that the waiting rank has asked for; 0: none.
        """

    @property
    def client(self) -> int:
        """
        The rank's number among the clients of its host's NIC.
        """

    @property
    def failed_works(self) -> int: ...
    @property
    def fault(self) -> str: ...
    @property
    def finished_works(self) -> int: ...
    @property
    def key(self) -> int:
        """
        Of the rank's staging memory, for its peers.
        """

    @property
    def polls(self) -> int:
        """
        Polls of the rank that found nothing.
        """

    @property
    def quiescent(self) -> bool: ...
    @property
    def state(self) -> str: ...
    @property
    def steps_unlogged(self) -> int: ...
    @property
    def strays(self) -> int:
        """
        Threads that began to communicate while the rank counted as waiting.
        """

    @property
    def sum_overflows(self) -> int:
        """
        Blocks of the rank's sums with a value or a sum beyond the range of an int32.
        """

    @property
    def sums_as_floats(self) -> int:
        """
        Of these, blocks that were summed as float32.
        """

    @property
    def under_way(self) -> str:
        """
        The operation under way for longest, and how many more; or empty.
        """

class VirtualRanks:
    """
    Real rank processes on the virtual clock.
    """

    def __init__(self, network: Network) -> None: ...
    def add(self, bridge: RankBridge, job: int = 0) -> None: ...
    def leave(self, place: int) -> None: ...
    def may_yet_communicate(self, ranks: collections.abc.Sequence[int]) -> None:
        """
        Ranks with threads of which the engine cannot tell whether they will communicate.
        """

    def others_wait(self, but: collections.abc.Sequence[int]) -> bool: ...
    def run(self, end_ps: int, wall_ms: int) -> str:
        """
        Runs to `end_ps`; why it stopped: reached, marked, stopped (by a traffic model), waiting (for a computing rank), stuck.
        """

    def strand(self) -> None:
        """
        Tells all ranks that what still needs a rank that has left will not end.
        """

    @property
    def waited_for(self) -> list[int]:
        """
        The ranks that did when that time last began.
        """

    @property
    def wall_paced_ps(self) -> int:
        """
        Emulated time that passed while a rank slept outside the network.
        """

class RankRegion:
    """
    A region whose servers run real ranks, and its circuits.
    """

    def __init__(
        self,
        network: Network,
        *,
        region: int,
        ranks: collections.abc.Sequence[RankBridge],
        server_of: collections.abc.Sequence[int],
        repatch: str,
        fp_dispatch: str,
        demand: str,
        split: str,
        circuit_bps: float,
        electrical_bps: float,
        latency_ps: int,
    ) -> None:
        """
        server_of: of each of the ranks.
        """

    def rounds(self) -> list[tuple[int, int, int, int, int, int, list]]:
        """
        [(iteration, layer, micro-batch, phase, asked_ps, answered_ps, tokens)]; tokens by source and destination rank, of forward dispatches.
        """

    def set_circuits(
        self,
        panel: EngineNode,
        nics: collections.abc.Sequence[tuple[int, int]],
        *,
        first_port: int,
        servers: int,
        alpha: int,
        nics_of_server: int,
        rule: str,
        ties: str,
        seed: int,
        all_dark: bool,
        drain_limit_ps: int,
        assigner: collections.abc.Callable[[list[int], list[int]], collections.abc.Sequence[int]]
        | None = None,
        pairs: collections.abc.Sequence[
            tuple[
                int,
                int,
                int,
                int,
                int,
                collections.abc.Sequence[
                    tuple[
                        collections.abc.Sequence[int],
                        int,
                        collections.abc.Sequence[int],
                        int,
                        int,
                        ListedWays,
                        float,
                    ]
                ],
            ]
        ],
        crossing_ps: int,
    ) -> None:
        """
        nics: (node, port) of each server's optical NICs, in the order of the panel's ports from first_port on. pairs: (from server, to server, node, queue pair, its number, its paths by wires) of what goes by light. crossing_ps: the longest that a packet is on a circuit.
        """

    @property
    def driver(self) -> RegionDriver:
        """
        Its controller; None without circuits.
        """

    @property
    def rounds_left_out(self) -> int:
        """
        Rounds beyond those that are kept.
        """

class PerfettoWriter:
    """
    Pieces of a Perfetto trace; times in picoseconds of the engine.
    """

    def __init__(self, zero_ps: int = 0) -> None:
        """
        The file counts from `zero_ps`. What lies before is moved there; an instant is left out.
        """

    @typing.overload
    def attribute(self, name: str, value: str) -> None: ...
    @typing.overload
    def attribute(self, name: str, value: int) -> None: ...
    def begin(self, track: int, at_ps: int, name: str, category: str) -> None: ...
    def counter(self, parent: int, name: str) -> int:
        """
        A track of numbers, for measure().
        """

    def end(self, track: int, at_ps: int) -> None: ...
    def instant(
        self,
        track: int,
        at_ps: int,
        name: str,
        category: str,
        values: collections.abc.Sequence[tuple[str, int]] = [],
    ) -> None: ...
    def measure(self, track: int, at_ps: int, value: float) -> None: ...
    def process(self, pid: int, name: str) -> int: ...
    def take(self) -> bytes: ...
    def thread(self, pid: int, tid: int, name: str) -> int: ...
    def track(self, parent: int, name: str, rank: int = 0) -> int:
        """
        Tracks of one parent are shown in order of their ranks.
        """

class Recorder:
    """
    Records what a network does; one per network.
    """

    def __init__(
        self, network: Network, *, seed: int, timeline: bool, most_hops: int = 0
    ) -> None: ...
    def capture(self, half: EngineHalf, interface: str, description: str) -> int: ...
    def clock_points(self, host: EngineNode) -> list[tuple[int, int]]:
        """
        [(a rank's monotonic clock in ns, emulated ps)] as its marks said, in order.
        """

    def finish(self, capture: int) -> bytes:
        """
        The last bytes of a capture, which ends.
        """

    def kept_of_packets(self) -> int:
        """
        n, where the timeline keeps 1/2^n of all packets.
        """

    def marks(self) -> list:
        """
        [{'half', 'at_ps', 'uid', 'by', and what the program notes by its names}]: every mark that a switch program's egress hook has made, in the order in which links were looked at.
        """

    def packets(self, capture: int) -> int: ...
    def set_zero(self, at_ps: int | None) -> None:
        """
        Captures and the timeline count time from here: the first job's start. Unless set, that is the engine's. None: it is not known yet, and captures keep up to 64 MiB until it is.
        """

    def stop_when_full(self) -> None:
        """
        run_until returns early while captures hold more than 8 MiB.
        """

    def take(self, capture: int) -> bytes:
        """
        pcapng bytes since the last call, in order of time.
        """

    def write(
        self,
        writer: PerfettoWriter,
        host: collections.abc.Callable[[EngineNode], str],
        half: collections.abc.Callable[[EngineHalf], str],
    ) -> None:
        """
        Writes the timeline; `host` and `half` name a node and a direction of a link.
        """

class LiveRun:
    """
    A network on the live clock, with its kernel ports and XDP switches.
    """

    def __init__(
        self,
        network: Network,
        *,
        ports: collections.abc.Sequence[tuple[EngineNode, int, str, int, str, str]],
        switches: collections.abc.Sequence[tuple[EngineNode, int, str, int, TableBatch, str, dict]],
        dilation: float = 1.0,
        lateness_bound_ps: int = 1000000000,
        panels: collections.abc.Sequence[
            tuple[int, int, str, collections.abc.Sequence[tuple[int, int, int, str, str]] | None]
        ] = [],
    ) -> None:
        """
        ports: (node, port, 'host' | 'xdp' | 'panel', netns fd, interface, MAC or ''); switches: (node, netns fd, name, seed, tables, program, options); panels: (node, netns fd, name, fibres), None by XDP, by tc of each port (host node, its port, netns fd, interface, MAC).
        """

    def add_rank(self, bridge: RankBridge, job: int = 0) -> None: ...
    def capture(
        self, recorder: Recorder, half: EngineHalf, interface: str, description: str
    ) -> int:
        """
        Begins to capture a port; the number to take its bytes by.
        """

    def carried(self, halves: collections.abc.Sequence[EngineHalf]) -> list[int]:
        """
        Network.carried, on the loop's thread.
        """

    def change_link(
        self,
        link: EngineLink,
        *,
        forward: bool = True,
        backward: bool = True,
        up: bool | None = None,
        rate_bps: int | None = None,
        queue_share: float | None = None,
        delay_ps: int | None = None,
        impairment: dict | None = None,
    ) -> None:
        """
        Changes a link now.
        """

    def check_panels(self) -> None:
        """
        Raises RuntimeError, one line, where what a panel by XDP redirects would be lost.
        """

    def close(self) -> None: ...
    def fidelity(self) -> dict[str, typing.Any]:
        """
        verdict, reason, lateness, counters and the loop's own counts (core/live/fidelity.hpp).
        """

    def graph_done(self, traffic: GraphTraffic) -> bool: ...
    def inject(self, node: EngineNode, port: int, frame: bytes) -> None:
        """
        Puts raw bytes into a port, as a faulty device would.
        """

    def look(
        self, bridges: collections.abc.Sequence[RankBridge]
    ) -> list[tuple[list[tuple[int, int, int, int, int, int]], int, int, int, str, str]]:
        """
        [(marks since the last look, finished works, failed works, works under way, the name of the first of them, fault or '')] of these ranks.
        """

    def name_rank(self, process: int) -> None:
        """
        A process of a rank, for what held up the loop.
        """

    def pace(self, bound_ps: int) -> tuple[int, int, int, int]:
        """
        (frames taken from the kernel, packets that came out of it, how many of them were later than the bound, their p99 lateness in ps) so far.
        """

    def panel_counters(self, node: EngineNode) -> dict[str, int]:
        """
        Network.panel_counters, of a panel in the kernel.
        """

    def pause(self) -> None:
        """
        Holds the loop until resume(): for the moments in which Python touches the network.
        """

    def program_fault(self) -> str:
        """
        What a switch program of a C file has done wrong, as ProgramFault says it; nothing: none has.
        """

    def queued(self, halves: collections.abc.Sequence[EngineHalf]) -> list[int]:
        """
        Network.queued, on the loop's thread.
        """

    def reset_switch(self, node: EngineNode) -> None:
        """
        Network.reset_switch, of a switch in the kernel. Takes some milliseconds.
        """

    def resume(self) -> None: ...
    def run_counters(
        self, hosts: collections.abc.Sequence[EngineNode], job: int | None = None
    ) -> dict[str, int]:
        """
        Network.run_counters, on the loop's thread.
        """

    def set_carrier(self, node: EngineNode, port: int, up: bool) -> None:
        """
        Carrier of a kernel port's interface.
        """

    def set_tables(self, node: EngineNode, tables: TableBatch) -> None: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def stop_at(self, bridge: RankBridge, step: int) -> None: ...
    def switch_columns(self, node: EngineNode, names: collections.abc.Sequence[str]) -> list:
        """
        Network.switch_columns, of a switch in the kernel: each row as it was at one moment.
        """

    def switch_counters(self, node: EngineNode) -> dict[str, int]: ...
    def switch_snapshot(self, node: EngineNode) -> dict:
        """
        Network.switch_snapshot, of a switch in the kernel.
        """

    def take(self, probe: FlowProbe) -> numpy.typing.NDArray[numpy.float64]:
        """
        FlowProbe.take, on the loop's thread.
        """

    def take_capture(self, recorder: Recorder, capture: int, last: bool = False) -> bytes: ...
    def take_window(self) -> dict[str, dict[str, int]]:
        """
        Lateness since the last call, by stage: {stage: {count, p50_ps, p99_ps, p999_ps, max_ps}}.
        """

    def tell(
        self, bridge: RankBridge, kind: str, peer: int, reason: str, status: int = 0
    ) -> None: ...
    @typing.overload
    def traffic_state(self, traffic: CollectiveTraffic, since: int) -> tuple[numpy.ndarray, bool]:
        """
        ((begin_ps, end_ps) of the job's iterations, of a collective rank 0's, from number `since` on as a numpy structured array, whether it is done).
        """

    @typing.overload
    def traffic_state(self, traffic: ModelTraffic, since: int) -> tuple[numpy.ndarray, bool]: ...
    @typing.overload
    def traffic_state(self, traffic: FlowTraffic, since: int) -> tuple[numpy.ndarray, bool]: ...
    @property
    def now_ps(self) -> int: ...
    @property
    def thread_id(self) -> int:
        """
        Of the loop; 0 before it runs.
        """

class HostRoutes:
    """
    Routes of live hosts' kernels to those that circuits join them to.
    """

    def __init__(self) -> None: ...
    def add(
        self,
        netns: int,
        name: str,
        ports: collections.abc.Sequence[str],
        source: str,
        gateway: str,
        mtu: int,
    ) -> int:
        """
        Returns the host's number here; mtu 0: the interfaces'.
        """

    def commit(self) -> None: ...
    def set(self, number: int, destination: str, by: collections.abc.Sequence[int]) -> None:
        """
        To an address by these ports of the host of that number; none: its own route goes.
        """

class KernelControl:
    """
    A congestion control of ours in the kernel's TCP, for sockets of every network namespace, until close().
    """

    def __init__(self, control: str, name: str, options: dict = {}, *, slots: int = 1024) -> None:
        """
        Registers `control` as `name`, 1 to 15 letters, digits, dots and underscores. `slots`: flows that it can decide for, a power of two; further ones are left to the kernel. Raises ValueError, RuntimeError.
        """

    def counts(self) -> dict[str, int]:
        """
        flows, decisions, commands, fallbacks, … since it was made.
        """

    def measure(self) -> None:
        """
        Has the kernel time BPF programs until this object is gone.
        """

    def pace(self) -> dict[str, int]:
        """
        Of the thread: wakes, missed, lateness p50_ps, p99_ps, max_ps, processor time worked_ns in lasted_ns.
        """

    def policy(self) -> numpy.typing.NDArray[numpy.uint8]:
        """
        What a program that decides by itself reads, uint8 (ebpf/astraea_policy_abi.h); empty for others.
        """

    def record(self) -> None:
        """
        Keeps decisions from now on.
        """

    def slots(self) -> numpy.typing.NDArray[numpy.uint8]:
        """
        The memory that kernel and agent share, uint8[slots * 256], for tests and for looking.
        """

    def start(self) -> None:
        """
        Starts the thread that decides.
        """

    def stop(self) -> None:
        """
        Ends it; the control stays registered.
        """

    def take_decisions(self) -> numpy.ndarray:
        """
        Decisions since the last call, a numpy structured array: at_ns (CLOCK_MONOTONIC), netns, ports, window and commanded (packets), mode (0 start-up, 1 agent, 2 fallback), fallbacks, throughput_Bps, rtt_us, …
        """

    @property
    def decides(self) -> bool:
        """
        Whether the program decides by itself, and the thread only watches.
        """

    @property
    def name(self) -> str:
        """
        For TCP_CONGESTION.
        """

    @property
    def program_runs(self) -> tuple[int, int]:
        """
        (runs, nanoseconds) of the program at acknowledgements, while measured.
        """

    @property
    def running(self) -> bool:
        """
        Whether the thread runs.
        """

    @property
    def scheduling(self) -> str:
        """
        As the thread got it.
        """

def aggregate_policies() -> list:
    """
    The rows of ebpf/aggregate_policies.h, by their numbers on the wire.
    """

def assign_circuits(
    demand: collections.abc.Sequence[int],
    free: collections.abc.Sequence[int],
    rule: str,
    seed: int = 0,
    ties: str = "free",
) -> tuple[list[int], list[tuple[int, int]]]:
    """
    Circuits of each pair of servers, row by row, and the pairs as they were granted. demand: row by row.
    """

def astraea_forget(name: str) -> None:
    """
    Gives the memory of a policy back once no flow follows it; astraea_policy() takes it in again.
    """

def astraea_policy(file: bytes) -> str:
    """
    Takes in the bytes of an .astp file and returns the name for tcp={"cc": "astraea", "policy": name} in this process; equal bytes have equal names. Raises ValueError naming the field that is wrong.
    """

def check_kernel_control(control: str, options: dict) -> None:
    """
    Raises ValueError, one line, for a control that the kernel's TCP cannot have, or an option that it refuses.
    """

def check_switch_program(name: str, ports: int, options: dict) -> None:
    """
    Refuses a program, a number of ports or options that cannot be, by a ValueError of one line.
    """

def circuit_map(answer: bytes) -> tuple[int, int, list[tuple[int, int, int, int, bool]]]:
    """
    (generation, usable_ns, [(server i, server j, optical NIC of i, of j, unchanged)]) of the answer to a report.
    """

def cong_control_arguments() -> int:
    """
    How many arguments this kernel's cong_control has: 2, or 4 from Linux 6.10 on. RuntimeError without BTF.
    """

def congestion_controls() -> dict:
    """
    Every congestion control by name: the signals that it needs, its options, virtual_only, in_kernel.
    """

def congestion_note(control: str, options: dict) -> str:
    """
    What a report says of a control with these options; empty where there is nothing to say.
    """

def demand_report(
    *,
    phase: int,
    iteration: int,
    layer: int,
    micro_batch: int,
    region: int,
    source: int,
    token_bytes: int,
    tokens: collections.abc.Sequence[int],
) -> bytes:
    """
    A rank's row of its gate's counts, as RankSession.report() sends it.
    """

def exchange_seconds(
    split: str,
    servers: int,
    bytes: collections.abc.Sequence[int],
    circuits: collections.abc.Sequence[int],
    circuit_bps: float,
    electrical_bps: float,
) -> float:
    """
    Seconds of an exchange with this split where no flow meets another by a hash.
    """

def fluid_ring(
    *,
    ranks: int,
    uplinks: int,
    leaves: int,
    rehash: bool,
    jitter: float,
    burst_share: float,
    burst_capacity: float,
    burst_mean: float,
    gap: int,
    weight: int,
    switch_wide: bool,
    seed: int,
) -> tuple[float, float, float]:
    """
    One ring all-reduce as fluid over uplinks that its ranks share; times are in steps. (time to the end, mean of the steps between foremost and rearmost rank, share of the time of flows that they were called ahead). `gap` 0: none is called ahead. ValueError names a setting out of range.
    """

def load_switch_program(
    name: str,
    *,
    file: str,
    summary: str,
    counters: collections.abc.Sequence[str],
    options: collections.abc.Sequence[tuple[str, str, int, int, int]],
    fields: collections.abc.Sequence[tuple[str, int, int, bool]],
    rows: int,
    row_bytes: int,
    payload_at: int,
    payload_bytes: int,
    object: str | None,
    refusal: str,
) -> None:
    """
    Makes a switch program known that was compiled from one C file. options: (name, unit, default, least, greatest); fields of a state row: (name, offset, bytes, whether a number). `object`: the compiled object, which is loaded into this process; None: `refusal` says why it is not.
    """

def map_ports(
    circuits: collections.abc.Sequence[int],
    demand: collections.abc.Sequence[int],
    nics: int,
    alpha: int,
    previous: collections.abc.Sequence[int] = [],
) -> list[int]:
    """
    Of each of the panel's ports, server by server, the port that it is joined to, -1: none.
    """

def monotonic_ns() -> int:
    """
    The clock of all marks, in nanoseconds.
    """

def pair_demand(
    experts: int,
    tokens: collections.abc.Sequence[int],
    tensor_parallel: int,
    gpus_per_server: int,
    duplex: str = "sum",
) -> list[int]:
    """
    What pairs of servers exchange, row by row, in tokens' parts on one GPU.
    """

def panel_profiles() -> list[str]:
    """
    Names of the panels whose switching times are known.
    """

def plugin_under_way() -> bool:
    """
    Whether a congestion control's own code is being called.
    """

def priority_of(
    mode: str, *, remaining_s: float, communication_ratio: float, layers: int, layer: int
) -> int:
    """
    1 to 255: how urgent a bucket is by the formula of that name.
    """

def probe_budget(bound_ps: int) -> list[tuple[float, float, int, int]]:
    """
    [(frames/s offered, frames/s carried, p50 and p99 lateness in ps)] of steps ever faster, on XDP switches of its own, until the p99 is above the bound four times running. Needs root; takes up to 3 s.
    """

def queue_disciplines() -> dict:
    """
    Queue disciplines by name, each with its options: name, unit (time in picoseconds, size in bytes, count or switch), preset, least and most.
    """

def register_congestion_control(
    name: str,
    make: typing.Any,
    *,
    needs: collections.abc.Sequence[str] = [],
    options: dict = {},
    accurate_ecn: bool = False,
) -> None:
    """
    make(flow) gives the control of one flow: an object with window (bytes), and where it wants them pacing_rate (bits per second) and next_tick (ps), read after every call of on_ack(ack), on_congestion(event), on_tick(now_ps), on_established(rtt_ps, now_ps), on_restart(now_ps), on_recovered(now_ps), on_undo(now_ps), on_ports(live, total, now_ps).
    """

def set_switch_object(name: str, object: bytes) -> None:
    """
    Gives a loaded switch program its build for the kernel.
    """

def switch_program(name: str) -> dict:
    """
    The same of one program, which may be a loaded one. ValueError where there is none of this name.
    """

def switch_programs() -> dict:
    """
    {name: {'summary': text, 'options': {name: (default, help)}, 'units': {name: 'bytes', or 'run' of what a run sets}}} of every switch program of Loomnet's own.
    """

def table_batch(
    program: str,
    *,
    generation: int,
    block: int,
    own: collections.abc.Sequence[int],
    adjacencies: numpy.typing.ArrayLike,
    fib: numpy.typing.ArrayLike,
    hosts: numpy.typing.ArrayLike,
    host_groups: numpy.typing.ArrayLike,
    groups: collections.abc.Sequence[collections.abc.Sequence[int]],
    replicate: collections.abc.Sequence[collections.abc.Sequence[int]] = [],
    rows: dict = {},
) -> TableBatch:
    """
    Tables of a switch program. Those of forward, of which each program's are: uSIDs of one block (`adjacencies` and `fib`: uint16[n, 2] of a uSID and its port), host routes (`hosts`: uint8[n, 16] of addresses, `host_groups`: the ECMP group of each), and the ports of each group that a replicate verdict may name. `rows`: the program's own tables by name, each a list of rows {field: None, number, bytes, text or pairs of numbers}, as its *_batch.hpp has them.
    """

def transports() -> dict:
    """
    Every transport of the engine by name: its options (rows of name, type, unit, default, range, choices, doc), the congestion controls that it can run, and what its presets say of options.
    """

def trim_dscps(transport: str) -> tuple[int, int]:
    """
    Code points that switches write into packets of this transport that they trim: in the fabric, and at the last hop. (0, 0): they trim none.
    """

def try_kernel_control(control: str, *, decides: bool = False) -> str:
    """
    Loads a control's program into the kernel and takes it out again; `decides`: the form that decides without an agent. Returns why this kernel cannot have it, in one line; nothing where it can. Needs root.
    """

def try_switch_program(name: str) -> str:
    """
    Loads a switch program into the kernel and takes it out again. Returns the end of libbpf's log, nothing where the kernel took the program. ValueError for an object that holds what a switch program may not.
    """

def weighted_seconds(
    servers: int,
    bytes: collections.abc.Sequence[int],
    circuits: collections.abc.Sequence[int],
    circuit_bps: float,
    electrical_bps: float,
) -> float:
    """
    Seconds of an exchange whose pairs use circuits and electrical ports so that all end together; by pairs i * servers + j.
    """

COLLECTIVES: dict[str, int]
DATA_TYPES: dict[str, int]
MARK_KINDS: dict[str, int]
MAX_COMMUNICATOR_ID: int = 1048575
REDUCE_OPS: dict[str, int]
VERSION: str
