"""Sweeps on Dask: one table in a fixed order, resumed after a kill with the same bytes, failed
points listed and retried alone, names and values refused before anything starts."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from clusters import cluster as cluster
from clusters import quiet

import loomnet as ln
from loomnet.base.errors import UsageError
from loomnet.base.installing import install_line
from loomnet.cli import main
from loomnet.sweeps.summary import summary
from loomnet.sweeps.worker import run_point

distributed = pytest.importorskip("distributed")
polars = pytest.importorskip("polars")

SCENARIO = """
    import os, time
    from pathlib import Path
    import loomnet as ln

    @ln.scenario
    def small(lab: ln.Lab, hosts: int = 2, size: ln.Size = "50 kB", share: float = 0.5,
              fail_at: int = 0, pause_s: float = 0):
        '''Lossy all-reduce.'''
        print("not for the terminal of a sweep")
        time.sleep(pause_s)
        if hosts == fail_at and not Path("mended").exists():
            raise RuntimeError("out of luck")
        if fail_at < 0 and hosts == -fail_at:
            os._exit(7)
        loss = ln.loss("h0--p0.leaf0", 0.05, at="0 s", duration="1 ms", phase="loss")
        r = lab.run(ln.star(hosts=hosts, rate="10 Gb/s", delay="1 us"), ln.AllReduce(size, 6),
                    [loss], label="mrc")
        lab.metric("seed", lab.seed)
        lab.check("few", hosts, le=4)
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "small.py").write_text(textwrap.dedent(SCENARIO))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_one_table_in_a_fixed_order(here, cluster):
    seen = []
    made = ln.sweep(
        ln.load("small.py"),
        hosts=[2, 5],
        size=["50 kB", "0.1 MB"],
        seeds=2,
        scheduler=cluster,
        watch=lambda *counts: seen.append(counts),
    )
    assert len(made) == 8 and not made.failed and made.missing == 0
    table = polars.read_parquet(made.path)
    assert table.equals(made.frame)
    assert table.columns[:9] == [
        "point",
        "hosts",
        "size",
        "share",
        "fail_at",
        "pause_s",
        "seed",
        "status",
        "ok",
    ]
    assert table["hosts"].to_list() == [2] * 4 + [5] * 4
    assert table["size"].to_list() == ["50 kB", "50 kB", "100 kB", "100 kB"] * 2
    assert table["seed"].to_list() == [0, 1] * 4
    assert table["metric.seed"].to_list() == [0.0, 1.0] * 4  # a figure named as a column
    assert table["point"].to_list() == list(range(8))
    assert table["ok"].to_list() == [True] * 4 + [False] * 4
    assert made.exit_code == 1  # a check does not hold
    one = ln.load("small.py").run(seed=1, size="100 kB", directory=here / "one")
    assert table["mrc.loss.lost"][3] == one["mrc.loss.lost"]
    assert "mrc.before.recovery_s" not in table.columns
    assert seen[0] == (0, 8, 0) and seen[-1] == (8, 8, 0)
    again = ln.sweep(
        ln.load("small.py"),
        hosts=[2, 5],
        size=["50 kB", "0.1 MB"],
        seeds=2,
        scheduler="tcp://127.0.0.1:1",
        watch=quiet,
    )
    assert made.plot("metric.seed").axes[0].get_ylabel() == "seed"
    assert again.frame.equals(made.frame)  # nothing left to run: nobody was asked
    assert "Sweep(8 points" in repr(made) and "<table" in made._repr_html_()


def test_failed_points_are_listed_and_retried_alone(here, cluster):
    def swept(**options):
        return ln.sweep(
            "small.py", hosts=[2, 3, 4], fail_at=3, scheduler=cluster, watch=quiet, **options
        )

    first = swept()
    ((point, error),) = first.failed
    assert point.parameters["hosts"] == 3 and first.exit_code == 1
    assert error == "RuntimeError: out of luck (small.py:13)"
    assert first.frame["status"].to_list() == ["done", "failed", "done"]
    assert first.frame["ok"].to_list() == [True, None, True]
    (here / "mended").touch()
    assert len(swept().failed) == 1  # a plain resumption leaves it
    before = {p.name: p.stat().st_mtime_ns for p in (first.directory / "points").iterdir()}
    mended = swept(retry_failed=True)
    after = {p.name: p.stat().st_mtime_ns for p in (first.directory / "points").iterdir()}
    assert mended.ok and not mended.failed
    assert {name for name in before if after[name] != before[name]} == {f"{point.key}.json"}


