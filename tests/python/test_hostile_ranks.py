"""Ranks that abuse what they share with the engine, on the virtual clock: each is cut off by name,
or its end is named, and the engine neither hangs nor grows."""

import resource
from pathlib import Path

import pytest

import loomnet as ln
from loomnet.cli import main
from loomnet.labs.lab import Lab

SCRIPT = Path(__file__).parent / "plain_ranks" / "hostile.py"
FABRIC = dict(planes=1, leaves=1, spines=1, hosts_per_leaf=2, rate="400 Gb/s", delay="1 us")


def run_of(tmp_path, kind):
    fabric = ln.clos.two_tier(**FABRIC)
    job = ln.TorchJob(SCRIPT, args=[kind], ranks=2, compute="1 ms")
    return Lab("hostile", directory=tmp_path / "run", max_wall_s=30).run(fabric, job)


@pytest.mark.parametrize("kind", ["blocking_writes", "stolen_reads"])
def test_a_rank_cannot_block_the_engine_by_flags_of_what_it_inherited(tmp_path, kind):
    r = run_of(tmp_path, kind)
    assert r.data.ended == "failed" and "rank 1 ended with exit status 7" in r.data.reason


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        *(
            (kind, "flood of work requests or marks")
            for kind in ("step", "hash", "optimizer", "failure", "work_begin", "work_end")
        ),
        ("meet", "malformed mark"),
        *((f"{ring}_produced", "ring index corrupted") for ring in ("submissions", "marks")),
        *(
            (f"{ring}_consumed", "ring index corrupted")
            for ring in ("completions", "arrivals", "notices")
        ),
        ("state", "state word corrupted"),
        ("far_step", "malformed mark"),
    ],
)
def test_a_rank_that_breaks_its_contract_is_cut_off_by_name(tmp_path, kind, why):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    r = run_of(tmp_path, kind)
    assert r.data.ended == "failed"
    assert r.data.errors[0].who == "rank 1"
    assert r.data.errors[0].message.startswith(f"cut off: {why}")
    assert r.data.reason.startswith(f"rank 1 was cut off: {why}")
    log = (tmp_path / "run" / "ranks" / "0.log").read_text()
    assert "first ok" in log and "rank 1 was cut off" in log, log
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 512 << 10  # KiB


def test_a_terminal_is_not_told_what_to_do_by_a_rank(tmp_path, monkeypatch, capsys):
    """The last line of a rank's output is shown as its error: with escapes for control characters,
    which might set a terminal's title or its clipboard."""
    monkeypatch.chdir(tmp_path)
    script = 'print("\\x1b]0;title\\x07 \\x9b31m \\u202e end")\nraise SystemExit(3)\n'
    (tmp_path / "rank.py").write_text(script)
    (tmp_path / "scenario.py").write_text(
        "import loomnet as ln\n\n@ln.scenario\ndef prints(lab: ln.Lab):\n"
        f"    fabric = ln.clos.two_tier(**{FABRIC!r})\n"
        '    lab.run(fabric, ln.TorchJob("rank.py", ranks=2, compute="1 ms"))\n'
    )
    assert main(["run", "scenario.py"]) == 1
    out = capsys.readouterr().out
    assert r"\x1b]0;title\x07 \x9b31m \u202e end" in out
    assert not set("\x1b\x07\x9b\u202e") & set(out)
