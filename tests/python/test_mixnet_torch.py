"""MixNet's two collectives in real ranks on the virtual clock, over circuits that their gates'
counts patch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import loomnet as ln
from loomnet.labs.lab import Lab

pytest.importorskip("torch")
SCRIPT = Path(__file__).parent / "mixnet_ranks.py"
FAST = {"rate": "100 Gb/s", "profile": "rotor10us"}


def run(
    tmp_path,
    what,
    *,
    rounds=8,
    servers=4,
    gpus=4,
    ranks=2,
    world=8,
    alpha=3,
    network="mixnet",
    circuits=None,
    transport="roce",
    faults=(),
    **fabric,
):
    made = ln.mixnet(
        servers=servers, gpus=gpus, ranks=ranks, alpha=alpha, network=network, **(FAST | fabric)
    )
    job = ln.TorchJob(
        SCRIPT,
        args=[what, str(rounds)],
        transport=transport,
        ranks=world,
        compute="10 us",
        circuits=circuits,
    )
    return Lab("mixnet", directory=tmp_path / "run", max_wall_s=120).run(made, job, list(faults))


def by_light(r):
    """Packets that the panel has carried."""
    return r.data.totals.get("panel ocs0", {}).get("forwarded", 0)


def every_rank(r, pattern, world=8):
    return [bool(r.logged(rank, pattern)) for rank in range(world)]


PROTOTYPE = dict(servers=4, gpus=4, ranks=2, alpha=3)
A_RANK_FOR_EACH_NIC = dict(servers=2, gpus=4, ranks=4, alpha=2)
TWO_ELECTRICAL_NICS = dict(servers=2, gpus=8, ranks=4, alpha=6)
SKIP, WEIGHTED = dict(rule="skip"), dict(rule="share", split="weighted")


def is_the_stock_one(r):
    assert r["errors"] == 0
    assert all(every_rank(r, r"(?P<all>exact 8)"))
    assert {each.event for each in r.experts.events} >= {"demand", "apply", "lit", "release"}
    assert [row for row in r.drops if row["where"] == "panel"] == []
    assert by_light(r) > 0  # none where nothing is patched: test_policies_that_patch_less


# Each shape and each control by default, of which the prototype's weighted one is the run of
# test_reuse_dispatches_by_the_circuits_that_there_are; with --soak each shape under each control.
@pytest.mark.parametrize(
    ("shape", "control"),
    [
        (A_RANK_FOR_EACH_NIC, SKIP),
        (TWO_ELECTRICAL_NICS, WEIGHTED),
        *(
            pytest.param(*each, marks=pytest.mark.soak)
            for each in (
                (PROTOTYPE, WEIGHTED),
                (PROTOTYPE, SKIP),
                (A_RANK_FOR_EACH_NIC, WEIGHTED),
                (TWO_ELECTRICAL_NICS, SKIP),
            )
        ),
    ],
)
def test_an_all_to_all_is_the_stock_one_bit_for_bit(tmp_path, shape, control):
    is_the_stock_one(run(tmp_path, "exact", **shape, circuits=ln.CircuitControl(**control)))


@pytest.mark.in_turns
def test_wires_take_a_share_of_what_circuits_have_too_much_of(tmp_path):
    """Two servers with one circuit and one electrical NIC each: half goes by either."""
    taken = {}
    for split in ("all_or_nothing", "weighted"):
        r = run(
            tmp_path / split,
            "heavy",
            servers=2,
            ranks=4,
            alpha=1,
            gpus=2,
            rounds=3,
            circuits=ln.CircuitControl(split=split),
            rate="10 Gb/s",
        )
        assert r["errors"] == 0 and all(every_rank(r, r"(?P<all>heavy)"))
        taken[split] = by_light(r)
    assert taken["weighted"] == pytest.approx(taken["all_or_nothing"] / 2, rel=0.05)


@pytest.mark.soak  # test_moe_faults.py does it to a job without ranks
def test_what_another_client_patches_meanwhile_costs_time_and_no_row(tmp_path):
    """Circuits of the region move to other hosts, and go, while its ranks use them."""
    plain = run(tmp_path / "plain", "stepped", circuits=ln.CircuitControl(rule="share"))
    made = ln.mixnet(servers=4, gpus=4, ranks=2, alpha=3, **FAST)
    lab = Lab("mixnet", directory=tmp_path / "raced", max_wall_s=120)
    maps = ([("h0:1", "h1:1")], [("h0:1", "h2:1"), ("h1:2", "h3:2")], [])
    last = plain.experts.events[-1].at_ps
    for number in range(24):  # over more than the time that the plain run takes
        lab.circuits("ocs0", maps[number % 3], at=f"{last * number // 20} ps")
    r = lab.run(
        made,
        ln.TorchJob(
            SCRIPT,
            args=["stepped", "8"],
            transport="roce",
            ranks=8,
            compute="10 us",
            circuits=ln.CircuitControl(rule="share"),
        ),
    )
    assert r["errors"] == 0 and r.data.ended == "finished"
    assert all(every_rank(r, r"(?P<all>exact 8)"))
    found = [each.event for each in r.experts.events]
    assert found.count("outside") >= 10
    assert r.experts.events[-1].at_ps > last


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run in which nothing fails."""
    return run(
        tmp_path_factory.mktemp("whole"), "stepped", circuits=ln.CircuitControl(rule="share")
    )


