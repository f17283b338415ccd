"""Whole runs on the live clock: real packets, real XDP switches, real ranks; and what goes wrong
with them."""

import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import loomnet as ln
from loomnet.labs.lab import Lab
from loomnet.live import doctor
from loomnet.live.clock import LiveClock
from loomnet.processes import journal as ownership

_REASON = doctor.why_not_live()
pytestmark = pytest.mark.skipif(_REASON is not None, reason=str(_REASON))
SCENARIOS = Path(__file__).parents[2] / "scenarios"


@pytest.fixture
def live(tmp_path):
    """A live Lab that does not judge lateness: no test here is about a figure's digits, and a busy
    CI machine would fail them for its own noise."""
    return Lab("live", clock="live", base=SCENARIOS, directory=tmp_path / "lab")


def fabric(**options):
    given = {
        "planes": 2,
        "leaves": 2,
        "spines": 2,
        "hosts_per_leaf": 1,
        "rate": "20 Mb/s",
        "delay": "0.5 ms",
    } | options
    return ln.clos.two_tier(**given)


def loomnet(*arguments, cwd, timeout=120, **options):
    return subprocess.run(
        [sys.executable, "-m", "loomnet", *arguments],
        cwd=cwd,
        timeout=timeout,
        capture_output=True,
        text=True,
        **options,
    )


def leftovers():
    """Kernel objects of runs that nobody holds any more."""
    return [run.path.name for run in ownership.dead_runs()]


@pytest.mark.parametrize("transport", ["mrc", "roce"])
def test_every_packet_is_accounted_for_and_every_byte_right(live, transport):
    job = ln.AllReduce(size="100 kB", repeat=8, transport=transport)
    r = live.run(fabric(), job, payload=True)
    assert r["errors"] == 0, r.data.errors  # altered elements are errors
    assert len(r.data.iterations) == 8
    notes = r.data.fidelity.notes
    assert notes["given"] > 1000
    assert notes["given"] == notes["returned"] + notes["switch_drops"]
    assert r.data.fidelity.unexplained == 0


@pytest.mark.parametrize("transport", ["mrc", "roce"])
@pytest.mark.parametrize("placement", ["xdp", "engine"])
def test_packets_twice_and_out_of_order_alter_no_byte(live, transport, placement):
    """Both directions repeat packets: those that come back from the kernel's switch too."""
    star = ln.star(hosts=4, rate="50 Mb/s", delay="0.5 ms").place("*", placement)
    faults = [ln.duplicate("*--*", 0.05, at="0 s"), ln.reorder("*--*", 0.05, at="0 s")]
    r = live.run(star, ln.AllReduce("200 kB", repeat=3, transport=transport), faults, payload=True)
    assert r["errors"] == 0, r.data.errors
    assert len(r.data.iterations) == 3 and r.data.fidelity.unexplained == 0
    links = {name: row for name, row in r.data.totals.items() if name.startswith("link ")}
    assert len(links) == 8
    assert all(0.01 < row["duplicated"] / row["packets"] < 0.12 for row in links.values())


def test_mrc_rides_out_a_dead_port(live):
    fault = ln.down("h0--p0.leaf0", at=ln.step(3), duration="2 s", phase="down")
    r = live.run(fabric(), ln.AllReduce(size="400 kB", repeat=16, transport="mrc"), [fault])
    assert r["errors"] == 0, r.data.errors
    assert r.data.ended == "finished"
    assert r["down.blip_s"] < 1.0
    assert r["down.lost"] > 0


# Jobs over Gloo train in test_several_jobs_live.py.
@pytest.mark.parametrize("transport", ["mrc", pytest.param("gloo", marks=pytest.mark.soak)])
def test_pytorch_trains_over_real_packets(live, transport, tmp_path):
    job = ln.TorchJob(
        SCENARIOS / "train_digits.py",
        args=["--steps=21", "--batch=8"],
        ranks=2,
        transport=transport,
        log=r"step (?P<step>\d+) loss (?P<loss>\S+)",
    )
    r = live.run(fabric(rate="60 Mb/s"), job)
    assert r["errors"] == 0, r.data.errors
    assert r.unequal_hashes == 0
    assert [line["step"] for _, line in r.data.log][-1] == "21"


