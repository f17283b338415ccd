"""Hosts, management network and data ports, on the real kernel: what a live run stands on."""

import json
import os
import socket
import sys
import threading
import time

import pytest
from glue import left_of, needs_kernel, run_in, script

from loomnet.live import kernel_objects, openvswitch
from loomnet.live.namespaces import inside, ip_batch
from loomnet.live.nodes import GATEWAY, HostPort, HostSpec, LiveFabric
from loomnet.processes.ranks import RankGroup, RankSpec

pytestmark = needs_kernel

# --- hosts ------------------------------------------------------------------------------------


def test_every_node_has_a_namespace_of_its_own_and_stop_leaves_nothing(lock):
    own = os.stat("/proc/self/ns/net").st_ino
    with LiveFabric(lock, [HostSpec(f"h{i}", i) for i in range(4)], ["p0.leaf0", "p0.spine0"]) as f:
        inodes = {os.fstat(node.netns).st_ino for node in f.nodes.values()}
        assert len(inodes) == 6 and own not in inodes
        assert f.trouble() is None
        names = kernel_objects.own_interfaces(lock.prefix)
        assert len(names) >= 5 and all(len(name) <= 15 for name in names)
        assert f.hosts["h3"].address == "fd00::3"
    assert left_of(lock.run_id) == []
    f.stop()  # Again is harmless.


def test_management_network_carries_ping_and_tcp(pair):
    run_in(pair, "h0", f"ping -c 1 -W 3 {pair.hosts['h1'].management}")
    address = (pair.hosts["h1"].management, 29500)
    listener = inside(pair.hosts["h1"].netns, lambda: socket.create_server(address))
    client = inside(pair.hosts["h0"].netns, lambda: socket.create_connection(address, 5))
    with listener, client, listener.accept()[0] as server:
        # More than one segment: a checksum left to a card that is not there would show.
        def send() -> None:
            client.sendall(bytes(range(256)) * 4096)
            client.shutdown(socket.SHUT_WR)

        server.settimeout(10)
        sender = threading.Thread(target=send)
        sender.start()
        received = b"".join(iter(lambda: server.recv(65536), b""))
        sender.join()
    assert received == bytes(range(256)) * 4096


def test_half_a_start_leaves_nothing(lock, monkeypatch):
    def refuse(self, *arguments, **keywords):
        raise openvswitch.OpenVSwitchError("refused for this test")

    monkeypatch.setattr(openvswitch.OpenVSwitch, "vsctl", refuse)
    with pytest.raises(openvswitch.OpenVSwitchError, match="refused for this test"):
        LiveFabric(lock, [HostSpec("h0", 0)], ["s0"])
    monkeypatch.undo()
    assert left_of(lock.run_id) == []


@pytest.mark.parametrize(
    ("hosts", "switches", "message"),
    [
        ([HostSpec("h0", 0), HostSpec("h0", 1)], [], "names must be unique"),
        ([HostSpec("h0", 0)], ["h0"], "names must be unique"),
        ([HostSpec("h0", 7), HostSpec("h1", 7)], [], "numbers must be unique"),
    ],
)
def test_nodes_that_collide_are_refused_before_anything_starts(lock, hosts, switches, message):
    with pytest.raises(ValueError, match=message):
        LiveFabric(lock, hosts, switches)
    assert left_of(lock.run_id) == []


# --- data ports ---------------------------------------------------------------------------------

MACS = {"h0": "02:00:00:00:00:10", "h1": "02:00:00:00:00:11"}


@pytest.fixture
def wired(pair):
    """h0 and h1 joined by two plain veths, as two planes without a switch."""
    h0, h1 = pair.hosts["h0"], pair.hosts["h1"]
    ip_batch(
        f"link add p{i} netns {h0.pid} type veth peer name p{i} netns {h1.pid}" for i in (0, 1)
    )
    pair.configure(
        {
            "h0": [HostPort(f"p{i}", MACS["h1"], MACS["h0"]) for i in (0, 1)],
            "h1": [HostPort(f"p{i}", MACS["h0"], MACS["h1"]) for i in (0, 1)],
        }
    )
    return pair


def sent(fabric: LiveFabric, host: str, interface: str) -> int:
    """Bytes that left through an interface of a host."""
    output = run_in(fabric, host, f"ip -s -j link show dev {interface}")
    return json.loads(output)[0]["stats64"]["tx"]["bytes"]


def test_flows_spread_over_ports_and_leave_a_port_that_lost_carrier(wired):
    h0, h1 = wired.hosts["h0"], wired.hosts["h1"]

    def exchange(flows: int) -> tuple[int, int]:
        before = [sent(wired, "h0", p) for p in ("p0", "p1")]
        listener = inside(
            h1.netns,
            lambda: socket.create_server((h1.address, 5001), family=socket.AF_INET6, backlog=flows),
        )
        with listener:
            for _ in range(flows):
                client = inside(
                    h0.netns, lambda: socket.create_connection((h1.address, 5001), timeout=5)
                )
                with client, listener.accept()[0] as server:
                    server.settimeout(5)
                    client.sendall(b"x" * 1000)
                    assert server.recv(1000, socket.MSG_WAITALL) == b"x" * 1000
                    assert server.getpeername()[0] in ("fd00::", "fd00::0")
        after = [sent(wired, "h0", p) for p in ("p0", "p1")]
        return after[0] - before[0], after[1] - before[1]

    p0, p1 = exchange(32)
    assert p0 > 4000 and p1 > 4000, (p0, p1)  # 32 flows on one port by chance: 2^-31
    run_in(wired, "h1", "ip link set p0 down")  # h0's p0 loses its carrier, not its routes.
    p0, p1 = exchange(8)
    assert p0 == 0 and p1 > 8000
    run_in(wired, "h1", "ip link set p0 up")


def test_idle_ports_are_silent_and_neighbours_permanent(wired):
    before = [sent(wired, h, p) for h in ("h0", "h1") for p in ("p0", "p1")]
    time.sleep(0.5)
    assert [sent(wired, h, p) for h in ("h0", "h1") for p in ("p0", "p1")] == before
    neighbours = json.loads(run_in(wired, "h0", "ip -j -6 neigh show dev p0"))
    assert [(n["dst"], n["lladdr"], n["state"]) for n in neighbours] == [
        (GATEWAY, MACS["h1"], ["PERMANENT"])
    ]


def test_stock_gloo_rendezvous_on_management_and_moves_its_bytes_on_the_planes(wired, directory):
    pytest.importorskip("torch")
    path = script(
        directory,
        """
        import torch, torch.distributed as dist
        dist.init_process_group("gloo")
        values = torch.arange(1 << 20, dtype=torch.int32) + dist.get_rank()
        dist.all_reduce(values)
        expected = 2 * torch.arange(1 << 20, dtype=torch.int32) + 1
        assert torch.equal(values, expected)
        dist.destroy_process_group()
        """,
    )
    specs = [
        RankSpec(r, f"h{r}", [sys.executable, path], {"GLOO_SOCKET_IFNAME": "host0"})
        for r in range(2)
    ]
    group = RankGroup(wired, specs, directory / "ranks")
    try:
        assert group.wait(60), group.first_failure and group.first_failure.error()
    finally:
        group.stop()
    assert sent(wired, "h0", "p0") + sent(wired, "h0", "p1") > 4 << 20
    assert sent(wired, "h0", "mgmt") < 1 << 20
