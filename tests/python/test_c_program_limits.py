"""A C program that writes beyond what it is given, ends the process, or is slow: what is said, and
that the engine's own memory stays as it was."""

import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

import loomnet as ln
from loomnet.cli.new import SWITCH_TEMPLATES
from loomnet.programs import compiler
from loomnet.programs.contract import Broken
from loomnet.programs.object_symbols import refusal_of

HEAVY = (SWITCH_TEMPLATES / "heavy.c").read_text()
PLACE = "  LN_LOCK(&row->lock);"
JOB = ln.Permutation("100 kB", transport="roce")
pytestmark = pytest.mark.skipif(
    not any(map(shutil.which, compiler.ENGINE.compilers)), reason="no C compiler"
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def file_with(folder, code, before=""):
    assert HEAVY.count(PLACE) == 1
    (folder / "heavy.c").write_text(before + HEAVY.replace(PLACE, f"  {code}\n{PLACE}"))
    return folder / "heavy.c"


def fabric(file):
    made = ln.clos.two_tier(
        planes=1, leaves=2, spines=2, hosts_per_leaf=2, rate="100 Gb/s", delay="1 us"
    )
    return made.program("p0.leaf*", file)


def figures(result):
    return [(row.name, row.value) for row in result.rows]


# --- memory ---------------------------------------------------------------------------------------
BYTES = "unsigned char* f = (unsigned char*)packet->frame; int k; "
OUTSIDE = {
    "a row that there is not": (
        "ln_row(host->state, 0); (&((struct ln_row*)host->state->rows)[LN_ROWS])->bytes = 99;",
        r"used memory \d+ bytes behind the last of its rows",
    ),
    "a row far behind": (
        "row += 500000; row->packets = 77;",
        r"used memory \d+ bytes behind the last of its rows",
    ),
    "a row far before": (
        "row -= 500000; row->packets = 77;",
        r"used memory \d+ bytes before the first of its rows",
    ),
    "behind the packet": (
        BYTES + "for (k = 0; k < 100000; k++) f[k] = 0xff;",
        r"used memory \d+ bytes behind the last of the packet",
    ),
    "a byte behind the packet": (
        "*(volatile ln_u8*)packet->end = 1;",
        "has written beside its packet's bytes",
    ),
    "before the packet": (
        BYTES + "for (k = -64; k < 0; k++) f[k] = 0xff;",
        "has written beside its packet's bytes",
    ),
    "behind all of the host": (
        "volatile char* p = (volatile char*)host->state; long k; "
        "for (k = 0; k < 1l << 34; k += 4096) p[k] = 0x41;",
        r"behind the last of the packet",
    ),
}


@pytest.mark.parametrize("case", OUTSIDE)
def test_a_write_outside_ends_the_run_and_hits_nothing_of_the_engines(tmp_path, case):
    code, said = OUTSIDE[case]
    before = figures(ln.run(fabric("forward"), JOB, write=False))
    with pytest.raises(ln.LoomnetError, match=said) as fault:
        ln.run(fabric(file_with(tmp_path, code)), JOB, write=False)
    assert re.search(r"heavy\.c(:\d+)?: the switch program ", str(fault.value))
    assert "\n" not in str(fault.value)
    assert figures(ln.run(fabric("forward"), JOB, write=False)) == before


def test_a_crash_elsewhere_names_the_file_that_may_have_written_there(tmp_path):
    """The program writes by an address that it was not given, which no guard finds."""
    code = (
        "static int once; if (!once++) { ln_u8* p = (ln_u8*)host->tables; "
        "int k; for (k = 0; k < 64; k++) p[k] = 0x41; }"
    )
    file_with(tmp_path, code)
    (tmp_path / "sc.py").write_text(
        "import os, loomnet as ln\n"
        "f = ln.star(hosts=2, rate='10 Gb/s', delay='1 us').program('*', './heavy.c')\n"
        "import loomnet._core\n"
        "try:\n    ln.run(f, ln.SendRecv('8 kB'), write=False)\n"
        "except ln.LoomnetError as error:\n    print(error)\n"
        "os.abort()\n"
    )
    done = subprocess.run(
        [sys.executable, "sc.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode in (-signal.SIGABRT, -signal.SIGSEGV)
    assert done.stderr.count("may have written outside its memory\n") == 1, done.stderr
    assert re.search("loomnet: this process crashed .*heavy.c may have", done.stderr)


# --- the C library --------------------------------------------------------------------------------
TAKES = {
    "exit": "exit(0);",
    "_exit": "_exit(0);",
    "abort": "abort();",
    "fork": "fork();",
    "signal": "signal(2, 0);",
    "malloc": "row = malloc(9999);",
    "rand": "packets = rand();",
}


@pytest.mark.parametrize("name", TAKES)
def test_what_ends_a_process_or_changes_it_is_refused_by_line(tmp_path, name):
    headers = "".join(f"#include <{each}.h>\n" for each in ("stdlib", "unistd", "signal"))
    file = file_with(tmp_path, f"/* no exit() */ if (row->bytes == 7) {TAKES[name]}", headers)
    at = file.read_text()[: file.read_text().index("/* no exit")].count("\n") + 1
    with pytest.raises(
        ln.UsageError,
        match=rf"heavy\.c:{at}: it uses {name} of the C library; a "
        "switch program may call memcpy, memmove, ",
    ):
        fabric(file)


def test_memory_functions_and_printf_are_allowed(tmp_path):
    code = (
        "char copy[64]; memcpy(copy, packet->frame, sizeof copy < 62 ? sizeof copy : 62); "
        'if (copy[0] == 77 && row->bytes == 3) printf("%d\\n", copy[1]);'
    )
    r = ln.run(fabric(file_with(tmp_path, code, "#include <stdio.h>\n")), JOB, write=False)
    assert r["errors"] == 0


def test_code_that_runs_at_load_and_an_object_cut_short_are_refused(tmp_path):
    own = (
        "static volatile int begun;\n"
        "__attribute__((constructor)) static void begin(void) { begun = 1; }\n"
    )
    with pytest.raises(ln.UsageError, match=r"heavy\.c: it has a function that runs when it is l"):
        fabric(file_with(tmp_path, "", own))
    with pytest.raises(Broken, match="cut short"):
        refusal_of(b"\x7fELF\x02\x01" + bytes(20), b"")


# --- a slow one -----------------------------------------------------------------------------------
SLOW = """
import loomnet as ln

@ln.scenario
def slow(lab: ln.Lab):
    fabric = ln.star(hosts=2, rate="10 Gb/s", delay="1 us").program("*", "./heavy.c")
    print("ready", flush=True)
    lab.run(fabric, ln.SendRecv("4 MB", transport="roce"))
"""


@pytest.mark.parametrize("how", ["Ctrl-C", "--max-wall"])
def test_a_slow_program_is_ended_within_seconds(tmp_path, how):
    """Each packet takes some 50 ms, below the limit of one packet."""
    file_with(tmp_path, "volatile unsigned long k; for (k = 0; k < 25000000ul; k++) { }")
    (tmp_path / "slow.py").write_text(SLOW)
    words = ["--max-wall", "2 s"] if how == "--max-wall" else []
    began = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-m", "loomnet", "run", "slow.py", *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout.readline() == "ready\n"
        time.sleep(0.5)
        if how == "Ctrl-C":
            running.send_signal(signal.SIGINT)
        try:
            _, said = running.communicate(timeout=20)
        finally:
            running.kill()
    assert running.returncode not in (0, -9), said
    assert time.monotonic() - began < 15
    (run,) = (tmp_path / "runs").iterdir()
    assert (run / "report.json").exists(), "the partial report is kept"
