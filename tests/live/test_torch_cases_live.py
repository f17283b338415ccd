"""What PyTorch's users run, over real packets: each case computes what it computes over stock Gloo.
The whole table of cases, placements and numbers of ranks is a soak test."""

import sys
from pathlib import Path

import pytest

from loomnet.live import doctor

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parents[1] / "python" / "torch_cases"))
import placements
import table
from registry import FAMILIES, cases_of


@pytest.mark.timeout(600)
def test_six_cases_over_real_packets(uses_machine, directory):
    cases = {name: case for name, case in cases_of(*FAMILIES).items() if case.live}
    found = {
        place: placements.run(place, 4, cases, directory, limit=120) for place in ("gloo", "live")
    }
    wrong = [
        f"{name}: {why}"
        for name, case in cases.items()
        if (why := placements.verdict(case, found["live"][name], found["gloo"][name]))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.soak
@pytest.mark.timeout(6 * 3600)
@pytest.mark.parametrize("ranks", [4, 8])
@pytest.mark.parametrize("placement", ["loopback", "virtual", "live"])
def test_every_case(placement, ranks, capsys):
    """A line per case is printed and kept in build/torch-cases.jsonl; a later run goes on there."""
    if placement == "live" and (reason := doctor.why_not_live()):
        pytest.skip(reason)

    def say(line: str) -> None:
        with capsys.disabled():
            print(line, flush=True)

    wrong = table.fill([placement], ranks, table.FILE, cases_of(*FAMILIES), say)
    assert not wrong, "\n".join(wrong)
