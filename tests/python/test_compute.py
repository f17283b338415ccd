"""Compute time on the virtual clock: what `compute=` may say, and what then passes."""

import textwrap

import pytest

import loomnet as ln
from loomnet.base.errors import UsageError
from loomnet.base.units import Time
from loomnet.jobs.compute import compute_model, encoded
from loomnet.labs.lab import Lab

US = 10**6  # picoseconds


@pytest.mark.parametrize(
    "value, text",
    [
        ("2 ms", "2000000000"),
        (Time("2 ms"), "2000000000"),
        ("measured", "measured 1.0"),
        ("measured x 0.05", "measured 0.05"),
        ({"layers.*": "1 us"}, '{"layers.*": [1000000, 2000000]}'),
        ({"a": ("1 ns", "3 ns")}, '{"a": [1000, 3000]}'),
        ({"a": "1 ns", "optimizer": "2 ns"}, '{"a": [1000, 2000], "optimizer": [2000, 0]}'),
    ],
)
def test_what_may_be_said(value, text):
    assert encoded(compute_model(value)) == text
    assert ln.TorchJob("train.py", compute=value).compute == compute_model(value)


@pytest.mark.parametrize(
    "value, says",
    [
        ("2", "TorchJob.compute: "),
        ("measured x fast", "the factor must be a number above 0"),
        ("measured x -1", "the factor must be a number above 0"),
        ("measurd", "TorchJob.compute: "),
        ({}, "an empty table"),
        ({"a": "fast"}, "TorchJob.compute: "),
        ({"a": ("1 ms", "1 ms", "1 ms")}, "is not a time or (forward, backward)"),
        ({"optimizer": ("1 ms", "1 ms")}, "is not a time"),
    ],
)
def test_what_may_not(value, says):
    with pytest.raises(UsageError) as error:
        ln.TorchJob("train.py", compute=value)
    assert says in str(error.value) and "\n" not in str(error.value)


SCRIPT = textwrap.dedent("""
    import torch, torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    # The in-place activations would refuse an output that a hook had made a view.
    net = torch.nn.Sequential(*(layer for _ in range(4) for layer in (
        torch.nn.Linear(512, 512), torch.nn.ReLU(inplace=True))))
    net = DistributedDataParallel(net, bucket_cap_mb=1)  # a bucket is a layer
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for step in range(1, 9):
        optimizer.zero_grad()
        net(torch.ones(2, 512)).square().mean().backward()
        optimizer.step()
    with torch.no_grad():
        net(torch.ones(2, 512))
""")
SIZE = 4 * 512 * 513 * 4  # bytes of gradient


def run(tmp_path, compute):
    pytest.importorskip("torch")
    tmp_path.mkdir(exist_ok=True)
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    lab = Lab("compute", directory=tmp_path / "run")
    fabric = ln.star(hosts=2, rate="100 Gb/s", delay="1 us")
    # Measured time of a busy machine, times a factor, is no stall.
    r = lab.run(fabric, ln.TorchJob(script, ranks=2, compute=compute, stall_timeout=None))
    if any("register" in e.message for e in r.data.errors):
        pytest.skip("the package is not installed: PyTorch finds no backend entry point")
    return r


def median(r):
    lengths = sorted(i.length_ps for i in r.data.iterations)
    return lengths[len(lengths) // 2]


def test_gradients_leave_while_backward_goes_on(tmp_path):
    """Four layers of 100 us forward and 200 us backward; a layer's all-reduce of two ranks moves
    its 1 MB once each way, 84 us and framing: all but the last is hidden by backward."""
    r = run(tmp_path, {"[0246]": ("100 us", "200 us"), "optimizer": "50 us"})
    assert r["errors"] == 0, r.data.errors
    computing = (4 * 300 + 50) * US
    one = SIZE // 4 * 80  # ps at 100 Gb/s
    assert computing + one < median(r) < computing + 1.3 * one
    assert r.data.deterministic


def test_in_one_piece_nothing_is_hidden(tmp_path):
    r = run(tmp_path, "1250 us")
    assert r["errors"] == 0, r.data.errors
    assert 1250 * US + SIZE * 80 < median(r) < 1250 * US + 1.3 * SIZE * 80


def test_a_layer_that_is_not_there_is_named(tmp_path):
    r = run(tmp_path, {"layers.*": "1 ms"})
    assert r["errors"] >= 1
    assert 'no module of this script is called "layers.*"; there are 0, 1, ' in (
        r.data.errors[0].message
    )


def test_measured_time_is_scaled_and_says_so(tmp_path):
    full = run(tmp_path / "full", "measured x 20")
    none = run(tmp_path / "none", "measured x 0.000001")
    assert full["errors"] == none["errors"] == 0, full.data.errors + none.data.errors
    assert not full.data.deterministic and not none.data.deterministic
    # Microseconds of computing at the least, times the factors.
    assert median(full) > 2_000 * US > 1_000 * US > median(none)
