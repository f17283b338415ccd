"""A mixture of experts whose panel, controller, NICs or GPUs fail; and circuits that rotate."""

from __future__ import annotations

from functools import cache

import pytest
from scenario_lib import lib

import loomnet as ln
from loomnet.base.errors import UsageError

mfabric = lib("mfabric")

SMALL = {
    "data": 1,
    "pipeline": 1,
    "layers": 2,
    "micro_batches": 1,
    "iterations": 2,
    "exchange": "1 MiB",
    "compute": "1 ms",
}
MODES = ("fluid", "packets")


def go(
    model: str,
    name: str = "mixnet",
    faults=(),
    profile: str = "1 ms",
    control=None,
    controllers=(),
    **values,
):
    fabric, job = mfabric.compared(
        name,
        servers=8,
        rate="100 Gb/s",
        profile=profile,
        preset=None,
        control=control,
        **(SMALL | {"matrix": "drift"} | values),
    )
    return ln.run(
        fabric, job, faults=list(faults), model=model, seed=3, controllers=list(controllers)
    )


@cache
def undisturbed(model: str):
    """The run without a fault, beside which several tests put theirs."""
    return go(model)


def lasted(r) -> float:
    return r.experts.rounds[-1].end_ps / 1e12


def drops(r) -> list[str]:
    return [
        counter
        for name, row in r.data.totals.items()
        if name.startswith("panel")
        for counter in row
        if "drop" in counter
    ]


def moment(r, event: str, number: int = 0) -> int:
    """Picoseconds: the event of that kind and number."""
    return [each.at_ps for each in r.experts.events if each.event == event][number]


def test_a_controller_killed_while_circuits_are_dark_leaves_the_job_to_the_wires():
    whole = undisturbed("fluid")
    inside = (moment(whole, "apply", 1) + moment(whole, "lit", 1)) // 2
    fault = ln.kill("ocs0.controller", at=f"{inside / 1e6:.3f} us")
    for model in MODES:
        r = go(model, faults=[fault])
        assert r["errors"] == 0 and len(r.experts.rounds) == 2
        assert r["patches"] == 2 < whole["patches"]
        assert 0 < r["circuit_share"] < whole["circuit_share"] / 2
        assert lasted(r) > lasted(whole)


def test_a_new_controller_finds_the_circuits_that_the_one_before_was_patching():
    whole = undisturbed("packets")
    inside = (moment(whole, "apply", 1) + moment(whole, "lit", 1)) // 2
    r = go(
        "packets",
        faults=[ln.kill("ocs0.controller", at=f"{inside / 1e6:.3f} us", duration="100 us")],
    )
    assert r["errors"] == 0 and drops(r) == []
    # It reads the map off the panel, and the last demand asks for that map: nothing is sent.
    assert r["patches"] == whole["patches"]
    # One all-to-all of sixteen goes by wires: what was held when the controller died.
    assert r["circuit_share"] == pytest.approx(whole["circuit_share"] * 15 / 16, abs=0.01)


def test_a_controller_killed_while_circuits_drain():
    whole = go("packets", exchange="2 MiB")
    first = next(span for span in whole.experts.spans if span.step == "dispatch")
    middle = (first.begin_ps + first.end_ps) // 2
    down = ln.down("h0--ocs0", at=f"{middle / 1e6:.3f} us")  # what is on its way there stays there
    broken = go("packets", exchange="2 MiB", faults=[down])
    drain, apply = moment(broken, "drain", 1), moment(broken, "apply", 1)
    assert apply - drain == 10_000_000_000  # the limit
    at = f"{(drain + apply) / 2e6:.3f} us"
    for duration in (None, "2 ms"):
        r = go(
            "packets",
            exchange="2 MiB",
            faults=[down, ln.kill("ocs0.controller", at=at, duration=duration)],
        )
        assert r["errors"] == 0 and len(r.experts.rounds) == 2
        assert (r["patches"] > 1) == bool(duration)


@pytest.mark.parametrize("model", MODES)
def test_a_panel_that_is_lost_and_comes_back(model):
    whole = undisturbed(model)
    experts = next(span for span in whole.experts.spans if span.step == "experts")
    at = f"{(experts.begin_ps + experts.end_ps) / 2e6:.3f} us"
    lost = go(model, faults=[ln.kill("ocs0", at=at)])
    back = go(model, faults=[ln.kill("ocs0", at=at, duration="3 ms")])
    for r in (lost, back):
        assert r["errors"] == 0 and len(r.experts.rounds) == 2
    assert lost["circuit_share"] < 0.4 < back["circuit_share"] < whole["circuit_share"]


PATCHES = ([], [("h0", "h1")] * 3, [("h3", "h0"), ("h1", "h2")])


class Meddler:
    """Patches the panel as another client of it would, at `at` picoseconds."""

    at, circuits, done = 0, (), False

    def next_time(self):
        return None if self.done else self.at

    def advance(self, now, view):
        self.done = True
        return [ln.change.circuits("ocs0", self.circuits)]


