"""Flows for tests of the kernel's TCP, run by path inside a host's namespace with the standard
library alone.

``steered_traffic.py receive PORT`` reads all connections until it is ended. ``steered_traffic.py
send ADDRESS PORT CONTROL FLOWS SECONDS`` keeps as many connections busy, then prints a JSON list of
bytes acknowledged per connection.
"""

import json
import selectors
import socket
import struct
import sys
import time

_ACKED = struct.Struct("=120xQ")  # tcpi_bytes_acked of struct tcp_info, linux/tcp.h
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33  # asm-generic/socket.h
_BUFFER = 8 << 20  # bytes: no window of a receiver's, nor a sender that waits, bounds a flow
_CHUNK = bytes(1 << 16)
_SCRAP = bytearray(1 << 18)


def receive(port: int) -> None:
    listener = socket.create_server(("::", port), family=socket.AF_INET6, backlog=512)
    listener.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER)
    with selectors.DefaultSelector() as ready:
        ready.register(listener, selectors.EVENT_READ)
        print("listening", flush=True)
        while True:
            for key, _ in ready.select():
                if key.fileobj is listener:
                    connection, _ = listener.accept()
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1 << 16)
                    ready.register(connection, selectors.EVENT_READ)
                elif ended(key.fileobj):
                    ready.unregister(key.fileobj)
                    key.fileobj.close()


def ended(connection: socket.socket) -> bool:
    try:
        return connection.recv_into(_SCRAP, 0, socket.MSG_TRUNC) == 0
    except ConnectionResetError:
        return True


def send(address: str, port: int, control: str, flows: int, seconds: float) -> None:
    connections = []
    with selectors.DefaultSelector() as ready:
        for _ in range(flows):
            connection = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
            connection.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, _BUFFER)
            connection.connect((address, port))
            connection.setblocking(False)
            ready.register(connection, selectors.EVENT_WRITE)
            connections.append(connection)
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            for key, _ in ready.select(left):
                try:
                    key.fileobj.send(_CHUNK)
                except BlockingIOError:
                    continue
    acked = [_ACKED.unpack(c.getsockopt(6, socket.TCP_INFO, _ACKED.size))[0] for c in connections]
    for connection in connections:  # they end at once, without what still waits to be sent
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
    print(json.dumps(acked), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "receive":
        receive(int(sys.argv[2]))
    else:
        send(sys.argv[2], int(sys.argv[3]), sys.argv[4], int(sys.argv[5]), float(sys.argv[6]))
