"""A report held against one that was kept: for tests that guard figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loomnet.base.arguments import checked_call

if TYPE_CHECKING:  # the pytest plugin imports this module in every test run
    from loomnet.results.comparison import Difference
    from loomnet.results.report import Report
    from loomnet.results.result import Result

# Set by the pytest plugin: --loomnet-update-baselines, and the folder of the test that runs.
update = False
folder: Path | None = None


@checked_call
def assert_matches(
    report: Report | Result,
    baseline: str | Path,
    *,
    rel: float | Mapping[str, float] = 0.0,
    only: str | Sequence[str] | None = None,
    ignore: str | Sequence[str] = (),
    worse_only: bool = False,
) -> None:
    """Asserts that figures and checks of a report, or of one run's result, equal the baseline
    report's within `rel` times the baseline's value; nulls and names must be the same.
    `worse_only`: a figure may be better, or new, and fails where it is worse, gone or no longer
    measured, or has changed and which way is worse is not known, as with ln.compare.

    `rel`: one share for all figures, or shares by figure, as {"*": 0.02, "blip_s": 0.15}: a name,
    the end of a dotted name or a glob; of several that fit a figure the last holds. `only`: figures
    to look at, by such names, one or more; None: all. `ignore`: figures to leave out.

    A relative path is looked for beside the test. With `--loomnet-update-baselines` the baseline is
    written instead. Raises AssertionError with the figures at fault; FidelityError, in either case,
    for a run whose engine fell behind: it is no result; UsageError for a name that fits no figure.
    """
    __tracebackhide__ = True  # a test's failure shows the test, not this file
    from loomnet.base.errors import FidelityError, UsageError
    from loomnet.base.names import quoted
    from loomnet.base.reading import is_file, user_path
    from loomnet.processes.invoking_user import rights_of, writer_of
    from loomnet.results.comparison import compare
    from loomnet.results.tolerance import check_patterns, fits, tolerance

    path = user_path("assert_matches", baseline)
    path = path if folder is None else folder / path
    wanted = None if only is None else _names("only", only)
    if wanted == []:
        raise UsageError(
            "assert_matches: only=[] looks at no number, so it would always pass; "
            "name some, or leave only= out"
        )
    if not isinstance(worse_only, bool):
        raise UsageError(f"assert_matches: worse_only={quoted(worse_only)} is not True or False")
    unwanted, allowed = _names("ignore", ignore), tolerance("assert_matches: rel", rel)
    made = _as_report(report)
    if made.behind:
        raise FidelityError(f"no result to hold against {path.name}: " + "; ".join(made.behind))
    if made.interrupted:
        raise AssertionError(f"the run was interrupted: nothing to hold against {path.name}")
    if update:
        with rights_of(writer_of(path)):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(made.to_json())
        return
    if not is_file(path):
        raise AssertionError(
            f"no baseline {path}: write it with `pytest --loomnet-update-baselines`, look at it "
            "and commit it"
        )
    try:
        found = compare(path, made, rel=0.0)
    except UsageError as error:
        raise AssertionError(str(error)) from None
    names = [row.name for row in found]
    patterns = [*(wanted or ()), *unwanted, *(name for name, _ in allowed.shares if name != "*")]
    check_patterns("assert_matches", patterns, names)
    rows = [
        row
        for row in found
        if (wanted is None or any(fits(row.name, each) for each in wanted))
        and not any(fits(row.name, each) for each in unwanted)
    ]
    if not rows:
        raise UsageError("assert_matches: ignore= leaves no number to look at")
    looked_at = len(rows)
    if worse_only:
        rows = [
            row
            for row in rows
            if row.verdict not in ("better", "new")
            and not (row.verdict == "unmeasured" and row.a is None)
        ]
    wrong = [line for row in rows if (line := _difference(row, allowed.of(row.name))) is not None]
    if wrong:
        how = "are worse than in" if worse_only else "differ from"
        notes = [f"  note: {line}" for line in found.setups(("the baseline", "this run"))]
        raise AssertionError(
            "\n".join(
                (
                    f"{len(wrong)} of {looked_at} numbers {how} {path} by more than {allowed}:",
                    *wrong,
                    *notes,
                    "if they should: `pytest --loomnet-update-baselines`",
                )
            )
        )


def _names(where: str, given: Any) -> list[str]:
    from loomnet.base.errors import UsageError
    from loomnet.base.names import quoted

    names = [given] if isinstance(given, str) else given
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise UsageError(f"assert_matches: {where}={quoted(given)} is no list of numbers' names")
    return list(names)


def _difference(row: Difference, rel: float) -> str | None:
    """A line for a figure that is not as the baseline says, a better one too: a baseline that is
    out of date guards nothing."""
    if row.verdict in ("same", "unsure"):
        return None
    if row.change is not None and abs(row.change) <= rel * (1 + 1e-9):
        return None
    change = "" if row.change is None else f" ({row.change:+.2%})"
    reason = f"; {row.reason}" if row.reason else ""
    return f"  {row.name}: {_text(row.a)} in the baseline, {_text(row.b)} now{change}{reason}"


def _text(value: float | None) -> str:
    return "null" if value is None else f"{value:.6g}"


def _as_report(given: Any) -> Report:
    from loomnet.base.errors import UsageError
    from loomnet.base.names import quoted
    from loomnet.results.report import Report, RunFidelity
    from loomnet.results.result import Result
    from loomnet.results.sides import facts_of

    if isinstance(given, Report):
        return given
    if not isinstance(given, Result):
        raise UsageError(f"assert_matches: {quoted(given)} is neither a report nor a result")
    fidelity = [
        RunFidelity(given.label or "", given.data.fidelity, given.data.ended, given.data.reason)
    ]
    facts = facts_of(given)
    clock, seed = facts.pop("clock"), facts.pop("seed")
    return Report(
        given.label or "run",
        facts,
        clock,
        seed,
        rows=list(given.rows),
        fidelity=fidelity,
        fabrics={given.label or "": given.fabric_facts},
        deterministic=given.data.deterministic,
    )
