"""What a run says of figures by phase, of packets that switches trimmed, of moments in tables, of
files that are not there and of what a file says without effect."""

import os

import pytest

import loomnet as ln

FABRIC = ln.star(hosts=4, rate="10 Gb/s", delay="1 us")


def test_a_figure_by_phase_that_is_asked_without_says_what_before_is():
    r = ln.run(FABRIC, ln.AllReduce("8 kB"), write=False)
    with pytest.raises(
        ln.UsageError,
        match=r'no number "lost": it is counted by phase \(before\): '
        '"before.lost" is up to the first fault',
    ):
        r["lost"]


def test_moments_that_differ_read_so():
    flows = ln.Flows("10 kB", pairs=[(0, 1), (1, 2), (2, 3)], starts=["0 s", "2 s", "2.00001 s"])
    lines = repr(ln.run(FABRIC, flows, write=False).flows).splitlines()
    assert ["0 s" in lines[1], " 2 s " in lines[2], " 2.00001 s " in lines[3]] == [True] * 3


def test_packets_that_were_trimmed_explain_what_was_sent_again():
    fabric = ln.star(hosts=9, rate="100 Gb/s", delay="1 us")
    mrc, tcp = (
        ln.run(fabric, ln.Incast("200 kB", transport=each), write=False) for each in ("mrc", "tcp")
    )
    count = sum(each.get("trimmed", 0) for each in mrc.data.totals.values())
    assert count == mrc["before.retransmitted"] > 0 and mrc["before.lost"] == 0
    assert f"; {count} packets met a full queue, where switches cut them" in mrc.summary
    assert "cut" not in tcp.summary  # whose packets nobody cuts


def test_a_file_that_is_not_there_is_looked_for_in_a_folder_that_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for make in (
        lambda: ln.Flows("none.txt", pairs=[(0, 1)]),
        lambda: ln.Flows.from_ns3("none.txt"),
    ):
        with pytest.raises(
            ln.UsageError, match="none.txt: No such file or directory in " + os.getcwd()
        ):
            make()
    with pytest.raises(ln.UsageError, match=r"directory$"):
        ln.Flows.from_ns3(tmp_path / "none.txt")


def test_what_a_file_says_without_effect_is_told_by_ln_run_too(tmp_path, capsys):
    file = tmp_path / "flow.txt"
    file.write_text("2\n0 1 3 100 1000 0.0\n1 2 4 100 1000 0.0\n")
    ln.run(FABRIC, ln.Flows.from_ns3(file), write=False)
    said = capsys.readouterr().err
    assert "note: passed over in flow.txt: priority groups (2 flows of 2)" in said