@pytest.mark.parametrize("model", MODES)
@pytest.mark.parametrize("number", range(len(PATCHES)))
def test_a_job_goes_on_when_another_client_patches_its_panel(model, number):
    """At every moment of a run of flows. A run of packets takes ten times as long: each of the
    patches has a third of the moments there, and the three together have them all."""
    whole = undisturbed(model)
    inside = [moment(whole, "apply", 1), *(span.begin_ps + 1000 for span in whole.experts.spans)]
    moments = sorted({0, *inside})
    for at in moments if model == "fluid" else moments[number :: len(PATCHES)]:
        Meddler.at, Meddler.circuits = at, PATCHES[number]
        ln.plugin.controller("meddler")(Meddler)
        r = go(model, controllers=[ln.controller("meddler")])
        assert r["errors"] == 0 and len(r.experts.rounds) == 2, at


@pytest.mark.parametrize("model", MODES)
def test_a_spare_gpu_is_reached_by_wires(model):
    whole, spare = undisturbed(model), go(model, spares=((2, 5),))
    assert spare["errors"] == 0
    # A GPU of 64 sends and receives: of a server's eighth, what had circuits.
    moved = whole["circuit_share"] * (1 - (63 / 64) * (63 / 64))
    assert whole["circuit_share"] - spare["circuit_share"] == pytest.approx(moved, rel=0.4)
    assert lasted(spare) != lasted(whole)  # longer or not: a pair's hot circuit has less to carry


@pytest.mark.parametrize("model", MODES)
def test_circuits_that_rotate_serve_all_pairs_and_lose_nothing(model):
    r = go(model, "rotor", profile="rotor10us", exchange="4 MiB")
    assert r["errors"] == 0 and drops(r) == []
    assert r["circuit_share"] == 1.0
    notes = r.data.fidelity.notes
    assert notes["turns of circuits"] > 20
    for figure in ("patches", "circuit_maps"):
        assert r[figure] is None
        assert "nothing asks for them" in (r.metric(figure).reason or "")
    assert notes["longer by, us each"] < 20  # of 200
    slower = go(model, "rotor", profile="200 us", exchange="4 MiB")
    assert lasted(slower) > lasted(r)  # half of the time is guard


@pytest.mark.parametrize(("tensor", "servers"), [(2, 2), (3, 3), (4, 4), (5, 5)])
def test_every_two_servers_meet(tensor, servers):
    fabric, job = mfabric.compared(
        "rotor",
        servers=servers,
        rate="100 Gb/s",
        preset=None,
        **(SMALL | {"tensor": tensor, "matrix": "drift"}),
    )
    r = ln.run(fabric, job, model="fluid")
    assert r["errors"] == 0 and r["circuit_share"] == 1.0


def test_rotation_takes_the_same_time_in_flows_and_in_packets():
    times = [lasted(go(model, "rotor", profile="rotor10us", exchange="8 MiB")) for model in MODES]
    assert times[1] == pytest.approx(times[0], rel=0.03)


@pytest.mark.parametrize(
    ("profile", "said"), [("sim25", True), ("rotor10us", False), ("200 us", False)]
)
def test_panels_that_are_slow_for_a_rotor_are_said_before_the_run(tmp_path, profile, said):
    fabric, job = mfabric.compared(
        "rotor",
        servers=2,
        rate="100 Gb/s",
        preset=None,
        **(SMALL | {"tensor": 2, "exchange": "64 KiB"}),
    )
    fabric = ln.mixnet(servers=2, rate="100 Gb/s", profile=profile)
    lines = []
    ln.Lab(directory=tmp_path, say=lines.append).run(fabric, job, model="fluid")
    assert any("circuits rotate, and between two turns ocs0" in line for line in lines) is said


def test_a_rotor_goes_round_a_nic_that_fails():
    r = go("fluid", "rotor", profile="rotor10us", faults=[ln.down("h0--ocs0", at="0 s")])
    assert r["errors"] == 0 and r["circuit_share"] == 1.0


@pytest.mark.parametrize(
    ("faults", "values", "message"),
    [
        (
            [ln.kill("ocs1.controller", at="1 ms")],
            {},
            r'no switch "ocs1.controller", and no panel or controller of one; '
            r"nearest: ocs0.controller",
        ),
        ([ln.kill("ocs1", at="1 ms")], {}, r'no switch "ocs1".* nearest: ocs0'),
        (
            [ln.kill("ocs0.controller", at="1 ms")],
            {"name": "rotor"},
            r"no job of this run patches ocs0",
        ),
        ([], {"spares": ((8, 0),)}, r"MoeJob.spares: no server 8: the job has 8"),
        ([], {"spares": ((0, 8),)}, r"MoeJob.spares.*from 0 to 7"),
        ([], {"name": "rotor", "control": {"slot": "0 s"}}, r"slot: 0 s carries nothing"),
        ([], {"name": "rotor", "control": {"split": "weighted"}}, r"sends by circuits alone"),
    ],
)
def test_what_is_refused(faults, values, message):
    with pytest.raises(UsageError, match=message) as error:
        go("fluid", faults=faults, **values)
    assert "\n" not in str(error.value)
