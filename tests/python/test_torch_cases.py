"""What PyTorch's users run, on the virtual clock: each case computes what it computes over stock
Gloo and, to the bit, what it computes over the loopback NIC; each ending is right or named."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parent / "torch_cases"))
import comparing
import placements
import torch
import torch_endings as endings
from placements import CASES, cases_of
from registry import FAMILIES, LEFT_OUT

import loomnet as ln
from loomnet.labs.lab import Lab

WORLD = 4
ENDING_S = 90.0  # of wall time for one job that takes seconds on an idle machine


# Several families at a time: a job that runs many cases pays for its imports once.
@pytest.mark.in_turns
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("families", [FAMILIES[:4], FAMILIES[4:6], FAMILIES[6:8]], ids=",".join)
def test_cases_on_the_virtual_clock(families, tmp_path):
    cases = cases_of(*families)
    found = {
        place: placements.run(place, WORLD, cases, tmp_path)
        for place in ("gloo", "loopback", "virtual")
    }
    wrong = []
    for name, case in cases.items():
        of = {place: outcomes[name] for place, outcomes in found.items()}
        for place, against, to_the_bit in (
            ("loopback", "gloo", False),
            ("virtual", "gloo", False),
            ("virtual", "loopback", True),
        ):
            if why := placements.verdict(case, of[place], of[against], to_the_bit=to_the_bit):
                wrong.append(f"{name}, {place} against {against}: {why}")
        print(f"{name}: {of['virtual'].seconds:.2f} s")
    assert not wrong, "\n".join(wrong)
    assert placements.forked(tmp_path), "ranks of the virtual clock imported PyTorch each"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", endings.ENDINGS)
def test_ending_on_the_virtual_clock(name, tmp_path):
    ending = endings.ENDINGS[name]
    fabric = ln.clos.two_tier(
        planes=2, leaves=2, spines=2, hosts_per_leaf=2, rate="400 Gb/s", delay="1 us"
    )
    job = ln.TorchJob(
        endings.__file__,
        args=[name, str(tmp_path)],
        ranks=WORLD,
        compute="1 ms",
        transport="mrc",
        **ending.options,
    )
    lab = Lab("endings", directory=tmp_path, max_wall_s=ENDING_S)
    r = lab.run(fabric, job)
    logs = [(tmp_path / "ranks" / f"{rank}.log").read_text() for rank in range(WORLD)]
    told = "\n".join(
        [
            f"{r.data.ended}: {r.data.reason}",
            *(f"{each.who}: {each.message}" for each in r.data.errors),
        ]
    )
    every = told + "\n" + "\n".join(f"--- rank {n}\n{log}" for n, log in enumerate(logs))
    assert "max-wall" not in told and "Timeout (" not in every, every
    if ending.fails:
        assert r.data.ended in ("failed", "stalled") and r["errors"] >= 1, every
        for words in ending.fails:
            assert words in told, f"{words!r} is not said:\n{every}"
    else:
        assert r.data.ended == "finished" and r["errors"] == 0, every
    for rank, all_words in ending.says.items():
        for words in all_words:
            assert words in logs[rank], f"rank {rank} does not say {words!r}:\n{every}"
    assert r.data.fidelity.unexplained == 0


def test_cases_are_many_and_described():
    """Every family has some, six run live, and what has no case is left out with its reason."""
    cases = cases_of(*FAMILIES)
    assert len(cases) == len(CASES) > 130
    assert {case.family for case in cases.values()} == set(FAMILIES)
    assert sum(case.live for case in cases.values()) == 6
    assert all(LEFT_OUT.values())


@pytest.mark.parametrize(
    ("mine", "theirs", "spread", "equal"),
    [
        ([1, "a", None, True], [1, "a", None, True], 0, True),
        ({"a": torch.tensor([1, 2])}, {"a": torch.tensor([1, 3])}, 1e9, False),
        (torch.tensor([1, 2]), torch.tensor([1, 2], dtype=torch.int32), 1e9, False),
        (torch.tensor([1.0]), torch.tensor([[1.0]]), 1e9, False),
        (torch.tensor([1.0, torch.nan]), torch.tensor([1.0, torch.nan]), 0, True),
        (torch.tensor([1.0, torch.nan]), torch.tensor([1.0, 2.0]), 1e9, False),
        (torch.tensor([1.0, torch.inf]), torch.tensor([1.0, 3.0]), 1e9, False),
        (torch.tensor([1.0, 1e-9]), torch.tensor([1.0, 2e-9]), 1, True),
        (torch.tensor([1.0, 1e-9]), torch.tensor([1.0, 2e-9]), 0, False),
        (torch.tensor([1.0]), torch.tensor([1.0 + 2**-20]), 4, False),
        (torch.tensor([1.0]), torch.tensor([1.0 + 2**-20]), 8, True),
        (torch.tensor([1 + 1j]), torch.tensor([1 + 1.1j]), 16, False),
        (torch.tensor([True]), torch.tensor([False]), 1e9, False),
        (torch.tensor([0.0]), torch.tensor([1e-30]), 16, False),
        ([1.0], [1.0, 2.0], 1e9, False),
        ({"a": 1}, {"b": 1}, 1e9, False),
    ],
)
def test_comparer(mine, theirs, spread, equal):
    assert (not comparing.differences(mine, theirs, spread)) == equal
