"""A layer's declared time passes once each way, however a script wraps or compiles its model."""

import re
import textwrap

import pytest

import loomnet as ln

pytest.importorskip("torch")
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

from loomnet.torch.layers import layers

SCRIPT = textwrap.dedent("""
    import torch, torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel as DDP
    import loomnet.torch

    def net():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8, bias=False))

    def in_place():
        model = net()
        model.compile(backend="eager")
        return model

    def layer_by_layer():
        model = net()
        for at in range(2):
            model[at] = torch.compile(model[at], backend="eager")
        return model

    def function():
        model = net()
        return torch.compile(lambda x: model(x).sin(), backend="eager")

    VARIANTS = {
        "eager": net,
        "ddp": lambda: DDP(net()),
        "whole": lambda: torch.compile(net(), backend="aot_eager", fullgraph=True),
        "in place": in_place,
        "layer by layer": layer_by_layer,
        "function": function,
        "ddp of compiled": lambda: DDP(torch.compile(net(), backend="eager")),
        "compiled ddp": lambda: torch.compile(DDP(net()), backend="aot_eager"),
    }
    dist.init_process_group("gloo")
    for name, make in VARIANTS.items():
        model = make()
        for lap in range(2):
            began = loomnet.torch.now()
            out = model(torch.ones(4, 8))
            between = loomnet.torch.now()
            out.square().mean().backward()
            ended = loomnet.torch.now()
            print(f"lap of {name}: {1e3 * (between - began):.2f} {1e3 * (ended - between):.2f}",
                  flush=True)
        loomnet.torch.step()
""")


def test_each_layer_computes_once_each_way_however_it_is_compiled(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    job = ln.TorchJob(script, ranks=2, compute={"*": ("1 ms", "2 ms")})
    r = ln.run(ln.star(hosts=2, rate="100 Gb/s", delay="1 us"), job, directory=tmp_path / "run")
    assert r["errors"] == 0, r.data.errors
    laps = r.logged(0, r"lap of (?P<name>[a-z ]+): (?P<forward>\S+) (?P<backward>\S+)")
    assert len(laps) == 2 * len(re.findall(r'^    "', SCRIPT, re.M)) == 16
    for lap in laps:  # DDP's messages take some us
        assert float(lap["forward"]) == pytest.approx(2, abs=0.02), lap
        assert float(lap["backward"]) == pytest.approx(4, abs=0.02), lap


def test_a_wrapper_and_what_it_holds_are_one_layer():
    model = nn.Sequential(
        checkpoint_wrapper(nn.Linear(2, 2)),
        torch.compile(nn.Linear(2, 2)),
        nn.Sequential(nn.ReLU()),
    )
    named = [(name, type(each).__name__) for name, each in layers(nn.DataParallel(model))]
    assert named == [
        ("", "DataParallel"),
        ("", "Sequential"),
        ("0", "CheckpointWrapper"),
        ("", "Linear"),
        ("1", "OptimizedModule"),
        ("", "Linear"),
        ("2", "Sequential"),
        ("2.0", "ReLU"),
    ]


def test_a_layer_of_ones_own_may_be_called_module():
    class Mine(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = nn.ReLU()

    assert [name for name, _ in layers(Mine())] == ["", "module"]
