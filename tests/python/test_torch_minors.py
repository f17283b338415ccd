"""Every minor version of PyTorch that the package allows: each kind of group, collective and
wrapper computes on the virtual clock what it computes over stock Gloo, and every private name that
Loomnet uses has its effect or is told by name.

It runs with the PyTorch that is installed; `script/test torch=2.14` runs it with another one, and
then with a case of every other family besides.
"""

import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parent / "torch_cases"))
import placements
import torch
from placements import cases_of
from registry import FAMILIES

import loomnet as ln
from loomnet.base.torch_versions import TRIED

WORLD = 4
ASKED = os.environ.get("LOOMNET_TEST_TORCH")  # the minor that script/test has installed
# One of each kind; test_torch_cases.py runs all of them with the PyTorch of script/bootstrap.
OF_EACH_KIND = (
    "all_reduce_integers",
    "all_reduce_average",
    "complex_numbers",
    "sparse_tensors",
    "broadcasts",
    "reduces",
    "gathers_and_scatters",
    "all_gathers",
    "reduce_scatters",
    "all_to_alls",
    "point_to_point",
    "objects",
    "asynchronous_works_and_futures",
    "coalesced",
    "functional_collectives",
    "differentiable_collectives",
    "hundred_groups",
    "new_subgroups",
    "mesh_made_late",
    "monitored_barriers",
    "what_a_group_says_of_itself",
    "ddp_plain",
    "ddp_static_graph",
    "ddp_join_of_uneven_inputs",
    "ddp_hook_allreduce",
    "ddp_hook_fp16",
    "ddp_hook_bf16",
    "ddp_hook_powersgd",
    "zero_redundancy_optimizer",
    "fsdp1_full_shard",
    "fsdp2_full_shard",
    "fsdp2_bf16",
    "hsdp",
    "checkpoint",
    "checkpoint_async",
    "mesh_of_three_dimensions",
    "tensor_parallel_layers",
    "fsdp2_over_tensor_parallel",
    "dtensor_redistribute",
    "pipeline_1f1b",
    "pipeline_zbv_zero_bubble",
    "rpc_alone",
    "profiler",
    "compiled_ddp",
    "compiled_functional_collective",
    "two_threads_with_groups_of_their_own",
    "store_polled",
    "group_met_in_a_file",
    "group_checked_in_detail",
    "work_polled_with_sleeps",
    "future_polled_without_a_pause",
    "two_threads_of_pytorchs_own",
    "loader_with_spawned_workers",
)


@pytest.mark.in_turns
@pytest.mark.timeout(1800)
def test_every_kind_of_call(tmp_path):
    cases = cases_of("kinds")
    if ASKED:
        others = cases_of(*FAMILIES)
        cases = {name: others[name] for name in (*cases, *OF_EACH_KIND)}
    found = {place: placements.run(place, WORLD, cases, tmp_path) for place in ("gloo", "virtual")}
    wrong = {
        name: why
        for name, case in cases.items()
        if (why := placements.verdict(case, found["virtual"][name], found["gloo"][name]))
    }
    print(f"PyTorch {torch.__version__}: {len(cases)} cases")
    assert not wrong, "\n".join(f"{name}: {why}" for name, why in wrong.items())


def test_the_minor_that_was_asked_for_is_the_one_that_runs():
    if ASKED:
        assert torch.__version__.startswith(f"{ASKED}."), torch.__version__
    assert torch.__version__.startswith(tuple(f"{minor}." for minor in TRIED))


def test_the_package_allows_the_minors_that_are_tried_and_no_other():
    allowed = [line for line in metadata.requires("loomnet") or () if re.match(r"torch\W", line)]
    first, last = TRIED[0], TRIED[-1].split(".")
    bounds = {f">={first}", f"<{last[0]}.{int(last[1]) + 1}"}
    assert [set(re.findall(r"[<>=]+[\d.]+", line.split(";")[0])) for line in allowed] == [bounds]
    assert [int(minor.split(".")[1]) for minor in TRIED] == list(
        range(int(first.split(".")[1]), int(last[1]) + 1)
    )


