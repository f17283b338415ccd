"""A sweep takes a kept point for one of its own only while all that the point's run has read is as
it was; damaged files are missing, other people's files stay, a scheduler that goes is one line."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from chakra_writer import ALL_REDUCE, COLLECTIVE, node, write
from clusters import cluster as cluster
from clusters import quiet
from test_htsim import CHAIN, TOPOLOGY

import loomnet as ln
from loomnet.cli import main
from loomnet.processes import inputs
from loomnet.results.run_directory import outdated
from loomnet.sweeps.points import Results

pytest.importorskip("distributed")
pytest.importorskip("polars")

HEAD = "import loomnet as ln\nSTAR = ln.star(hosts=4, rate='100 Gb/s', delay='1 us')\n"
TRAIN = """
import os, time
from pathlib import Path
import torch, torch.distributed as dist
import beside
assert Path("rates.txt").read_text()
dist.init_process_group("gloo")
t = torch.ones(beside.SIZE)
optimizer = torch.optim.SGD([torch.nn.Parameter(t)], 0.1)
for _ in range(2):
    dist.all_reduce(t)
    optimizer.step()
"""


def chakra(folder, size):
    write(folder, [[node(1, COLLECTIVE, comm_type=ALL_REDUCE, comm_size=size)]] * 4)


def text(before, after):
    """Writes a file's content, first as it is at the first sweep, then as it is changed."""
    return (lambda path: path.write_text(before)), (lambda path: path.write_text(after))


def flow(size):
    return f'{{"at": "0 s", "source": 0, "destination": 1, "size": "{size}"}}\n'


# Each: the scenario's code, the file that it names, what writes that file, and what changes it.
NAMED = {
    "a trace": ("lab.run(STAR, ln.Trace('t.jsonl'))", "t.jsonl", *text(flow("1 MB"), flow("2 MB"))),
    "a CSV of sizes": (
        "lab.run(STAR, ln.Flows(sizes='sizes.csv', count=2))",
        "sizes.csv",
        *text("1000,0\n2000,1\n", "1000,0\n3000,1\n"),
    ),
    "a topology": (
        "lab.run(ln.from_htsim_topology('f.topo'), ln.SendRecv('8 B'))",
        "f.topo",
        *text(TOPOLOGY, TOPOLOGY.replace("1500", "1600")),
    ),
    "a connection matrix": (
        "lab.run(STAR, ln.Flows.from_htsim('m.cm'))",
        "m.cm",
        *text(CHAIN, CHAIN.replace("4096", "8192")),
    ),
    "a Chakra folder": (
        "lab.run(STAR, ln.Trace('chakra'))",
        "chakra",
        lambda path: (path.mkdir(), chakra(path, 1000)),
        lambda path: chakra(path, 2000),
    ),
    "a module": (
        "import sizes\n    lab.run(STAR, ln.SendRecv(sizes.SIZE))",
        "sizes.py",
        *text("SIZE = '8 B'", "SIZE = '9 B'"),
    ),
    "a module's package": (
        "from pack.sizes import SIZE\n    lab.run(STAR, ln.SendRecv(SIZE))",
        "pack/sizes.py",
        *text("SIZE = '8 B'", "SIZE = '9 B'"),
    ),
    "a file of the scenario's own": (
        "from pathlib import Path\n"
        "    lab.run(STAR, ln.SendRecv((Path(__file__).parent / 'size').read_text()))",
        "size",
        *text("8 B", "9 B"),
    ),
    "a folder that is looked through": (
        "from pathlib import Path\n    found = sorted(Path('many').glob('*.txt'))\n"
        "    lab.run(STAR, ln.SendRecv(f'{len(found)} kB'))",
        "many/b.txt",
        lambda path: (path.parent / "a.txt").touch(),
        Path.touch,
    ),
    "a file that was not there": (
        "try:\n        size = open('size').read()\n    except OSError:\n        size = '8 B'\n"
        "    lab.run(STAR, ln.SendRecv(size))",
        "size",
        lambda path: None,
        lambda path: path.write_text("9 B"),
    ),
}


