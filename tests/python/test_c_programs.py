"""A switch program from one C file on the virtual clock: what it decides, counts and keeps, and
what is said of a file that is wrong."""

import json
import os
import re
import shutil
import tempfile
from pathlib import Path

import pytest

import loomnet as ln
from loomnet.base.errors import UnavailableError
from loomnet.cli import main
from loomnet.cli.new import SWITCH_TEMPLATES
from loomnet.programs import c_file, compiler

HEAVY = (SWITCH_TEMPLATES / "heavy.c").read_text()
ONLY_FORWARDS = """
#include <loomnet/switch_program.h>
struct ln_verdict ln_on_packet(const struct ln_options* options, struct ln_host* host,
                               struct ln_packet* packet, const struct ln_meta* meta) {
  return ln_route(host, packet);
}
"""
NOBODY = 65534
pytestmark = pytest.mark.skipif(
    not any(map(shutil.which, compiler.ENGINE.compilers)), reason="no C compiler"
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def fabric(path, pattern="p0.leaf*", **options):
    made = ln.clos.two_tier(
        planes=1, leaves=2, spines=2, hosts_per_leaf=2, rate="100 Gb/s", delay="1 us"
    )
    return made.program(pattern, path, **options)  # a str or a Path


def written(folder, text=HEAVY, name="heavy.c"):
    file = folder / name
    file.write_text(text)
    return file


def changed(before, after):
    assert before in HEAVY
    return HEAVY.replace(before, after)


# --- what it decides ------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "job",
    [
        ln.AllReduce("1 MB", repeat=8, transport="mrc"),
        ln.Permutation("300 kB", transport="roce"),
        ln.AllReduce("200 kB", repeat=8, transport="tcp"),
    ],
    ids=["mrc", "roce", "tcp"],
)
def test_a_file_that_only_forwards_gives_the_figures_of_no_program(tmp_path, job):
    file = written(tmp_path, ONLY_FORWARDS, "only.c")
    fault = (
        [ln.down("p0.leaf0--p0.spine0", at=ln.step(2), duration=ln.iterations(3), phase="down")]
        if isinstance(job, ln.AllReduce)
        else []
    )
    plain, own = (
        ln.run(made, job, fault, write=False, seed=3, reroute_delay="1 us")
        for made in (fabric("forward"), fabric(file, "*"))
    )
    assert [(row.name, row.value) for row in own.rows] == [
        (row.name, row.value) for row in plain.rows
    ]
    assert own.data.totals == plain.data.totals
    assert own.switch("p0.leaf0").counters == plain.switch("p0.leaf0").counters != {}
    assert own.switch("p0.leaf0").program.startswith("only.c@")


def test_every_packet_of_every_flow_is_counted_once(tmp_path):
    r = ln.run(fabric(written(tmp_path)), ln.Permutation("1 MB", transport="roce"), write=False)
    for leaf in ("p0.leaf0", "p0.leaf1"):
        found = r.switch(leaf)
        rows = found.snapshot()["rows"]
        assert sum(row["packets"] for row in rows) == found.counters["received"] > 1000
        assert found.counters["counted"] == found.counters["received"]
        assert sum(row["bytes"] for row in rows) > 1_000_000
        assert "drop_beyond" not in found.counters
    assert r.switch("p0.spine0").program == "forward"
    assert r.switch("p0.spine0").snapshot() == {}


def test_its_options_its_drops_and_its_reboot(tmp_path):
    text = HEAVY.replace(
        'X(limit, 0, 0, 1000000000, "packets")',
        'X(limit, 0, 0, 1000000000, "bytes") X(after, 0, 0, 1000000000000, "ps")',
    )
    text = text.replace(
        "packets > options->limit", "row->bytes > options->limit && meta->now > options->after"
    )
    file = written(tmp_path, text)
    job = ln.AllReduce("1 MB", repeat=10, transport="mrc")
    kill = ln.kill("p0.leaf0", at=ln.step(5), duration="20 us", reboot="5 us", phase="dead")
    r = ln.run(fabric(file), job, [kill], write=False, snapshots=["300 us"])
    leaf = r.switch("p0.leaf0")
    before = sum(row["bytes"] for row in leaf.snapshot(at="300 us")["rows"])
    assert (
        0 < before
        and sum(row["packets"] for row in leaf.snapshot()["rows"]) < leaf.counters["received"]
    ), "the reboot has cleared the rows, and counters are the run's"
    r = ln.run(fabric(file, limit="100 kB", after="1 us"), job, write=False)
    assert r.switch("p0.leaf0").options == {"limit": 100_000, "after": 1_000_000}
    assert r.switch("p0.leaf0").counters["drop_beyond"] > 0
    assert (
        r.data.totals["switch p0.leaf0"]["drop_beyond"]
        == r.switch("p0.leaf0").counters["drop_beyond"]
    )


