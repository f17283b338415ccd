"""Frames of a capture file (pcapng, little-endian)."""

import struct

_PACKET = 6  # enhanced packet block


def frames(path):
    data, at = path.read_bytes(), 0
    while at < len(data):
        kind, length = struct.unpack_from("<II", data, at)
        if kind == _PACKET:
            (captured,) = struct.unpack_from("<I", data, at + 20)
            yield data[at + 28 : at + 28 + captured]
        at += length
