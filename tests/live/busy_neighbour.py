"""A busy neighbour: on each core a process above all of a live run takes a share of the time, in
slices of a fraction of a millisecond, as other machines of one host do.

    sudo python busy_neighbour.py SHARE [SECONDS [PERIOD]]

It stands for a slower machine: engine, ranks and the kernel's threads get 1 - SHARE of each core.
PERIOD (microseconds, 250): a slice each; the shorter, the more like a machine that is slower at
every moment.
"""

import ctypes
import os
import signal
import sys
import time


def burn(core: int, share: float, until: float, period_s: float) -> None:
    os.sched_setaffinity(0, {core})
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
    ctypes.CDLL(None).prctl(29, 1)  # PR_SET_TIMERSLACK: a sleep lasts no longer than asked
    clock, sleep = time.perf_counter, time.sleep
    begin = clock()
    while begin < until:
        while clock() - begin < share * period_s:
            pass
        sleep(max(0.0, begin + period_s - clock()))
        begin = clock()


def main(share: float, seconds: float = 600.0, period_us: float = 250.0) -> None:
    until = time.perf_counter() + seconds
    parent = os.getpid()
    for core in sorted(os.sched_getaffinity(0)):
        if os.fork() == 0:
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
            if os.getppid() == parent:
                burn(core, share, until, period_us / 1e6)
            os._exit(0)
    while True:
        try:
            os.wait()
        except ChildProcessError:
            return


if __name__ == "__main__":
    main(*map(float, sys.argv[1:]))
