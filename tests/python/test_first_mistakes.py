"""What a newcomer types first at Python's prompt, and what Loomnet answers."""

import gc
import os
from collections.abc import Mapping

import pytest

import loomnet as ln


def fabric():
    return ln.clos.two_tier(
        planes=1, leaves=2, spines=1, hosts_per_leaf=1, rate="10 Gb/s", delay="1 us"
    )


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_mistyped_name_is_answered_with_the_nearest():
    with pytest.raises(AttributeError, match="no attribute 'AllReduse'; nearest: AllReduce, "):
        _ = ln.AllReduse
    with pytest.raises(AttributeError, match=r"no attribute '__wrapped__'$"):
        _ = ln.__wrapped__


def test_one_fault_in_place_of_a_list_is_told_to_be_a_list(here):
    fault = ln.down("h0--p0.leaf0", at="1 ms", duration="1 ms")
    with pytest.raises(
        ln.UsageError,
        match=r"faults: down\(h0--p0.leaf0\) stands alone; write a "
        r"list: \[ln.down\(…\)\]",
    ):
        ln.run(fabric(), ln.AllReduce("1 MB"), fault)
    assert not list(here.iterdir())


def test_tab_offers_builders_and_numbers(here):
    assert dir(ln.clos) == ["dumbbell", "fat_tree", "star", "three_tier", "two_tier"]
    fault = ln.down("h0--p0.leaf0", at="1 ms", duration="1 ms", phase="down")
    r = ln.run(fabric(), ln.AllReduce("1 MB", 12), [fault], write=False)
    names = r._ipython_key_completions_()
    assert {"before.iteration_s", "down.goodput_ratio", "errors"} <= set(names)
    assert all(r[name] is None or r[name] >= 0 for name in names)
    assert repr(r) == (
        "Result(finished, 12 iterations over mrc; phases before, down, after; "
        "0 errors; all numbers in .metrics)"
    )


def test_a_result_is_read_as_a_mapping(here):
    r = ln.run(fabric(), ln.AllReduce("1 MB", 6), write=False)
    assert "before.blip_s" in r and "down.blip_s" not in r and 0 not in r
    assert dict(r) == {name: r[name] for name in r} and list(r.keys()) == list(r)
    assert dict(r)["errors"] == 0
    assert isinstance(r, Mapping) and len(r) == len(r.rows) == len(r.keys())
    assert r.get("before.blip_s") == r["before.blip_s"] and r.get("errors", 3) == 0
    assert r.get("down.blip_s") is None and r.get("nothing", 7) == 7
    assert dict(r.items()) == dict(r) and list(r.values()) == [r[name] for name in r]
    with pytest.raises(KeyError, match=r'no number "before.blib_s"; nearest: before'):
        r["before.blib_s"]
    with pytest.raises(ln.UsageError, match=r'^no number "x"; nearest: '):
        r.metric("x")


def test_results_are_equal_where_they_are_one(here):
    """Two runs with the same figures are two runs, and a result is a key of a dict as before."""
    one, other = (ln.run(fabric(), ln.AllReduce("1 MB", 6), write=False) for _ in range(2))
    assert dict(one) == dict(other) and one != other and one != dict(one) and one == one
    assert len({one, other}) == 2 and bool(one)


def test_a_run_that_is_not_to_be_written_leaves_nothing(here):
    (here / "say.py").write_text(
        "import torch.distributed as d\nd.init_process_group('gloo')\nd.barrier()\nprint('said')\n"
    )
    r = ln.run(fabric(), ln.TorchJob("say.py", ranks=2, compute="1 ms"), write=False)
    assert "said" in r.rank_log(0), "the logs are there as long as the result"
    folder = r.data.directory
    del r
    gc.collect()
    assert not os.path.exists(folder)
    assert [path.name for path in here.iterdir()] == ["say.py"]


def test_a_run_that_fails_leaves_no_temporary_folder_either(here, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(here))
    monkeypatch.setattr("tempfile.tempdir", None)
    with pytest.raises(ln.UsageError, match="transport"):
        ln.run(fabric(), ln.AllReduce("1 MB", transport="mcr"), write=False)
    with pytest.raises(ln.UsageError, match="5 ranks but 2 hosts"):
        ln.run(fabric(), ln.AllReduce("1 MB", ranks=5), write=False)
    assert not list(here.iterdir())
    with pytest.raises(ln.UsageError, match="leave it out with write=False"):
        ln.run(fabric(), ln.AllReduce("1 MB"), write=False, directory="x")


def test_a_run_without_write_says_what_could_not_be_traced(here):
    r = ln.run(fabric(), ln.AllReduce("1 MB", 3), write=False, trace="t.pftrace")
    assert r["errors"] == 0 and (here / "t.pftrace").stat().st_size > 0


def test_sizes_are_written_as_they_were_given():
    for text in ("64 MB", "4 MB", "64 MiB", "1 MiB", "1 GB", "1 kB", "3 KiB"):
        assert str(ln.Size(text)) == text
