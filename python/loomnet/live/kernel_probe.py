"""Tries each kernel feature a live run needs, in a network namespace that ends with this process.

Run by path, ``python -I -S kernel_probe.py``; prints one JSON object, feature to null (it works) or
the reason it does not. Nothing is asked of version numbers: a feature is there if it works. The
namespace is unnamed, BPF objects hang on descriptors: whatever happens, nothing is left behind.
"""

import ctypes
import errno
import json
import mmap
import os
import platform
import socket
import struct
import subprocess
import sys

_CLONE_NEWNET = 0x40000000
_SYS_BPF = {"x86_64": 321, "aarch64": 280, "riscv64": 280}.get(platform.machine(), 280)
# bpf(2) commands and types, linux/bpf.h
_MAP_CREATE, _PROG_LOAD, _LINK_CREATE = 0, 5, 28
_MAP_TYPE_DEVMAP, _MAP_TYPE_XSKMAP, _PROG_TYPE_XDP, _ATTACH_XDP = 14, 17, 6, 37
_XDP_FLAGS_DRV_MODE = 1 << 2
# AF_XDP, linux/if_xdp.h
_AF_XDP, _SOL_XDP, _XDP_COPY = 44, 283, 1 << 1
_RX_RING, _UMEM_REG, _FILL_RING, _COMPLETION_RING = 2, 4, 5, 6
_FRAME = 4096
_UMEM_FRAMES = 16 * 1024  # as large as a live run's largest

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def _bpf(command: int, attributes: bytes, what: str) -> int:
    buffer = ctypes.create_string_buffer(attributes.ljust(128, b"\0"), 128)
    return _checked(_libc.syscall(_SYS_BPF, command, buffer, 128), what)


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, timeout=5)
    if done.returncode != 0:
        raise OSError(0, f"ip {' '.join(arguments)}: {' '.join(done.stderr.split())}")


def _namespace() -> None:
    _checked(_libc.unshare(_CLONE_NEWNET), "unshare(CLONE_NEWNET)")


def _veth() -> None:
    _ip("link", "add", "v0", "type", "veth", "peer", "name", "v1")
    _ip("link", "set", "v0", "up")
    _ip("link", "set", "v1", "up")


def _xdp_program() -> int:
    # r0 = XDP_PASS; exit
    code = struct.pack("<BBhi", 0xB7, 0, 0, 2) + struct.pack("<BBhi", 0x95, 0, 0, 0)
    text = ctypes.create_string_buffer(code, len(code))
    licence = ctypes.create_string_buffer(b"Dual BSD/GPL")
    attributes = struct.pack(
        "<IIQQ", _PROG_TYPE_XDP, 2, ctypes.addressof(text), ctypes.addressof(licence)
    )
    return _bpf(_PROG_LOAD, attributes, "bpf(BPF_PROG_LOAD, XDP)")


def _bpf_maps() -> None:
    for kind in (_MAP_TYPE_DEVMAP, _MAP_TYPE_XSKMAP):
        os.close(_bpf(_MAP_CREATE, struct.pack("<IIIII", kind, 4, 4, 8, 0), "bpf(BPF_MAP_CREATE)"))


def _xdp_native() -> None:
    program = _xdp_program()
    index = socket.if_nametoindex("v0")
    attributes = struct.pack("<IIII", program, index, _ATTACH_XDP, _XDP_FLAGS_DRV_MODE)
    os.close(_bpf(_LINK_CREATE, attributes, "native XDP on veth: bpf(BPF_LINK_CREATE)"))
    os.close(program)


def _af_xdp(frames: int, bind: bool) -> None:
    # Python's socket module knows no AF_XDP address, so bind goes through libc.
    with socket.socket(_AF_XDP, socket.SOCK_RAW, 0) as xsk, mmap.mmap(-1, frames * _FRAME) as umem:
        view = ctypes.c_char.from_buffer(umem)
        address = ctypes.addressof(view)
        del view
        region = struct.pack("<QQII", address, frames * _FRAME, _FRAME, 0)
        xsk.setsockopt(_SOL_XDP, _UMEM_REG, region)
        for ring in (_FILL_RING, _COMPLETION_RING, _RX_RING) if bind else ():
            xsk.setsockopt(_SOL_XDP, ring, 64)
        if bind:
            name = struct.pack("<HHIII", _AF_XDP, _XDP_COPY, socket.if_nametoindex("v1"), 0, 0)
            buffer = ctypes.create_string_buffer(name, len(name))
            result = _libc.bind(xsk.fileno(), buffer, len(name))
            _checked(result, "bind an AF_XDP socket to a veth")


def _next_csid() -> None:
    words = "-6 route add fc00:1:2001::/48 encap seg6local action End flavors next-csid lblen 32"
    _ip(*words.split(), *"nflen 16 dev v0".split())


def _multipath() -> None:
    _ip("addr", "add", "fd00::1/128", "dev", "lo")
    words = "-6 route add fd00::/64 nexthop via fe80::1 dev v0 nexthop via fe80::2 dev v1"
    _ip(*words.split())
    for name, value in (
        ("fib_multipath_hash_policy", "1"),
        ("conf/all/ignore_routes_with_linkdown", "1"),
        ("conf/v0/accept_dad", "0"),
    ):
        try:
            with open(f"/proc/sys/net/ipv6/{name}", "w") as file:
                file.write(value)
        except OSError as error:
            raise OSError(0, f"sysctl net/ipv6/{name}: {error.strerror}") from None


def _fifo() -> None:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def main() -> int:
    tries = (
        ("netns", _namespace, ()),
        ("veth", _veth, ("netns",)),
        ("bpf", lambda: os.close(_xdp_program()), ()),
        ("bpf_maps", _bpf_maps, ("bpf",)),
        ("xdp_native", _xdp_native, ("veth", "bpf")),
        ("af_xdp", lambda: _af_xdp(64, True), ("veth",)),
        ("memlock", lambda: _af_xdp(_UMEM_FRAMES, False), ("af_xdp",)),
        ("multipath", _multipath, ("veth",)),
        ("next_csid", _next_csid, ("veth",)),
        ("sched_fifo", _fifo, ()),
    )
    result: dict[str, str | None] = {}
    for name, attempt, needs in tries:
        if name in result:
            continue
        missing = [need for need in needs if result[need] is not None]
        if missing:
            result[name] = f"not tried: {missing[0]} does not work"
            continue
        try:
            attempt()
            result[name] = None
        except (OSError, subprocess.SubprocessError) as error:
            result[name] = getattr(error, "strerror", None) or str(error)
            if name == "af_xdp" and getattr(error, "errno", None) == errno.ENOBUFS:
                # Not the feature is missing but memory that may be locked for it.
                result["memlock"] = result[name]
                result[name] = "not tried: no memory may be locked"
    json.dump(result, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