def test_the_terminal_shows_medians_of_the_scenarios_own_numbers(here, cluster):
    (here / "own.py").write_text(
        textwrap.dedent("""
        import loomnet as ln

        @ln.scenario
        def own(lab: ln.Lab, hosts: int = 2, size: ln.Size = "8 kB"):
            r = lab.run(ln.star(hosts=hosts, rate="10 Gb/s", delay="1 us"), ln.AllReduce(size, 6))
            lab.metric("wait_s", 1e-6 * hosts * (1, 3, 8)[lab.seed], unit="s")
            lab.metric("hosts", hosts)
            lab.check("few", hosts + lab.seed, le=4)
            lab.check("no-error", r["errors"], eq=0)
    """)
    )
    made = ln.sweep("own.py", hosts=[2, 4], seeds=3, scheduler=cluster, watch=quiet)
    head, *rows, more, spread = summary(made)
    assert head == "hosts  ok      few      wait_s              before.iteration_s"
    assert [row[:44].rstrip() for row in rows] == [
        "2      3 of 3  3 (2–4)  6 us (2 us–16 us)",
        "4      1 of 3  5 (4–6)  12 us (4 us–32 us)",
    ]
    assert [more, spread] == [
        "… and 4 more numbers: before.slowest_iteration_s, before.blip_s, before.algbw, "
        "before.busbw",
        "numbers: medians over the seeds, in brackets the least and the greatest",
    ]
    one = ln.sweep("own.py", size=["8 kB"], scheduler=cluster, watch=quiet)
    assert [line[:36] for line in summary(one)[:2]] == [
        "ok      few  no-error  wait_s  hosts",
        "1 of 1  2    0         2 us    2    ",
    ]
    sizes = [f"{n} B" for n in range(8, 36)]
    many = ln.sweep("own.py", size=sizes, scheduler=cluster, watch=quiet)
    assert len(summary(many)) == 1 + 24 + 2 and "… and 4 more combinations" in summary(many)
    # The scenario's own numbers are the same everywhere.
    assert summary(many)[0].split()[:3] == ["size", "ok", "before.iteration_s"]


def test_a_scenario_that_records_nothing_has_the_figures_of_its_jobs(here, cluster, monkeypatch):
    (here / "own.py").write_text(
        textwrap.dedent("""
        import loomnet as ln

        @ln.scenario
        def own(lab: ln.Lab, size: ln.Size = "8 kB", note: bool = False):
            fabric = ln.star(hosts=4, rate="10 Gb/s", delay="1 us")
            r = lab.run(fabric, ln.Incast(size, transport="roce") if note else
                        ln.AllReduce(size, repeat=6))
            if note:
                lab.metric("tail", r["fct_p99_s"], unit="s")
    """)
    )
    made = ln.sweep("own.py", size=["8 kB", "64 kB"], scheduler=cluster, watch=quiet)
    assert summary(made)[0].split() == [
        "size",
        "ok",
        "before.iteration_s",
        "before.slowest_iteration_s",
        "before.blip_s",
    ]
    monkeypatch.setenv("COLUMNS", "80")
    assert summary(made)[0].split()[-1] == "before.blip_s"
    assert summary(made)[-1] == "… and 2 more numbers: before.algbw, before.busbw"
    assert made.plot().axes[0].get_ylabel().startswith("before.busbw")
    parameters = {"point", "size", "note", "seed", "status", "ok", "error"}
    for name in set(made.frame.columns) - parameters:  # every number of the frame
        assert made.plot(name).axes[0].get_ylabel().startswith(name)
    noted = ln.sweep("own.py", size=["8 kB", "64 kB"], note=True, scheduler=cluster, watch=quiet)
    assert summary(noted)[0].split()[:4] == ["size", "ok", "tail", "fct_p50_s"]
    assert noted.plot().axes[0].get_ylabel().startswith("tail")


def test_points_that_failed_or_ended_nowhere_are_counted_and_give_no_numbers(here, cluster):
    made = ln.sweep("small.py", hosts=[2, 3, 4], fail_at=3, scheduler=cluster, watch=quiet)
    assert [line[:18] for line in summary(made)[:4]] == [
        "hosts  ok      few",
        "2      1 of 1  2  ",
        "3      0 of 1  –  ",
        "4      1 of 1  4  ",
    ]


def test_a_changed_scenario_is_run_again(here, cluster):
    ln.sweep("small.py", hosts=[2], out="s", scheduler=cluster, watch=quiet)
    (here / "small.py").write_text((here / "small.py").read_text().replace("0.05", "0.5"))
    seen = []
    ln.sweep("small.py", hosts=[2], out="s", scheduler=cluster, watch=lambda *c: seen.append(c))
    assert seen == [(0, 1, 0), (1, 1, 0)]
    assert len(list((here / "s" / "points").iterdir())) == 2


