"""Every name that a report shows has its entry, and `loomnet explain` finds it."""

import subprocess
import sys

import defined_names
import pytest

import loomnet as ln
from loomnet.base import glossary
from loomnet.base.errors import UsageError

NAMES = {entry.name for entry in glossary.entries()}


def explained(*words):
    return subprocess.run(
        [sys.executable, "-m", "loomnet", "explain", *words], capture_output=True, text=True
    )


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


@pytest.mark.parametrize(
    ("asked", "found"),
    [
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
    ],
)
def test_a_name_is_found_as_reports_write_it(asked, found):
    assert {entry.name for entry in glossary.explain(asked)} == found


@pytest.mark.parametrize(
    "word",
    [
        "ESA",
        "ATP",
        "SwitchML",
        "MixNet",
        "parameter server",
        "hash",
        "pool",
        "bisection",
        "bandwidth",
        "RTT",
        "flow completion time",
        "Gloo",
        "experts",
        "worker",
        "jitter",
        "tuning",
        "tuned",
        "held",
        "summing",
        "done",
        "verdict",
        "link_use",
        "link use",
        "reroute_delay",
        "policy",
        "window",
        "rule",
        "share",
        "repatch",
        "worthwhile",
        "p99",
        "host",
        "priority",
        "placement",
        "profile",
        "dark",
    ],
)
def test_words_that_courses_use_have_an_entry(word):
    assert {entry.section for entry in glossary.explain(word)} >= {"Words"}


def test_a_notebook_has_the_entries_too():
    found = ln.explain("down.blip_s")
    assert repr(found).startswith("blip_s  (figures of a run)\n  Seconds.")
    assert found._repr_html_().startswith("<p><b>blip_s</b> (figures of a run): Seconds.")
    assert len(ln.explain()) == len(glossary.entries())
    with pytest.raises(ln.UsageError, match='no entry "blib_s"; nearest: blip_s'):
        ln.explain("blib_s")
    with pytest.raises(ln.UsageError, match="explain: 3 is no name"):
        ln.explain(3)


def test_both_meanings_of_a_name_are_told():
    assert {entry.section for entry in glossary.explain("release")} == {
        "Events",
        "Counters of switches that sum",
    }


def test_an_unknown_name_is_one_line_with_the_nearest():
    with pytest.raises(UsageError, match=r'no entry "goodput_rato"; nearest: goodput_ratio'):
        glossary.explain("goodput_rato")
    done = explained("goodput_rato")
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("asked", "owner"),
    [
        ("dark_scope", "ln.CircuitControl"),
        ("hosts_per_leaf", "ln.clos.Clos"),
        ("stall_timeout", "ln.AllGather"),
    ],
)
def test_an_argument_without_an_entry_says_whose_help_has_it(asked, owner):
    with pytest.raises(UsageError, match=rf'"{asked}" is an argument; see help\({owner}\)'):
        glossary.explain(asked)


def test_names_that_are_not_alike_are_not_offered():
    for asked in ("ppp", "quartz"):
        with pytest.raises(UsageError, match=f'"{asked}"; `loomnet explain` lists all names$'):
            glossary.explain(asked)
    with pytest.raises(UsageError, match=r'"jitterr"; nearest: jitter$'):
        glossary.explain("jitterr")


def test_several_words_are_a_phrase():
    done = explained("flow", "completion", "time")
    assert done.returncode == 0 and done.stdout.startswith("flow completion time  (words)")
    assert [entry.name for entry in glossary.explain("dark")] == ["dark", "drop_dark"]


def test_the_command_prints_an_entry_and_all_of_them():
    one = explained("down.blip_s")
    assert one.returncode == 0 and one.stdout.startswith("blip_s  (figures of a run)\n  Seconds.")
    every, names = explained("--all"), explained()
    assert every.returncode == names.returncode == 0
    assert all(len(line) <= 80 for line in (every.stdout + names.stdout).splitlines())
    assert all(f"\n{name}\n" in every.stdout for name in NAMES)
    listed = " ".join(names.stdout.split())
    assert all(name in listed for name in NAMES) and len(names.stdout) < len(every.stdout) / 5


def test_entries_are_apart_by_empty_lines():
    """Markdown takes a definition of one line for the next term where none is between them."""
    assert glossary.markdown().count("\n\n`") >= len(glossary.entries())
