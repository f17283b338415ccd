"""`python tests/python/relations`: see the package."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from relations.facts import shown
from relations.relation import RELATIONS, Verdict, judge
from relations.search import Tally, search, seed, smaller


def again(name: str, token: str, *, less: bool) -> int:
    world = smaller(name, token) if less else RELATIONS[name].world(token)
    verdict = judge(name, token, world)
    print(f"{name}: {RELATIONS[name].says}\n{world}\n{verdict.kind} {verdict.reason}")
    print("\n".join(verdict.lines))
    return verdict.kind == "broken"


def many(names: list[str], of_seed: str, count: int, processes: int) -> int:
    tallies = {name: Tally(name) for name in names}

    def told(verdict: Verdict) -> None:
        tallies[verdict.relation].take(verdict)
        if verdict.kind == "broken":
            print(f"BROKEN {verdict.replay}\n{shown(verdict.lines)}", flush=True)

    print(f"seed {of_seed}", flush=True)
    search(names, of_seed, count, processes, told)
    for tally in tallies.values():
        print(
            f"{tally.name:26} {tally.tried:5} worlds, {len(tally.broken)} broken, "
            f"{tally.kinds['excepted']} excepted, {tally.kinds['unfit']} unfit"
        )
        for reason, times in tally.reasons.most_common(8):
            print(f"    {times:4} {reason}")
    return any(tally.broken for tally in tallies.values())


def main() -> int:
    parser = argparse.ArgumentParser(prog="relations", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of a relation; then a TOKEN")
    parser.add_argument("-n", "--worlds", type=int, help="so many worlds of each relation")
    parser.add_argument("-j", "--processes", type=int, default=1)
    parser.add_argument("--seed", default=None)
    parser.add_argument("--less", action="store_true", help="as small a world as breaks it, too")
    asked = parser.parse_args()
    names = [name for name in asked.names if ":" not in name]
    tokens = [name for name in asked.names if ":" in name]
    for name in names:
        if name not in RELATIONS:
            parser.error(f"no relation {name}; there are {', '.join(RELATIONS)}")
    if tokens:
        return max(again(name, token, less=asked.less) for name in names for token in tokens)
    if asked.worlds:
        return many(names or list(RELATIONS), asked.seed or seed(), asked.worlds, asked.processes)
    for name, each in RELATIONS.items():
        print(f"{name:26} {each.says}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
