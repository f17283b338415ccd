"""A run is about its network: a job that ended well without having used it is an error."""

import textwrap

import pytest
from chakra_writer import COMPUTE, node, write

import loomnet as ln
from loomnet.labs.lab import Lab

GROUP = """
import torch, torch.distributed as dist
"""
REDUCE = """
tensor = torch.ones(1000)
dist.all_reduce(tensor)
assert tensor[0] == dist.get_world_size()
"""
FAKE = (
    GROUP
    + """
from torch.testing._internal.distributed.fake_pg import FakeStore
dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
dist.all_reduce(torch.ones(1000))
"""
)
EVERY = "ranks 0 and 1"
NEVER_LOADED = (
    f"{EVERY} never loaded Loomnet's backend: no torch was imported there, or the "
    "script had set TORCH_DEVICE_BACKEND_AUTOLOAD=0"
)


def run(tmp_path, script, **options):
    pytest.importorskip("torch")
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(script))
    lab = Lab("network", directory=tmp_path / "run")
    return lab.run(
        ln.star(hosts=2, rate="100 Gb/s", delay="1 us"),
        ln.TorchJob(path, ranks=2, compute="1 ms", **options),
    )


soak = pytest.mark.soak


@pytest.mark.parametrize(
    ("script", "options", "says"),
    [
        ("print('hello')", {}, NEVER_LOADED),
        pytest.param("import torch", {}, f"{EVERY} made no process group", marks=soak),
        (FAKE, {}, f'{EVERY} asked for the backend "fake"'),
        pytest.param(
            GROUP + "dist.init_process_group('gloo')" + REDUCE,
            {"map_backend": False},
            f'{EVERY} asked for the backend "gloo", and map_backend=False leaves gloo to PyTorch',
            marks=soak,
        ),
        pytest.param(
            "import os; os.environ['TORCH_DEVICE_BACKEND_AUTOLOAD'] = '0'"
            + GROUP
            + "dist.init_process_group('gloo')"
            + REDUCE,
            {},
            NEVER_LOADED,
            marks=soak,
        ),
        pytest.param(
            GROUP + "dist.init_process_group('gloo')" + REDUCE,
            {"env": {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}},
            f"{EVERY} had TORCH_DEVICE_BACKEND_AUTOLOAD=0, by TorchJob.env, which keeps "
            "Loomnet's backend out",
            marks=soak,
        ),
        pytest.param(
            GROUP + "dist.init_process_group('gloo')",
            {},
            f"{EVERY} made a group and sent nothing",
            marks=soak,
        ),
        pytest.param(
            GROUP
            + """
dist.init_process_group('gloo')
if dist.get_rank() == 1:
    raise SystemExit
alone = dist.new_group([0], use_local_synchronization=True)
dist.all_reduce(torch.ones(10), group=alone)
""",
            {},
            f"{EVERY} made a group and sent nothing",
            marks=soak,
        ),
        pytest.param(
            """
import os, subprocess, sys
fake = "import torch, torch.distributed as dist; "
fake += "from torch.testing._internal.distributed.fake_pg import FakeStore; "
fake += "dist.init_process_group('fake', store=FakeStore(), rank=0, world_size=2); "
fake += "dist.all_reduce(torch.ones(10))"
subprocess.run([sys.executable, "-c", fake], check=True)
""",
            {},
            NEVER_LOADED,
            marks=soak,
        ),
        pytest.param(
            """
import os
if os.environ["RANK"] == "0":
    import torch
""",
            {},
            "rank 0 made no process group; rank 1 never loaded Loomnet's backend",
            marks=soak,
        ),
    ],
    ids=[
        "no-torch",
        "no-group",
        "fake",
        "map_backend",
        "in-script",
        "in-env",
        "silent-group",
        "group-of-one",
        "subprocess",
        "apart",
    ],
)
def test_a_job_that_never_used_the_network_names_what_each_rank_did(
    tmp_path, script, options, says
):
    r = run(tmp_path, script, **options)
    assert r.data.ended == "failed"
    (error,) = r.data.errors
    assert error.message.startswith("the emulated network was not used, so there is no result: ")
    assert says in error.message and "\n" not in error.message
    assert "TorchJob(allow_no_network=True)" in error.message


def test_a_rank_without_a_group_is_named_although_the_others_have_one(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(
        "import os"
        + GROUP
        + textwrap.dedent("""
        if os.environ["RANK"] != "2":
            dist.init_process_group("gloo", world_size=2)
            dist.all_reduce(torch.ones(1000))
        """)
    )
    pytest.importorskip("torch")
    lab = Lab("network", directory=tmp_path / "run")
    r = lab.run(
        ln.star(hosts=3, rate="100 Gb/s", delay="1 us"), ln.TorchJob(path, ranks=3, compute="1 ms")
    )
    assert r.data.ended == "failed"
    assert "no result: rank 2 made no process group; " in r.data.errors[0].message


def test_what_is_meant_is_no_error(tmp_path):
    r = run(tmp_path, "print('hello')", allow_no_network=True)
    assert r.data.ended == "finished" and r["errors"] == 0


@soak
def test_a_barrier_uses_the_network(tmp_path):
    r = run(tmp_path, GROUP + "dist.init_process_group('gloo'); dist.barrier()")
    assert r.data.ended == "finished" and r["errors"] == 0


def test_the_callers_switch_of_pytorch_does_not_reach_the_ranks(tmp_path, monkeypatch):
    """PyTorch's own switch, in a shell that has it for other work, would leave ranks on stock
    Gloo over the loopback."""
    monkeypatch.setenv("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    r = run(tmp_path, GROUP + "dist.init_process_group('gloo')" + REDUCE)
    assert r.data.ended == "finished" and r["errors"] == 0, r.data.errors
    assert r.data.fidelity.packets > 0


@soak
def test_a_backend_that_cannot_be_installed_is_an_error_inside_a_run(tmp_path):
    """A script that goes on without the backend would use stock Gloo."""
    r = run(
        tmp_path,
        """
        import sys
        sys.modules["loomnet.torch.rpc"] = None
        """
        + GROUP
        + "dist.init_process_group('gloo')"
        + REDUCE,
    )
    assert r.data.ended == "failed"
    assert "loomnet: torch backend not installed" in r.data.errors[0].message


def test_a_graph_whose_nodes_only_compute_says_so(tmp_path):
    """The trace itself has nothing to send, so its times are what was asked for."""
    ranks = [[node(1, COMPUTE, us=10), node(2, COMPUTE, after=[1], us=10)]] * 2
    (tmp_path / "trace").mkdir()
    lab = Lab("graph", directory=tmp_path / "run")
    r = lab.run(
        ln.star(hosts=2, rate="100 Gb/s", delay="1 us"), ln.Trace(write(tmp_path / "trace", ranks))
    )
    assert r.data.ended == "finished" and r.data.iterations[0].length_ps == 20 * 10**6
    assert "nothing to send" in r.data.fidelity.notes["limited by compute alone"]
