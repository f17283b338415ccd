"""The table of how ranks end: each row is a job whose chosen ranks end in one way at one moment, on
one clock, and what its run must report. Rows cover every pair of two columns' values."""

import itertools
import random
from dataclasses import dataclass
from pathlib import Path

SCRIPT = Path(__file__).parent / "python" / "plain_ranks" / "ends.py"
FAILING = {
    "raise": "ValueError: on purpose",
    "exit3": "exit status 3",
    "_exit7": "exit status 7",
    "import": "No module named 'no_such_module'",
    "segv": "killed by SIGSEGV",
    "kill": "killed by SIGKILL",
    "term": "killed by SIGTERM",
}
ENDING_WELL = ("exit0", "_exit0", "unfinished")
COLUMNS = {
    "way": (*FAILING, *ENDING_WELL),
    "when": ("import", "before", "mid", "after", "late"),
    "who": ("first", "last", "all"),
    "ranks": (2, 3, 4),
    "clock": ("virtual", "live"),
}


@dataclass(frozen=True)
class Row:
    way: str
    when: str
    who: str
    ranks: int
    clock: str

    @property
    def chosen(self) -> list[int]:
        return {"first": [0], "last": [self.ranks - 1], "all": list(range(self.ranks))}[self.who]

    @property
    def possible(self) -> bool:
        if self.way == "import" and self.when != "import":
            return False  # the same as `raise` then
        if self.way == "unfinished":  # between two, while the NIC is there
            return self.when in ("mid", "after") and self.who != "all"
        return True

    @property
    def fails(self) -> bool:
        return self.way in FAILING

    @property
    def missed(self) -> bool:
        """Whether the others still need a rank that has ended well."""
        return (
            not self.fails
            and self.when in ("import", "before", "mid")
            and len(self.chosen) < self.ranks
        )

    def arguments(self, delay: float) -> list[str]:
        return [self.way, self.when, ",".join(map(str, self.chosen)), f"{delay:.3f}"]

    def __str__(self) -> str:
        return f"{self.way}-{self.when}-{self.who}-of-{self.ranks}-{self.clock}"


def every_pair(seed: int = 9) -> list[Row]:
    """Few rows that hold every possible pair, found greedily: the row with the most new pairs of a
    seeded shuffle of all, virtual ones first among equals."""
    rows = [row for cells in itertools.product(*COLUMNS.values()) if (row := Row(*cells)).possible]
    random.Random(seed).shuffle(rows)

    def pairs(row):
        return set(itertools.combinations(vars(row).items(), 2))

    missing, chosen = set().union(*map(pairs, rows)), []
    while missing:
        best = max(rows, key=lambda row: (len(pairs(row) & missing), row.clock == "virtual"))
        chosen.append(best)
        missing -= pairs(best)
    return chosen


# And a rank that ends well in the middle of what its peers need of it, which pairs meet once.
MISSED = [
    Row("_exit0", "mid", "first", 2, "virtual"),
    Row("_exit0", "before", "last", 4, "virtual"),
    Row("exit0", "import", "last", 2, "virtual"),
    Row("exit0", "mid", "last", 2, "live"),
]
ROWS = [*every_pair(), *MISSED]


def check(row: Row, ended: str, errors: list[str], exit_code: int, logs: dict[int, str]) -> None:
    """`errors`: "rank 1: message" each."""
    said = "\n".join(errors)
    if row.way == "unfinished" and any("Traceback" in log for log in logs.values()):
        row_fails, words = True, [f"rank {(row.chosen[0] + 1) % row.ranks}", "rank"]
    elif row.way == "unfinished" and ended != "finished":
        row_fails, words = True, [f"rank {row.chosen[0]}", "1 operation unfinished"]
    elif row.fails:
        row_fails, words = True, [FAILING[row.way]]
        assert any(f"rank {number}" in said for number in row.chosen), said
    else:
        row_fails, words = row.missed, [f"rank {number}" for number in row.chosen]
    if not row_fails:
        assert (ended, errors, exit_code) == ("finished", [], 0), said
        return
    assert ended in ("failed", "stalled") and exit_code == 1 and errors, (ended, exit_code, said)
    for word in words:
        assert word in said, said