def while_dark(r):
    """Picoseconds: between the second request to the panel and its light."""
    apply = [each for each in r.experts.events if each.event == "apply" and each.dark_ps][1]
    return apply.at_ps + apply.dark_ps // 2


def while_draining(r):
    drain, apply = (
        [each.at_ps for each in r.experts.events if each.event == kind][1]
        for kind in ("drain", "apply")
    )
    assert apply > drain
    return (drain + apply) // 2


@pytest.mark.in_turns
@pytest.mark.parametrize(
    "moment", [pytest.param(while_dark, marks=pytest.mark.soak), while_draining]
)
def test_a_controller_that_is_killed_leaves_ranks_to_the_wires(tmp_path, whole, moment, request):
    """A new one finds the circuits that the one before it has patched, or was patching. With --soak
    none comes, too; test_moe_faults.py has that by default, of a job without ranks."""
    at, light = moment(whole), {}
    durations = {"back": "5 us"}
    if request.config.getoption("--soak"):
        durations["gone"] = None
    for name, duration in durations.items():
        r = run(
            tmp_path / name,
            "stepped",
            circuits=ln.CircuitControl(rule="share"),
            faults=[ln.kill("ocs0.controller", at=f"{at} ps", duration=duration)],
        )
        assert r["errors"] == 0 and all(every_rank(r, r"(?P<all>exact 8)"))
        assert [row for row in r.drops if row["where"] == "panel"] == []
        heard = [each.event for each in r.experts.events if each.at_ps > at]
        assert bool(heard) == bool(duration)
        light[name] = by_light(r)
    assert 0 < light["back"] <= by_light(whole)
    assert 0 < light.get("gone", 1) < light["back"]


@pytest.mark.parametrize("fault", ["ocs0", pytest.param("h0--ocs0:1", marks=pytest.mark.soak)])
def test_ranks_go_on_without_their_panel_or_a_fibre(tmp_path, whole, fault):
    at = f"{while_dark(whole)} ps"
    gone = ln.kill("ocs0", at=at) if fault == "ocs0" else ln.down(fault, at=at)
    r = run(tmp_path, "stepped", circuits=ln.CircuitControl(rule="share"), faults=[gone])
    assert r["errors"] == 0 and all(every_rank(r, r"(?P<all>exact 8)"))
    assert 0 < by_light(r) < by_light(whole)


def test_without_circuits_it_is_the_stock_one(tmp_path):
    r = run(tmp_path, "exact", rounds=3)
    assert r["errors"] == 0 and all(every_rank(r, r"(?P<all>exact 3)"))
    with pytest.raises(ln.UsageError, match="no mixture of experts"):
        _ = r.experts


@pytest.mark.in_turns
def test_reuse_dispatches_by_the_circuits_that_there_are(tmp_path):
    waited = {}
    for name in ("block", "reuse"):
        control = ln.CircuitControl(**WEIGHTED, fp_dispatch=name)
        r = run(tmp_path / name, "exact", **PROTOTYPE, circuits=control, profile="sim25")
        is_the_stock_one(r)
        assert r["patches"] > 1
        waited[name] = {
            phase: max(
                (each.exposed_ps for each in r.experts.waits if each.phase == phase), default=None
            )
            for phase in range(4)
        }
    dark = 25 * 10**9
    assert waited["block"][0] >= dark and waited["block"][1] is None
    assert waited["reuse"][0] == 0 and waited["reuse"][1] >= dark