def test_a_killed_rank_is_named_and_the_others_end(live, tmp_path):
    script = tmp_path / "dies.py"
    script.write_text(
        textwrap.dedent("""
        import os, signal, torch, torch.distributed as dist
        dist.init_process_group("gloo")
        model = torch.nn.Linear(8, 8)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(100):
            for parameter in model.parameters():
                parameter.grad = torch.ones_like(parameter)
                dist.all_reduce(parameter.grad)
            optimizer.step()
            if step == 10 and dist.get_rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
        """)
    )
    r = live.run(fabric(), ln.TorchJob(script, ranks=2, transport="mrc"))
    assert r.data.ended == "failed"
    assert any("rank 1" in e.message and "SIGKILL" in e.message for e in r.data.errors)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--set", "transport=tcp"], "transport"),
        (["--set", "rate=400"], "rate"),
        (["--set", "rate=10 Gb/s"], "offered load"),
        (["--set", "planets=4"], "planes"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(tmp_path, arguments, words):
    done = loomnet(
        "run", str(SCENARIOS / "crosscheck_flow.py"), "--clock", "live", *arguments, cwd=tmp_path
    )
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()
    assert leftovers() == []


def test_a_rank_that_ends_before_its_operations_is_named(live, tmp_path):
    """Rank 1's send has no receiver, so the unfinished operation is the run's only fault."""
    pytest.importorskip("torch")
    script = tmp_path / "sends.py"
    script.write_text(
        textwrap.dedent("""
        import os, torch, torch.distributed as dist
        dist.init_process_group("gloo")
        t = torch.zeros(1 << 18)
        dist.all_reduce(t[:8])
        if dist.get_rank() == 1:
            dist.isend(t, 0)
        os._exit(0)
    """)
    )
    r = live.run(fabric(), ln.TorchJob(script, ranks=2))
    assert r.data.ended == "failed"
    assert "rank 1 ended with 1 operation unfinished (send)" in r.data.reason


def test_a_run_says_by_stage_and_phase_how_late_it_was(live):
    """Every packet that left a switch is counted in exactly one phase."""
    down = ln.down("h0--p0.leaf0", at="0.3 s", duration="0.3 s", phase="down")
    r = live.run(fabric(), ln.AllReduce("100 kB", repeat=40, transport="mrc"), [down])
    fidelity = r.data.fidelity
    phases = [row.phase for row in fidelity.stages if row.stage == "packet"]
    assert phases[:2] == ["before", "down"]
    packets = sum(row.count for row in fidelity.stages if row.stage == "packet")
    assert packets == fidelity.notes["returned"]
    assert fidelity.lateness_max_ps == max(
        row.max_ps for row in fidelity.stages if row.stage == "packet"
    )
    assert {"engine", "timer", "kernel", "pass", "sleep"} <= {row.stage for row in fidelity.stages}
    assert fidelity.notes["waits"] is None or "wait" in fidelity.notes["waits"]
    for wait in fidelity.waits:
        assert wait.longest_ns <= wait.total_ns and wait.count >= 1


def test_a_phase_may_begin_with_an_iteration_that_is_found_at_the_very_end(monkeypatch, tmp_path):
    """The engine stands then, and the phase asks it for its lateness."""
    monkeypatch.setattr(LiveClock, "traffic_state", lambda *_: ([], False))
    live = Lab("live", clock="live", directory=tmp_path / "lab", max_wall_s=6)
    job = ln.AllReduce(size="20 kB", repeat=100_000)
    late = ln.down("h0--p0.leaf0", at=ln.step(3), duration="1 s", phase="late")
    r = live.run(fabric(), job, [late])
    assert len(r.data.iterations) > 3
    assert {row.phase for row in r.data.fidelity.stages} >= {"before", "late"}


def test_a_run_that_cannot_keep_up_ends_within_20_s_with_the_remedy(
    live, ends_when_late, monkeypatch, tmp_path
):
    """The machine is said to be a hundred times what any is, so nothing is refused beforehand."""
    from loomnet.live import clock, dilation, machine_budget, run

    monkeypatch.setattr(machine_budget, "FILE", tmp_path / "budget.json")
    huge = machine_budget.MachineBudget(
        10**8, 1, 0.0, 0.0, machine_budget._boot(), machine_budget.version()
    )
    machine_budget._keep(huge)
    for module in (clock, dilation, run):
        monkeypatch.setattr(module, "budget", lambda: huge)
    two = ln.clos.two_tier(
        planes=4, leaves=2, spines=1, hosts_per_leaf=4, rate="10 Gb/s", delay="0.2 ms"
    )
    began = time.monotonic()
    r = live.run(two, ln.AllToAll("64 MB", repeat=100_000, transport="roce"))
    assert time.monotonic() - began < 30  # with bring-up and way down
    late = r.data.fidelity.fell_behind
    assert late is not None and late.startswith("ended after ")
    assert "dilation=" in late
    assert machine_budget.kept().contradicted is not None
