"""A toy system with a switch program of its own, tests/tally, which counts packets from the ports
that its rows list: an engine that is built with its files beside all others, in a copy."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TALLY = ROOT / "tests" / "tally"

RUN = """
import sys
import loomnet as ln

clock, folder = sys.argv[1:]
fast = clock == "virtual"
fabric = ln.clos.two_tier(planes=1, leaves=2, spines=1, hosts_per_leaf=2,
                          rate="10 Gb/s" if fast else "20 Mb/s",
                          delay="1 us" if fast else "0.5 ms").program("*", "tally")
said = []
lab = ln.Lab("toy", clock=clock, seed=1, directory=folder, say=said.append)
r = lab.run(fabric, ln.AllReduce("40 kB", repeat=5, transport="roce", allreduce="tally",
                                 counted=True))
assert r.data.ended == "finished" and r.data.fidelity.unexplained == 0
assert "note: ports of the first two hosts are counted" in said, said
assert r["tally_pairs"] == 1
links = r.data.totals
for leaf, host in (("p0.leaf0", "h0"), ("p0.leaf1", "h1")):
    counters = r.switch(leaf).counters
    sent = links[f"link {host}->{leaf}"]["packets"]
    assert 0 < counters["counted"] == sent < counters["received"], (counters, sent)
assert "counted" not in {k for k, v in r.switch("p0.spine0").counters.items() if v}
print("counted", r.switch("p0.leaf0").counters["counted"])
"""


def copied(folder: Path) -> Path:
    """The sources that an engine and its package are built from, with the toy's."""
    for name in ("core", "ebpf", "python"):
        shutil.copytree(
            ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.so")
        )
    shutil.copy(ROOT / "CMakeLists.txt", folder)
    shutil.copytree(TALLY, folder, dirs_exist_ok=True)
    return folder


def built(folder: Path) -> None:
    """The engine of a copy, as script/bootstrap built the one at hand, most of it from ccache."""
    cache = max(ROOT.glob("build/python-*/CMakeCache.txt"), key=os.path.getmtime)
    # ccache knows a source by its path from the folder of the build.
    build = folder / cache.parent.relative_to(ROOT)
    known = dict(re.findall(r"^(\w+):\w+=(.*)$", cache.read_text(), re.MULTILINE))
    names = (
        "CMAKE_BUILD_TYPE",
        "CMAKE_C_COMPILER",
        "CMAKE_CXX_COMPILER",
        "LOOMNET_LIVE",
        "LOOMNET_CLANG",
        "LOOMNET_BPFTOOL",
        "SKBUILD_PROJECT_VERSION",
    )
    import pybind11  # needed to build the package, not to run it

    given = [f"-D{name}={known[name]}" for name in names if known.get(name)]
    environment = os.environ | {
        "CCACHE_NOHASHDIR": "1",
        "CCACHE_BASEDIR": str(folder),
        "CCACHE_SLOPPINESS": "locale,pch_defines,time_macros",
    }
    for command in (
        [
            "cmake",
            "-S",
            folder,
            "-B",
            build,
            "-G",
            "Ninja",
            *given,
            f"-Dpybind11_DIR={pybind11.get_cmake_dir()}",
            f"-DPython_EXECUTABLE={sys.executable}",
        ],
        ["cmake", "--build", build, "-j", "2", "--target", "_core"],
    ):
        done = subprocess.run(
            list(map(str, command)), env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    [module] = (build / "core").glob("_core*.so")
    shutil.copy(module, folder / "python" / "loomnet")


def played(folder: Path, clock: str, runs: Path) -> str:
    """What a run on this clock with the copy says, without the finder of the package at hand."""
    import numpy

    packages = Path(numpy.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-S", "-c", RUN, clock, str(runs)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | {"PYTHONPATH": f"{folder / 'python'}:{packages}"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
