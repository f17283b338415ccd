"""A slower machine: on each core an interrupt takes a part of the time, from programs of every
priority and from the kernel's threads alike, as a hypervisor does that gives a core to others.

    sudo python slower_machine.py SHARE [SECONDS [PERIOD]]

Before it says "slower", it has set the length of the interrupts so that a real-time program on each
core does not run for SHARE of the time, within 0.03. PERIOD (microseconds, 250):
an interrupt each. It needs BPF and perf events (CONFIG_BPF_EVENTS), whose timer it is.

A process of high priority would not do. Where real-time programs leave a core less than 5 % for
ordinary ones, the kernel stops them for 50 ms, this process and Loomnet's engine together.
"""

import ctypes
import fcntl
import os
import platform
import struct
import sys
import time

_SYSCALLS = {"x86_64": (321, 298), "aarch64": (280, 241)}  # bpf, perf_event_open
_BPF_PROG_LOAD, _BPF_PROG_TYPE_PERF_EVENT, _KTIME_GET_NS = 5, 7, 5
_PERF_TYPE_SOFTWARE, _PERF_COUNT_SW_CPU_CLOCK = 1, 0
_SET_BPF = 0x40042408  # PERF_EVENT_IOC_SET_BPF
_MOST_LOOKS = 8000  # at the clock in an interrupt: the verifier follows each

_libc = ctypes.CDLL(None, use_errno=True)


def _call(number: int, *arguments) -> int:
    result = _libc.syscall(number, *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _instruction(code: int, to: int = 0, of: int = 0, offset: int = 0, value: int = 0) -> bytes:
    return struct.pack("<BBhi", code, of << 4 | to, offset, value)


def _burner(ns: int) -> int:
    """The descriptor of a BPF program that looks at the clock until so much time has passed."""
    program = b"".join(
        (
            _instruction(0x85, value=_KTIME_GET_NS),
            _instruction(0xBF, to=6, of=0),  # r6 = begin
            _instruction(0xB7, to=7, value=0),  # r7 = looks
            _instruction(0x85, value=_KTIME_GET_NS),
            _instruction(0x1F, to=0, of=6),  # r0 -= r6
            _instruction(0x35, to=0, offset=2, value=ns),  # r0 >= ns: out
            _instruction(0x07, to=7, value=1),
            _instruction(0xA5, to=7, offset=-5, value=_MOST_LOOKS),  # r7 < most: look again
            _instruction(0xB7, to=0, value=0),
            _instruction(0x95),
        )
    )
    instructions = ctypes.create_string_buffer(program)
    licence = ctypes.create_string_buffer(b"GPL")
    attributes = struct.pack(
        "<IIQQ",
        _BPF_PROG_TYPE_PERF_EVENT,
        len(program) // 8,
        ctypes.addressof(instructions),
        ctypes.addressof(licence),
    )
    attributes = attributes.ljust(72, b"\0")
    bpf, _ = _SYSCALLS[platform.machine()]
    return _call(bpf, _BPF_PROG_LOAD, attributes, len(attributes))


class Slowed:
    """While it is entered, each core spends `ns` of each period in an interrupt."""

    def __init__(self, cores: set[int], ns: int, period_ns: int) -> None:
        self._cores, self._ns, self._period_ns = cores, ns, period_ns
        self._open: list[int] = []

    def __enter__(self) -> None:
        _, perf_event_open = _SYSCALLS[platform.machine()]
        self._open.append(program := _burner(self._ns))
        attributes = struct.pack(
            "<IIQQ", _PERF_TYPE_SOFTWARE, 112, _PERF_COUNT_SW_CPU_CLOCK, self._period_ns
        ).ljust(112, b"\0")
        for core in self._cores:
            event = _call(perf_event_open, attributes, -1, core, -1, 0)
            self._open.append(event)
            fcntl.ioctl(event, _SET_BPF, program)

    def __exit__(self, *_) -> None:
        while self._open:
            os.close(self._open.pop())


def taken(cores: set[int], seconds: float) -> float:
    """Of a real-time program on each of the cores, the part of the time in which it did not run."""
    ends = []
    for core in cores:
        end, child = os.pipe()
        ends.append(end)
        if os.fork() == 0:
            os.sched_setaffinity(0, {core})
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
            clock, stopped = time.perf_counter, 0.0
            last = begin = clock()
            while last < begin + seconds:
                now = clock()
                if now - last > 5e-6:
                    stopped += now - last
                last = now
            os.write(child, struct.pack("<d", stopped / (last - begin)))
            os._exit(0)
        os.close(child)
    parts = []
    for end in ends:
        parts.append(struct.unpack("<d", os.read(end, 8))[0])
        os.close(end)
        os.wait()
    return sum(parts) / len(parts)


def main(share: float, seconds: float = 600.0, period_us: float = 250.0) -> None:
    cores, period_ns = os.sched_getaffinity(0), round(period_us * 1000)
    low, high = 0.0, share  # of the period: an interrupt costs more than its own length
    for _ in range(8):
        part = (low + high) / 2
        with Slowed(cores, round(part * period_ns), period_ns):
            found = taken(cores, 0.5)
        if abs(found - share) < 0.01:
            break
        low, high = (part, high) if found < share else (low, part)
    if abs(found - share) > 0.03:
        sys.exit(f"slower_machine: {found:.2f} of the time was taken, not {share:.2f}")
    with Slowed(cores, round(part * period_ns), period_ns):
        print(
            f"slower: {found:.2f} of each core is taken, by {part * period_us:.0f} us of each "
            f"{period_us:.0f} us",
            flush=True,
        )
        time.sleep(seconds)


if __name__ == "__main__":
    main(*map(float, sys.argv[1:]))
