"""Exit statuses of scenarios: 1 what ended a run, 2 bad input, 4 the scenario's own exception; one
line or the scenario's own traceback, and nothing left behind."""

import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import loomnet as ln
from loomnet.base import wall_time as walltime
from loomnet.base.errors import UsageError
from loomnet.cli import main

HEAD = """
import loomnet as ln

def fabric():
    return ln.clos.star(hosts=2, rate="10 Gb/s", delay="1 us")
"""
RUN = 'lab.run(fabric(), ln.SendRecv("8 B"))'


@pytest.fixture
def scenario(tmp_path, monkeypatch):
    """Writes a scenario file into an empty folder; its name for the command line."""
    monkeypatch.chdir(tmp_path)

    def write(text, name="demo.py"):
        (tmp_path / name).write_text(HEAD + textwrap.dedent(text))
        return name

    return write


def of_body(*lines):
    return "@ln.scenario\ndef demo(lab: ln.Lab):\n" + "".join(f"    {line}\n" for line in lines)


def one_line(capsys, *parts):
    err = capsys.readouterr().err
    assert err.startswith("loomnet: ") and err.count("\n") == 1, err
    for part in parts:
        assert part in err
    assert "Traceback" not in err
    return err


# --- 2: bad input ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (of_body("pass"), "scenario demo ran nothing: it ended without a call of lab.run"),
        (of_body('lab.metric("m", 1)'), "ran nothing"),
        ("@ln.scenario\nasync def demo(lab): " + RUN, "demo: an async def is never awaited"),
        ("@ln.scenario\nasync def demo(lab):\n    yield 1", "demo: an async def is never awaited"),
        (of_body(RUN, "yield 1"), "demo: a function with yield never runs to its end"),
        (
            "async def own(lab): ...\n@ln.scenario\ndef demo(lab): return own(lab)",
            "demo returned a coroutine that nothing runs",
        ),
        (
            '@ln.scenario\ndef demo(lab, x: "Nope" = 1): ...',
            "demo: its types cannot be read: NameErr",
        ),
        ("@ln.scenario\ndef demo(lab, n: int, /): ...", "n stands before a /"),
        ("@ln.scenario\ndef demo(*, lab): ...", "first argument must be the lab"),
        ("@ln.scenario\ndef demo(*lab): ...", "first argument must be the lab"),
        ("@ln.scenario\ndef demo(lab, _n: int = 1): ...", "demo: _n begins with _"),
        ("@ln.scenario\ndef demo(lab, n: Exception = 1): ...", "demo"),
        ("import no_such_module", "demo.py:6: ModuleNotFoundError: No module named 'no_such_mod"),
        ("x = 1 / 0", "demo.py:6: ZeroDivisionError: division by zero"),
        ("import sys\nsys.exit(0)", "demo.py:7: SystemExit: 0"),
        ("raise Exception", "demo.py:6: Exception\n"),
        ("import json\njson.loads('{')", "demo.py:7 (in decoder.py:"),
        ("def broken(:", "demo.py:6: invalid syntax"),
        ("x = 1\n\0", "demo.py"),
        (of_body("lab.run(fabric(), 5)"), "5 is not a job"),
    ],
)
def test_a_scenario_that_cannot_run_is_one_line_and_exit_2(scenario, capsys, text, message):
    assert main(["run", scenario(text)]) == 2
    one_line(capsys, message)
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    "name", ["n" * 300 + ".py", "n" * 5000, "a\nb.py", "\udcff.py", "demo.py/x"]
)
def test_a_name_that_no_file_has_is_one_line(scenario, capsys, name):
    scenario(of_body(RUN))
    for command in (["run"], ["list"], ["describe"], ["sweep"], ["crosscheck"], ["replay"]):
        assert main([*command, name]) == 2
        one_line(capsys)


def test_a_scenario_with_a_very_long_name_runs(scenario):
    assert main(["run", scenario(of_body(RUN).replace("demo", "d" * 5000))]) == 0
    (folder,) = Path("runs").iterdir()
    assert (folder / "report.json").is_file()


@pytest.mark.parametrize("decorated", [5, None, "demo", print, int, lambda: None, [].append])
def test_what_is_no_function_is_no_scenario(decorated):
    with pytest.raises(UsageError):
        ln.scenario(decorated)


