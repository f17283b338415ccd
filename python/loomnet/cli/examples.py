"""The command `examples` writes the scenarios of this version, for users without a clone."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loomnet.base.errors import EXIT_OK, UsageError

if TYPE_CHECKING:
    from loomnet.processes.folder import Folder

PACKAGE = Path(__file__).resolve().parents[1]
# Not to be copied: what Python and runs leave in a clone.
LEFT_OUT = ("__pycache__", "runs", ".*", "*.png", "*.pyc")
# Pages of the documentation that the course notebooks name, and what they are beside them.
COURSES = "courses"
PAGES = {
    "course-answers.md": "answers.md",
    "ina.md": "sums-in-switches.md",
    "panels.md": "panels.md",
}


def examples(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="Where to write; made if it is not there. By default "
            "scenarios, as README and the pages call it.",
        ),
    ] = Path("scenarios"),
) -> int:
    """Write the scenarios that come with this version into a folder, ready to run and to change,
    and the answers to the courses' questions."""
    from loomnet.cli.all_or_none import all_or_none
    from loomnet.processes.folder import Folder

    source, pages = shipped(), _pages()
    opened = Folder.at(folder)
    taken = next(_taken(opened, source), None)
    if taken is None and COURSES in set(opened.names()):
        courses = opened.folder(COURSES)
        taken = next((courses / name for name in pages if name in set(courses.names())), None)
    if taken is not None:
        raise UsageError(
            f"examples: {taken} is there already, and nothing is overwritten; name "
            "another folder: loomnet examples DIR"
        )
    beside = [Path(COURSES) / name for name in pages]
    with all_or_none(opened, [*_paths(source, Path()), *beside]):
        written = list(_write(opened, source, Path()))
        for path, text in zip(beside, pages.values(), strict=True):
            opened.folder(COURSES).write(path.name, text.encode())
        written = sorted([*written, *beside])
    print(f"Written in {folder.resolve()}, {len(written)} files:")
    for below in sorted({path.parent for path in written}):
        names = " ".join(path.name for path in written if path.parent == below)
        print(
            "\n".join(
                textwrap.wrap(
                    names,
                    80,
                    initial_indent=f"    {below}/  ",
                    subsequent_indent="        ",
                    break_on_hyphens=False,
                )
            )
        )
    shown = shlex.quote(str(folder))
    print(f"Answers to the courses' questions: {folder / COURSES / PAGES['course-answers.md']}")
    print(
        f"What to type now:\n    loomnet list {shown}\n"
        f"    loomnet run {shlex.quote(str(folder / 'flap.py'))}"
    )
    return EXIT_OK


def shipped() -> Path:
    """The folder of the scenarios: the wheel's, or that of the clone where Loomnet is used as it
    lies there. Raises UsageError."""
    for place in (PACKAGE / "examples", PACKAGE.parents[1] / "scenarios"):
        if (place / "flap.py").is_file():
            return place
    raise UsageError(
        f"examples: no scenarios beside {PACKAGE}; install Loomnet again, from a "
        "wheel or from a clone"
    )


def _pages() -> dict[str, str]:
    """The text of each page by the name that it gets. Links between them lead to these names, and
    links to other pages, which are not there, are their words alone."""
    beside = PACKAGE / "pages"
    source = beside if beside.is_dir() else PACKAGE.parents[1] / "docs"

    def link(found: re.Match[str]) -> str:
        words, page, place = found.groups()
        return f"[{words}]({PAGES[page]}{place})" if page in PAGES else words

    return {
        name: re.sub(
            r"\[([^\]]*)\]\(([\w-]+\.md)([^)]*)\)",
            link,
            (source / page).read_text(encoding="utf-8"),
        )
        for page, name in PAGES.items()
        if (source / page).is_file()
    }


def _entries(source: Path) -> list[Path]:
    return sorted(
        entry for entry in source.iterdir() if not any(entry.match(pattern) for pattern in LEFT_OUT)
    )


def _paths(source: Path, below: Path) -> Iterator[Path]:
    """The files that are written, from the folder."""
    for entry in _entries(source):
        if entry.is_dir():
            yield from _paths(entry, below / entry.name)
        else:
            yield below / entry.name


def _taken(into: Folder, source: Path) -> Iterator[Path]:
    """The files that are there and would be overwritten. No folder is made."""
    there = set(into.names())
    for entry in _entries(source):
        if entry.name not in there:
            continue
        if entry.is_dir():
            yield from _taken(into.folder(entry.name), entry)
        else:
            yield into / entry.name


def _write(into: Folder, source: Path, below: Path) -> Iterator[Path]:
    """Copies the files, and yields each one's path below the folder."""
    for entry in _entries(source):
        if entry.is_dir():
            yield from _write(into.folder(entry.name), entry, below / entry.name)
        else:
            into.write(entry.name, entry.read_bytes())
            yield below / entry.name
