"""Every name that a report shows has its entry, and `loomnet explain` finds it."""

import subprocess
import sys

import defined_names
import pytest

from loomnet.base import glossary
from loomnet.base.errors import UsageError

NAMES = {entry.name for entry in glossary.entries()}


def explained(*words):
    return subprocess.run([sys.executable, "-m", "loomnet", "explain", *words], capture_output=True,
                          text=True)


@pytest.mark.parametrize("kind", defined_names.everything())
def test_each_defined_name_has_an_entry(kind):
    defined = defined_names.everything()[kind]
    assert len(defined) >= 5, "the reader of the sources finds nothing"
    assert not defined - NAMES, f"{kind} without an entry in glossary.md"


def test_no_entry_is_left_over():
    """All but the words are names that the sources define."""
    defined = set().union(*defined_names.everything().values())
    words = {entry.name for entry in glossary.entries() if entry.section == "Words"}
    assert not NAMES - defined - words


def test_no_name_stands_twice_under_one_heading():
    seen = [(entry.section, entry.name) for entry in glossary.entries()]
    assert len(seen) == len(set(seen))


def test_entries_are_sentences_of_at_most_three_lines():
    for entry in glossary.entries():
        assert entry.text.endswith("."), entry
        assert len(entry.text) <= 330, entry


def test_every_line_of_the_page_is_read():
    """A definition that the reader does not see would be missing in a terminal alone."""
    assert glossary.markdown().count("\n:   ") == len(glossary.entries())


@pytest.mark.parametrize(("asked", "found"), [
    ("blip_s", {"blip_s"}),
    ("down.goodput_ratio", {"goodput_ratio"}),
    ("mrc.job0.down.blip_s", {"blip_s"}),
    ("queue_full", {"drop_queue_full"}),
    ("unasked_answer", {"drop_unasked_answer"}),
    ("out_of_order", {"out_of_order_dropped"}),
    ("drop_umem_dry", {"umem_dry"}),
    ("slots_mean.p0.leaf0", {"slots_mean"}),
    ("ina.full", {"full"}),
    ("MRC", {"MRC"}),
    ("B.off.step_gap", {"step gap"}),
    ("symphony", {"Symphony"}),
    ("mrc", {"MRC"}),
    ("planes", {"plane"}),
    ("queue pairs", {"queue pair"}),
    ("D", {"D"}),
])
def test_a_name_is_found_as_reports_write_it(asked, found):
    assert {entry.name for entry in glossary.explain(asked)} == found


def test_both_meanings_of_a_name_are_told():
    assert {entry.section for entry in glossary.explain("release")} == {
        "Events", "Counters of switches that sum"}


def test_an_unknown_name_is_one_line_with_the_nearest():
    with pytest.raises(UsageError, match=r'no entry "goodput_rato"; nearest: goodput_ratio'):
        glossary.explain("goodput_rato")
    done = explained("goodput_rato")
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.count("\n") == 1


def test_the_command_prints_an_entry_and_all_of_them():
    one = explained("down.blip_s")
    assert one.returncode == 0 and one.stdout.startswith("blip_s  (figures of a run)\n  Seconds.")
    every = explained()
    assert every.returncode == 0
    assert all(len(line) <= 80 for line in every.stdout.splitlines())
    assert all(f"\n{name}\n" in every.stdout for name in NAMES)


def test_entries_are_apart_by_empty_lines():
    """Markdown takes a definition of one line for the next term where none is between them."""
    assert glossary.markdown().count("\n\n`") >= len(glossary.entries())