@pytest.mark.parametrize("name", ["model_dump", "copy", "model_fields", "json", "self", "values"])
def test_a_parameter_may_bear_any_name(scenario, name):
    """Of pydantic's own names too; a name that pydantic does not take is refused in one line."""
    text = of_body(f"assert {name} == 5", RUN).replace("lab: ln.Lab", f"lab, {name}: int = 3")
    assert main(["run", scenario(text), "--set", f"{name}=5"]) in (0, 2)


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e999"])
def test_a_number_that_no_report_can_hold_is_refused_before_the_run(scenario, capsys, value):
    text = of_body(RUN).replace("lab: ln.Lab", "lab: ln.Lab, f: float = 1.0, g: list[float] = []")
    assert main(["run", scenario(text), "--set", f"f={value}"]) == 2
    one_line(capsys, "demo.f: ")
    with pytest.raises(UsageError, match=r"demo\.g"):
        ln.load("demo.py").run(g=[float(value)])
    with pytest.raises(UsageError, match="demo"):
        ln.load(scenario(text.replace("float", "object"))).run(f={"deep": [float(value)]})
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    "line",
    [
        'lab.metric("\\ud800", 1)',
        'lab.metric("m", 1, unit="\\ud800")',
        'lab.metric("m", None, reason="\\ud800")',
        'lab.metric("m", 1, published=float("nan"))',
        'lab.metric("m", 1, published=10**400)',
        "lab.metric(5, 1)",
        'lab.metric("m", "much")',
        'lab.check("c", 1, eq=10**400)',
        'lab.check("c", 1, ge="x")',
        'lab.check("c", 1, approx=1, rel=float("nan"))',
        'lab.check("c", 1, approx=1, abs="x")',
        'lab.check("\\ud800", 1, eq=1)',
        'lab.check("c", [], eq=1)',
    ],
)
def test_a_row_that_no_report_can_hold_is_refused(scenario, capsys, line):
    assert main(["run", scenario(of_body(RUN, line))]) == 2
    one_line(capsys)


def test_an_integer_beyond_any_float_is_null_with_the_reason(scenario, capsys):
    assert main(["run", scenario(of_body(RUN, 'lab.metric("m", 10**400)'))]) == 0
    assert "m: – (not a finite number ((an integer of 1329 bits)))" in capsys.readouterr().out
    assert main(["run", scenario(of_body(RUN, 'lab.check("c", -10**5000, eq=1)'))]) == 1


# --- 4: the scenario's own exception --------------------------------------------------------------
def test_an_exception_of_the_scenario_has_its_own_traceback_and_exit_4(scenario, capsys):
    text = """
        def helper():
            return {}["key"]

        @ln.scenario
        def demo(lab):
            lab.run(fabric(), ln.SendRecv("8 B"))
            helper()
    """
    assert main(["run", scenario(text)]) == 4
    err = capsys.readouterr().err
    assert err.startswith("Traceback (most recent call last):\n") and "KeyError: 'key'" in err
    assert "in demo" in err and "in helper" in err
    assert "loomnet/" not in err  # no frame of Loomnet's


@pytest.mark.parametrize(
    "line",
    [
        "import sys; sys.exit(0)",
        "raise SystemExit",
        "raise GeneratorExit",
        "1 / 0",
        "raise type('Own', (BaseException,), {})",
        "assert False",
        "raise FileNotFoundError(2, 'x')",
    ],
)
def test_whatever_the_scenario_raises_is_exit_4_in_every_command(scenario, capsys, line):
    name = scenario(of_body(line, RUN))
    for command in (["run"], ["describe"]):
        assert main([*command, name]) == 4
        err = capsys.readouterr().err
        assert "Traceback" in err and f"    {line}" in err and "loomnet/" not in err
    assert not Path("runs").exists()


def test_an_exception_below_a_call_of_loomnet_keeps_the_place_at_fault(scenario, capsys):
    """A callback of the scenario's that Loomnet calls is the scenario's; frames between are cut."""
    text = """
        class Own(ln.Fabric):
            @property
            def rank_numbers(self):
                raise LookupError("in the scenario")

        @ln.scenario
        def demo(lab):
            lab.run(Own(), ln.SendRecv("8 B"))
    """
    assert main(["run", scenario(text)]) == 4
    err = capsys.readouterr().err
    assert "in rank_numbers" in err and "in demo" in err and "labs/lab.py" not in err


