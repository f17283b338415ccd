"""A user's own code that does not come back: --max-wall and one Ctrl-C end it by name, in each
method of each kind of plug-in, whether it loops or sleeps; a thread that lives on is ended, and
os._exit() does not pass for a run that ended well."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from scenario_lib import lib

import loomnet as ln
from loomnet.base import wall_time
from loomnet.base.errors import RunInterrupted
from loomnet.labs.lab import Lab

mfabric = lib("mfabric")
HANG = {"loops": "while True: pass", "sleeps": "__import__('time').sleep(600)"}
hang = None  # what a hanging method does; a function of the test's


def hangs(*_):
    hang()


def lossy(transport, **options):
    fabric = ln.clos.two_tier(
        planes=2, leaves=2, spines=1, hosts_per_leaf=2, rate="10 Gb/s", delay="5 us"
    )
    faults = [
        ln.loss("p0.spine0->p0.leaf0", 0.05, at="0.1 ms", duration="20 ms"),
        ln.delay("p0.spine0->p0.leaf0", "2 ms", at="0.2 ms", duration="0.5 ms"),
        ln.down("h0--p1.leaf0", at="0.1 ms", duration="3 ms"),
    ]
    return (fabric, ln.Incast("200 kB", repeat=3, transport=transport, compute="5 ms"), faults), {
        "sample": "0.1 ms",
        "observe": ["a"],
        **options,
    }


def a_control(method):
    def on_tick(self, now_ps):
        self.next_tick = now_ps + 10**7

    def __init__(self, flow):
        ln.plugin.Congestion.__init__(self, flow)
        self.next_tick = 10**6 if method == "on_tick" else None

    def observe(self):
        if method == "observe" and hasattr(self, "shown"):  # the first call is its maker's
            hangs()
        self.shown = True
        return {"a": 1.0}

    own = {"__init__": __init__, "on_tick": on_tick, method: hangs, "observe": observe}
    ln.plugin.congestion("hanging")(type("Hanging", (ln.plugin.Congestion,), own))
    if method == "on_ports":
        return lossy("mrc", mrc={"cc": "hanging"})
    return lossy("tcp", tcp={"cc": "hanging"})


def a_controller(method):
    own = {
        "subscribes": ("iteration",),
        "advance": lambda self, now, view: None,
        "on_event": lambda self, now, event: None,
    }
    if method == "an answer":

        def advance(self, now, view):
            hangs()
            yield

        own["advance"] = advance
    elif method == "subscribes":
        own["subscribes"] = property(hangs)
    else:
        own[method] = hangs
    ln.plugin.controller("hanging")(type("Hanging", (), own))
    fabric = ln.star(hosts=2, rate="10 Gb/s", delay="1 us")
    return (fabric, ln.AllReduce("2 MB", 10)), {
        "controllers": [ln.controller("hanging", every="1 ms")]
    }


def a_priority(method):
    own = {"priority": lambda self, message: 1, method: hangs}
    ln.plugin.priority("hanging")(type("Hanging", (), own))
    fabric = ln.star(hosts=2, rate="10 Gb/s", delay="1 us")
    return (fabric, ln.ModelJob("alexnet", workers=2, iterations=2, priority="hanging")), {}


def an_assigner(method):
    own = {"assign": lambda self, demand, free, previous: previous, method: hangs}
    ln.plugin.assignment("hanging")(type("Hanging", (), own))
    fabric, job = mfabric.compared(
        "mixnet",
        rate="100 Gb/s",
        servers=8,
        data=1,
        pipeline=1,
        layers=1,
        micro_batches=1,
        iterations=1,
        control={"rule": "hanging"},
    )
    return (fabric, job), {"model": "fluid"}


CONTROL = (
    "__init__",
    "on_ack",
    "on_congestion",
    "on_tick",
    "on_established",
    "on_restart",
    "on_recovered",
    "on_undo",
    "on_ports",
    "observe",
)
METHODS = [
    *((a_control, "congestion control", each) for each in CONTROL),
    *(
        (a_controller, "controller", each)
        for each in ("__init__", "advance", "on_event", "next_time", "subscribes", "an answer")
    ),
    *((a_priority, "priority", each) for each in ("__init__", "priority")),
    *((an_assigner, "assignment", each) for each in ("__init__", "assign")),
]
# As errors call a method.
NAMES = {("controller", "an answer"): "advance", ("congestion control", "__init__"): "the maker"}


def said_of(kind, method):
    return f'{kind} "hanging": {NAMES.get((kind, method), method)}'


@pytest.fixture
def hanging(monkeypatch):
    """Makes methods hang in this way, and tells when one does."""
    begun = threading.Event()

    def begin(how):
        def run():
            begun.set()
            exec(HANG[how], {})

        monkeypatch.setitem(globals(), "hang", run)
        return begun

    monkeypatch.setattr(wall_time, "CLOSING_S", 0.05)
    monkeypatch.setattr(wall_time, "AGAIN_S", 0.05)
    return begin


def ways(first):
    """Both ways of hanging; one by default, both with --soak."""
    return [pytest.param(each, marks=[] if each == first else pytest.mark.soak) for each in HANG]


def all_of(first):
    return [
        pytest.param(*row, *how.values, marks=how.marks, id="-".join((*row[1:], *how.values)))
        for row in METHODS
        for how in ways(first)
    ]


@pytest.mark.parametrize(("make", "kind", "method", "how"), all_of("loops"))
def test_max_wall_ends_each_method_by_name(tmp_path, hanging, make, kind, method, how):
    begun = hanging(how)

    @ln.scenario
    def waits(lab: ln.Lab):
        given, options = make(method)
        lab.run(*given, **options)

    for limit in (0.3, 2, 10):  # a busy machine may not have come to the method in time
        began = time.monotonic()
        try:
            waits.run(directory=tmp_path / f"runs-{limit}", max_wall_s=limit)
        except ln.UsageError as error:
            ended = str(error)
        if begun.is_set():
            break
    assert time.monotonic() - began < limit + 10 and begun.is_set()
    said = f"{said_of(kind, method)} had not come back when --max-wall {limit:g} s is over"
    assert ended.startswith(said), ended


@pytest.mark.parametrize(("make", "kind", "method", "how"), all_of("sleeps"))
def test_one_ctrl_c_ends_each_method_by_name(tmp_path, hanging, make, kind, method, how):
    begun = hanging(how)

    def interrupt():
        if begun.wait(30) and not over.wait(0.05):
            os.kill(os.getpid(), signal.SIGINT)

    over = threading.Event()
    thread = threading.Thread(target=interrupt, daemon=True)
    thread.start()
    try:
        given, options = make(method)
        with pytest.raises((RunInterrupted, KeyboardInterrupt)) as ended:
            Lab("waits", directory=tmp_path / "run").run(*given, **options)
    finally:
        over.set()
        begun.set()
        thread.join()
    assert f"in {said_of(kind, method)}" in str(ended.value)


def test_the_wall_time_of_a_lab_without_a_scenario_ends_a_plug_in_too(tmp_path, hanging):
    hanging("loops")
    given, options = a_controller("advance")
    before = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)[0]
    with pytest.raises(ln.UsageError, match=r'controller "hanging": advance had not come back'):
        Lab("waits", directory=tmp_path / "run", max_wall_s=0.3).run(*given, **options)
    assert signal.getsignal(signal.SIGALRM) == before[0]
    left, again = signal.getitimer(signal.ITIMER_REAL)  # of a test's time-out
    assert again == 0 and max(before[1] - 20, 0) <= left <= before[1]


def test_an_alarm_that_was_set_before_still_comes(monkeypatch):
    came = []
    outer = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)[0]
    try:
        signal.signal(signal.SIGALRM, lambda *_: came.append(time.monotonic()))
        began = time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with wall_time.WallTime(60), wall_time.suspended():
            while not came and time.monotonic() - began < 20:
                time.sleep(0.01)
        assert came and came[0] - began >= 0.19
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with wall_time.WallTime(60):
            pass
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 0.3
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, outer[0])
        signal.setitimer(signal.ITIMER_REAL, outer[1])


def test_the_wall_time_ends_nothing_of_the_runs_own(tmp_path, monkeypatch):
    """An alarm that comes while a run is under way waits: the run ends by itself, with figures."""
    monkeypatch.setattr(wall_time, "CLOSING_S", -0.25)
    monkeypatch.setattr(wall_time, "AGAIN_S", 0.01)
    r = Lab("waits", directory=tmp_path / "run", max_wall_s=0.3).run(
        ln.star(hosts=4, rate="100 Gb/s", delay="1 us"), ln.AllToAll("2 MB", 10**5)
    )
    assert r.data.ended == "stalled" and "--max-wall 0.3 s is over" in r.data.reason
    assert len(r.data.iterations) > 0


# --- commands -------------------------------------------------------------------------------------
HEAD = """
import os, threading, time
import loomnet as ln

