"""script/site sees what is wrong in a built site, and docs/api.md has every public name, as a user
types it. The site itself is built and checked by script/test lint."""

import importlib
import importlib.util
import json
import re
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

import loomnet as ln

ROOT = Path(__file__).parents[2]
_LOADER = SourceFileLoader("site_script", str(ROOT / "script" / "site"))
_SPEC = importlib.util.spec_from_loader("site_script", _LOADER)
site = importlib.util.module_from_spec(_SPEC)
_LOADER.exec_module(site)

MENU = '<nav class="md-nav md-nav--primary"><nav><a href="index.html">x</a></nav>{}</nav>'


def built(folder, body="", menu='<a href="two.html">y</a>', two='<h2 id="part">Part</h2>'):
    """A site of two pages with a picture."""
    (folder / "index.html").write_text(f"<html>{MENU.format(menu)}<p>{body}</p></html>")
    (folder / "two.html").write_text(f"<html>{two}</html>")
    (folder / "there.png").write_text("")
    return site.wrong_links(folder)


@pytest.mark.parametrize(
    "body",
    [
        '<a href="two.html#part">a</a> <a href="two.html">b</a> <a href="#">c</a>',
        '<img src="there.png"> <a href="./">d</a>',
        '<a href="https://example.org/gone#nowhere">e</a> <a href="mailto:a@b">f</a>',
    ],
)
def test_a_sound_site_has_nothing_wrong(tmp_path, body):
    assert built(tmp_path, body) == []


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('<a href="gone.html">a</a>', "index.html: gone.html is not there"),
        ('<img src="gone.png">', "index.html: gone.png is not there"),
        ('<a href="two.html#gone">a</a>', "index.html: two.html#gone: two.html has no such anchor"),
        ('<a href="#gone">a</a>', "index.html: #gone: index.html has no such anchor"),
        ('<a href="../README.html">a</a>', "index.html: ../README.html is not there"),
    ],
)
def test_what_is_not_there_is_named(tmp_path, body, said):
    (tmp_path / "README.html").write_text("")  # beside the site, not in it
    (tmp_path / "site").mkdir()
    assert built(tmp_path / "site", body) == [said]


def test_a_page_in_no_menu_is_named(tmp_path):
    assert built(tmp_path, '<a href="two.html">a</a>', menu="") == ["two.html: in no menu"]


INDEX = {
    "config": {"separator": r"[\s\-_,:!=\[\]()\\\"`/]+|\.(?!\d)"},
    "items": [
        {"location": "a.html", "title": "A", "text": "<p>packet <b>losses</b></p>"},
        {"location": "a.html#b", "title": "B", "text": "FSDP2"},
        {"location": "c.html", "title": "loss", "text": "of bytes, ln.clos.two_tier"},
    ],
}


@pytest.mark.parametrize(
    ("words", "pages"),
    [
        ("packet loss", {"a.html"}),
        ("loss", {"a.html", "c.html"}),
        ("FSDP", {"a.html"}),
        ("packet FSDP", set()),
        ("two_tier", {"c.html"}),
        ("b", {"a.html", "c.html"}),
    ],
)
def test_what_the_search_finds(tmp_path, words, pages):
    assert site.found_by(words, INDEX) == pages
    (tmp_path / "search.json").write_text(json.dumps(INDEX))
    missing = site.not_found(tmp_path, {words: "d.html"})
    assert missing == [f"search: {words!r} does not find d.html"]
    assert not [page for page in pages if site.not_found(tmp_path, {words: page})]


# --- docs/api.md --------------------------------------------------------------------------------
API = (ROOT / "docs" / "api.md").read_text()
ENTRIES = re.findall(
    r"^::: (\S+)\n(?:    options: \{heading: (\S+), toc_label: (\S+)\}$)?", API, re.MULTILINE
)


def at(path):
    """The object of a dotted path, as `loomnet.fabrics.clos.two_tier`."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


@pytest.mark.parametrize(("path", "heading", "label"), ENTRIES, ids=[path for path, *_ in ENTRIES])
def test_a_heading_is_the_name_that_a_user_types(path, heading, label):
    assert heading == label != ""
    if heading.startswith("loomnet.torch."):
        pytest.importorskip("torch")
        importlib.import_module("loomnet.torch")
    assert eval(heading, {"ln": ln, "loomnet": ln}) is at(path)


def test_every_public_name_is_there():
    headings = {heading for _, heading, _ in ENTRIES}
    modules = {"clos", "plugin", "change", "cost"}
    names = set(ln.__all__) - modules - {"__version__"}
    assert {f"ln.{name}" for name in names} <= headings
    assert all(any(h.startswith(f"ln.{module}.") for h in headings) for module in modules)
