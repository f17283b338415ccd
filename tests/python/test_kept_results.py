"""A lab lets go of the series of its older runs, and keeps what its report needs of them."""

import weakref

import numpy as np
import pytest

import loomnet as ln
from loomnet.labs import lab as lab_module
from loomnet.results.kept import KEPT_BYTES, KeptResults, weight


def fabric():
    return ln.clos.two_tier(
        planes=1, leaves=1, spines=1, hosts_per_leaf=4, rate="400 Gb/s", delay="1 us"
    )


@pytest.fixture
def little(monkeypatch):
    monkeypatch.setattr(lab_module, "KeptResults", lambda: KeptResults(1000))


def runs(lab: ln.Lab, count: int = 3, held: str | None = None):
    """Labels r0, r1, …: weak references to their data, and the result that is held."""
    seen, kept = {}, None
    for number in range(count):
        label = f"r{number}"
        r = lab.run(fabric(), ln.Permutation(size="1 MB"), label=label, seed=number)
        seen[label] = weakref.ref(r.data)
        kept = r if label == held else kept
        del r
    return seen, kept


def test_older_runs_lose_their_series_and_keep_their_figures(little, tmp_path):
    @ln.scenario
    def many(lab: ln.Lab):
        seen, _ = runs(lab)
        assert [label for label, data in seen.items() if data() is not None] == ["r2"]
        assert lab.results["r0"]["errors"] == 0 and "fct_p99_s" in lab.results["r0"]
        assert list(lab.results) == ["r0", "r1", "r2"] and "r1" in lab.results
        with pytest.raises(ln.UsageError, match='run "r0": hosts was let go when later runs'):
            print(lab.results["r0"].data.hosts)
        with pytest.raises(ln.UsageError, match=r"hold the result that lab\.run"):
            print(lab.results["r1"].flows)
        assert lab.results["r2"].data.hosts

    report = many.run(directory=tmp_path / "runs")
    assert {row.label for row in report.rows} == {"r0", "r1", "r2"}
    assert report.results["r0"].data.errors == []


def test_what_is_held_stays_whole(little, tmp_path):
    @ln.scenario
    def many(lab: ln.Lab):
        seen, held = runs(lab, held="r0")
        assert held is not None and lab.results["r0"] is held and held.data.hosts
        assert held.series("goodput").values and seen["r1"]() is None
        del held
        with pytest.raises(ln.UsageError, match="let go"):
            print(lab.results["r0"].data.hosts)

    many.run(directory=tmp_path / "runs")


def test_reports_say_the_same_whether_series_are_kept_or_not(tmp_path, monkeypatch):
    texts = []
    for most in (KEPT_BYTES, 0):
        monkeypatch.setattr(lab_module, "KeptResults", lambda most=most: KeptResults(most))

        @ln.scenario
        def many(lab: ln.Lab):
            runs(lab, 2)

        report = many.run(directory=tmp_path / f"runs{most}")
        texts.append((report.directory / "report.json").read_bytes())
    assert texts[0] == texts[1]


def test_jobs_of_a_run_go_together(little, tmp_path):
    @ln.scenario
    def several(lab: ln.Lab):
        for label in ("one", "two"):
            lab.run(
                fabric(),
                [
                    ln.AllReduce("1 MB", name="a", hosts=["h0", "h1"]),
                    ln.AllReduce("1 MB", name="b", hosts=["h2", "h3"]),
                ],
                label=label,
            )
        first = lab.results["one"]
        assert set(first.jobs) == {"a", "b"} and first.job("a")["errors"] == 0
        with pytest.raises(ln.UsageError, match="let go"):
            print(first.job("b").data.hosts)

    several.run(directory=tmp_path / "runs")


def test_weights_are_about_the_bytes_of_what_is_large():
    assert weight(np.zeros(1_000_000)) == 8_000_000
    assert 20_000_000 < weight({i: np.zeros(10_000) for i in range(250)}) < 20_100_000
    assert 25_000_000 < weight([(1.0, 2.0)] * 250_000) < 60_000_000
    assert weight("a" * 1000) < 2000 and weight(None) < 100
