"""A live run's nodes: Mininet hosts and switches, the management network, host addressing.

Only Mininet's node class is used. Its network class writes sysctls of the user's machine when it
starts, and its ``cleanup()`` deletes other people's bridges. The links between nodes are made by
the engine, in C++; this module hands it namespaces and afterwards configures the host ends.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from typing import IO, TYPE_CHECKING, Any

from loomnet.base.installing import install_line
from loomnet.live import openvswitch
from loomnet.live.kernel_objects import clean, delete_interfaces, own_interfaces
from loomnet.live.namespaces import inside, ip_batch, offloads_off, write_sysctls
from loomnet.processes.journal import RunLock, kill_marked, process_start

if TYPE_CHECKING:
    from loomnet.live.kernel_tcp import KernelTcp

MANAGEMENT_INTERFACE = "mgmt"
# Host addresses fd00::<host>, the same on all plane ports.
HOST_PREFIX = "fd00::/64"
# What Gloo binds to by name: an interface that holds the host address and nothing else.
HOST_INTERFACE = "host0"
# Every host's first hop in every plane. Neighbours are permanent: a port that goes down loses
# learned ones, and nothing in the fabric answers neighbour discovery.
GATEWAY = "fe80::1"
# Runs never see each other's management network, so all use the same one. Its addresses are those
# for benchmarks (RFC 2544). If the machine's nameserver had one of them, each look-up of a rank's
# would wait until that address had not answered.
_MANAGEMENT = IPv4Network("198.18.0.0/16")


@dataclass(frozen=True)
class HostSpec:
    """A host to start: its name (``h0``) and its number, which makes its address fd00::<number>."""

    name: str
    number: int


@dataclass(frozen=True)
class HostPort:
    """A host's end of a link: what the engine made, and the first hop behind it.

    Attributes:
        interface: its name inside the host's namespace, for example ``p0``.
        gateway_mac: where the host's kernel sends every frame of this port.
        mac: the port's own address, set if given.
        routed: the port reaches every host; one at a panel reaches who its circuit joins.
        direct: its other end is a panel's, which takes what offloads leave whole.
    """

    interface: str
    gateway_mac: str
    mac: str | None = None
    routed: bool = True
    direct: bool = False


@dataclass
class LiveNode:
    """A node in a Mininet namespace of its own.

    Attributes:
        name: its name in the fabric.
        pid: the shell that keeps its namespaces alive.
        netns: descriptor of its network namespace, owned by the fabric and closed by its stop().
    """

    name: str
    pid: int
    netns: int
    mininet: Any = field(repr=False)  # mininet.node.Node, untyped upstream

    def open_namespaces(self) -> list[int]:
        """Fresh descriptors of its network and mount namespaces and of its root folder; the caller
        closes them. A process that enters a mount namespace is at that namespace's root, which
        is outside the chroot of a run inside one."""
        return [
            os.open(f"/proc/{self.pid}/{path}", os.O_RDONLY)
            for path in ("ns/net", "ns/mnt", "root")
        ]

    @property
    def alive(self) -> bool:
        return self.mininet.shell is not None and self.mininet.shell.poll() is None


@dataclass
class LiveHost(LiveNode):
    """A host: `address` on the data planes (kernel traffic), `management` for rendezvous."""

    number: int = 0
    address: str = ""
    management: str = ""


@dataclass
class LivePanel(LiveNode):
    """A panel: `management` is where its control interfaces listen."""

    management: str = ""


# Where a host has ports at panels alone: what no circuit carries is lost and asked for again, as by
# a fibre without light. An error would end connections that wait for a circuit.
_NOWHERE = f"route replace {HOST_PREFIX} via {GATEWAY} dev {HOST_INTERFACE} metric 4096"
SPARE = 16  # descriptors
# A connection that was closed while its last bytes were under way sends them again to a network
# that is gone, by the kernel's own setting for two minutes. So long it holds its namespace, and
# its congestion control's program.
_FORGET = {"net/ipv4/tcp_orphan_retries": 1}


class LiveFabric:
    """The nodes of one live run and their management network. Needs root.

    What dead runs left is removed first.

    Args:
        lock: the run's journal; stays locked until the caller releases it.
        hosts: hosts to start; names and numbers unique.
        switches: names of kernel-placed switches; each gets a Mininet namespace of its own.
        panels: names of panels, wherever they are placed; likewise, on the management network.
        ovs: the Open vSwitch to use; by default the running one, or Loomnet's own.
        look: called before each node; raises to end the bring-up, and nothing is left behind.

    Raises:
        PermissionError: not root.
        ValueError: two nodes of one name, two hosts of one number, or more hosts than addresses.
        OpenVSwitchError, RuntimeError: the machine refused something; nothing is left behind.
    """

    def __init__(
        self,
        lock: RunLock,
        hosts: Sequence[HostSpec],
        switches: Sequence[str] = (),
        *,
        panels: Sequence[str] = (),
        ovs: openvswitch.OpenVSwitch | None = None,
        look: Callable[[], None] = lambda: None,
    ) -> None:
        if os.geteuid() != 0:
            raise PermissionError("a live fabric needs root: network namespaces, XDP")
        names = [host.name for host in hosts] + [*switches, *panels]
        if len(set(names)) != len(names):
            raise ValueError(f"node names must be unique: {sorted(names)}")
        if len({host.number for host in hosts}) != len(hosts):
            raise ValueError("host numbers must be unique: they make the addresses")
        if len(hosts) + len(panels) > _MANAGEMENT.num_addresses - 3:
            raise ValueError(f"more hosts and panels than addresses in {_MANAGEMENT}")
        self.lock = lock
        self.hosts: dict[str, LiveHost] = {}
        self.switches: dict[str, LiveNode] = {}
        self.panels: dict[str, LivePanel] = {}
        self.ovs = ovs or openvswitch.ensure()
        self.ovs.check_answers()  # first: what dead runs left is in its database, too
        clean(lock.directory)
        self._bridge = lock.name("m")
        self._stopped = False
        # The way down runs commands and reads /proc, also where the way up had no descriptor left.
        self._spare = [os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC) for _ in range(SPARE)]
        try:
            for index, host in enumerate(hosts):
                look()
                self.hosts[host.name] = LiveHost(
                    **self._start(host.name),
                    number=host.number,
                    address=f"fd00::{host.number:x}",
                    management=str(_MANAGEMENT[index + 1]),
                )
            for name in switches:
                look()
                self.switches[name] = LiveNode(**self._start(name))
            for index, name in enumerate(panels, len(hosts)):
                look()
                self.panels[name] = LivePanel(
                    **self._start(name), management=str(_MANAGEMENT[index + 1])
                )
            self._start_management()
        except BaseException:
            self.stop()
            raise

    @property
    def nodes(self) -> dict[str, LiveNode]:
        return {**self.hosts, **self.switches, **self.panels}

    def _start(self, name: str) -> dict[str, Any]:
        node = _mininet_node(name, self.lock.environment())
        self.lock.record("process", pid=node.pid, start=process_start(node.pid), node=name)
        netns = os.open(f"/proc/{node.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        return {"name": name, "pid": node.pid, "netns": netns, "mininet": node}

    def _start_management(self) -> None:
        nodes: list[LiveHost | LivePanel] = [*self.hosts.values(), *self.panels.values()]
        ports = [self.lock.name(f"m{index}") for index in range(len(nodes))]
        self.lock.record("bridge", name=self._bridge, database=self.ovs.database, own=self.ovs.own)
        ip_batch(
            f"link add {port} type veth peer name {MANAGEMENT_INTERFACE} netns {node.pid}"
            for port, node in zip(ports, nodes, strict=True)
        )
        for port in ports:
            # The machine's own stack has no part in this network.
            write_sysctls({f"net/ipv6/conf/{port}/disable_ipv6": 1})
        ip_batch(f"link set {port} up" for port in ports)
        self.ovs.vsctl(
            "add-br",
            self._bridge,
            "--",
            "set",
            "bridge",
            self._bridge,
            f"datapath_type={self.ovs.datapath}",
            f"external_ids:loomnet={self.lock.run_id}",
            *(word for port in ports for word in ("--", "add-port", self._bridge, port)),
        )
        for host in self.hosts.values():
            inside(host.netns, lambda h=host: _configure_base(h))
        for panel in self.panels.values():
            inside(panel.netns, lambda p=panel: _join_management(p))

    def configure(
        self, ports: Mapping[str, Iterable[HostPort]], tcp: KernelTcp | None = None
    ) -> None:
        """Addresses the data ports of hosts: sysctls, offloads, neighbours, the multipath route.

        Call it once the engine has made the links. All traffic for fd00::/64 leaves by ECMP over
        a host's ports, by flow hash of five tuples, and avoids ports without carrier. `tcp`: what
        the hosts' kernels shall use; None leaves them what the machine has.

        Raises:
            KeyError: an unknown host. RuntimeError, OSError: the kernel refused, with the line.
        """
        for name, some in ports.items():
            host, listed = self.hosts[name], list(some)
            inside(host.netns, lambda h=host, p=listed: _configure_ports(h, p, tcp))

    def popen(self, node: str, argv: Sequence[str], **arguments: Any) -> subprocess.Popen[Any]:
        """Starts a command inside a node, as root; its arguments are those of subprocess.Popen."""
        environment = {**(arguments.pop("env", None) or os.environ), **self.lock.environment()}
        command = ["mnexec", "-a", str(self.nodes[node].pid), *argv]
        return subprocess.Popen(command, env=environment, **arguments)

    def trouble(self) -> str | None:
        """One line if something under the run has died (Open vSwitch, a node), else None."""
        if not self.ovs.alive():
            return f"Open vSwitch in {self.ovs.directory} died: the management network is gone"
        dead = [node.name for node in self.nodes.values() if not node.alive]
        return f"the namespace of {', '.join(dead)} lost its shell" if dead else None

    def stop(self) -> None:
        """Takes everything down again, also after half a start. Idempotent; never raises."""
        if self._stopped:
            return
        self._stopped = True
        while self._spare:
            os.close(self._spare.pop())
        nodes = list(self.nodes.values())
        kill_marked(self.lock.run_id, keep={node.pid for node in nodes})
        for node in nodes:
            with contextlib.suppress(OSError, RuntimeError):
                inside(node.netns, lambda: write_sysctls(_FORGET))
            os.close(node.netns)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(node.pid, signal.SIGKILL)
        for node in nodes:
            with contextlib.suppress(ProcessLookupError, OSError):
                node.mininet.terminate()
            for map_ in (node.mininet.inToNode, node.mininet.outToNode):
                for key in [k for k, v in map_.items() if v is node.mininet]:
                    del map_[key]
        # The kernel takes dying namespaces down together, and with them their veths' far ends:
        # far faster than one deletion after another, which is for what is left after a while.
        deadline = time.monotonic() + 1
        while self._ports() and time.monotonic() < deadline:
            time.sleep(0.01)
        delete_interfaces(self._ports())
        self._delete_bridge()
        # An Open vSwitch that was killed leaves the bridge's device.
        delete_interfaces(own_interfaces(self.lock.prefix))

    def _delete_bridge(self) -> None:
        """Where Open vSwitch does not answer, the run's journal stays for the next clean."""
        # A daemon that is stopped is found at once; the time is for a machine that is busy.
        silent = self.ovs.silent(timeout=5)
        if silent is not None and not self.ovs.alive() and self.ovs.own:
            return  # it has died, and its database with it
        try:
            if silent == "ovsdb-server":
                raise openvswitch.OpenVSwitchError("ovsdb-server does not answer")
            # Gone from the database it is gone for good: an ovs-vswitchd that is busy or hangs
            # finds that when it goes on.
            self.ovs.vsctl("--no-wait", "--if-exists", "del-br", self._bridge, timeout=5)
        except openvswitch.OpenVSwitchError as error:
            self.lock.keep()
            print(
                f"loomnet: the bridge {self._bridge} is left in Open vSwitch ({error}); "
                "`loomnet clean` removes it later",
                file=sys.stderr,
            )
            return
        deadline = time.monotonic() + (1 if silent is None else 0)
        while self._bridge in own_interfaces(self.lock.prefix) and time.monotonic() < deadline:
            time.sleep(0.01)

    def _ports(self) -> list[str]:
        return [name for name in own_interfaces(self.lock.prefix) if name != self._bridge]

    def __enter__(self) -> LiveFabric:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _mininet_node(name: str, mark: Mapping[str, str]) -> Any:
    try:
        from mininet.node import Node
    except ImportError as error:
        raise RuntimeError(
            f"Mininet's Python library is missing ({error}): {install_line('live')}"
        ) from None

    class MarkedNode(Node):
        """A node whose shell, and so all that runs in it, carries the run's mark."""

        # Upstream declares both as None, which they are until the shell starts.
        shell: subprocess.Popen[bytes]
        stdout: IO[bytes]

        def _popen(self, cmd: list[str], **params: Any) -> subprocess.Popen[Any]:
            return subprocess.Popen(cmd, env={**os.environ, **mark}, **params)

        def read(self, size: int = 1024) -> str:
            # Upstream waits for ever for the prompt of a shell that the kernel did not let start.
            while not self.readbuf and not select.select([self.stdout], [], [], 0.2)[0]:
                if self.shell.poll() is not None:
                    raise RuntimeError(
                        f"the shell of {name} ended with {self.shell.returncode}: "
                        f"{' '.join(self.said.split())}"
                    )
            data: str = super().read(size)
            self.said = (self.said + data)[-200:]
            return data

        said = ""  # the last of what its shell wrote
        # Upstream looks for its tools by a program that Ctrl-C ends, prints a screen of PATH and
        # ends the process. A tool that is missing is found when it is run, and named by doctor.
        isSetup = True

    return MarkedNode(name)


