"""How long the command line takes to start, and what of it is imports: a figure, no test.

    python tests/benchmarks/start_benchmark.py [repeats]

`loomnet run` should be under 0.5 s before its first event. Prints the median wall time of each
command, its ratio to a bare interpreter's start, the processor time of `run` beside that of
importing numpy, pydantic, typer and rich alone, in turn, and the dearest imports of `run`.
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import loomnet

SCENARIO = '''
import loomnet as ln

@ln.scenario
def small(lab: ln.Lab):
    """Two packets."""
    fabric = ln.star(hosts=2, rate="100 Gb/s", delay="1 us")
    lab.run(fabric, ln.Flows(sizes=["2 kB"], pairs=((0, 1),)))
'''


def once(words: list[str], folder: Path) -> float:
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        check=True,
        capture_output=True,
        env=os.environ | {"PYTHONPATH": str(Path(loomnet.__file__).parents[1])},
    )
    return time.perf_counter() - started


def processor_s(words: list[str], folder: Path) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    once(words, folder)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def dearest(folder: Path) -> list[tuple[float, str]]:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "loomnet", "run", "small.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(Path(loomnet.__file__).parents[1])},
    )
    rows = [
        line.removeprefix("import time:").split("|")
        for line in done.stderr.splitlines()
        if line.startswith("import time:") and "self" not in line
    ]
    totals: dict[str, float] = {}
    for own, _, name in rows:
        package = name.strip().partition(".")[0]
        totals[package] = totals.get(package, 0.0) + int(own) / 1e3
    return sorted(((ms, name) for name, ms in totals.items()), reverse=True)[:8]


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    commands = {
        "python -c ''": ["-c", ""],
        "import loomnet": ["-c", "import loomnet"],
        "loomnet --version": ["-m", "loomnet", "--version"],
        "loomnet list": ["-m", "loomnet", "list", "small.py"],
        "loomnet run": ["-m", "loomnet", "run", "small.py"],
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "small.py").write_text(SCENARIO)
        bare = None
        for title, words in commands.items():
            took = statistics.median(once(words, folder) for _ in range(repeats))
            bare = bare or took
            print(f"{title:<20} {took * 1e3:7.0f} ms  {took / bare:6.1f} x a bare interpreter")
        rounds = [
            [
                processor_s(words, folder)
                for words in (
                    ["-c", "import numpy, pydantic, typer, rich"],
                    ["-m", "loomnet", "run", "small.py"],
                )
            ]
            for _ in range(2 * repeats)
        ]
        alone, run = (statistics.median(column) for column in zip(*rounds, strict=True))
        print(
            f"processor time of `loomnet run`: {run * 1e3:.0f} ms, {run / alone:.2f} x that of "
            "importing numpy, pydantic, typer and rich"
        )
        print("imports of `loomnet run` by package, ms of their own:")
        for ms, package in dearest(folder):
            print(f"  {package:<20} {ms:7.1f}")


if __name__ == "__main__":
    main()
