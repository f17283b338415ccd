"""A scenario may import modules of its own folder: wherever it is loaded, each scenario its own, as
they are when it is loaded; and a run keeps a copy of them, which a replay plays."""

import shutil
import subprocess
import sys

import pytest

import loomnet as ln
from loomnet.cli import main
from loomnet.labs.lab import Lab

SCENARIO = '''
import loomnet as ln
from helper import SIZE

@ln.scenario
def uses_helper(lab: ln.Lab, n: int = 1):
    """Sends as many bytes as a module beside it says."""
    import late
    from pack.inner import RANKS
    r = lab.run(ln.star(hosts=2, rate="10 Gb/s", delay="1 us"), ln.SendRecv(SIZE, RANKS))
    lab.metric("late", late.VALUE)
'''
FILES = {
    "sc.py": SCENARIO,
    "helper.py": "SIZE = '8 kB'\n",
    "late.py": "VALUE = 1\n",
    "pack/__init__.py": "",
    "pack/inner.py": "from .number import RANKS\n",
    "pack/number.py": "RANKS = 2\n",
}


def put(folder, **changed):
    for name, text in {**FILES, **changed}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.fixture
def here(tmp_path, monkeypatch):
    put(tmp_path / "far")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "far"


def sent(report):
    """Payload bytes, which the sender and the receiver have as work each."""
    hosts = report.results[None].data.hosts.values()
    return sum(b for host in hosts for *_, b in host.work) // 2


def test_commands_find_them(here, capsys):
    assert main(["run", "far/sc.py"]) == 0
    (run,) = (here.parent / "runs").iterdir()
    for name, text in FILES.items():
        assert (run / name).read_text() == text
    assert main(["list", "far/sc.py"]) == 0
    assert "as many bytes as a module beside it says" in capsys.readouterr().out
    assert main(["describe", "far/sc.py"]) == 0
    (here / "fab.py").write_text(
        "import loomnet as ln\ndef fabric():\n    from late import VALUE\n"
        "    return ln.star(hosts=2, rate='10 Gb/s', delay='1 us')\n"
    )
    assert (
        main(
            [
                "bench",
                "sendrecv",
                "-b",
                "8",
                "-e",
                "8",
                "--ranks",
                "2",
                "--planes",
                "1",
                "--fabric",
                "far/fab.py",
            ]
        )
        == 0
    )


def test_a_replay_plays_the_runs_own_copies(here, capsys):
    assert main(["run", "far/sc.py"]) == 0
    put(
        here,
        **{
            "helper.py": "SIZE = '9 kB'\n",
            "late.py": "VALUE = 2\n",
            "pack/number.py": "RANKS = 3\n",
        },
    )
    (run,) = (here.parent / "runs").iterdir()
    capsys.readouterr()
    assert main(["replay", str(run)]) == 0, capsys.readouterr().out
    assert "identical" in capsys.readouterr().out
    (run / "helper.py").write_text("SIZE = '7 kB'\n")
    assert main(["replay", str(run)]) == 1


def test_a_run_keeps_what_it_ran_when_files_are_edited_meanwhile(here, capsys):
    """The scenario's own code edits both files, as an editor would during a run."""
    running = SCENARIO + (
        "    from pathlib import Path\n    for name in ('sc.py', 'helper.py'):\n"
        "        file = Path(__file__).with_name(name)\n"
        "        file.write_text('SIZE = 0  # edited during the run\\n')\n"
    )
    (here / "sc.py").write_text(running)
    assert main(["run", "far/sc.py"]) == 0
    (run,) = (here.parent / "runs").iterdir()
    assert (here / "sc.py").read_text() == "SIZE = 0  # edited during the run\n"
    assert (run / "sc.py").read_text() == running
    assert (run / "helper.py").read_text() == FILES["helper.py"]
    capsys.readouterr()
    assert main(["replay", str(run)]) == 0, capsys.readouterr().out
    assert "sc.py has changed since; its copy was played" in capsys.readouterr().out


