"""Several ranks in one host's namespace, joined by its local link, on the live clock."""

import sys
from pathlib import Path

import pytest

import loomnet as ln
from loomnet.base.errors import UsageError

sys.path.insert(0, str(Path(__file__).parents[1] / "python"))
from test_host_ranks_torch import SCRIPT, lines

MESSAGE_HEADER = 64  # bytes in front of each message of a collective that carries payload


def fabric(hosts=2, ranks=2, **changes):
    values = {
        "planes": 2,
        "leaves": 2,
        "spines": 1,
        "hosts_per_leaf": hosts // 2,
        "rate": "20 Mb/s",
        "delay": "0.5 ms",
        "ranks_per_host": ranks,
        **changes,
    }
    return ln.clos.two_tier(**values)


def run(tmp_path, made, jobs, clock="live"):
    return ln.Lab("ranks", clock=clock, seed=1, directory=tmp_path / "runs").run(made, jobs)


def train(**changes):
    return ln.TorchJob(SCRIPT, **{"ranks": 4, "compute": "1 ms", **changes})


def test_pytorch_ranks_of_one_host_learn_as_ranks_of_four_and_as_on_the_virtual_clock(
    uses_machine, tmp_path
):
    packed = run(tmp_path / "2x2", fabric(local_link="1 Gb/s"), train())
    spread = run(tmp_path / "4x1", fabric(4, 1), train())
    virtual = run(tmp_path / "virtual", fabric(), train(), clock="virtual")
    for result in (packed, spread, virtual):
        assert result.data.ended == "finished", result.data.errors
        assert result["errors"] == 0 and result.data.fidelity.unexplained == 0
    found = [{digest for digest, *_ in lines(result)} for result in (packed, spread, virtual)]
    assert len(found[0]) == 1 and found[0] == found[1] == found[2]
    assert [where for _, *where in lines(packed)] == [
        ["0", "0", "2", "h0"],
        ["1", "1", "2", "h0"],
        ["2", "0", "2", "h1"],
        ["3", "1", "2", "h1"],
    ]
    for host in ("h0", "h1"):
        assert packed.data.totals[f"nic {host}"]["local_bytes"] > 0


@pytest.mark.parametrize("transport", ["mrc", "roce"])
def test_two_jobs_share_hosts_of_several_ranks(uses_machine, tmp_path, transport):
    both = ["h0", "h1"]
    result = run(
        tmp_path,
        fabric(),
        [
            ln.AllReduce("40 kB", 5, hosts=both, transport=transport, name="a"),
            ln.Permutation("30 kB", hosts=both, name="b"),
        ],
    )
    assert result.data.fidelity.unexplained == 0
    for name in "ab":
        own = result.job(name)
        assert own.data.ended == "finished" and own["errors"] == 0
    # Ranks 0 and 2 send to their neighbours, 1 and 3 to another host.
    assert sum(int(each.payload.sum()) for each in result.job("b").data.hosts.values()) == 120_000


def test_ports_carry_what_a_ring_needs_between_hosts(uses_machine, tmp_path):
    result = run(tmp_path, fabric(ranks=4), ln.AllReduce("80 kB", 4))
    an_edge = 4 * 14 * 10_000
    for host in ("h0", "h1"):
        nic = result.data.totals[f"nic {host}"]
        headers, rest = divmod(nic["bytes_placed"] - an_edge, MESSAGE_HEADER)
        assert rest == 0 and 0 < headers <= nic["immediates_delivered"]
        assert nic["local_bytes"] == 3 * nic["bytes_placed"]


def test_a_slow_local_link_sets_the_pace_of_a_live_run(uses_machine, tmp_path):
    """Three edges of 140 kB each share a link of 10 Mb/s; a NIC would need 28 ms."""
    result = run(tmp_path, fabric(ranks=4, local_link="10 Mb/s"), ln.AllReduce("80 kB", 3))
    assert result.data.iterations[-1].length_ps / 1e12 == pytest.approx(0.336, rel=0.1)


@pytest.mark.parametrize("job", [train(transport="gloo"), ln.Permutation("1 kB", transport="tcp")])
def test_ranks_of_a_host_over_its_kernel_are_refused(uses_machine, tmp_path, job):
    with pytest.raises(UsageError, match=r"live, a job over .* has several ranks on h0") as caught:
        run(tmp_path, fabric(), job)
    assert "\n" not in str(caught.value)


def test_a_crosscheck_of_pytorch_on_such_hosts_is_refused(uses_machine, tmp_path):
    lab = ln.Lab("twin", clock="live", seed=1, directory=tmp_path / "runs", for_twin=True)
    with pytest.raises(UsageError, match="crosscheck: h0 has 2 ranks of a TorchJob"):
        lab.run(fabric(), train())
    assert not list(tmp_path.glob("runs/*"))