def test_an_error_while_another_is_handled_shows_both(scenario, capsys):
    text = """
        @ln.scenario
        def demo(lab):
            try:
                lab.run(fabric(), 5)
            except ValueError:
                raise RuntimeError("late") from None if lab.seed else ValueError("first")
    """
    assert main(["run", scenario(text)]) == 4
    err = capsys.readouterr().err
    assert "ValueError: first" in err and "RuntimeError: late" in err and "labs/lab.py" not in err


def test_in_python_the_exception_itself_comes_out(scenario):
    with pytest.raises(ZeroDivisionError):
        ln.load(scenario(of_body(RUN, "1 / 0"))).run()


# --- 1: what ended a run --------------------------------------------------------------------------
STALLS = """
@ln.scenario
def demo(lab: ln.Lab):
    r = lab.run(fabric(), ln.SendRecv("8 B", 3, stall_timeout="1 ms"),
                [ln.down("h0--p0.leaf0", at="0 s")])
    lab.metric("m", 1)
"""


def test_a_run_that_stalled_is_exit_1_without_any_check(scenario, capsys):
    assert main(["run", scenario(STALLS)]) == 1
    assert "not finished: demo stalled: no operation finished for 1 ms" in capsys.readouterr().out


def loomnet(*words, timeout=20):
    """In a process of its own: (status, output, errors, seconds)."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "loomnet", *words],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr, time.monotonic() - began


@pytest.mark.parametrize(
    "loop",
    [
        "while True: pass",
        "import time; time.sleep(60)",
        "import threading; threading.Event().wait()",
        "i = 0\n    while True:\n        try:\n            i += 1\n        except Exception: pass",
    ],
)
def test_max_wall_ends_a_scenario_that_loops_outside_its_runs(scenario, loop):
    name = scenario(of_body(RUN, loop))
    status, out, err, seconds = loomnet("run", name, "--max-wall", "1 s")
    assert status == 1 and "not finished: demo stalled: --max-wall 1 s is over" in out, err
    assert seconds < 10 and "Traceback" not in err
    (folder,) = Path("runs").iterdir()
    assert "--max-wall 1 s is over" in (folder / "report.json").read_text()


def test_max_wall_ends_an_infinite_loop_at_import(scenario):
    status, _, err, seconds = loomnet("run", scenario("while True: pass"), "--max-wall", "1 s")
    assert status == 1 and seconds < 10
    assert err == "loomnet: demo.py: --max-wall 1 s is over while the file was being loaded\n"


def test_max_wall_is_of_all_runs_together_and_leaves_the_first_ones_figures(scenario):
    text = """
        @ln.scenario
        def demo(lab):
            for label in "abc":
                r = lab.run(fabric(), ln.SendRecv("1 GB", 10**6), label=label)
                lab.metric(f"{label}_errors", r["errors"])
    """
    status, out, err, seconds = loomnet("run", scenario(text), "--max-wall", "1 s")
    assert status == 1 and seconds < 10, err
    assert "not finished: a stalled: --max-wall 1 s is over" in out
    assert "a_errors: 1" in out and "b_errors" not in out
    assert out.count("not finished: ") == out.count("fidelity ") == 1, out
    (folder,) = Path("runs").iterdir()
    (only,) = json.loads((folder / "report.json").read_text())["fidelity"]
    assert only["label"] == "a" and only["reason"] == "--max-wall 1 s is over"


def test_the_alarm_of_a_run_is_for_plug_ins_and_goes_with_the_scenario(scenario, monkeypatch):
    """What handled SIGALRM before has it back, with its own alarm."""
    import signal

    from loomnet.base import wall_time
    from loomnet.running.virtual_clock import VirtualRunner

    seen, plain = [], VirtualRunner.run

    def run(self, request, on_progress):
        wound = signal.getitimer(signal.ITIMER_REAL)[0] > 0
        seen.append((wound, wall_time._running._suspended > 0))
        return plain(self, request, on_progress)

    monkeypatch.setattr(VirtualRunner, "run", run)
    before, left = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)[0]
    text = of_body("import signal", RUN, "assert signal.getitimer(signal.ITIMER_REAL)[0] > 0")
    assert main(["run", scenario(text), "--max-wall", "100 s"]) == 0
    assert seen == [(True, True)] and wall_time._running is None
    assert signal.getsignal(signal.SIGALRM) == before
    after, again = signal.getitimer(signal.ITIMER_REAL)
    assert again == 0 and (after > 0) == (left > 0) and after <= left


# --- 130 outranks 4, and no run follows Ctrl-C ----------------------------------------------------
def test_ctrl_c_outranks_what_a_scenario_raises_on_its_way_out(scenario, monkeypatch):
    from loomnet.running.virtual_clock import VirtualRunner

    plain = VirtualRunner.run

    def interrupted(self, request, on_progress):
        data = plain(self, request, on_progress)
        data[0].ended, data[0].reason = "interrupted", "Ctrl-C"
        return data

    monkeypatch.setattr(VirtualRunner, "run", interrupted)
    assert main(["run", scenario(of_body("try:", f"    {RUN}", "finally:", "    1 / 0"))]) == 130
    again = of_body(
        "try:",
        f"    {RUN}",
        "except ln.LoomnetError: pass",
        RUN[:-1] + ", label='second')",
        "1 / 0",
    )
    assert main(["run", scenario(again)]) == 130


# --- other commands -------------------------------------------------------------------------------
def test_list_goes_on_after_a_broken_file_and_says_which(scenario, capsys):
    scenario(of_body(RUN), "good.py")
    scenario("@ln.scenario\ndef broken(lab): ...\nraise Exception('on purpose')", "broken.py")
    scenario("# @ln.scenario in no code", "none.py")
    Path("bytes.py").write_bytes(b"@ln.scenario \xff\xfe")
    Path("folder.py").mkdir()
    os.mkfifo("pipe.py")
    assert main(["list", "."]) == 2
    out, err = capsys.readouterr()
    assert out == "good.py\n"
    assert "broken.py:8: Exception: on purpose" in err and "bytes.py" in err
    assert err.count("loomnet: ") == err.count("\n") == 2
    assert main(["list", "good.py"]) == 0


def test_list_of_a_pipe_or_a_device_is_refused_at_once(scenario, capsys):
    scenario(of_body(RUN))
    os.mkfifo("pipe")
    for name in ("pipe", "/dev/zero"):
        assert main(["list", name]) == 2
        one_line(capsys, f"{name} is not a regular file")


def test_a_reader_that_leaves_is_no_traceback(scenario):
    name = scenario(of_body(RUN))
    done = subprocess.run(
        f"{sys.executable} -m loomnet describe fat_tree --set k=4 > /dev/full",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2 and done.stderr == (
        "loomnet: standard output: No space left on device\n"
    )
    reader = subprocess.run(
        f"{sys.executable} -m loomnet run {name} | true",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in reader.stderr and "Exception" not in reader.stderr
    enough = subprocess.run(
        f"{sys.executable} -m loomnet explain | head -n 1",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (enough.stdout, enough.stderr) == ("Words\n", "")


def test_help_names_every_exit_status(capsys):
    assert main(["--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for part in (
        "0 all checks hold",
        "1 a check failed",
        "2 bad input",
        "3 the engine",
        "4 the scenario's own code",
        "130 interrupted",
    ):
        assert part in text


def test_a_slow_end_of_a_run_leaves_its_checks_their_time(scenario, monkeypatch, capsys):
    """As where a live run is taken down."""
    from loomnet.running.virtual_clock import VirtualRunner

    plain = VirtualRunner.run

    def run(self, request, on_progress):
        record = plain(self, request, on_progress)
        time.sleep(walltime.CLOSING_S + 0.5)
        return record

    monkeypatch.setattr(VirtualRunner, "run", run)
    text = of_body(
        "import time",
        'lab.run(fabric(), ln.SendRecv("1 GB", 10**6))',
        "time.sleep(0.3)",
        'lab.metric("checked", 1)',
    )
    assert main(["run", scenario(text), "--max-wall", "1 s"]) == 1
    out = capsys.readouterr().out
    assert "not finished: demo stalled: --max-wall 1 s is over" in out and "checked: 1" in out