def test_a_replay_names_an_input_that_has_changed(here, capsys):
    (here / "sc.py").write_text(
        SCENARIO.replace(
            "import late\n",
            "import late\n    from pathlib import Path\n    SIZE = Path('size').read_text()\n",
        )
    )
    (here.parent / "size").write_text("8 kB")
    assert main(["run", "far/sc.py"]) == 0
    (run,) = (here.parent / "runs").iterdir()
    (here.parent / "size").write_text("9 kB")
    capsys.readouterr()
    assert main(["replay", str(run)]) == 1
    assert "note: <cwd>/size is not as it was in that run\n" in capsys.readouterr().out


def test_each_load_has_its_modules_as_they_are(here):
    """Even where an edit left the second and the size of the file as they were."""
    first = ln.load("far/sc.py")
    put(here, **{"helper.py": "SIZE = '9 kB'\n"})
    second = ln.load("far/sc.py")
    assert (sent(first.run()), sent(second.run()), sent(first.run())) == (16_000, 18_000, 16_000)
    own = "from helper import SIZE"
    (here / "sc.py").write_text(SCENARIO.replace(own, "SIZE = '7 kB'".ljust(len(own))))
    assert sent(ln.load("far/sc.py").run()) == 14_000


def test_two_folders_may_have_modules_of_one_name(here, tmp_path):
    put(tmp_path / "near", **{"helper.py": "SIZE = '3 kB'\n", "late.py": "VALUE = 5\n"})
    far, near = ln.load("far/sc.py"), ln.load("near/sc.py")
    for scenario, size, late in ((far, 16_000, 1), (near, 6_000, 5), (far, 16_000, 1)):
        report = scenario.run()
        assert sent(report) == size and report["late"] == late
    assert not {"helper", "late", "pack", "pack.inner"} & sys.modules.keys()


def test_a_scenario_inside_another_has_its_own(here, tmp_path):
    put(tmp_path / "near", **{"helper.py": "SIZE = '3 kB'\n", "late.py": "VALUE = 5\n"})
    (tmp_path / "near/outer.py").write_text(
        "import loomnet as ln\nimport late\n@ln.scenario\ndef outer(lab: ln.Lab):\n"
        "    lab.metric('inner', lab.run_file('../far/sc.py')['late'])\n"
        "    import late as again\n"
        "    lab.metric('outer', again.VALUE)\n    assert again is late\n"
    )
    report = ln.load("near/outer.py").run()
    assert (report["inner"], report["outer"]) == (1, 5)


def test_the_pytest_fixtures_lab_runs_them(here, tmp_path):
    lab = Lab("test", base=tmp_path, directory=tmp_path / "out")
    assert lab.run_file("far/sc.py")["late"] == 1


def test_the_programs_own_modules_of_the_same_names_stay(here, monkeypatch):
    ours = type(sys)("helper")
    monkeypatch.setitem(sys.modules, "helper", ours)
    assert sent(ln.load("far/sc.py").run()) == 16_000
    assert sys.modules["helper"] is ours


def test_names_of_pythons_library_and_of_packages_without_modules_are_not_taken(here):
    put(
        here,
        **{
            "json.py": "raise RuntimeError('not the library')\n",
            "networkx/notes.txt": "no package\n",
        },
    )
    (here / "sc.py").write_text(
        SCENARIO.replace(
            "import late\n", "import late, json, networkx\n    json.dumps(1), networkx.Graph()\n"
        )
    )
    assert ln.load("far/sc.py").run()["late"] == 1


def test_an_error_in_a_module_names_its_line(here, capsys):
    put(here, **{"helper.py": "\nSIZE = undefined\n"})
    assert main(["run", "far/sc.py"]) == 2
    err = capsys.readouterr().err
    assert "far/sc.py:3 (in helper.py:2): NameError" in err and err.count("\n") == 1


def test_a_fresh_process_runs_it_from_anywhere(here):
    done = subprocess.run(
        [sys.executable, "-P", "-m", "loomnet", "run", "far/sc.py"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_parcel_carries_them(here, tmp_path):
    from loomnet.labs.parcel import parcel_of, unpacked

    scenario = ln.load("far/sc.py")
    scenario.run()
    parcel = parcel_of(scenario)
    shutil.rmtree(here)
    (tmp_path / "elsewhere").mkdir()
    assert sent(unpacked(parcel, tmp_path / "elsewhere").run()) == 16_000
