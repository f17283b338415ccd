"""Single parts of the switches that sum, each by a program of the source tree: rules under random
faults, block exponents, and the speed of the XDP program."""

import re
import subprocess
from pathlib import Path

import loomnet as ln

BUILD = (
    "cmake -S . -B build/cpp -G Ninja -DLOOMNET_PYTHON=OFF -DLOOMNET_TESTS=ON, and "
    "ninja -C build/cpp"
)


@ln.scenario
def parts(lab: ln.Lab, build: str = "build/cpp", xdp: bool = False):
    """Checks of single parts. The programs are those of `build`, which must have been built.

    LIVE-1: random jobs, pools, windows and faults, 700 seeds for each policy: every run ends, all
    sums are exact, the invariants hold; and one trace whose every packet is known. LIVE-2: each
    rule that is taken out is noticed. QUANT-1: block exponents of 2 to 64 workers do not overflow,
    and their error is at most n / (2 f). With `xdp`, as root: XDP-1, an addition of 256 values
    takes at most 300 ns and a swap at most 1.15 of it; XDP-2, one switch takes 0.5 million packets
    a second. Times are of this machine and of this moment, the kernel's own for a test run among
    them (`xdp_forwarded_ns` is a packet that no job's rows name): run it alone.
    """
    folder = Path(build)
    tests = {
        "LIVE-1": [("ina_property_test", "-InaControl.*"), ("ina_golden_trace_test", "*")],
        "LIVE-2": [("ina_property_test", "InaControl.*")],
        "QUANT-1": [("quantise_test", "*")],
    }
    for bar, programs in tests.items():
        ran = passed = 0
        for program, filter_ in programs:
            text = output(folder, program, f"--gtest_filter={filter_}")
            ran += int(found(r"Running (\d+) tests? from", text))
            passed += int(found(r"\[  PASSED  \] (\d+) test", text))
        lab.metric(f"tests.{bar}", ran, unit="tests")
        lab.check(bar, ran - passed, eq=0)
    if xdp:
        text = output(folder, "live_aggregate_benchmark")
        lab.say(text)
        times = found(r"esa +256 +(\d+ ns +\d+ ns +\d+ ns +\d+) ns", text)
        forwarded, _, add, swap = (int(each) for each in times.split(" ns"))
        lab.metric("xdp_forwarded_ns", forwarded, unit="ns")
        lab.metric("xdp_add_ns", add, unit="ns")
        lab.metric("xdp_swap_ns", swap, unit="ns")
        lab.check("XDP-1-add", add, le=300)
        lab.check("XDP-1-swap", swap / add, le=1.15)
        text = output(
            folder,
            "live_aggregate_rate_benchmark",
            "--benchmark_format=json",
            "--benchmark_filter=values:256/reports:0",
        )
        rate = float(found(r'"packets_per_s": ([0-9.e+]+)', text))
        lab.check("XDP-2", rate, ge=0.5e6)
    # A run whose sums are the same source's, for the report's rows.
    made = ln.star(hosts=4, rate="10 Gb/s", delay="1 us").program("*", "aggregate", policy="esa")
    r = lab.run(made, ln.AllReduce("1 MB", repeat=3, allreduce="ina"), payload=True)
    lab.check("no-sum-error", r.data.wrong, eq=0)


def output(folder, program, *arguments):
    """What the program printed; a clear error where it is not there or does not run."""
    path = folder / program
    if not path.is_file():
        raise ln.UsageError(f"parts.build={folder}: {program} is not there; build it by {BUILD}")
    done = subprocess.run([path.absolute(), *arguments], capture_output=True, text=True)
    return done.stdout + done.stderr


def found(pattern, text):
    if (match := re.search(pattern, text)) is None:
        raise RuntimeError(f"no {pattern} in what the program printed: {text[-500:]}")
    return match[1]