def test_what_was_left_half_written_is_run_again(here, cluster):
    made = ln.sweep("small.py", hosts=[2, 3], out="s", scheduler=cluster, watch=quiet)
    text = made.path.read_bytes()
    folder = here / "s" / "points"
    victim = folder / f"{made.points[0].key}.json"
    (folder / f".{victim.name}.99").write_text("half")
    victim.write_text(victim.read_text()[:40])
    again = ln.sweep("small.py", hosts=[2, 3], out="s", scheduler=cluster, watch=quiet)
    assert again.path.read_bytes() == text
    assert {p.suffix for p in folder.iterdir()} == {".json"}


def test_two_sweeps_do_not_share_a_directory(here, cluster):
    import fcntl

    (here / "s").mkdir()
    with (here / "s" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ln.UsageError, match="another one works in s"):
            ln.sweep("small.py", hosts=[2], out="s", scheduler=cluster, watch=quiet)


def loomnet(*words, **options):
    paths = [str(Path(ln.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    return subprocess.Popen(
        [sys.executable, "-m", "loomnet", "sweep", "small.py", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        start_new_session=True,
        **options,
    )


WORDS = ("--set", "hosts=2,3,4", "--set", "size=50 kB,90 kB", "--seeds", "2")
WORDS += ("--set", "pause_s=0.4")  # so that some are left when the signal comes


def points(folder):
    return list((folder / "points").glob("*.json"))


def cut_short(here, signal_, least):
    """A sweep that is sent the signal when so many points have ended: when each of them ended."""
    with loomnet(*WORDS, "--jobs", "2", "--out", "cut") as process:
        deadline = time.monotonic() + 120
        while len(points(here / "cut")) < least and time.monotonic() < deadline:
            assert process.poll() is None, process.communicate()[0]
            time.sleep(0.02)
        if signal_ == signal.SIGINT:
            os.killpg(process.pid, signal_)  # as a terminal does
            out = process.communicate(timeout=60)[0]
            assert process.returncode == 130 and "interrupted; the same command goes on" in out
        else:
            process.kill()
            process.wait(60)
    done = {path.name: path.stat().st_mtime_ns for path in points(here / "cut")}
    assert least <= len(done) < 12
    deadline = time.monotonic() + 30  # no process of it outlives it
    while (left := in_session(process.pid)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left
    return done


@pytest.mark.in_turns
def test_a_sweep_killed_and_interrupted_half_way_ends_with_the_same_table(here, cluster):
    killed = cut_short(here, signal.SIGKILL, 3)
    interrupted = cut_short(here, signal.SIGINT, len(killed) + 1)
    with loomnet(*WORDS, "--jobs", "2", "--out", "cut") as process:
        out = process.communicate(timeout=200)[0]
    assert process.returncode == 0 and "12 points, 0 failed, 0 missing" in out
    assert "not for the terminal" not in out
    after = {path.name: path.stat().st_mtime_ns for path in points(here / "cut")}
    for done in (killed, interrupted):  # what was done was not done again
        assert {name: after[name] for name in done} == done
    assert main(["sweep", "small.py", *WORDS, "--scheduler", cluster, "--out", "whole"]) == 0
    cut, whole = (here / name / "table.parquet" for name in ("cut", "whole"))
    assert cut.read_bytes() == whole.read_bytes()
    assert not (here / "cut" / ".dask").exists()


ENDED = []  # arguments of points


def counted(*args):
    """As a worker finds it by its name, in this process: a function within a test would go there
    as a copy, with a list of its own."""
    found = run_point(*args)
    ENDED.append(args)
    return found


def test_an_interrupt_keeps_points_that_have_ended_since_the_last_look(here, cluster, monkeypatch):
    """The first result that is looked at brings the interrupt, while others have ended."""
    ENDED.clear()

    def interrupted(*counts):
        if counts[0] == 1:
            deadline = time.monotonic() + 30
            while len(ENDED) < 3 and time.monotonic() < deadline:
                time.sleep(0.02)
            time.sleep(0.3)  # until the scheduler has told of the last
            raise KeyboardInterrupt

    monkeypatch.setattr("loomnet.sweeps.sweep.run_point", counted)
    found = ln.sweep("small.py", hosts=[2, 3, 4], scheduler=cluster, watch=interrupted)
    assert len(ENDED) == 3 and found.interrupted and found.exit_code == 130
    assert len(found.frame) == 3 == len(points(found.directory))


def in_session(leader):
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == leader and fields[0] != "Z":
                found.append(entry.name)
    return found


def test_a_point_that_takes_its_process_down_fails_alone(here):
    with loomnet("--set", "hosts=2,3,4", "--set", "fail_at=-3", "--jobs", "1") as process:
        out = process.communicate(timeout=200)[0]
    assert process.returncode == 1
    assert "failed: point 1 (hosts=3" in out and "the process that ran it died" in out
    assert "3 points, 1 failed, 0 missing" in out and "--retry-failed runs these alone" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--set", "host=2,3"], 'no parameter "host"; nearest: hosts, '),
        (["--set", "hosts"], "write name=value"),
        (["--set", "hosts=2,,3"], "a value is empty"),
        (["--set", "hosts=2,2"], "is there twice"),
        (["--set", "size=50 kB,0.05 MB"], "is there twice"),
        (["--set", "hosts=2", "--set", "hosts=3"], "hosts is set twice"),
        (["--set", "size=50,60"], 'small.size: size "50" has no unit'),
        (["--set", "hosts=2,two"], "small.hosts: "),
        (["--seeds", "0"], "must be a number, 1 or more"),
        (["--seeds", "1,1"], "a seed is given twice"),
        (["--seeds", "few"], "--seeds few: "),
        (["--max-wall", "10"], "has no unit"),
        (["--scheduler", "tcp://127.0.0.1:1"], "no Dask scheduler at tcp://127.0.0.1:1"),
    ],
)
def test_bad_input_is_one_line_exit_2(here, capsys, words, message, monkeypatch):
    connect = distributed.Client

    def hasty(address, timeout, **options):
        return connect(address, timeout="1s", **options)

    monkeypatch.setattr(distributed, "Client", hasty)
    assert main(["sweep", "small.py", *words]) == 2
    err = capsys.readouterr().err
    assert message in err and err.startswith("loomnet: ") and err.count("\n") == 1
    if words[0] != "--scheduler":
        assert not (here / "runs").exists()


def test_without_dask_one_line_says_what_to_install(here, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert main(["sweep", "small.py", "--set", "hosts=2"]) == 2
    assert capsys.readouterr().err == f"loomnet: a sweep needs Dask: {install_line('sweep')}\n"
    monkeypatch.setitem(sys.modules, "polars", None)
    assert main(["sweep", "small.py", "--set", "hosts=2"]) == 2
    assert capsys.readouterr().err == (
        f"loomnet: a sweep's table needs polars: {install_line('sweep')}\n"
    )
    assert not (here / "runs").exists()


def test_a_scenario_of_a_notebook_has_no_file(cluster, here):
    @ln.scenario
    def inline(lab: ln.Lab, hosts: int = 2):
        lab.metric("hosts", hosts)
        lab.run(ln.clos.star(hosts=2, rate="10 Gb/s", delay="1 us"), ln.SendRecv("8 B"))

    inline.file = None
    made = ln.sweep(inline, hosts=[2, 3], scheduler=cluster, watch=quiet)
    assert made.frame["metric.hosts"].to_list() == [2.0, 3.0] and made.ok


def test_a_parameter_may_bear_the_name_of_an_option(here, cluster, capsys):
    (here / "odd.py").write_text(
        "import loomnet as ln\n@ln.scenario\ndef odd(lab: ln.Lab, jobs: int = 1):\n"
        "    lab.metric('jobs', jobs)\n"
        "    lab.run(ln.clos.star(hosts=2, rate='10 Gb/s', delay='1 us'), ln.SendRecv('8 B'))\n"
    )
    words = ["--set", "jobs=2,3", "--scheduler", cluster, "--out", "s"]
    assert main(["sweep", "odd.py", *words]) == 0
    assert "odd: 2 of 2, 0 failed" in capsys.readouterr().out
    made = ln.sweep("odd.py", axes={"jobs": [2, 3]}, scheduler=cluster, out="s", watch=quiet)
    assert made.frame["metric.jobs"].to_list() == [2.0, 3.0]


def test_the_index_says_what_the_sweep_is(here, cluster):
    made = ln.sweep("small.py", hosts=[2], seeds=[7], out="s", scheduler=cluster, watch=quiet)
    index = json.loads((made.directory / "sweep.json").read_text())
    assert index["axes"] == {"hosts": [2]} and index["seeds"] == [7]
    assert list(index["points"]) == [made.points[0].key]


@pytest.mark.parametrize("address", ["bogus", "tcp://127.0.0.1:1x", "zzz://host:1", ""])
def test_a_scheduler_that_is_none_is_one_line_and_leaves_no_folder(tmp_path, address):
    """In a process of its own: Dask logs a traceback besides what it raises."""
    (tmp_path / "s.py").write_text("import loomnet as ln\n@ln.scenario\ndef s(lab): ...\n")
    command = [sys.executable, "-m", "loomnet", "sweep", "s.py", "--scheduler", address]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.startswith("loomnet: sweep: "), done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_seeds_and_combinations_are_bounded_before_anything_is_listed():
    from loomnet.sweeps.points import MOST_POINTS, points_of, seeds_of

    @ln.scenario
    def any_of(lab, n: int = 0): ...

    assert seeds_of(3) == [0, 1, 2]
    with pytest.raises(UsageError, match="more than the 100,000 points"):
        seeds_of(10**18)
    with pytest.raises(UsageError, match="200,000 combinations are more than the 100,000"):
        points_of(any_of, {"n": range(2)}, range(MOST_POINTS))