def _configure_base(host: LiveHost) -> None:
    write_sysctls(
        {
            "net/ipv6/conf/all/disable_ipv6": 0,
            "net/ipv6/conf/default/accept_dad": 0,
            "net/ipv6/conf/default/router_solicitations": 0,
            "net/ipv6/conf/default/addr_gen_mode": 1,  # No link-local address: no unasked packets.
            "net/ipv6/conf/all/ignore_routes_with_linkdown": 1,
            "net/ipv6/conf/default/ignore_routes_with_linkdown": 1,
            "net/ipv6/fib_multipath_hash_policy": 1,  # Five tuples: each flow its own path.
        }
    )
    ip_batch(
        [
            "link set lo up",
            f"addr add {host.address}/128 dev lo nodad",
            # A veth onto itself stands in for a dummy device, which not every kernel has.
            f"link add {HOST_INTERFACE} type veth peer name {HOST_INTERFACE}x",
            f"link set {HOST_INTERFACE} up",
            f"link set {HOST_INTERFACE}x up",
            f"addr add {host.address}/128 dev {HOST_INTERFACE} nodad",
        ]
    )
    _join_management(host)


def _join_management(node: LiveHost | LivePanel) -> None:
    ip_batch(
        [
            f"addr add {node.management}/{_MANAGEMENT.prefixlen} dev {MANAGEMENT_INTERFACE}",
            f"link set {MANAGEMENT_INTERFACE} up",
        ]
    )
    offloads_off(MANAGEMENT_INTERFACE)


