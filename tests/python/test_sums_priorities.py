"""Priorities of the sums of real ranks: none stated, a formula's, and those of a user's class."""

import sys
from pathlib import Path

import pytest
from captured import frames
from recorded import recorded

import loomnet as ln

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parent / "torch_ranks"))

from test_sums_torch import fabric, job

from loomnet.plugins.priorities import Message, formula
from loomnet.torch.hooks import layer_priority


@pytest.mark.parametrize(
    ("layer", "layers"), [(0, 1), (0, 16), (15, 16), (3, 7), (65534, 1), (0, 1 << 20), (49, 50)]
)
def test_the_hooks_priority_is_the_engines_formula(layer: int, layers: int) -> None:
    message = Message(
        job="", layer=layer, layers=layers, iteration=1, progress=0.0, bytes=1, remaining_layers=0
    )
    assert layer_priority(layer, layers) == formula(message, "layer")


PRIORITIES = """
    import torch, torch.distributed as dist, loomnet.torch
    dist.init_process_group("gloo")
    for priority in (None, 0, 1, 255):
        with loomnet.torch.attributes(priority=priority):
            dist.all_reduce(torch.ones(1000))
    dist.destroy_process_group()
"""


def priorities(folder: Path) -> list[int]:
    """Of each first transmission of the captured worker: bytes 1 and 3 of the header."""
    return [
        frame[65]
        for frame in frames(folder / "0.pcapng")
        if frame[56:58] == bytes((0xBE, 0xD0)) and frame[63] == 0
    ]


def test_a_stated_priority_of_0_is_0_and_none_is_128(tmp_path: Path) -> None:
    result = recorded(
        tmp_path, job(tmp_path, text=PRIORITIES, log=None), fab=fabric(), pcap=["h1:0"]
    )
    assert result["errors"] == 0, result.data.errors
    seen = list(dict.fromkeys(priorities(tmp_path)))
    assert seen == [128, 0, 1, 255]


TRAINED = """
    import torch, torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    net = DistributedDataParallel(torch.nn.Sequential(*[torch.nn.Linear(300, 300)
                                                        for _ in range(12)]), bucket_cap_mb=1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for step in range(6):
        optimizer.zero_grad()
        net(torch.ones(2, 300)).sum().backward()
        optimizer.step()
    dist.destroy_process_group()
"""


def weighed(tmp_path: Path, priority: str) -> list[int]:
    tmp_path.mkdir()
    own = {"priority": priority, "steps": 6, "ranks": 2}
    result = recorded(
        tmp_path,
        job(tmp_path, text=TRAINED, log=None, compute="1 ms", **own),
        fab=fabric(),
        pcap=["h1:0"],
    )
    assert result["errors"] == 0, result.data.errors
    return priorities(tmp_path)


def test_real_training_has_the_priorities_of_a_formula_or_a_users_class(tmp_path: Path) -> None:
    found = weighed(tmp_path / "esa", "esa")
    known = [priority for priority in found if priority != 128]
    assert found[0] == 128, "nothing is known of the first step"
    # In each later step the front-most layer, which backward makes last, is the most urgent.
    assert len(set(known)) > 2 and known[-1] == max(known)

    heard = []

    @ln.plugin.priority("sums_heard")
    class Heard:
        def priority(self, message: Message) -> int:
            heard.append(message)
            return 7

    assert set(weighed(tmp_path / "class", "sums_heard")) == {128, 7}
    assert {each.layers for each in heard} == {max(each.layer for each in heard) + 1}
    assert all(each.remaining_s > 0 and each.communication_ratio > 0 for each in heard)
    left = {each.iteration: each.remaining_s for each in heard}  # of one of the ranks
    assert len(left) >= 4 and [*left.values()] == sorted(left.values(), reverse=True)


@pytest.mark.parametrize(
    ("own", "says"),
    [
        ({"priority": "esa"}, "priority: give steps=, how many the script takes"),
        ({"priority": "esa", "steps": 3, "allreduce": "ring"}, "packets of a ring have none"),
        ({"priority": "layr", "steps": 3}, 'TorchJob.priority: no priority "layr"'),
    ],
)
def test_a_priority_of_training_that_cannot_be_is_one_line(tmp_path: Path, own, says) -> None:
    with pytest.raises(ln.UsageError, match=says):
        ln.run(fabric(), job(tmp_path, **own), directory=tmp_path / "runs")