def test_a_run_with_another_minor_says_so(tmp_path, monkeypatch):
    """The installed PyTorch, which says of itself that it is another one."""
    (tmp_path / "torch-2.99.1.dist-info").mkdir()
    (tmp_path / "torch-2.99.1.dist-info/METADATA").write_text("Name: torch\nVersion: 2.99.1\n")
    monkeypatch.syspath_prepend(tmp_path)
    script = tmp_path / "train.py"
    script.write_text(
        "import torch, torch.distributed as dist\ndist.init_process_group('gloo')\n"
        "dist.all_reduce(torch.ones(1000))\n"
    )
    fabric = ln.star(hosts=2, rate="100 Gb/s", delay="1 us")
    r = ln.run(fabric, ln.TorchJob(script, ranks=2, compute="1 ms"), write=False)
    assert r.data.fidelity.notes["an untried PyTorch"] == (
        f"2.99.1; Loomnet is tried with {TRIED[0]} to {TRIED[-1]}"
    )


# What PyTorch might do with a private name, and the words by which a rank is then ended.
BROKEN = {
    "torch.autograd._engine_run_backward": "del torch.autograd._engine_run_backward",
    "torch._C.Future.done": "torch.futures.Future.done = lambda self: torch._C.Future.value(self)",
    "torch.distributed.rendezvous._create_c10d_store": (
        "rendezvous._rendezvous_handlers['env'] = lambda url, **more: iter(())"
    ),
    "torch._C.Future.wait": "torch.futures.Future.wait = lambda self: torch._C.Future.value(self)",
    **{
        f"torch.distributed.Store.{method}": f"dist.TCPStore.{method} = lambda self, *given: b''"
        for method in ("wait", "get", "check", "multi_get", "queue_pop")
    },
    "torch.distributed.Store.barrier": "del dist.Store.barrier",
    "torch.distributed.distributed_c10d.BackendConfig.__init__": (
        "dist.distributed_c10d._new_process_group_helper = lambda *given: None"
    ),
    "torch.distributed.rpc.TensorPipeRpcBackendOptions.__init__": (
        "rpc.backend_registry._tensorpipe_construct_rpc_backend_options_handler = lambda: None"
    ),
    "DistributedDataParallel._register_builtin_comm_hook": (
        "del torch.nn.parallel.DistributedDataParallel._register_builtin_comm_hook"
    ),
    "torch.autograd.profiler.profile.export_chrome_trace": (
        "torch.profiler.profile.export_chrome_trace = lambda self, path: None"
    ),
    "torch.autograd.graph._engine_run_backward": "del torch.autograd.graph._engine_run_backward",
    "torch._C._dynamo.eval_frame.set_code_exec_strategy": (
        "del torch._C._dynamo.eval_frame.set_code_exec_strategy"
    ),
    "torch.distributed.ProcessGroupGloo._Options": "del dist.ProcessGroupGloo._Options",
    "torch.ops.profiler._call_end_callbacks_on_jit_fut": (
        "del torch.autograd._record_function_with_args_enter"
    ),
}
AROUND = """
import os, sys
import torch, torch.distributed as dist, torch.distributed.rpc as rpc
rendezvous = sys.modules["torch.distributed.rendezvous"]
{broken}
os.environ |= {{"LOOMNET_RANK_FD": "-1", "LOOMNET_CLOCK": "virtual", "LOOMNET_MAP_BACKEND": "1",
               "LOOMNET_PROFILES": "/nowhere"}}
from loomnet.torch import autoload
try:
    autoload()
except (Exception, SystemExit) as error:
    error = error.__cause__ or error  # a rank ends, with why
    print(type(error).__name__, error)
else:
    print("installed")
"""


def test_a_private_name_without_its_effect_ends_the_rank_by_name():
    """All in one process that has imported PyTorch once."""
    script = (
        f"import os, sys, torch\nfor name, text in {list(_scripts().items())!r}:\n"
        + """
    pid = os.fork()
    if pid == 0:
        print(name, end=": ", flush=True)
        exec(text)
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(pid, 0)
"""
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=240
    )
    told = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert told.pop("nothing", "") == "installed", done.stdout + done.stderr
    assert told.keys() == BROKEN.keys(), done.stdout + done.stderr
    for name, line in told.items():
        begin = f"PrivateNameError loomnet: {name}, a private name of PyTorch,"
        end = f"PyTorch {torch.__version__}; PyTorch {TRIED[0]} to {TRIED[-1]} are supported"
        assert line.startswith(begin) and line.endswith(end), line


def _scripts():
    return {name: AROUND.format(broken=text) for name, text in {"nothing": "", **BROKEN}.items()}