def scenario(folder, body, *, above=""):
    (folder / "sc.py").write_text(
        f"{HEAD}{above}\n@ln.scenario\ndef sc(lab: ln.Lab, n: int = 1):\n    {body}\n"
    )


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def swept(here, cluster):
    def swept(**options):
        return ln.sweep("sc.py", n=[1], out="s", scheduler=cluster, watch=quiet, **options)

    return swept


@pytest.mark.parametrize("kind", NAMED)
def test_a_change_of_what_a_run_has_read_gives_new_points(here, swept, kind):
    body, name, write_first, change = NAMED[kind]
    scenario(here, body)
    (here / name).parent.mkdir(exist_ok=True)
    write_first(here / name)
    first = swept()
    assert (first.kept, first.failed, first.missing) == (0, [], 0)
    assert swept().kept == 1
    change(here / name)
    second = swept()
    assert (second.kept, second.failed, second.missing) == (0, [], 0)
    (line,) = second.remarks
    assert "not as it was when 1 point ran" in line and name.partition("/")[0] in line
    assert swept().kept == 1


def test_what_was_read_while_the_scenario_was_loaded_counts_too(here, swept):
    (here / "size").write_text("8 B")
    scenario(here, "lab.run(STAR, ln.SendRecv(SIZE))", above="SIZE = open('size').read()")
    assert swept().kept == 0 and swept().kept == 1
    (here / "size").write_text("9 B")
    assert swept().kept == 0 and swept().kept == 1


def test_a_failed_point_is_run_again_when_what_it_read_is_mended(here, swept):
    (here / "t.jsonl").write_text("nonsense\n")
    scenario(here, "lab.run(STAR, ln.Trace('t.jsonl'))")
    assert len(swept().failed) == 1 and swept().kept == 1
    (here / "t.jsonl").write_text(flow("1 MB"))
    assert swept().ok


def test_what_a_run_writes_is_no_input(here, swept):
    scenario(
        here,
        "open('out.txt', 'w').write(str(__import__('time').time()))\n"
        "    assert open('out.txt').read()\n    lab.run(STAR, ln.SendRecv('8 B'))",
    )
    assert swept().kept == 0 and swept().kept == 1


def test_another_build_of_loomnet_gives_new_points(here, swept, monkeypatch):
    scenario(here, "lab.run(STAR, ln.SendRecv('8 B'))")
    first = swept()
    monkeypatch.setattr(inputs, "_build", "another")
    second = swept()
    assert second.kept == 0 and second.ok
    assert first.points[0].key != second.points[0].key


def test_the_build_changes_with_any_file_of_the_package(tmp_path, monkeypatch):
    shutil.copytree(
        Path(inputs.__file__).parents[1],
        tmp_path / "loomnet",
        ignore=shutil.ignore_patterns("__pycache__"),
    )

    def build():
        monkeypatch.setattr(inputs, "_build", None)
        monkeypatch.setattr(inputs, "_PACKAGE", tmp_path / "loomnet")
        return inputs.build()

    before = build()
    assert build() == before
    with (tmp_path / "loomnet/measures/rows.py").open("a") as file:
        file.write("#")
    assert build() != before
    (tmp_path / "loomnet/measures/.#rows.py").symlink_to("me@here.1")  # an editor's lock
    assert build() == build() != before
    monkeypatch.setattr(inputs, "_build_id", lambda library: b"another compiler's")
    assert build() != before


def test_a_kept_run_says_what_is_not_as_it_was(here, monkeypatch):
    """What `scenarios/mfabric/all.py` asks of the groups that it keeps."""
    (here / "t.jsonl").write_text(flow("1 MB"))
    scenario(here, "lab.run(STAR, ln.Trace('t.jsonl'))")
    ln.load("sc.py").run(directory=here / "run")
    assert outdated(here / "run", here) == []
    (here / "t.jsonl").write_text(flow("2 MB"))
    assert outdated(here / "run", here) == ["<scenario>/t.jsonl"]
    monkeypatch.setattr(inputs, "_build", "another")
    assert outdated(here / "run", here) == ["the build of Loomnet", "<scenario>/t.jsonl"]
    (here / "run/environment.json").write_text("{}")
    assert outdated(here / "run", here) == ["environment.json"]


