"""A run on switches of Symphony whose packets do not say their ring steps is told so beforehand,
and the remedy that the note gives is right: the switches then see the steps."""

import pytest
from scenario_lib import lib

import loomnet as ln

symphony = lib("symphony")

RING = {"size": "4 MB", "whole_steps": True}


def played(tmp_path, job, program, **options):
    """(notes, packets that a switch took for a ring's, packets whose step could not be)"""
    said = []
    fabric = symphony.ring_fabric(4, pfc=job.transport == "roce")
    fabric.program("*", "symphony", **program)
    if job.transport == "roce":
        options = {**options, "roce": {"preset": "B", **options.get("roce", {})}}
    r = ln.Lab(directory=tmp_path, say=said.append).run(fabric, job, **options)
    counted = [
        sum(row.get(name, 0) for row in r.data.totals.values())
        for name in ("tagged", "implausible")
    ]
    return [line for line in said if "symphony" in line], *counted


@pytest.mark.parametrize(
    ("transport", "program", "options", "remedy", "mended"),
    [
        (
            "roce",
            {"identity": "hdr"},
            {},
            'give roce={"identity": "hdr"}',
            {"roce": {"identity": "hdr"}},
        ),
        ("mrc", {}, {}, 'give mrc={"identity": "hdr"}', {"mrc": {"identity": "hdr"}}),
        (
            "tcp",
            {"identity": "hdr"},
            {},
            'give the program identity="seq" and step=',
            {"program": {"identity": "seq", "step": "1 MB"}},
        ),
        (
            "mrc",
            {"identity": "seq", "step": "1 MB"},
            {"mrc": {"identity": "hdr"}},
            'give the program identity="hdr"',
            {"program": {"identity": "hdr"}},
        ),
    ],
)
def test_packets_that_do_not_say_their_step_are_told_with_the_remedy(
    tmp_path, transport, program, options, remedy, mended
):
    job = ln.AllReduce(transport=transport, **RING)
    (note,), tagged, _ = played(tmp_path / "silent", job, program, **options)
    assert note.startswith("note: ") and remedy in note
    assert "no packet is marked" in note and tagged == 0
    told, tagged, _ = played(
        tmp_path / "told",
        job,
        mended.get("program", program),
        **{**options, **{k: v for k, v in mended.items() if k != "program"}},
    )
    assert told == [] and tagged > 0


def test_hashes_taken_for_steps_are_told(tmp_path):
    job, program = ln.AllReduce(transport="roce", **RING), {"identity": "sport"}
    (note,), _, implausible = played(tmp_path / "a", job, program, roce={"identity": "hdr"})
    assert "takes hashes for steps" in note and 'give roce={"identity": "sport"}' in note
    told, _, fewer = played(tmp_path / "b", job, program, roce={"identity": "sport"})
    assert told == [] and fewer < implausible / 10


@pytest.mark.parametrize(
    ("job", "step", "words"),
    [
        ({}, "300 kB", 'ring steps have 1 MB; give the program step="1 MB"'),
        ({}, "1 MB", None),
    ],
)
def test_sequence_numbers_that_are_no_steps_are_told(tmp_path, job, step, words):
    told, *_ = played(
        tmp_path, ln.AllReduce(transport="roce", **RING, **job), {"identity": "seq", "step": step}
    )
    assert words in told[0] if words else told == [], told


@pytest.mark.parametrize(
    ("job", "program"),
    [
        (ln.AllToAll("1 MB", transport="roce"), {}),
        (ln.AllReduce("1 MB", transport="roce"), {"enable": False}),
        (ln.AllReduce("1 MB", transport="roce"), {"identity": "none"}),
        (ln.Flows("1 MB", pairs=[(0, 1)], transport="roce"), {}),
    ],
)
def test_jobs_without_rings_and_switches_that_mark_nothing_are_not_spoken_of(
    tmp_path, job, program
):
    assert played(tmp_path, job, program)[0] == []


def test_jobs_that_are_not_tracked_are_not_spoken_of(tmp_path):
    said = []
    fabric = symphony.ring_fabric(8).program("*", "symphony", jobs=["a"])
    jobs = [
        ln.AllReduce("1 MB", transport=kind, name=name, hosts=hosts)
        for name, kind, hosts in (("a", "roce", ["h0", "h1"]), ("b", "mrc", ["h2", "h3"]))
    ]
    ln.Lab(directory=tmp_path, say=said.append).run(
        fabric, jobs, roce={"identity": "hdr", "preset": "B"}
    )
    assert [line for line in said if "symphony" in line] == []


@pytest.mark.parametrize(
    ("tau", "words"),
    [
        (1, 'tau=1 is 1/65,536 of a ring step; write tau="1 step"'),
        (2, 'write tau="2 steps"'),
        (65_536, None),
        ("1 step", None),
    ],
)
def test_a_distance_without_a_unit_is_told(tmp_path, tau, words):
    told, *_ = played(
        tmp_path, ln.AllReduce(transport="roce", **RING), {"tau": tau}, roce={"identity": "hdr"}
    )
    assert words in told[0] if words else told == [], told


def test_a_run_without_a_lab_tells_its_notes_too(capsys):
    fabric = symphony.ring_fabric(4).program("*", "symphony", identity="hdr")
    ln.run(fabric, ln.AllReduce(transport="roce", **RING), roce={"preset": "B"}, write=False)
    found = capsys.readouterr()
    assert found.out == ""
    (note,) = found.err.splitlines()
    assert note.startswith("note: ") and 'give roce={"identity": "hdr"}' in note


@pytest.mark.parametrize(
    ("hosts", "told"),
    [
        ({}, 1),
        ({"cc": "fixed_window"}, 1),
        ({"preset": "C"}, 0),
        ({"preset": "D"}, 0),
        ({"dcqcn": True}, 0),
        ({"cc": "timely"}, 1),
    ],
)
def test_hosts_that_no_mark_slows_are_told(tmp_path, hosts, told):
    said = []
    fabric = symphony.ring_fabric(4).program("*", "symphony")
    r = ln.Lab(directory=tmp_path, say=said.append).run(
        fabric, ln.AllReduce(transport="roce", **RING), roce={"identity": "hdr", **hosts}
    )
    found = [line for line in said if "have no congestion control here" in line]
    assert len(found) == told, said
    if told and hosts.get("cc") != "timely":  # which cuts by delays
        assert sum(row.get("rate_cuts", 0) for row in r.data.totals.values()) == 0
