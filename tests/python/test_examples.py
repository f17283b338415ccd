"""`loomnet examples`: the scenarios of this version as one's own files, of a wheel or a clone."""

import re
import shutil
from pathlib import Path

import pytest

from loomnet.cli import examples as command
from loomnet.cli import main

SCENARIOS = Path(__file__).parents[2] / "scenarios"
FILES = {
    path.relative_to(SCENARIOS)
    for path in SCENARIOS.rglob("*")
    if path.is_file()
    and path.suffix in (".py", ".ipynb", ".json", ".csv", ".txt", ".topo")
    and not {"runs", "__pycache__", ".ipynb_checkpoints"} & set(path.parts)
}
PAGES = {Path("courses") / name for name in command.PAGES.values()}
WRITTEN = FILES | PAGES


def files(folder: Path) -> set[Path]:
    return {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}


def test_it_writes_this_versions_scenarios_and_lists_them(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["examples"]) == 0
    out = capsys.readouterr().out
    made = tmp_path / "scenarios"
    assert files(made) == WRITTEN and len(FILES) > 50
    for path in FILES:
        assert (made / path).read_bytes() == (SCENARIOS / path).read_bytes()
    assert f"Written in {made}, {len(WRITTEN)} files:" in out
    assert {path.name for path in WRITTEN} <= set(out.split())
    assert "Answers to the courses' questions: scenarios/courses/answers.md" in out
    assert "    loomnet run scenarios/flap.py\n" in out
    assert max(map(len, out.splitlines()[1:])) <= 80


def test_what_it_says_to_type_next_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["examples", "my files"]) == 0
    assert "    loomnet run 'my files/flap.py'\n" in capsys.readouterr().out
    assert main(["list", "my files"]) == 0
    assert "mfabric/cost.py" in capsys.readouterr().out
    assert main(["run", "my files/flap.py", "--set", "size=2 MB"]) == 0
    assert main(["run", "my files/mfabric/cost.py"]) == 0  # which imports the folder lib beside it
    assert not (tmp_path / "my files" / "runs").exists()


def test_the_pages_that_the_courses_name_are_written_beside_them(tmp_path):
    """The pages have their text and no link that leads nowhere. Wheels have the same pages."""
    assert main(["examples", str(tmp_path / "made")]) == 0
    courses = tmp_path / "made" / "courses"
    answers = (courses / "answers.md").read_text()
    assert answers.startswith("# Answers to the courses' questions") and "## Sums in" in answers
    build = (SCENARIOS.parent / "core" / "CMakeLists.txt").read_text()
    for page, name in command.PAGES.items():
        assert f"/docs/{page}" in build
        text = (courses / name).read_text()
        assert len(text) > 0.9 * len((SCENARIOS.parent / "docs" / page).read_text())
        for target in re.findall(r"\]\(([^)#]+)", text):
            assert target.startswith("http") or (courses / target).is_file(), target
    for book in courses.glob("*.ipynb"):
        named = set(re.findall(r"`([\w-]+\.md)`", book.read_text()))
        assert "answers.md" in named and all((courses / name).is_file() for name in named), named


@pytest.mark.parametrize("mine", ["flap.py", "ina/lib/mix.py", "courses/answers.md"])
def test_nothing_is_overwritten_and_nothing_written_beside_it(tmp_path, monkeypatch, capsys, mine):
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "here" / mine
    own.parent.mkdir(parents=True)
    own.write_text("mine")
    assert main(["examples", "here"]) == 2
    assert f"here/{mine} is there already, and nothing is overwritten" in capsys.readouterr().err
    assert files(tmp_path) == {Path("here") / mine} and own.read_text() == "mine"


def test_a_folder_of_other_files_is_no_hindrance(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    assert main(["examples", "."]) == 0
    assert files(tmp_path) == WRITTEN | {Path("notes.txt")}


def test_a_link_in_a_folders_place_is_not_followed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "away").mkdir()
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "ina").symlink_to(tmp_path / "away")
    assert main(["examples", "here"]) == 2
    assert "cannot make the folder here/ina" in capsys.readouterr().err
    assert not files(tmp_path)


def test_what_a_clone_holds_beside_its_scenarios_is_left_out(tmp_path, monkeypatch, capsys):
    clone = tmp_path / "clone"
    shutil.copytree(SCENARIOS, clone / "scenarios", ignore=shutil.ignore_patterns("runs"))
    shutil.copytree(SCENARIOS.parent / "docs", clone / "docs")
    for other in ("runs/flap-1/report.json", "ina/__pycache__/rates.pyc", ".hidden/x.py"):
        (clone / "scenarios" / other).parent.mkdir(parents=True)
        (clone / "scenarios" / other).write_text("")
    monkeypatch.setattr(command, "PACKAGE", clone / "python" / "loomnet")
    assert main(["examples", str(tmp_path / "made")]) == 0
    assert files(tmp_path / "made") == WRITTEN
    monkeypatch.setattr(command, "PACKAGE", tmp_path / "nowhere" / "loomnet")
    assert main(["examples", str(tmp_path / "more")]) == 2
    assert "no scenarios beside" in capsys.readouterr().err
    assert not (tmp_path / "more").exists()
