"""Checks as a picture: words beside codes, what holds, what misses and what was not measured told
apart, zeros among them."""

import pytest

import loomnet as ln
from loomnet.measures.rows import check
from loomnet.results.check_plots import ALLOWED, HOLDS, MISSES, allowed, checks_figure, extent
from loomnet.results.report import report_schema

ROWS = [
    check("S1", 0.8, ge=0.7, le=0.9, published=0.75, what="rate left"),
    check("S2", 0, eq=0, what="errors of ranks"),
    check("S3", 1.3, le=1.0, published=0.0, what="time that a failed NIC costs"),
    check("S4", None, ge=1.0, reason="no sample", what="queue in the last second"),
    check("S5", -0.003, approx=0.0, abs=0.01, published=0.033),
    check("S6", 5, eq=6),
]


def texts(axes):
    return [text.get_text().replace("\n", " ") for text in axes.texts]


def drawn(axes, marker, colour):
    """Places of marks, without that of the legend, which stands first."""
    return [
        (line.get_xdata()[0], line.get_ydata()[0])
        for line in axes.lines
        if line.get_marker() == marker and line.get_color() == colour
    ][1:]


def test_each_row_has_words_its_code_and_its_numbers():
    (axes,) = checks_figure(ROWS).axes
    found = texts(axes)
    for words in (
        "rate left (S1)",
        "errors of ranks (S2)",
        "time that a failed NIC costs (S3)",
        "S5",
        "0, as it must be",
        "0.8  [≥ 0.7, ≤ 0.9]  (published 0.75)",
        "1.3  [≤ 1]  (published 0)",
        "not measured: no sample",
        "5  [= 6]",
    ):
        assert words in found, words


def test_what_holds_what_misses_and_what_was_not_measured_differ():
    (axes,) = checks_figure(ROWS).axes
    assert len(drawn(axes, "o", HOLDS)) == 3  # a zero that holds is one of them
    assert len(drawn(axes, "x", MISSES)) == 2
    assert len(drawn(axes, "D", "#000000")) == 3
    red = [text.get_text() for text in axes.texts if text.get_color() == MISSES]
    assert len(red) == 3 and any("not measured" in text for text in red)


@pytest.mark.parametrize("row", ROWS)
def test_marks_lie_inside_their_bound_where_a_check_holds(row):
    least, most = extent(row)
    low, high = allowed(row)
    assert least < most and all(
        least < at < most for at in (row.value, row.published, low, high) if at is not None
    )
    (axes,) = checks_figure([row]).axes
    bars = [
        each
        for each in axes.collections
        if tuple(each.get_facecolor()[0])
        == pytest.approx((*(int(ALLOWED[i : i + 2], 16) / 255 for i in (1, 3, 5)), 1.0))
    ]
    (bar,) = bars
    xs = bar.get_paths()[0].vertices[:, 0]
    for x, _ in drawn(axes, "o", HOLDS):
        assert min(xs) <= x <= max(xs)
    for x, _ in drawn(axes, "x", MISSES):
        assert not min(xs) <= x <= max(xs)


def test_many_checks_are_cut_and_none_are_refused():
    (axes,) = checks_figure([check(f"N{n}", n, ge=0) for n in range(70)]).axes
    assert "the first 60; 10 more are in report.json" in texts(axes)
    with pytest.raises(ln.UsageError, match="no check; a scenario makes them"):
        checks_figure([])


def test_words_are_in_the_report_of_a_check_that_has_them():
    assert ROWS[0].row()["what"] == "rate left" and "what" not in ROWS[4].row()
    properties = report_schema()["$defs"]["check"]["properties"]
    assert set(ROWS[0].row()) == set(properties)
    with pytest.raises(ln.UsageError, match="check S: what 5 is not a text"):
        check("S", 1, ge=0, what=5)
    lab = ln.Lab()
    lab.check("S", 1, ge=0, what="words")
    assert lab.report.checks[-1].what == "words"