@ln.scenario
def demo(lab: ln.Lab):
    lab.run(ln.star(hosts=2, rate="10 Gb/s", delay="1 us"), ln.SendRecv("8 B"))
"""


def loomnet(tmp_path, body, *words):
    (tmp_path / "demo.py").write_text(HEAD + body)
    return subprocess.run(
        [sys.executable, "-m", "loomnet", *words],
        cwd=tmp_path,
        text=True,
        capture_output=True,
        check=False,
        timeout=120,
    )


def test_a_thread_that_lives_on_is_ended_with_a_line(tmp_path):
    body = "    threading.Thread(target=time.sleep, args=(600,), name='mine').start()\n"
    began = time.monotonic()
    done = loomnet(tmp_path, body, "run", "demo.py")
    assert time.monotonic() - began < 60
    assert done.returncode == 0 and "report: " in done.stdout, done.stdout + done.stderr
    assert done.stderr == (
        "loomnet: ended with the thread mine still running, which the scenario "
        "or a plug-in had started; a daemon thread ends by itself\n"
    )


def test_a_thread_that_ends_in_time_says_nothing(tmp_path):
    body = "    threading.Thread(target=time.sleep, args=(0.5,)).start()\n"
    done = loomnet(tmp_path, body, "run", "demo.py")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("status", [0, 3])
def test_os_exit_does_not_pass_for_a_run_that_ended_well(tmp_path, status):
    done = loomnet(tmp_path, f"    os._exit({status})\n", "run", "demo.py")
    assert done.returncode == 1 and done.stderr == (
        f"loomnet: the scenario's own code called os._exit({status}) (demo.py:8): no report was "
        "written\n"
    )


def test_os_exit_of_a_child_is_its_own(tmp_path):
    body = "    if os.fork() == 0: os._exit(0)\n    os.wait()\n"
    done = loomnet(tmp_path, body, "run", "demo.py")
    assert (done.returncode, done.stderr) == (0, "")


# --- what a command needs -------------------------------------------------------------------------
def shell(tmp_path, line):
    (tmp_path / "demo.py").write_text(HEAD)
    command = line.replace("loomnet", f"{sys.executable} -m loomnet", 1)
    return subprocess.run(
        ["bash", "-c", command],
        cwd=tmp_path,
        text=True,
        capture_output=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize("words", ["run demo.py", "list demo.py", "describe demo.py", "--version"])
def test_a_closed_standard_output_is_one_line(tmp_path, words):
    done = shell(tmp_path, f"loomnet {words} >&-")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "loomnet: standard output is closed, so nothing was run; write "
        ">/dev/null to run without it\n"
    )
    assert not (tmp_path / "runs").exists()


def test_other_closed_streams_are_nothing_to_a_run(tmp_path):
    done = shell(tmp_path, "loomnet run demo.py <&- 2>&-")
    assert done.returncode == 0 and "report: " in done.stdout
    for file in tmp_path.rglob("*"):  # none has taken the number of a stream that was closed
        assert file.is_dir() or b"report: " not in file.read_bytes()


def test_a_machine_without_proc_is_one_line(tmp_path):
    inside = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
    if inside.returncode:
        pytest.skip("mounting needs root")
    (tmp_path / "demo.py").write_text(HEAD)
    done = subprocess.run(
        [
            "unshare",
            "--mount",
            "sh",
            "-c",
            f"mount -t tmpfs none /proc && exec {sys.executable} -m loomnet run demo.py",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == (
        "loomnet: /proc/self/status: No such file or directory; Loomnet needs "
        "/proc: mount -t proc proc /proc\n"
    )
