"""Every report that any test makes is held against the published schema."""

import jsonschema
import pytest

from loomnet.results.report import Report, report_schema

VALIDATOR = jsonschema.Draft202012Validator(report_schema())


@pytest.fixture(autouse=True)
def reports_are_valid(monkeypatch):
    plain = Report.to_dict

    def checked(report):
        content = plain(report)
        VALIDATOR.validate(content)
        return content

    monkeypatch.setattr(Report, "to_dict", checked)


def pytest_terminal_summary(terminalreporter):
    """How many worlds the relations were tried on, and the seed that they were drawn from."""
    rows = [
        value
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", None) == "call"
        for name, value in report.user_properties
        if name == "relation"
    ]
    if rows:
        seed, least, most = rows[0][0], min(row[2] for row in rows), max(row[2] for row in rows)
        terminalreporter.write_line(
            f"relations: seed {seed}, {sum(row[2] for row in rows):,} worlds for {len(rows)} "
            f"relations, {least} to {most} each, broken {sum(row[3] for row in rows)}"
        )
