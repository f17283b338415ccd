"""Sends and receives a host's flows over its kernel's TCP, and reads TCP_INFO while it does.

Run by path inside the host's namespace, ``python -I -S flow_agent.py FD``, with the standard
library alone. FD is a stream socket to the run; orders and reports are JSON, one object per line.
Times are CLOCK_MONOTONIC nanoseconds.
"""

import contextlib
import errno
import fcntl
import json
import os
import selectors
import socket
import struct
import sys
import termios
import time

_PRIORITY = -10  # it needs little of a core, but at once
_CHUNK = bytes(1 << 16)
_DISCARD = bytearray(1 << 18)
# Bytes that wake a receiver. A receiver that reads at every segment often holds the socket's lock
# when the next comes; if it is preempted there, ACKs wait and then leave in a burst.
_RECEIVE_AT_LEAST = 1 << 18
_LOOK_NS = 1_000_000  # between two looks at whether a flow's last byte is acknowledged
# struct tcp_info of linux/tcp.h, from its ninth byte: 24 words of 32 bits, then what follows.
_INFO = struct.Struct("=8x24I4Q6I")


def sender_state(connection: socket.socket) -> tuple[int, int, int, int, int]:
    """Bytes acknowledged, window in bytes, srtt and least RTT in microseconds, retransmissions."""
    raw = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO.size)
    f = _INFO.unpack(raw.ljust(_INFO.size, b"\0"))
    snd_mss, rtt, snd_cwnd, total_retrans = f[2], f[15], f[18], f[23]
    bytes_acked, min_rtt = f[26], f[31]
    return bytes_acked, snd_cwnd * snd_mss, rtt, min_rtt, total_retrans


class Flow:
    """Bytes to send over a connection from `at_ns` on."""

    def __init__(self, number: int, connection: int, size: int, at_ns: int) -> None:
        self.number, self.connection, self.left, self.at_ns = number, connection, size, at_ns
        self.acked_before = 0


class Agent:
    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.selector = selectors.DefaultSelector()
        self.selector.register(control, selectors.EVENT_READ, self.on_order)
        self.rest = b""
        self.connections: dict[int, socket.socket] = {}
        self.waiting: list[Flow] = []  # for their time
        self.sending: dict[int, Flow] = {}  # by connection: bytes are left to write
        self.draining: list[Flow] = []  # written, not all acknowledged
        self.every_ns = self.sample_ns = 0
        self.running = True

    def tell(self, **message) -> None:
        self.control.sendall(json.dumps(message).encode() + b"\n")

    # --- orders -----------------------------------------------------------------------------------
    def on_order(self, _) -> None:
        data = self.control.recv(1 << 16)
        if not data:
            self.running = False
            return
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            order = json.loads(line)
            getattr(self, f"on_{order.pop('order')}")(**order)

    def on_listen(self, port: int) -> None:
        listener = socket.create_server(("::", port), family=socket.AF_INET6, backlog=512)
        listener.setblocking(False)
        self.selector.register(listener, selectors.EVENT_READ, self.on_arrival)
        self.tell(listening=port)

    def on_connect(self, number: int, address: str, port: int, cc: str) -> None:
        connection = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, cc.encode())
        connection.setblocking(False)
        self.connections[number] = connection
        if (code := connection.connect_ex((address, port))) not in (0, errno.EINPROGRESS):
            raise OSError(code, f"connect to {address} port {port}")
        self.selector.register(
            connection, selectors.EVENT_WRITE, lambda c: self.on_connected(number, c)
        )

    def on_connected(self, number: int, connection: socket.socket) -> None:
        self.selector.unregister(connection)
        code = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, f"connection {number} is not established")
        self.tell(connected=number)

    def on_send(self, flow: int, connection: int, size: int, at_ns: int) -> None:
        self.waiting.append(Flow(flow, connection, size, at_ns))
        self.waiting.sort(key=lambda each: each.at_ns)

    def on_sample(self, every_ns: int, first_ns: int) -> None:
        self.every_ns, self.sample_ns = every_ns, first_ns

    # --- sockets ----------------------------------------------------------------------------------
    def on_arrival(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        connection.setblocking(False)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, _RECEIVE_AT_LEAST)
        self.selector.register(connection, selectors.EVENT_READ, self.on_bytes)

    def on_bytes(self, connection: socket.socket) -> None:
        # MSG_TRUNC: the kernel drops the bytes instead of copying them.
        with contextlib.suppress(BlockingIOError):
            if connection.recv_into(_DISCARD, 0, socket.MSG_TRUNC) == 0:
                self.selector.unregister(connection)
                connection.close()

    def on_room(self, connection: socket.socket) -> None:
        number = next(n for n, c in self.connections.items() if c is connection)
        flow = self.sending[number]
        with contextlib.suppress(BlockingIOError):
            while flow.left > 0:
                flow.left -= connection.send(memoryview(_CHUNK)[: flow.left])
        if flow.left == 0:
            self.selector.unregister(connection)
            del self.sending[number]
            self.draining.append(flow)

    # --- time -------------------------------------------------------------------------------------
    def begin_due(self, now: int) -> None:
        while self.waiting and self.waiting[0].at_ns <= now:
            flow = self.waiting.pop(0)
            connection = self.connections[flow.connection]
            flow.acked_before = sender_state(connection)[0]
            self.sending[flow.connection] = flow
            self.selector.register(connection, selectors.EVENT_WRITE, self.on_room)

    def end_drained(self) -> None:
        for flow in list(self.draining):
            connection = self.connections[flow.connection]
            unacked = struct.unpack("i", fcntl.ioctl(connection, termios.TIOCOUTQ, b"\0" * 4))[0]
            if unacked == 0:
                self.draining.remove(flow)
                self.tell(
                    done=flow.number, at_ns=time.monotonic_ns(), retransmitted=self.retransmitted()
                )

    def sample(self, now: int) -> None:
        rows = []
        for flow in (*self.sending.values(), *self.draining):
            acked, *state, _ = sender_state(self.connections[flow.connection])
            rows.append([flow.number, time.monotonic_ns(), acked - flow.acked_before, *state])
        self.tell(sampled=rows, retransmitted=self.retransmitted(), late_ns=now - self.sample_ns)
        self.sample_ns += (1 + (now - self.sample_ns) // self.every_ns) * self.every_ns

    def retransmitted(self) -> int:
        return sum(sender_state(each)[4] for each in self.connections.values())

    def run(self) -> None:
        while self.running:
            now = time.monotonic_ns()
            due = [self.waiting[0].at_ns] if self.waiting else []
            due += [self.sample_ns] if self.every_ns else []
            due += [now + _LOOK_NS] if self.draining else []
            wait = max(min(due) - now, 0) / 1e9 if due else None
            for key, _ in self.selector.select(wait):
                key.data(key.fileobj)
            now = time.monotonic_ns()
            self.begin_due(now)
            self.end_drained()
            if self.every_ns and now >= self.sample_ns:
                self.sample(now)


def main() -> int:
    # A process that is preempted inside a call on a socket holds its lock, and the kernel
    # acknowledges nothing until it runs again: BBR would take that for ACK aggregation of the path.
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, _PRIORITY)
    control = socket.socket(fileno=int(sys.argv[1]))
    agent = Agent(control)
    try:
        agent.run()
    except OSError as error:
        with contextlib.suppress(OSError):
            agent.tell(failed=f"{error.strerror or error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
