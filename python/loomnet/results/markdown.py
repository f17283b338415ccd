"""A report as a page of Markdown, for the summary of a CI job."""

from __future__ import annotations

from collections.abc import Iterable

from loomnet.base.number_text import number_text
from loomnet.measures.rows import dotted_name
from loomnet.results.report import Report
from loomnet.results.tables import columns_of, shown_rows

MOST_TABLES = 12  # of more runs the checks and sentences say enough


def to_markdown(report: Report) -> str:
    """What happened, the checks, and the figures by phase."""
    verdict = {
        0: "ok",
        1: "a check failed or a run did not finish",
        3: "no result: the engine fell behind",
        130: "interrupted",
    }
    lines = [
        f"## {report.scenario}: {verdict.get(report.exit_code, 'failed')}",
        "",
        f"{report.clock} clock, seed {report.seed}"
        + "".join(f", {name}={_plain(str(value))}" for name, value in report.parameters.items()),
        "",
    ]
    lines += [
        f"- {_plain(f'{label}: {said}' if label else said)}"
        for label, said in list(report.sentences.items())[:MOST_TABLES]
    ]
    lines += [f"- **{_plain(line)}**" for line in (*report.behind, *report.broken_off)]
    lines += [
        f"- not repeatable (deterministic: false): {_plain(line)}" for line in report.unrepeatable
    ]
    if report.checks:
        lines += [
            "",
            *_rows(
                ("check", "value", "bound", ""),
                (
                    (
                        check.name,
                        number_text(check.value, check.unit),
                        check.bound_text,
                        "ok" if check.ok else f"**FAIL** {check.reason or ''}".rstrip(),
                    )
                    for check in report.checks
                ),
            ),
        ]
    for (label, job), rows in list(shown_rows(report).items())[:MOST_TABLES]:
        names, columns = columns_of(rows)
        title = dotted_name(label, job)
        lines += [
            "",
            *([f"**{_plain(title)}**", ""] if title else []),
            *_rows(
                ("number", *(each.heading for each in columns)),
                zip(names.cells, *(each.cells for each in columns), strict=True),
            ),
        ]
    return "\n".join(lines) + "\n"


def _rows(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    heads = list(heads)
    return [
        "| " + " | ".join(heads) + " |",
        "|" + "---|" * len(heads),
        *("| " + " | ".join(map(_plain, row)) + " |" for row in rows),
    ]


def _plain(text: str) -> str:
    """Without what a table or HTML would act on."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|").replace("\n", " ")