@pytest.mark.parametrize("fork", ["1", pytest.param("0", marks=pytest.mark.soak)])
def test_what_ranks_read_counts_too(here, swept, fork):
    """Their script, the modules beside it, what it opens and what its arguments name."""
    pytest.importorskip("torch")
    scenario(
        here,
        "lab.run(STAR, ln.TorchJob('train.py', args=['--c=c.yaml'], ranks=2, "
        f"compute='1 ms', env={{'LOOMNET_FORK': '{fork}'}}))",
    )
    (here / "train.py").write_text(TRAIN)
    files = {"beside.py": "SIZE = 8", "rates.txt": "1", "c.yaml": "a"}
    for name, content in files.items():
        (here / name).write_text(content)
    first = swept()
    assert first.failed == [] and first.missing == 0
    (file,) = (first.directory / "points").iterdir()
    read = json.loads(file.read_text())["inputs"]
    assert {f"<scenario>/{name}" for name in (*files, "train.py", "sc.py")} == {
        name for name in read if name.startswith("<scenario>/")
    }
    assert swept().kept == 1
    for name in files:
        (here / name).write_text("SIZE = 9")
        results = Results(first.directory, here)
        assert results.read(first.points[0]) is None and name in results.remarks()[0]
        (here / name).write_text(files[name])
    assert Results(first.directory, here).read(first.points[0]) is not None


def test_a_sweep_that_runs_nothing_says_so(here, cluster, capsys):
    scenario(here, "lab.run(STAR, ln.SendRecv('8 B'))")
    words = ["sweep", "sc.py", "--set", "n=1,2", "--scheduler", cluster]
    assert main(words) == 0
    assert "there already" not in capsys.readouterr().out
    assert main(words) == 0
    assert "2 of 2 points were there already\n2 points, 0 failed" in capsys.readouterr().out
    assert main([*words[:3], "n=1,2,3", *words[4:]]) == 0  # another folder, by its points


# --- damaged files --------------------------------------------------------------------------------
def deep(content):
    return "[" * 200_000


def changed(path, *names_and_value):
    *names, value = path, *names_and_value

    def change(content):
        inner = content
        for name in names[:-1]:
            inner = inner[name]
        inner[names[-1]] = value
        return json.dumps(content)

    return change


