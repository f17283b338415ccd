"""Work inside another network namespace: enter it in a thread, batch ``ip``, set sysctls.

A namespace belongs to a thread, not to a process, so nothing here moves the caller's own thread.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

CLONE_NEWNET = 0x40000000
_SIOCETHTOOL = 0x8946
# linux/ethtool.h: the one-value commands, understood by every driver that has the feature.
_ETHTOOL_OFF = {"tx": 0x17, "tso": 0x1F, "gso": 0x24}

_libc = ctypes.CDLL(None, use_errno=True)


def setns(fd: int, kind: int = CLONE_NEWNET) -> None:
    """Moves the calling thread into the namespace behind `fd` (setns(2)).

    Raises:
        OSError: not a namespace of this kind, or no CAP_SYS_ADMIN over it.
    """
    if _libc.setns(fd, kind) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"setns: {os.strerror(code)}")


def inside(namespace: int, work: Callable[[], T]) -> T:
    """Runs `work` in a thread of its own inside the network namespace behind the fd `namespace`.

    Children that `work` starts are in the namespace too, and so is ``/proc/sys/net``. Returns what
    `work` returns; raises what it raises.
    """
    result: list[T] = []
    error: list[BaseException] = []

    def body() -> None:
        try:
            setns(namespace)
            result.append(work())
        except BaseException as caught:  # Handed over, whatever it is.
            error.append(caught)

    thread = threading.Thread(target=body, name="loomnet-netns")
    thread.start()
    thread.join()
    if error:
        raise error[0]
    return result[0]


def ip_batch(lines: Iterable[str]) -> None:
    """Hands `lines` to one ``ip -batch``; the first that fails raises RuntimeError naming it."""
    commands = list(lines)
    if not commands:
        return
    done = subprocess.run(
        ["ip", "-batch", "-"], input="\n".join(commands) + "\n", capture_output=True, text=True
    )
    if done.returncode != 0:
        raise RuntimeError(f"ip -batch: {_failed_line(done.stderr, commands)}")


def _failed_line(stderr: str, commands: list[str]) -> str:
    text = " ".join(stderr.split())
    _, marker, number = text.rpartition("Command failed -:")
    if marker and number.split()[0].isdigit():
        return f"{text} ({commands[int(number.split()[0]) - 1]!r})"
    return text


def offloads_off(interface: str) -> None:
    """Transmit checksum, TSO and GSO off: behind XDP or a userspace switch nothing completes them.

    Raises:
        OSError: there is no such interface in the caller's namespace, or no CAP_NET_ADMIN.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for command in _ETHTOOL_OFF.values():
            value = ctypes.create_string_buffer(struct.pack("II", command, 0), 8)
            request = struct.pack("16sP", interface.encode(), ctypes.addressof(value))
            try:
                fcntl.ioctl(control, _SIOCETHTOOL, request.ljust(40, b"\0"))
            except OSError as error:
                # A veth whose peer runs XDP has lost the feature itself: off, and not to be set.
                if error.errno != errno.EOPNOTSUPP:
                    raise


def write_sysctls(values: Mapping[str, object]) -> None:
    """Writes sysctls (names with slashes, ``net/ipv6/…``) of the caller's namespace.

    Raises:
        OSError: naming the sysctl that this kernel lacks or refuses.
    """
    for name, value in values.items():
        Path("/proc/sys", name).write_text(f"{value}\n")
