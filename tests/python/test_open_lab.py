"""`ln.lab` on the virtual clock: links that are down stay so for the jobs that follow; what needs a
kernel is refused in one line."""

import os

import pytest

import loomnet as ln
from loomnet.base.errors import PrivilegeError, UnavailableError


def fabric():
    return ln.clos.two_tier(
        planes=4, leaves=2, spines=2, hosts_per_leaf=2, rate="100 Gb/s", delay="1 us"
    )


def took(result):
    assert result["errors"] == 0
    return sum(each.length_ps for each in result.data.iterations)


def test_a_job_meets_the_links_as_they_are(tmp_path):
    job = ln.AllReduce(size="8 MB", repeat=10, transport="mrc")
    with ln.lab(fabric(), directory=tmp_path / "run", seed=2) as lab:
        assert repr(lab).startswith("Lab(clos-4x2x2: 4 hosts, 16 switches, 32 links; virtual clock")
        whole = took(lab.run(job))
        lab.down("h0--p0.leaf0")
        assert lab.links_down == ["h0--p0.leaf0"] and "down: h0--p0.leaf0)" in repr(lab)
        assert took(lab.run(job)) / whole == pytest.approx(4 / 3, rel=0.1)
        lab.restore("h0--p*.leaf0")
        assert lab.links_down == [] and took(lab.run(job, label="healed")) == whole
    assert (tmp_path / "run" / "report.json").is_file()
    with pytest.raises(ln.UsageError, match="down: the lab is closed"):
        lab.down("h0--p0.leaf0")


@pytest.mark.parametrize(("delay", "ends"), [("0 s", "finished"), ("off", "stalled")])
def test_tables_reconverge_at_once_or_never(tmp_path, delay, ends):
    job = ln.AllReduce("1 MB", repeat=3, transport="roce", stall_timeout="50 ms")
    with ln.lab(fabric(), directory=tmp_path / "run", seed=2, reroute_delay=delay) as lab:
        lab.down("p*.spine1->p*.leaf1")
        assert lab.run(job).data.ended == ends


def test_directions_and_globs():
    with ln.lab(fabric()) as lab:
        lab.down("p1.leaf0->p1.spine1")
        lab.down("h3--p[23].*")
        assert sorted(lab.links_down) == ["h3--p2.leaf1", "h3--p3.leaf1", "p1.leaf0--p1.spine1"]
        lab.restore("p1.leaf0->p1.spine1")
        lab.restore("h3->p2.leaf1")
        assert sorted(lab.links_down) == ["h3--p3.leaf1"]
        assert lab.address("h3") == "fd00::3"


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda lab: lab.exec("h0", "true"), 'exec: the virtual clock has no kernel.*clock="live"'),
        (lambda lab: lab.popen("h0", "true"), "popen: the virtual clock has no kernel"),
        (lambda lab: lab.counters(), r"counters: .*result\.data\.totals"),
        (lambda lab: lab.down("h0--p9.leaf0"), 'no link "h0--p9.leaf0"; nearest: h0--p0.leaf0'),
        (lambda lab: lab.address("h9"), 'no host "h9"; nearest: h0'),
        (lambda lab: lab.open(), "it is open already"),
    ],
)
def test_refused_in_one_line(act, message):
    with ln.lab(fabric()) as lab, pytest.raises(ln.UsageError, match=message):
        act(lab)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ln.lab("fabric"), "is not a fabric"),
        (lambda: ln.lab(fabric(), clock="sundial"), 'clock "sundial" is not one of virtual, live'),
        (lambda: ln.lab(fabric(), dilation=0.5), "dilation 0.5 must be 1 or more"),
        (lambda: ln.lab(fabric(), dilation="2"), "dilation '2' must be 1 or more"),
        (lambda: ln.lab(fabric(), reroute_delay=1), "lab: reroute_delay: 1 has no unit"),
    ],
)
def test_refused_on_construction(make, message):
    with pytest.raises(ln.UsageError, match=message):
        make()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may")
def test_a_live_lab_without_root_says_how(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with (
        pytest.raises((PrivilegeError, UnavailableError), match="needs"),
        ln.lab(fabric(), clock="live"),
    ):
        pass
    assert list(tmp_path.iterdir()) == []
