"""The command line: exit statuses, one clear line per mistake, nothing left behind."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import jsonschema
import pytest
from scripted import ScriptedRunner
from synthetic import steady_run

import loomnet
from loomnet.cli import main
from loomnet.measures.run_data import Fidelity
from loomnet.results.report import report_schema
from loomnet.running import request as runners

SCENARIO = """
    import loomnet as ln

    @ln.scenario
    def demo(lab: ln.Lab, rate: ln.Rate = "40 Mb/s", bound: float = 1, transport: str = "mrc",
             link: str = "h0--p0.leaf0", ranks: int = 4):
        '''One short run.'''
        fabric = ln.clos.two_tier(planes=4, leaves=2, spines=2, hosts_per_leaf=2, rate=rate,
                                  delay="1 us")
        job = ln.AllReduce("4 MB", 10, transport, ranks=ranks)
        r = lab.run(fabric, job, [ln.down(link, at="8 s", duration="8 s", phase="nic_link_down")],
                    label="mrc")
        lab.check("errors", r["errors"], le=bound)
        lab.check("iteration", r["before.iteration_s"], le=bound)
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder with one scenario, and an engine that plays back a steady run."""
    (tmp_path / "demo.py").write_text(textwrap.dedent(SCENARIO))
    monkeypatch.chdir(tmp_path)
    play(monkeypatch, lambda data: data)
    return tmp_path


def play(monkeypatch, change):
    def make(request):
        while (now := request.timetable.next_time()) is not None:
            request.timetable.advance(now)
        data = steady_run()
        data.windows = list(request.timetable.windows)
        return change(data)

    monkeypatch.setattr(
        sys.modules[__name__], "engine", lambda: ScriptedRunner(make), raising=False
    )
    monkeypatch.setitem(runners.RUNNERS, "virtual", f"{__name__}:engine")


def test_run_prints_writes_and_exits_0(here, capsys):
    assert (
        main(["run", "demo.py", "--seed", "5", "--set", "rate=10 Mb/s", "--json", "out.json"]) == 0
    )
    out = capsys.readouterr().out
    assert "clos-4x2x2: 10 x AllReduce of 4 MB over mrc" in out  # before traffic
    assert "nic_link_down" in out and "ok   errors" in out and "kept up" in out
    assert "null: mrc.before.readmitted" in out
    report = json.loads((here / "out.json").read_text())
    jsonschema.validate(report, report_schema())
    assert report["seed"] == 5 and report["parameters"]["rate"] == "10 Mb/s"
    (folder,) = (here / "runs").iterdir()
    assert folder.name.startswith("demo-") and folder.name.split("-")[2] == "5"
    assert (folder / "report.json").read_text() == (here / "out.json").read_text()
    assert {p.name for p in folder.iterdir()} >= {"report.json", "environment.json", "demo.py"}


def test_json_on_standard_output_is_only_json(here, capsys):
    assert main(["run", "demo.py::demo", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["scenario"] == "demo"


def test_a_mistake_names_the_help_of_its_command(here, capfd):
    assert main(["compare", "a"]) == 2
    assert "see loomnet compare --help" in capfd.readouterr().err


def test_piped_output_is_80_characters_wide(here, capsys):
    assert main(["run", "demo.py"]) == 0
    table = capsys.readouterr().out.partition("number")[2].partition("errors:")[0]
    assert "nic_link_down" in table and max(map(len, table.splitlines())) <= 80


def test_a_failed_check_exits_1(here, capsys):
    assert main(["run", "demo.py", "--set", "bound=0.1"]) == 1
    assert "FAIL iteration: 500 ms  [≤ 100 ms]" in capsys.readouterr().out


def test_an_engine_that_fell_behind_exits_3_and_outranks_a_failed_check(here, monkeypatch, capsys):
    def late(data):
        data.fidelity = Fidelity(
            lateness_p50_ps=1,
            lateness_p99_ps=10**9,
            lateness_max_ps=10**10,
            packets=5,
            fell_behind="late by 10 ms; a hog beside it?",
        )
        return data

    play(monkeypatch, late)
    assert main(["run", "demo.py", "--set", "bound=0.1"]) == 3
    assert "not a result: mrc: late by 10 ms" in capsys.readouterr().out


def test_ctrl_c_exits_130_with_a_partial_report(here, monkeypatch):
    def interrupted(data):
        data.ended, data.reason = "interrupted", "Ctrl-C"
        return data

    play(monkeypatch, interrupted)
    assert main(["run", "demo.py"]) == 130
    (folder,) = (here / "runs").iterdir()
    report = json.loads((folder / "report.json").read_text())
    assert report["interrupted"] is True and report["metrics"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "demo.py", "--set", "rate=40"], 'demo.rate: rate "40" has no unit'),
        (["run", "demo.py", "--set", "rat=40"], 'no parameter "rat"; nearest: rate, '),
        (["run", "demo.py", "--set", "ranks=2,4"], "loomnet sweep"),
        (["run", "demo.py", "--set", "ranks=5"], "5 ranks but 4 hosts"),
        (["run", "demo.py", "--set", "transport=mcr"], '"mcr" is not a transport; nearest: mrc, '),
        (
            ["run", "demo.py", "--set", "link=h0--p0.laef0"],
            'no link "h0--p0.laef0"; nearest: h0--p0.leaf0, ',
        ),
        (["run", "demo.py", "--clock", "sundial"], '"sundial" is not one of virtual, live'),
        (["run", "demo.py", "--max-wall", "10"], "has no unit"),
        (["run", "none.py"], 'no file "none.py"; nearest: demo.py'),
        (["run", "demo.py::dmo"], 'no scenario "dmo"; nearest: demo'),
        (["run", "demo.py", "--seed", "-1"], "--seed"),
        (["run"], "Missing argument"),
        (["rum"], "rum"),
        (["list", "nowhere"], "no file or folder nowhere"),
    ],
)
def test_bad_input_is_one_line_exit_2_and_nothing_left_behind(here, capsys, arguments, message):
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert message in err and err.startswith("loomnet: ") and err.count("\n") == 1
    assert not (here / "runs").exists()


IMPOSSIBLE = """
    import loomnet as ln

    @ln.scenario
    def impossible(lab: ln.Lab, what: str = "radix"):
        rate = {"rate": "100 Gb/s", "delay": "1 us"}
        if what == "radix":
            fabric = ln.clos.two_tier(planes=1, leaves=2, spines=4, hosts_per_leaf=5, radix=8,
                                      **rate)
        elif what == "ports":
            fabric = ln.Fabric()
            hosts = [fabric.add_host(ports=1) for _ in range(2)]
            for plane in range(2):
                fabric.add_switch(f"p{plane}.leaf0")
                for host in hosts:
                    fabric.add_link(host, f"p{plane}.leaf0", **rate)
        elif what == "planes":
            fabric = ln.clos.two_tier(planes=9, leaves=2, spines=2, hosts_per_leaf=2, **rate)
        elif what == "built":
            fabric = ln.clos.two_tier(planes=1, leaves=2, spines=257, hosts_per_leaf=1, **rate)
        else:  # by hand: two leaves and a spine more than eight bits of an entropy value name
            fabric = ln.Fabric()
            hosts = [fabric.add_host() for _ in range(2)]
            leaves = [fabric.add_switch(f"p0.leaf{i}") for i in range(2)]
            for host, leaf in zip(hosts, leaves):
                fabric.add_link(host, leaf, **rate)
            for i in range(257):
                spine = fabric.add_switch(f"p0.spine{i}")
                for leaf in leaves:
                    fabric.add_link(leaf, spine, **rate)
        lab.run(fabric, ln.AllReduce("1 MB"))