DAMAGE = {
    "half": lambda content: json.dumps(content)[:40],
    "empty": lambda content: "",
    "no table": lambda content: "[1]",
    "no UTF-8": lambda content: b"\xff\xfe",
    "a report without rows": changed("report", {"metrics": 5}),
    "an empty report": changed("report", {}),
    "a report that is a list": changed("report", []),
    "no report": changed("report", None),
    "a text for a number": changed("report", "metrics", 0, "value", "x"),
    "a number beyond all": changed("report", "metrics", 0, "value", 10**400),
    "infinity": lambda content: json.dumps(content).replace('"wall_s": ', '"wall_s": 1e999, "x": '),
    "an edited number": changed("report", "seed", 1),
    "inputs that are none": changed("inputs", [1]),
    "no error": lambda content: json.dumps({k: v for k, v in content.items() if k != "error"}),
    "another point": changed("key", "0" * 24),
    "brackets": deep,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_of_a_point_is_missing_with_a_line(here, swept, damage):
    scenario(here, "lab.run(STAR, ln.SendRecv('8 B'))")
    first = swept()
    (file,) = (first.directory / "points").iterdir()
    whole = file.read_bytes()
    made = DAMAGE[damage](json.loads(whole))
    file.write_bytes(made if isinstance(made, bytes) else made.encode())
    results = Results(first.directory, here)
    assert results.read(first.points[0]) is None
    (line,) = results.remarks()
    assert f"{file.name} is damaged and taken as missing: " in line and "\n" not in line
    again = swept()
    assert again.kept == 0 and again.ok and again.frame.equals(first.frame)
    assert line in again.remarks


# --- other people's files -------------------------------------------------------------------------
def test_a_sweep_leaves_other_peoples_files_alone(here, cluster):
    scenario(here, "lab.run(STAR, ln.SendRecv('8 B'))")
    folder = here / "s"
    theirs = [
        ".dask/notes",
        ".dask-zzzzzzzz/notes",
        ".lock",
        "notes.txt",
        "points/.a.json.bak",
        "points/a.json",
        f"points/.{'0' * 23}.json.1",
    ]

    def put():
        for name in theirs:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("theirs")

    ln.sweep("sc.py", n=[1], out="s", scheduler=cluster, watch=quiet)
    put()
    (folder / ".dask-0a_b1c2d").mkdir()  # of the cluster of a sweep that was killed
    index = json.loads((folder / "sweep.json").read_text())
    (folder / "sweep.json").write_text(json.dumps(index | {"scratch": ".dask-0a_b1c2d"}))
    half = folder / f"points/.{'0' * 24}.json.1"  # and of a point that it was about to write
    half.write_text("{")
    made = ln.sweep("sc.py", n=[2], out="s", jobs=1, watch=quiet)  # with a cluster of its own
    assert made.ok
    assert all((folder / name).read_text() == "theirs" for name in theirs)
    assert {each.name for each in folder.glob(".dask*")} == {".dask", ".dask-zzzzzzzz"}
    assert not half.exists()


@pytest.mark.parametrize("name", ["table.parquet", "sweep.json", "points"])
def test_a_folder_with_files_of_a_sweeps_names_is_refused(here, cluster, name):
    scenario(here, "lab.run(STAR, ln.SendRecv('8 B'))")
    (here / "s").mkdir()
    (here / "s" / name).write_text("theirs")
    with pytest.raises(ln.UsageError, match=f"s/{name} is no sweep's; give another folder"):
        ln.sweep("sc.py", n=[1], out="s", scheduler=cluster, watch=quiet)
    assert (here / "s" / name).read_text() == "theirs"


# --- a scheduler that dies ------------------------------------------------------------------------
def test_a_scheduler_that_dies_is_one_line_beside_the_table_of_what_was_done(here):
    scenario(
        here, "__import__('time').sleep(0.5 if n > 1 else 0)\n    lab.run(STAR, ln.SendRecv('8 B'))"
    )
    serve = (
        "import distributed, time\n"
        "with distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=False, "
        "protocol='tcp', dashboard_address=None, silence_logs='CRITICAL') as made:\n"
        "    print(made.scheduler_address, flush=True)\n    time.sleep(600)\n"
    )
    cluster = subprocess.Popen([sys.executable, "-c", serve], stdout=subprocess.PIPE, text=True)
    sweep = None
    try:
        address = cluster.stdout.readline().strip()
        sweep = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "loomnet",
                "sweep",
                "sc.py",
                "--set",
                "n=1,2,3,4,5,6,7,8",
                "--scheduler",
                address,
                "--out",
                "s",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        deadline = time.monotonic() + 120
        while len(list(here.glob("s/points/*.json"))) < 2 and time.monotonic() < deadline:
            assert sweep.poll() is None, sweep.communicate()
            time.sleep(0.02)
        cluster.send_signal(signal.SIGKILL)
        out, err = sweep.communicate(timeout=120)
    finally:
        for process in (cluster, sweep):
            if process is not None and process.poll() is None:
                os.kill(process.pid, signal.SIGKILL)
        cluster.wait()
    assert sweep.returncode == 2, out + err
    assert err == (
        f"loomnet: sweep: the Dask scheduler at {address} has gone; the same command "
        "with another scheduler goes on from here\n"
    )
    assert "Traceback" not in out and "8 points, 0 failed, " in out and "1 of 1" in out
