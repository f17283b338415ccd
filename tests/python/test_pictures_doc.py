"""docs/pictures.md: its code runs as it stands there, and it names every picture."""

import doc_blocks
import pytest

import loomnet as ln
from loomnet.results.comparison import IN_WORDS, REL_LIVE, REL_VIRTUAL, Verdict
from loomnet.results.distributions import NEAR
from loomnet.results.drawing import STALL
from loomnet.results.result_plot import WHATS
from loomnet.results.time_span import CUT_RATIO, LONGEST_RATIO, MOST_GAPS, QUIET_SHARE

PAGE = doc_blocks.ROOT / "docs" / "pictures.md"


def test_its_code_runs(tmp_path, monkeypatch):
    pytest.importorskip("polars")
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in doc_blocks.blocks(PAGE):
        exec(compile(block.code, f"{PAGE}:{block.line}", "exec"), names)
    assert (tmp_path / "overview.png").stat().st_size > 10_000
    lab = ln.Lab(directory=tmp_path / "lab")
    with pytest.raises(AssertionError, match=r"no baseline .*flap\.json"):
        names["test_flap"](lab)


def test_it_says_what_the_code_does():
    text = PAGE.read_text()
    for what in WHATS:
        assert f"`{what}`" in text, what
    for verdict in Verdict.__args__:
        assert f"`{IN_WORDS.get(verdict, verdict)}`" in text, verdict
    assert (REL_VIRTUAL, REL_LIVE) == (0.01, 0.05) and "up to 1 %" in text and "up to 5 %" in text
    assert (STALL, LONGEST_RATIO, CUT_RATIO) == (3, 4, 1.5)
    assert "longer than three medians" in text and "more than four times" in " ".join(text.split())
    assert (QUIET_SHARE, MOST_GAPS) == (0.8, 4) and "four at most, take four fifths" in text
    assert NEAR == 0.3 and "above three tenths of the largest" in text


def test_a_name_that_is_none_has_a_hint():
    with pytest.raises(AttributeError, match=r"no attribute 'AllReduse'; nearest: AllReduce"):
        ln.AllReduse  # noqa: B018