def _configure_ports(host: LiveHost, ports: Sequence[HostPort], tcp: KernelTcp | None) -> None:
    if not ports:
        return
    if tcp is not None:
        write_sysctls(tcp.sysctls)
    for port in ports:
        # An interface that was here before the defaults above keeps its own values.
        conf = f"net/ipv6/conf/{port.interface}"
        write_sysctls(
            {
                f"{conf}/accept_dad": 0,
                f"{conf}/router_solicitations": 0,
                f"{conf}/addr_gen_mode": 1,
                f"{conf}/ignore_routes_with_linkdown": 1,
            }
        )
        if not port.direct:
            offloads_off(port.interface)
    mtu = "" if tcp is None else f"mtu {tcp.mtu}"
    hops = " ".join(f"nexthop via {GATEWAY} dev {p.interface} weight 1" for p in ports if p.routed)
    nowhere = [
        f"neigh replace {GATEWAY} lladdr {ports[0].gateway_mac} dev {HOST_INTERFACE} nud permanent"
    ]
    ip_batch(
        [
            *([] if hops else nowhere),
            *(f"link set {p.interface} address {p.mac}" for p in ports if p.mac),
            *(f"link set {p.interface} up" for p in ports),
            *(
                f"neigh replace {GATEWAY} lladdr {p.gateway_mac} dev {p.interface} nud permanent"
                for p in ports
            ),
            f"route replace {HOST_PREFIX} src {host.address} {mtu} {hops}" if hops else _NOWHERE,
        ]
    )
