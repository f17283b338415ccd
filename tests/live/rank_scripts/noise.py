"""Sends frames of random bytes out of this namespace's interfaces: COUNT SEED INTERFACE…. A third
are wholly random, a third say IPv6 to a host's transport, a third IPv6 with random uSIDs."""

import random
import socket
import struct
import sys
import time

count, seed, interfaces = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
dice = random.Random(seed)


def ipv6(destination: bytes, body: bytes) -> bytes:
    ports = struct.pack(
        ">HHHH",
        dice.getrandbits(16),
        dice.choice((4791, 4793, 53)),
        len(body) + 8,
        dice.getrandbits(16),
    )
    body = ports + body
    header = struct.pack(">IHBB", 6 << 28 | dice.getrandbits(20), len(body), 17, 64)
    source = bytes([0xFD, 0, *([0] * 13), dice.randrange(2)])
    return header + source + destination + body


def frame() -> bytes:
    body = dice.randbytes(dice.randrange(14, 1400))
    kind = dice.randrange(3)
    if kind == 0:
        return body
    ethernet = dice.randbytes(12) + b"\x86\xdd"
    if kind == 1:
        host = bytes([0xFD, 0, *([0] * 13), dice.randrange(3)])
        return ethernet + ipv6(host, body)
    plane = dice.randrange(3)
    return ethernet + ipv6(b"\xfc\0" + plane.to_bytes(2, "big") + dice.randbytes(12), body)


sockets = []
for name in interfaces:
    raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    raw.bind((name, 0))
    sockets.append(raw)
sent = 0
for _ in range(count):
    for raw in sockets:
        try:
            sent += raw.send(frame()) > 0
        except OSError:
            pass  # the interface has no room, or no carrier
    time.sleep(0.002)
print(sent)
