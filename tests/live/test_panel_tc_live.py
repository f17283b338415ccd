"""Panels whose program is attached at tc, between hosts' own veths; and what keeps a panel by XDP
from starting where its frames would be lost."""

import json
import re
import subprocess

import pytest
from test_panels_live import counters, run, star

import loomnet as ln
from loomnet.live.nodes import LiveFabric


def test_bulk_tcp_keeps_its_offloads(uses_machine):
    with ln.lab(star(2, circuits=[("h0", "h1")], placement="tc"), clock="live") as lab:
        features = lab.exec("h0", "ethtool -k p0").stdout
        for feature in ("tx-checksumming", "tcp-segmentation-offload"):
            assert re.search(rf"^{feature}: on$", features, re.MULTILINE)
        server = lab.popen("h1", ["iperf3", "-s", "-1", "-p", "7010"], stdout=subprocess.DEVNULL)
        answer = lab.exec("h0", "sleep 0.3; iperf3 -J -t 1 -p 7010 -c " + lab.address("h1"))
        server.wait(10)
        sent = json.loads(answer.stdout)["end"]["sum_received"]
        found = counters(lab)
        # The links' 40 Mb/s are not emulated: their kernels go as fast as they can.
        assert sent["bits_per_second"] > 400e6
        # A bundle of 64 KB counts as the packets that the receiver would have had.
        assert found["forwarded"] > sent["bytes"] / 9000
        assert set(found) <= {"forwarded", "forwarded_bytes"}


def test_a_run_over_tc_says_that_links_are_not_emulated(uses_machine, tmp_path):
    job = ln.Flows(pairs=[(0, 1)], sizes="3 MB", count=1, starts=["0 s"], transport="tcp")
    r = run(tmp_path, star(profile="sim25", placement="tc"), job, {999_000: []})
    assert r.data.ended == "finished" and not r.data.errors
    (flow,) = r.data.flows
    assert flow.end_ps - flow.start_ps < 0.3 * 10**12  # 0.6 s at the links' rate
    notes = r.data.fidelity.notes
    assert notes["placement"] == "1 panel by tc"
    assert "rates and delays of its links are not emulated" in notes["panel ocs0"]


@pytest.mark.parametrize("transport", ["mrc", "roce"])
def test_a_job_over_emulated_nics_is_refused(uses_machine, tmp_path, transport):
    job = ln.Flows(pairs=[(0, 1)], sizes="1 MB", count=1, starts=["0 s"], transport=transport)
    with pytest.raises(
        ln.UsageError, match=f'placement="tc" joins .* {transport} runs over the emulated NIC of h0'
    ):
        run(tmp_path, star(placement="tc"), job, {999_000: []})


def test_a_link_at_tc_is_up_or_down(uses_machine):
    with (
        ln.lab(star(placement="tc", carrier="none"), clock="live") as lab,
        pytest.raises(ln.UsageError, match='carrier="none"'),
    ):
        lab.down("h0--ocs0")
    with ln.lab(star(placement="tc"), clock="live") as lab:
        assert lab.exec("h0", f"ping -6 -c 1 -W 1 {lab.address('h1')}").returncode == 0
        lab.down("h0--ocs0")
        assert lab.exec("h0", f"ping -6 -c 1 -W 0.3 {lab.address('h1')}").returncode != 0
        lab.restore()
        assert lab.exec("h0", f"ping -6 -c 1 -W 1 {lab.address('h1')}").returncode == 0


@pytest.mark.parametrize("features", ["tx on", "tx on sg on tso on gso on"])
def test_a_panel_by_xdp_refuses_hosts_with_offloads(uses_machine, monkeypatch, features):
    configure = LiveFabric.configure

    def left_on(self, ports, tcp=None):
        configure(self, ports, tcp)
        assert self.popen("h1", ["ethtool", "-K", "p0", *features.split()]).wait(10) == 0

    monkeypatch.setattr(LiveFabric, "configure", left_on)
    with (
        pytest.raises(ln.LoomnetError, match="is on at p0, and what it leaves unfinished"),
        ln.lab(star(placement="xdp"), clock="live"),
    ):
        pass
