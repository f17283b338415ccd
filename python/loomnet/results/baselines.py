"""A report held against one that was kept: for tests that guard figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from loomnet.base.arguments import checked_call

if TYPE_CHECKING:  # the pytest plugin imports this module in every test run
    from loomnet.results.comparison import Comparison
    from loomnet.results.report import Report
    from loomnet.results.result import Result

# Set by the pytest plugin: --loomnet-update-baselines, and the folder of the test that runs.
update = False
folder: Path | None = None


@checked_call
def assert_matches(report: Report | Result, baseline: str | Path, *, rel: float = 0.0) -> None:
    """Asserts that every figure and check of a report, or of one run's result, equals the baseline
    report's within `rel` times the baseline's value; nulls and names must be the same.

    A relative path is looked for beside the test. With `--loomnet-update-baselines` the baseline is
    written instead. Raises AssertionError with the figures at fault; FidelityError, in either case,
    for a run whose engine fell behind: it is no result.
    """
    from loomnet.base.errors import FidelityError, UsageError
    from loomnet.base.reading import is_file, user_path
    from loomnet.processes.invoking_user import rights_of, writer_of
    from loomnet.results.comparison import compare

    path = user_path("assert_matches", baseline)
    path = path if folder is None else folder / path
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
        found = compare(path, made, rel=rel)
    except UsageError as error:
        raise AssertionError(str(error)) from None
    if wrong := _differing(found):
        raise AssertionError(
            f"{len(wrong)} of {len(found)} figures differ from {path} by more than {rel:g}:\n"
            + "\n".join(wrong)
            + "\nif they should: `pytest --loomnet-update-baselines`"
        )


def _differing(found: Comparison) -> list[str]:
    """A line per figure that is not as the baseline says, better ones too: a baseline that is out
    of date guards nothing."""
    return [
        f"  {row.name}: {_text(row.a)} in the baseline, {_text(row.b)} now"
        + (f" ({row.change:+.2%})" if row.change is not None else "")
        + (f"; {row.reason}" if row.reason else "")
        for row in found
        if row.verdict not in ("same", "unsure")
    ]


def _text(value: float | None) -> str:
    return "null" if value is None else f"{value:.6g}"


def _as_report(given: Any) -> Report:
    from loomnet.base.errors import UsageError
    from loomnet.base.names import quoted
    from loomnet.results.report import Report, RunFidelity
    from loomnet.results.result import Result

    if isinstance(given, Report):
        return given
    if not isinstance(given, Result):
        raise UsageError(f"assert_matches: {quoted(given)} is neither a report nor a result")
    fidelity = RunFidelity(given.label or "", given.data.fidelity, given.data.ended,
                           given.data.reason)
    return Report(given.label or "run", rows=list(given.rows), fidelity=[fidelity],
                  seed=given.plan.seed, deterministic=given.data.deterministic)
