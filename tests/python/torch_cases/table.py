"""The table of all cases by placement and number of ranks, a line per case; interrupted, it goes on
where it was: ``python table.py [--file FILE] [--placements A,B] [--ranks 4,8] [CASE…]``.

A line of FILE is a JSON object: case, placement, ranks, verdict ("ok" or why not), seconds, and
`of`, a hash of the sources that the verdict is of; lines of other sources do not count.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import placements
from registry import FAMILIES, Case, cases_of

import loomnet
from loomnet import _core

FILE = Path(__file__).parents[3] / "build" / "torch-cases.jsonl"
AT_ONCE = 12  # cases of one job: what an interruption may lose


def fingerprint() -> str:
    """Of everything that a verdict depends on."""
    found = hashlib.sha256()
    folders = [Path(loomnet.__file__).parent, Path(__file__).parent]
    sources = sorted(file for folder in folders for file in folder.rglob("*.py"))
    for file in [*sources, Path(_core.__file__)]:
        found.update(file.read_bytes())
    return found.hexdigest()[:16]


def known(file: Path, of: str) -> dict[tuple[str, str, int], str]:
    """Verdicts that FILE holds of these sources."""
    found = {}
    for line in file.read_text().splitlines() if file.exists() else []:
        try:
            entry = json.loads(line)
            if entry["of"] == of:
                found[entry["case"], entry["placement"], entry["ranks"]] = entry["verdict"]
        except (ValueError, KeyError):
            continue  # the run was killed in the middle of this line
    return found


def fill(
    places: Sequence[str],
    ranks: int,
    file: Path,
    cases: dict[str, Case],
    say: Callable[[str], None] = print,
) -> list[str]:
    """Runs what FILE does not know to be right. Returns the lines of what is not right.

    The virtual clock is compared with the loopback NIC too, to the bit.
    """
    of, wrong = fingerprint(), []
    before = known(file, of)
    file.parent.mkdir(parents=True, exist_ok=True)
    for family in FAMILIES:
        todo = {
            name: case
            for name, case in cases.items()
            if case.family == family
            and any(before.get((name, place, ranks)) != "ok" for place in places)
        }
        for names in _chunks(list(todo)):
            for entry in _verdicts(places, ranks, {name: todo[name] for name in names}):
                with open(file, "a") as out:
                    out.write(json.dumps({**entry, "of": of}) + "\n")
                first = entry["verdict"].splitlines()[0]
                line = (
                    f"{entry['case']:45} {entry['placement']:9} {ranks:2} ranks "
                    f"{entry['seconds']:7.2f} s  {first}"
                )
                say(line)
                if entry["verdict"] != "ok":
                    wrong.append(f"{line}\n{entry['verdict']}")
    return wrong


def _chunks(names: list[str]) -> Iterator[list[str]]:
    return (names[i : i + AT_ONCE] for i in range(0, len(names), AT_ONCE))


def _verdicts(places: Sequence[str], ranks: int, cases: dict[str, Case]) -> Iterator[dict]:
    needed = ["gloo", *(["loopback"] if "virtual" in places else []), *places]
    found = {}
    with tempfile.TemporaryDirectory(prefix="loomnet-cases-") as folder:
        Path(folder).chmod(0o755)
        for place in dict.fromkeys(needed):
            found[place] = placements.run(place, ranks, cases, Path(folder))
    for (name, case), place in itertools.product(cases.items(), places):
        mine = found[place][name]
        why = placements.verdict(case, mine, found["gloo"][name])
        if place == "virtual" and not why:
            why = placements.verdict(case, mine, found["loopback"][name], to_the_bit=True)
            why = why and f"against the loopback NIC: {why}"
        yield {
            "case": name,
            "placement": place,
            "ranks": ranks,
            "verdict": why or "ok",
            "seconds": mine.seconds,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--file", type=Path, default=FILE)
    parser.add_argument("--placements", default="loopback,virtual,live")
    parser.add_argument("--ranks", default="4,8")
    parser.add_argument("cases", nargs="*")
    given = parser.parse_args()
    cases = cases_of(*FAMILIES)
    if unknown := set(given.cases) - set(cases):
        sys.exit(f"table: no case {', '.join(sorted(unknown))}")
    cases = {name: cases[name] for name in given.cases or cases}
    wrong = [
        line
        for ranks in map(int, given.ranks.split(","))
        for line in fill(given.placements.split(","), ranks, given.file, cases)
    ]
    sys.exit(f"table: {len(wrong)} cases are not right" if wrong else None)


if __name__ == "__main__":
    main()