"""


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("radix", "p0.leaf0 has 8 ports but 9 links: raise radix= or remove 1"),
        ("ports", "h0 has 1 ports but 2 links"),
        ("planes", "two_tier.planes: 9 is more than the 8 that addresses can name"),
        ("built", "two_tier.spines: 257 is more than the 256 that addresses can name"),
        ("usids", "uSID space exhausted: more than 256 spines in plane 0"),
    ],
)
def test_an_impossible_fabric_is_one_line_exit_2_and_nothing_left_behind(
    tmp_path, monkeypatch, capsys, what, message
):
    (tmp_path / "impossible.py").write_text(textwrap.dedent(IMPOSSIBLE))
    monkeypatch.chdir(tmp_path)
    assert main(["run", "impossible.py", "--set", f"what={what}"]) == 2
    err = capsys.readouterr().err
    assert message in err and err.startswith("loomnet: ") and err.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_a_comma_in_set_of_run_names_sweep(here, capsys):
    assert main(["run", "demo.py", "--set", "ranks=2,4", "--set", "rate=40 Mb/s"]) == 2
    err = capsys.readouterr().err
    assert "one run takes one value; for several, use `loomnet sweep` with --set ranks=2,4" in err
    assert err.count("\n") == 1 and not (here / "runs").exists()


def test_list_and_describe(here, capsys):
    assert main(["list"]) == 0 and "demo.py  One short run." in capsys.readouterr().out
    assert main(["describe", "demo.py"]) == 0
    out = capsys.readouterr().out
    assert "rate: Rate = 40 Mb/s" in out and "bound: float = 1" in out


def test_clean_and_exec_where_nothing_runs(here, capsys, monkeypatch):
    from loomnet.processes import journal as ownership

    monkeypatch.setattr(ownership, "state_directory", lambda: here)
    assert main(["clean"]) == 0 and "nothing to remove" in capsys.readouterr().out
    assert main(["exec", "h0", "--", "ip", "addr"]) == 2
    assert "loomnet: exec" in capsys.readouterr().err


def test_exec_finds_the_node_of_a_live_run(here, monkeypatch):
    import os

    from loomnet.base.errors import UsageError
    from loomnet.live import attach
    from loomnet.processes import journal as ownership

    monkeypatch.setattr(ownership, "state_directory", lambda: here)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with ownership.RunLock(here) as lock:
        lock.record(
            "process", pid=os.getpid(), start=ownership.process_start(os.getpid()), node="h0"
        )
        lock.record("process", pid=os.getpid(), start=1, node="h1")  # a pid used again
        assert attach.command_in("h0", ["ip", "addr"]) == [
            "mnexec",
            "-a",
            str(os.getpid()),
            "ip",
            "addr",
        ]
        with pytest.raises(UsageError, match='no node "h1"; nearest: h0'):
            attach.command_in("h1", ["ip"])


def test_shell_is_the_users_own_in_the_node(here, monkeypatch, capsys):
    import os

    from loomnet.live import attach
    from loomnet.processes import journal as ownership

    monkeypatch.setattr(ownership, "state_directory", lambda: here)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main(["shell", "h0"]) == 2
    assert capsys.readouterr().err == "loomnet: shell needs root: sudo loomnet shell h0\n"
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert main(["shell", "h0"]) == 2
    assert "shell: nothing runs live" in capsys.readouterr().err
    with ownership.RunLock(here) as lock:
        start = ownership.process_start(os.getpid())
        lock.record("process", pid=os.getpid(), start=start, node="h0")
        monkeypatch.setenv("SHELL", "/bin/sh")
        assert attach.shell_in("h0") == ["mnexec", "-a", str(os.getpid()), "/bin/sh", "-i"]
        monkeypatch.setenv("SHELL", "relative/or/gone")
        assert attach.shell_in("h0")[3:] == ["/bin/sh", "-i"]


def test_doctor_lists_and_exits_by_what_is_missing(capsys):
    from loomnet.live.doctor import checks

    status = main(["doctor"])
    out = capsys.readouterr().out
    assert "network namespaces" in out
    assert status == (2 if any(c.found is False and c.required for c in checks()) else 0)


def python(*code, cwd=None):
    environment = {"PYTHONPATH": str(Path(loomnet.__file__).parents[1]), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, *code],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
        cwd=cwd,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_version_and_import_load_nothing_heavy():
    heavy = "{'pydantic', 'typer', 'rich', 'torch', 'numpy', 'networkx', 'matplotlib'}"
    tail = f"; import sys; print(sorted({heavy} & set(sys.modules)))"
    assert python("-c", "import loomnet" + tail) == "[]\n"
    shown = python("-c", "from loomnet.cli import main; main(['--version'])" + tail)
    assert shown == f"loomnet {loomnet.__version__}\n[]\n"
    assert "torch" not in python(
        "-c", "import loomnet as ln; ln.scenario, ln.Lab, ln.TorchJob" + tail
    )


def test_a_whole_run_starts_no_library_it_does_not_need(here):
    heavy = {
        "torch",
        "networkx",
        "highspy",
        "matplotlib",
        "polars",
        "pyarrow",
        "dask",
        "distributed",
    }
    tail = f"; import sys; print(sorted({heavy} & set(sys.modules)))"
    for words in (["list", "demo.py"], ["run", "demo.py"]):
        code = f"from loomnet.cli import main; assert main({words}) < 2{tail}"
        assert python("-c", code, cwd=here).splitlines()[-1] == "[]"


def test_the_schema_is_part_of_the_package():
    schema = loomnet.report_schema()
    assert schema["$id"] == "urn:loomnet:schema:report:1"
    jsonschema.Draft202012Validator.check_schema(schema)


def test_every_public_name_loads_in_any_order():
    python(
        "-c",
        "import loomnet as ln\nfor n in reversed(ln.__all__): getattr(ln, n)\n"
        "assert callable(ln.scenario) and callable(ln.run) and callable(ln.load)\n"
        "assert callable(ln.clos.two_tier) and callable(ln.loss) and callable(ln.delay)",
    )
    assert set(loomnet.__all__) == set(dir(loomnet))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        getattr(loomnet, "nonsense")  # noqa: B009
