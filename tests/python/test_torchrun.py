"""A rank has the variables that torchrun gives a worker: the names and values of PyTorch's own
torchrun are the reference."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch.distributed as dist

from loomnet.processes.torchrun import OWN, environments
from loomnet.running.virtual_torch import Port

# A worker's variables are those that its agent's process was not started with.
WORKER = """import json, os, sys
name = os.path.join(sys.argv[1], os.environ["RANK"])
json.dump(dict(os.environ), open(name, "w"))
"""
# What a run says in another way, and why stands in loomnet.processes.torchrun.
OTHERWISE = {
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_USE_AGENT_STORE",
    "TORCHELASTIC_ERROR_FILE",
}
ONE_THREAD = {"OMP_NUM_THREADS": "1"}  # by torchrun for several workers on a node; here always


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def by_torchrun(nodes: int, on_each: int, folder: Path) -> list[dict[str, str]]:
    """What the workers of this many torchruns have that the torchruns themselves had not."""
    (folder / "worker.py").write_text(WORKER)
    given = {
        name: value
        for name, value in os.environ.items()
        if name not in OWN and not name.startswith(("TORCHELASTIC", "OMP_"))
    }
    port = free_port()
    agents = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "torch.distributed.run",
                f"--nnodes={nodes}",
                f"--node-rank={node}",
                f"--nproc-per-node={on_each}",
                "--master-addr=127.0.0.1",
                f"--master-port={port}",
                str(folder / "worker.py"),
                str(folder),
            ],
            env=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for node in range(nodes)
    ]
    for agent in agents:
        output, _ = agent.communicate(timeout=120)
        assert agent.returncode == 0, output.decode()
    found = []
    for rank in range(nodes * on_each):
        had = json.loads((folder / str(rank)).read_text())
        found.append({name: value for name, value in had.items() if given.get(name) != value})
    return found


@pytest.mark.parametrize(("nodes", "on_each"), [(2, 2)])
def test_names_and_values_are_those_of_torchrun(nodes, on_each, tmp_path):
    theirs = by_torchrun(nodes, on_each, tmp_path)
    hosts = [f"h{node}" for node in range(nodes) for _ in range(on_each)]
    ours = environments(hosts, address="127.0.0.1", port=1, run_id="loomnet")
    for rank, (mine, worker) in enumerate(zip(ours, theirs, strict=True)):
        mine = mine | ONE_THREAD
        assert mine.keys() == worker.keys(), rank
        for name in mine.keys() - OTHERWISE:
            assert mine[name] == worker[name], (rank, name)


def test_hosts_with_unequal_numbers_of_ranks():
    found = environments(["b", "b", "b", "a"], address="x", port=7, run_id="j")
    assert [
        (each["GROUP_RANK"], each["LOCAL_RANK"], each["LOCAL_WORLD_SIZE"]) for each in found
    ] == [("0", "0", "3"), ("0", "1", "3"), ("0", "2", "3"), ("1", "0", "1")]
    shared = [{name: value for name, value in each.items() if name not in OWN} for each in found]
    assert shared == [shared[0]] * 4


def test_the_port_of_a_store_is_held_for_rank_0():
    """Ranks import PyTorch for seconds before the first of them opens its store."""
    port = Port()
    try:
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port.number))
        for _ in range(2):  # a script may destroy its group and make another
            store = dist.TCPStore("127.0.0.1", port.number, 1, True)
            store.set("a", "b")
            del store
    finally:
        port.close()