@pytest.mark.parametrize("repatch", [pytest.param("never", marks=pytest.mark.soak), "once"])
def test_policies_that_patch_less(tmp_path, repatch):
    r = run(tmp_path, "exact", circuits=ln.CircuitControl(repatch=repatch))
    assert r["errors"] == 0 and r["patches"] == 0  # its rounds are one iteration
    assert by_light(r) == 0
    assert all(every_rank(r, r"(?P<all>exact 8)"))


def test_a_sum_has_the_same_bits_on_every_fabric(tmp_path, request):
    """A panel with circuits, and a fat tree; with --soak the hybrid's electrical network too. The
    ranks on circuits call wrongly first: that is named and leaves the group usable."""
    lines = []
    networks = {"light": dict(circuits=ln.CircuitControl()), "wires": dict(network="fattree")}
    if request.config.getoption("--soak"):
        networks["eps"] = dict(network="eps_only")
    for name, network in networks.items():
        what = "mistakes then sums" if name == "light" else "sums"
        r = run(tmp_path / name, what, rounds=5, **network)
        assert r["errors"] == 0
        assert name != "light" or all(every_rank(r, r"(?P<all>mistakes found)"))
        lines.append([r.logged(rank, r"sum (?P<number>\d+) (?P<bits>\w+)") for rank in range(8)])
    assert len(lines[0][0]) == 5 and all(each == lines[0] for each in lines)
    assert all(each == lines[0][0] for each in lines[0])


def test_a_forged_report_ends_its_rank_by_name(tmp_path):
    r = run(tmp_path, "forged", servers=2, world=4, circuits=ln.CircuitControl())
    assert r.data.ended == "failed" and "rank 1 was cut off" in r.data.reason


def test_a_rank_that_never_reports_is_a_deadlock_with_stacks(tmp_path):
    r = run(tmp_path, "late", servers=2, world=4, circuits=ln.CircuitControl())
    assert r.data.ended == "stalled" and "deadlock" in r.data.reason


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (dict(transport="mrc"), "transport mrc does not go by one path"),
        (dict(network="fattree"), "h0 has no link to a panel"),
        (dict(ranks=3), "every server needs the same number of ranks, 2 or more"),
        (dict(circuits=dict(rule="best")), "rule 'best'|rule \"best\""),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(tmp_path, change, words):
    control = ln.CircuitControl(**change.pop("circuits", {}))
    with pytest.raises(ln.UsageError, match=words) as refused:
        run(tmp_path, "exact", circuits=control, **change)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "field",
    [
        dict(fp_dispatch="copilot"),
        dict(repatch="rotor"),
        dict(members="lumped"),
        dict(eps_during_dark="eps_first"),
    ],
)
def test_controls_that_real_ranks_do_not_have_are_refused(field):
    [(name, value)] = field.items()
    with pytest.raises(ln.UsageError, match=rf"circuits.{name}=.{value}.: of real ranks there is"):
        ln.TorchJob(SCRIPT, transport="roce", compute="1 ms", circuits=ln.CircuitControl(**field))


@pytest.mark.in_turns
def test_gates_are_a_trace_that_a_model_job_reads(tmp_path):
    scenario = ln.load(Path(__file__).parents[2] / "scenarios" / "mfabric" / "moe_ddp.py")
    report = scenario.run(directory=tmp_path / "run", steps=8, undrained=False)
    checks = {check.name: check for check in report.checks}
    # Of so few steps.
    failing = [name for name, check in checks.items() if not check.ok]
    assert set(failing) <= {"circuit-maps", "P1"}
    assert checks["losses-that-differ"].value == 0
    files = sorted((tmp_path / "run" / "patched" / "gates").iterdir())
    assert len(files) == 8
    first = json.loads(files[0].read_text())
    assert len(first) == 2 and {sum(row) for row in first[0]} == {32 * 8 * 2}
    fabric = ln.mixnet(servers=4, alpha=3, wires=1, rate="400 Mb/s")
    job = ln.MoeJob(
        "mixtral_8x7b",
        expert=8,
        tensor=4,
        pipeline=1,
        data=1,
        layers=2,
        iterations=8,
        micro_batches=1,
        exchange="102400 B",
        compute="0.5 ms",
        matrix=tmp_path / "run" / "patched" / "gates",
        circuits=ln.CircuitControl(rule="share"),
    )
    replayed = ln.run(fabric, job, model="fluid", directory=tmp_path / "model")
    assert replayed["circuit_maps"] >= 2
