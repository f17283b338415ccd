"""The slots of aggregation switches in the kernel, read and changed by the bpf() system call as
somebody with root could."""

import ctypes
import os
import struct
from contextlib import suppress

SYS_BPF = 321  # of x86-64
LOOKUP, UPDATE, NEXT_MAP, MAP_OF_ID, INFO = 1, 2, 12, 14, 15
WITH_LOCK = 4  # BPF_F_LOCK: the slot's spin lock is taken
# Of struct aggregate_slot in ebpf/aggregate_abi.h.
SLOT_BYTES, FLAGS_AT, SUM_AT, STATE_AT = 1088, 6, 64, 4
_libc = ctypes.CDLL(None, use_errno=True)


def _bpf(command, *fields):
    attr = ctypes.create_string_buffer(
        struct.pack("=" + "".join(f for f, _ in fields), *(v for _, v in fields)), 128
    )
    found = _libc.syscall(SYS_BPF, command, attr, 128)
    if found < 0:
        raise OSError(ctypes.get_errno(), f"bpf({command})")
    return found, attr.raw


def _maps(after=0):
    """Numbers of the kernel's maps above this one."""
    while True:
        try:
            _, raw = _bpf(NEXT_MAP, ("I", after))
        except OSError:
            return
        (after,) = struct.unpack_from("=I", raw, 4)
        yield after


class SlotMaps:
    """Maps of slots that were made after a number."""

    def __init__(self, fds):
        self.fds = fds

    @staticmethod
    def newest():
        return max(_maps(), default=0)

    @classmethod
    def newer_than(cls, number):
        """None: there is none yet."""
        found = []
        for each in _maps(number):
            with suppress(OSError):
                fd, _ = _bpf(MAP_OF_ID, ("I", each))
                info = ctypes.create_string_buffer(128)
                _bpf(INFO, ("I", fd), ("I", 128), ("Q", ctypes.addressof(info)))
                _, _, _, value_bytes, entries = struct.unpack_from("=IIIII", info.raw)
                if value_bytes == SLOT_BYTES:
                    found.append((fd, entries))
                else:
                    os.close(fd)
        return cls(found) if found else None

    def add_to_sums(self, what):
        """Adds to the first value of every slot that is being summed; how many there were."""
        changed = 0
        value = ctypes.create_string_buffer(SLOT_BYTES)
        for fd, entries in self.fds:
            for index in range(entries):
                key = ctypes.c_uint32(index)
                place = (
                    ("I", fd),
                    ("I", 0),
                    ("Q", ctypes.addressof(key)),
                    ("Q", ctypes.addressof(value)),
                    ("Q", WITH_LOCK),
                )
                with suppress(OSError):
                    _bpf(LOOKUP, *place)
                    if value.raw[STATE_AT] != 1 or value.raw[FLAGS_AT] & 0x20:
                        continue
                    (first,) = struct.unpack_from("=i", value, SUM_AT)
                    struct.pack_into("=i", value, SUM_AT, first + what)
                    _bpf(UPDATE, *place)
                    changed += 1
        return changed
