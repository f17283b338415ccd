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