# --- what is said of a wrong one ------------------------------------------------------------------
BAD = {
    "syntax": (
        changed("row->packets += 1;", "row->packets += 1"),
        r"heavy\.c: the C compiler refuses it: \S*heavy\.c:\d+:\d+: error: expected ';'",
    ),
    "contract": (
        changed("LN_CONTRACT 1", "LN_CONTRACT 2"),
        r"heavy\.c is written for contract 2 of switch programs, and this Loomnet has "
        r"contract 1: `loomnet new --switch NAME` writes a program of this contract",
    ),
    "no function": (
        changed("ln_on_packet", "ln_packet_in"),
        r"heavy\.c: it has no function ln_on_packet, which decides about a packet",
    ),
    "only in a comment": (
        "/* ln_on_packet() */\n#include <loomnet/switch_program.h>\n",
        r"heavy\.c: it has no function ln_on_packet",
    ),
    "no header": (
        changed("#include <loomnet/switch_program.h>", ""),
        r"heavy\.c: it does not say #include <loomnet/switch_program\.h>",
    ),
    "a wide row": (
        changed("FIELD(ln_u64, bytes)", "FIELD(ln_u64, bytes) BYTES(first, 5000)"),
        r"heavy\.c: LN_ROW: a state row has 5,0\d\d bytes, 4,096 at most",
    ),
    "much state": (
        changed("LN_ROWS 1024", "LN_ROWS 10000000"),
        r"heavy\.c: LN_ROWS: 10,000,000 state rows of 24 bytes: .*64 MiB of state",
    ),
    "no rows": (
        changed("#define LN_ROWS 1024\n", ""),
        r"heavy\.c: the C compiler refuses it: .*define LN_ROWS",
    ),
    "a struct as number": (
        changed("FIELD(ln_u64, bytes)", "FIELD(ln_u64, bytes) FIELD(struct ln_meta, all)"),
        r"heavy\.c: LN_ROW: all has 32 bytes, and a FIELD is a number",
    ),
    "a counter's name": (
        changed('"counted"', '"Counted"'),
        r'heavy\.c: LN_COUNTERS: "Counted" is not a name of lower-case letters',
    ),
    "a known counter": (
        changed('"counted"', '"absorbed"'),
        r'heavy\.c: counter "absorbed" is one that every program has',
    ),
    "a counter twice": (
        changed('"drop_beyond"', '"counted"'),
        r'heavy\.c: LN_COUNTERS: "counted" is there twice',
    ),
    "a known option": (
        changed("X(limit, 0,", "X(check_addresses, 0,").replace(
            "options->limit", "options->check_addresses"
        ),
        r'heavy\.c: option "check_addresses" is one that every program has',
    ),
    "an option's range": (
        changed("X(limit, 0, 0,", "X(limit, 5, 9,"),
        r"heavy\.c: LN_OPTIONS: limit: 0 <= least 9 <= default 5",
    ),
    "a payload": (
        "#define LN_PAYLOAD_AT 400\n" + HEAVY,
        r"heavy\.c: LN_PAYLOAD_AT: 400 is not from 14, the Ethernet header, to 192",
    ),
    "a function of nowhere": (
        changed("ln_count(host", "ln_cuont(host"),
        r"heavy\.c: the C compiler refuses it: .*implicit declaration of "
        r"function 'ln_cuont'",
    ),
    "a symbol of nowhere": (
        "int foo(int);\n" + changed("packets += 1", "packets += foo(1)"),
        r"heavy\.c: the C compiler refuses it: .*undefined reference to `foo'",
    ),
    "a file beside it": (
        '#include "own.h"\n' + HEAVY,
        r"heavy\.c: the C compiler refuses it: .*own\.h: No such file",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_wrong_file_is_one_line_that_names_it(tmp_path, case):
    text, line = BAD[case]
    (tmp_path / "own.h").write_text("")
    with pytest.raises(ln.UsageError, match=line) as refused:
        fabric(written(tmp_path, text))
    assert "\n" not in str(refused.value) and "loomnet-program-" not in str(refused.value)


def test_a_wrong_option_is_answered_with_the_nearest(tmp_path):
    file = written(tmp_path)
    with pytest.raises(
        ln.UsageError,
        match=r"program p0\.leaf\*: heavy\.c@\w{12} has no option "
        r'"limt"; nearest: limit',
    ):
        fabric(file, limt=3)
    with pytest.raises(ln.UsageError, match="option limit: must be 0 to 1000000000, not -1"):
        fabric(file, limit=-1)
    with pytest.raises(ln.UsageError, match=r"option limit: must be a whole number, not 1\.5"):
        fabric(file, limit=1.5)


def test_a_file_that_is_not_there_is_answered_with_folders_and_the_nearest(tmp_path, monkeypatch):
    written(tmp_path)
    (tmp_path / "folder.c").mkdir()
    monkeypatch.chdir(tmp_path)
    here = re.escape(str(Path(__file__).parent))
    with pytest.raises(
        ln.UsageError,
        match=rf"program \*: no file \./heavi\.c in {here} or "
        rf"{re.escape(str(tmp_path))}; nearest: heavy\.c",
    ):
        fabric("./heavi.c", "*")
    with pytest.raises(ln.UsageError, match=r"folder\.c is a folder, not a file"):
        fabric("folder.c")
    with pytest.raises(ln.UsageError, match='no switch program "heavy"'):
        fabric("heavy")


CRASH = {
    "a null pointer": ("*(volatile int*)0 = 1;", r"crashed \(SIGSEGV\)"),
    "a loop": (
        "while (*(volatile ln_u64*)&packets) { }",
        r"has not come back from a packet after 1 s of processor time: a loop ",
    ),
}


@pytest.mark.parametrize("case", CRASH)
def test_a_crash_or_a_loop_is_the_files_fault_and_the_next_run_is_well(tmp_path, case):
    code, line = CRASH[case]
    bad = written(
        tmp_path, changed("packets = row->packets;", f"packets = row->packets; {code}"), "bad.c"
    )
    at = bad.read_text()[: bad.read_text().index(code)].count("\n") + 1
    job = ln.Permutation("100 kB", transport="roce")
    with pytest.raises(ln.LoomnetError) as fault:
        ln.run(fabric(bad), job, write=False)
    said = str(fault.value)
    where = rf"bad\.c:{at}" if shutil.which("addr2line") else r"bad\.c"
    assert re.search(
        rf"{where}: the switch program {line}.* \(a packet of \d+ bytes, at \d+ ps "
        r"of the engine's clock, by port \d\)$",
        said,
    ), said
    assert ln.run(fabric(written(tmp_path)), job, write=False)["errors"] == 0


# --- compiled once, kept, played again ------------------------------------------------------------
def test_it_is_compiled_once_for_each_content(tmp_path, monkeypatch):
    user = c_file.RankUser.invoking()
    source = HEAVY.encode()
    made, kept = compiler.compiled(compiler.ENGINE, source, "heavy.c", user)
    assert kept is not None and kept.is_relative_to(tmp_path / "cache")
    runs = []
    run = compiler._run
    monkeypatch.setattr(compiler, "_run", lambda *rest: runs.append(1) or run(*rest))
    assert compiler.compiled(compiler.ENGINE, source, "heavy.c", user) == (made, kept) and not runs
    _, beside = compiler.compiled(compiler.ENGINE, source + b"// more\n", "heavy.c", user)
    assert len(runs) == 1 and beside != kept
    kept.write_bytes(kept.read_bytes()[:-100])  # a disk that was full
    assert compiler.compiled(compiler.ENGINE, source, "heavy.c", user)[0] == made
    assert len(runs) == 2
    assert kept.stat().st_mode & 0o077 == 0
    kept.chmod(0o666)  # others could have written it
    assert compiler.compiled(compiler.ENGINE, source, "heavy.c", user)[0] == made
    assert len(runs) == 3 and kept.stat().st_mode & 0o077 == 0
    monkeypatch.setattr(compiler, "CONTRACT", 2)
    compiler.compiled(compiler.ENGINE, source, "heavy.c", user)
    assert len(runs) == 4


def test_without_a_cache_it_runs_too(tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("no folder")
    r = ln.run(
        fabric(written(tmp_path, HEAVY + "/* not kept */")),
        ln.Permutation("10 kB", transport="roce"),
        write=False,
    )
    assert r.switch("p0.leaf0").counters["counted"] > 0


def test_a_run_keeps_its_file_names_it_by_hash_and_is_played_again(tmp_path, monkeypatch, capsys):
    place = tmp_path / "mine"
    monkeypatch.chdir(tmp_path)
    assert main(["new", str(place), "--switch", "heavy"]) == 0
    (place / "deeper").mkdir()
    (place / "heavy.c").rename(place / "deeper" / "heavy.c")
    file = place / "heavy.py"
    file.write_text(file.read_text().replace("./heavy.c", "deeper/heavy.c"))
    assert main(["run", str(file), "--set", "size=20 kB"]) == 0
    [folder] = (tmp_path / "runs").iterdir()
    assert (folder / "deeper" / "heavy.c").read_text() == HEAVY
    digest = c_file.hashlib.sha256(HEAVY.encode()).hexdigest()
    [fidelity] = json.loads((folder / "report.json").read_text())["fidelity"]
    assert fidelity["notes"][f"switch program heavy.c@{digest[:12]}"] == f"SHA-256 {digest}"
    inputs = json.loads((folder / "environment.json").read_text())["inputs"]
    assert inputs["<scenario>/deeper/heavy.c"] == digest, "a kept result is held against it"
    (place / "deeper" / "heavy.c").write_text(ONLY_FORWARDS)
    capsys.readouterr()
    assert main(["replay", str(folder)]) == 0
    assert "identical: " in capsys.readouterr().out


# --- whose code runs where ------------------------------------------------------------------------
root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@root
def test_root_runs_no_code_of_another_user_in_a_process_of_its_own(tmp_path, monkeypatch):
    file = written(tmp_path, HEAVY + "/* of nobody */")
    os.chown(file, NOBODY, NOBODY)
    said = (
        r"heavy\.c: root does not run the code of user nobody in a process of its own, .*; run "
        "it on the virtual clock without sudo"
    )
    loaded = []
    load = ln._core.load_switch_program
    monkeypatch.setattr(
        ln._core,
        "load_switch_program",
        lambda name, **rest: loaded.append(rest["object"]) or load(name, **rest),
    )
    with pytest.raises(ln.UsageError, match=said):
        ln.run(fabric(file), ln.Permutation("10 kB"), write=False)
    assert loaded == [None], "its object stays out of this process"
    with pytest.raises(ln.UsageError, match=said):  # before the live half of a crosscheck
        ln.Lab(clock="live", for_twin=True).run(fabric(file), ln.AllReduce("10 kB"))
    with pytest.raises(ValueError, match="root does not run the code"):  # and at a lower level
        ln._core.Network(seed=1, meter_bin_ps=10**9).add_switch(
            4, program=c_file.c_program("x", str(file)).name
        )


@root
def test_the_compiler_runs_as_the_user_behind_sudo(monkeypatch):
    above = Path(tempfile.mkdtemp(prefix="loomnet-test-"))  # pytest's own is root's alone
    above.chmod(0o755)
    try:
        as_sudo(above, monkeypatch)
    finally:
        shutil.rmtree(above)


def as_sudo(above, monkeypatch):
    home = above / "theirs"
    home.mkdir()
    file = written(home, HEAVY + "/* of sudo */")
    secret = above / "secret.h"
    secret.write_text('#error "the secret"\n')
    secret.chmod(0o600)
    wants = written(home, f'#include "{secret}"\n{HEAVY}', "wants.c")
    for each in (home, file, wants):
        os.chown(each, NOBODY, NOBODY)
    home.chmod(0o700)
    monkeypatch.setenv("SUDO_UID", str(NOBODY))
    monkeypatch.setenv("SUDO_GID", str(NOBODY))
    seen = []
    popen = compiler.subprocess.Popen
    monkeypatch.setattr(
        compiler.subprocess,
        "Popen",
        lambda command, **rest: seen.append(rest) or popen(command, **rest),
    )
    made = c_file.c_program("x", str(file))
    assert made.refusal and made.user.uid == NOBODY
    assert [(each["user"], each["group"]) for each in seen] == [(NOBODY, NOBODY)]
    with pytest.raises(ln.UsageError, match=r"secret\.h: Permission denied"):
        c_file.c_program("x", str(wants))
    link = home / "link.c"
    link.symlink_to(secret)
    with pytest.raises(ln.UsageError, match=r"link\.c: Permission denied"):
        c_file.c_program("x", str(link))


def test_without_a_compiler_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnavailableError, match=r"heavy\.c: there is no C compiler .*gcc"):
        fabric(written(tmp_path, HEAVY + "/* no compiler */"))


def test_a_live_run_without_clang_says_what_to_install(tmp_path, monkeypatch):
    made = fabric(written(tmp_path))
    monkeypatch.setattr(compiler.shutil, "which", lambda name: None)
    monkeypatch.setattr(c_file, "_for_kernel", set())
    with pytest.raises(UnavailableError, match=r'there is no clang.*place\("\*", "engine"\)'):
        ln.run(made, ln.AllReduce("10 kB", transport="roce"), clock="live", write=False)
