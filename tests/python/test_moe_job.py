"""Mixtures of experts on fabrics of the publication: what they take, what they refuse, and what a
report says of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scenario_lib import lib

import loomnet as ln
from loomnet.base.errors import FabricError, PluginError, UsageError
from loomnet.systems import mixnet

mfabric = lib("mfabric")

# Small enough for packets: one region of 8 servers, 2 layers.
SMALL = {
    "data": 1,
    "pipeline": 1,
    "layers": 2,
    "micro_batches": 1,
    "iterations": 2,
    "exchange": "256 KiB",
    "compute": "1 ms",
}


def small(name: str = "mixnet", **values) -> tuple[ln.Fabric, ln.MoeJob]:
    preset = values.pop("preset", None)
    control = values.pop("control", {})
    fabric = {"nvlink": "900 GB/s"} | values.pop("fabric", {})
    return mfabric.compared(
        name,
        servers=8,
        rate="100 Gb/s",
        preset=preset,
        control=control,
        profile=values.pop("profile", "infocus128"),
        alpha=values.pop("alpha", 6),
        fabric=fabric,
        **(SMALL | {"matrix": "drift"} | values),
    )


def test_the_coldest_server_gets_circuits_by_default_and_none_in_the_first_reading():
    """By the sum of both directions it seems to need none, though it sends as much as others."""
    control, paper = ln.CircuitControl(), ln.CircuitControl(preset="paper")
    assert (control.demand, control.ties) == ("max", "free")
    assert (paper.demand, paper.ties) == ("sum", "index")
    assert ln.CircuitControl(preset="paper", demand="max").demand == "max"
    took = {}
    for name, values in (("default", {}), ("sum", {"demand": "sum"}), ("wires", None)):
        fabric, job = small(
            "fattree" if values is None else "mixnet",
            exchange="64 MiB",
            control=values or {},
            profile="ideal",
        )
        took[name] = lasted(ln.run(fabric, job, model="fluid"))
    assert took["default"] - took["wires"] < 0.8 * (took["sum"] - took["wires"])


def test_servers_that_are_equal_share_the_panel():
    took = {}
    for ties in ("free", "index"):
        fabric, job = small(
            "mixnet",
            exchange="64 MiB",
            control={"ties": ties},
            profile="ideal",
            fabric={"eps": "lumped"},
            matrix=[[4096] * 8] * 8,
        )
        took[ties] = lasted(ln.run(fabric, job, model="fluid"))
    fabric, job = small("fattree", exchange="64 MiB", matrix=[[4096] * 8] * 8)
    even = lasted(ln.run(fabric, job, model="fluid"))
    # Of 8 servers each sends to 7; six circuits are six of eight NICs.
    assert took["free"] < 1.2 * even and took["index"] > 2 * even


def mixnet_model(name: str):
    return ln.MoeJob(name).of


def lasted(r) -> float:
    return sum(each.end_ps - each.begin_ps for each in r.experts.rounds) / 1e12


@pytest.mark.parametrize("name", ["mixnet", "random", "fattree", "rail", "eps_only", "topoopt"])
def test_packets_and_flows_agree(name):
    times = []
    for model in ("fluid", "packets"):
        fabric, job = small(name, exchange="4 MiB")
        r = ln.run(fabric, job, model=model)
        assert r["errors"] == 0
        times.append(lasted(r))
    assert times[1] == pytest.approx(times[0], rel=0.05)


@pytest.mark.parametrize("model", ["fluid", "packets"])
@pytest.mark.parametrize(
    "control",
    [
        {},
        {"members": "links", "split": "weighted"},
        {"fp_dispatch": "reuse"},
        {"fp_dispatch": "copilot"},
        {"fp_dispatch": "random"},
        {"eps_during_dark": "eps_first"},
        {"repatch": "iteration"},
        {"repatch": "once"},
        {"dark_scope": "all"},
        {"rule": "share"},
    ],
)
def test_every_policy_ends_and_loses_nothing(model, control):
    fabric, job = small(control=control, iterations=4)
    r = ln.run(fabric, job, model=model)
    assert r["errors"] == 0
    assert len(r.experts.rounds) == 4
    lost = {name: row for name, row in r.data.totals.items() if name.startswith("panel")}
    assert not any("drop" in counter for row in lost.values() for counter in row)
    if control.get("repatch") == "once":
        assert r["patches"] == 1
    if control.get("eps_during_dark") == "eps_first":
        assert r["exposed_s"] == 0


def test_the_report_says_what_iterations_were_spent_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    @ln.scenario
    def trains(lab: ln.Lab):
        fabric, job = small(profile="sim25")
        r = lab.run(fabric, job, model="fluid")
        assert r["exposed_s"] > 0.02
        assert 0 < r["all_to_all_share"] < 1
        assert r["circuit_share"] > 0.5
        [first, second] = r.experts.rounds
        assert first.begin_ps == 0 and second.begin_ps == first.end_ps
        assert first.exposed_ps >= first.waiting_most_ps >= first.waiting_ps

    lab = ln.Lab("trains", seed=3, directory=tmp_path / "runs" / "one")
    trains.function(lab)
    report = lab.report
    lab.write()
    assert {"exposed_s", "circuit_maps", "patches"} <= {row.name for row in report.rows}
    [path] = Path("runs").glob("*/circuits.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["event"] for row in rows[:5]] == ["demand", "drain", "apply", "lit", "release"]
    assert rows[2]["dark_ns"] == 25_000_000
    assert rows[3]["t_ns"] - rows[2]["t_ns"] == pytest.approx(25_000_000, abs=1)
    assert [row["t_ns"] for row in rows] == sorted(row["t_ns"] for row in rows)


def test_a_dark_time_in_every_layer_is_what_blocks():
    fabric, job = small(profile="sim25", preset="paper", matrix="fixed", iterations=1)
    r = ln.run(fabric, job, model="fluid")
    # Two layers forward; backward the last layer has its circuits from its forward pass, and the
    # first waits for the rest of 25 ms after 2 x 0.16 ms of attention.
    assert 0.0745 <= r["exposed_s"] <= 0.0751 and r["patches"] == 3


def test_exposed_time_is_what_waits_cost_an_iteration():
    """Stages wait for stages that wait for circuits: a region's own waits are a part of it."""
    took = {}
    for profile in ("sim25", "ideal"):
        fabric, job = mfabric.compared(
            "mixnet", servers=32, pipeline=4, layers=8, data=1, iterations=1, profile=profile
        )
        r = ln.run(fabric, job, model="fluid")
        took[profile] = lasted(r)
        if profile == "sim25":
            exposed, waiting = r["exposed_s"], r["waiting_s"]
    cost = took["sim25"] - took["ideal"]
    assert exposed == pytest.approx(cost, rel=0.02)
    assert waiting < 0.8 * cost


def test_gradients_of_what_a_servers_gpus_share_leave_it_once():
    one, model = ln.MoeJob("llama_moe", pipeline=1, layers=1, expert=16), mixnet_model("llama_moe")
    own, common = model.expert_parameters, model.common_parameters
    assert one.gradient_bytes == 2 * (8 * own + common)  # eight GPUs with an expert each
    four = ln.MoeJob("mixtral_8x7b", pipeline=1, layers=1)
    model = mixnet_model("mixtral_8x7b")
    assert four.gradient_bytes == 2 * (2 * model.expert_parameters + model.common_parameters)
    whole = ln.MoeJob("mixtral_8x22b", pipeline=1, layers=1)  # a server is one group
    model = mixnet_model("mixtral_8x22b")
    assert whole.gradient_bytes == 2 * (model.expert_parameters + model.common_parameters)
    wide = ln.MoeJob("mixtral_8x22b", pipeline=1, layers=1, tensor=16)  # half of each
    assert wide.gradient_bytes == whole.gradient_bytes // 2


def test_the_same_seed_gives_the_same_events():
    found = []
    for _ in range(2):
        fabric, job = small(profile="polatis", iterations=3)
        found.append(ln.run(fabric, job, model="fluid").experts)
    assert found[0].events == found[1].events
    assert found[0].rounds == found[1].rounds
    assert found[0].maps >= 3


def test_gpus_that_are_hosts_have_nics_of_their_own():
    fabric = ln.clos.two_tier(
        planes=1,
        leaves=8,
        spines=8,
        hosts_per_leaf=8,
        rate="100 Gb/s",
        delay="1 us",
        payload="4096 B",
        order="block",
    )
    job = ln.ModelJob("mixtral_8x22b", **SMALL, nvlink="900 GB/s")
    assert isinstance(job, ln.MoeJob)
    r = ln.run(fabric, job, model="fluid")
    assert r["errors"] == 0 and len(r.experts.rounds) == 2
    assert r["circuit_share"] == 0


def test_stages_and_replicas_take_their_turns():
    fabric = ln.mixnet(servers=8, region=2, rate="100 Gb/s", profile="ideal")
    job = ln.MoeJob(
        "llama_moe",
        pipeline=2,
        data=2,
        layers=4,
        micro_batches=3,
        iterations=1,
        exchange="1 MiB",
        compute="1 ms",
    )
    r = ln.run(fabric, job, model="fluid")
    assert r["errors"] == 0
    spans = r.experts.spans  # of the first stage
    order = list(dict.fromkeys((span.micro_batch, span.backward) for span in spans))
    assert order == [(0, False), (1, False), (0, True), (2, False), (1, True), (2, True)]
    assert {span.layer for span in spans} == {0, 1}


def test_an_assigner_of_a_users_own():
    asked = []

    @ln.plugin.assignment("first_two")
    class FirstTwo:
        def assign(self, demand, free, previous):
            asked.append(previous.sum())
            circuits = np.zeros_like(demand)
            circuits[0, 1] = circuits[1, 0] = min(free[0], free[1])
            return circuits

    fabric, job = small(control={"rule": "first_two"})
    r = ln.run(fabric, job, model="fluid")
    assert r["errors"] == 0 and asked
    assert r["circuit_share"] < 0.2

    @ln.plugin.assignment("too_many")
    class TooMany:
        def assign(self, demand, free, previous):
            return np.where(np.eye(len(demand)), 0, 9)

    fabric, job = small(control={"rule": "too_many"})
    with pytest.raises(PluginError, match=r"server 0 63 circuits"):
        ln.run(fabric, job, model="fluid")


def test_gate_counts_of_a_file_and_of_an_array(tmp_path):
    layers = np.stack([mixnet.PUBLISHED, mixnet.PUBLISHED[:, ::-1]])
    path = tmp_path / "gate.json"
    path.write_text(json.dumps(layers.tolist()))
    times = []
    for matrix in (str(path), layers):
        fabric, job = small(matrix=matrix)
        times.append(lasted(ln.run(fabric, job, model="fluid")))
    assert times[0] == times[1]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model": "mixtral_8x7"}, r"no mixture of experts.*mixtral_8x7b"),
        ({"tensor": 3, "expert": 4}, r"12 GPUs of a region, which do not fill servers of 8"),
        ({"layers": 1, "pipeline": 2}, r"layers=1 are fewer than pipeline=2"),
        (
            {"matrix": "drft"},
            r"""MoeJob.matrix: 'drft' is none of "drift", .* no file or folder; nearest: drift""",
        ),
        ({"matrix": [[1, 2], [2, 1]]}, r"of 2 experts, and the job has 8 expert ranks"),
        ({"matrix": np.arange(64).reshape(8, 8)}, r"all rows of a matrix need the same sum"),
        ({"matrix": None}, r"MoeJob.matrix: .*an array is needed, not None"),
        ({"matrix": [[1, 2], [3]]}, r"MoeJob.matrix: its rows differ in length"),
        ({"matrix": np.zeros((8, 8), int)}, r"MoeJob.matrix: layer 0: row 0 sums to 0"),
        # The engine keeps 32 bits of a count.
        ({"matrix": np.full((8, 8), 2**32)}, r"MoeJob.matrix: .*4294967296"),
        (
            {"matrix": np.full((2, 1, 8, 8), 2**63 - 1)},
            r"MoeJob.matrix: iteration 0: .*below 2\^32",
        ),
        ({"expert": 3, "tensor": 8}, r"do not divide the 8 experts"),
        ({"compute": "-1 ms"}, r"MoeJob.compute"),
        ({"scale": 0.0}, r"MoeJob.scale"),
        ({"stop": "0 s"}, r"stop"),
        ({"ranks": 12}, r"no multiple of expert x tensor x pipeline"),
        ({"circuits": "paper"}, r"MoeJob.circuits"),
        ({"transport": "rocky"}, r"rocky"),
        ({"transport": "mrc"}, r"fluid.*mrc"),
    ],
)
def test_bad_jobs_are_refused_in_one_line(values, message):
    with pytest.raises(UsageError, match=message) as error:
        values = {"model": "mixtral_8x22b", **SMALL} | values
        fabric = ln.mixnet(servers=8, rate="100 Gb/s")
        ln.run(fabric, ln.MoeJob(values.pop("model"), **values), model="fluid")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"alpha": 9}, r"mixnet.alpha: 9 must be a whole number from 0 to 8 \(of 8 NICs\)"),
        ({"alpha": 8}, r"leave no electrical one"),
        ({"servers": 0}, r"mixnet.servers"),
        ({"servers": 9, "region": 8}, r"9 servers are no multiple of regions of 8"),
        ({"servers": 256}, r"1536 ports of a panel"),
        ({"region": 0}, r"mixnet.region: 0 must be"),
        ({"preset": "papr"}, r"mixnet.preset: 'papr' is neither None nor 'paper'"),
        ({"network": "fatree"}, r"fatree.*fattree"),
        ({"network": "topoopt"}, r"topoopt_links"),
        ({"profile": "polatiss"}, r"polatiss.*polatis"),
        ({"rate": "fast"}, r"mixnet.rate"),
        ({"eps": "one"}, r"eps: .one. is neither links nor lumped"),
    ],
)
def test_bad_fabrics_are_refused_in_one_line(values, message):
    with pytest.raises((FabricError, UsageError), match=message) as error:
        ln.mixnet(**values)
    assert "\n" not in str(error.value)


def test_places_and_panels_that_do_not_fit():
    with pytest.raises(UsageError, match=r"64 ranks but 4 hosts"):
        ln.run(ln.mixnet(servers=4, rate="100 Gb/s"), ln.MoeJob("mixtral_8x22b", **SMALL))
    with pytest.raises(
        UsageError, match="= 512 ranks, by default as published, and the hosts have 64"
    ):
        ln.run(ln.mixnet(servers=8, rate="100 Gb/s"), ln.MoeJob("mixtral_8x22b"))
    with pytest.raises(UsageError, match=r"links to 2 panels"):
        ln.run(
            ln.mixnet(servers=8, region=4, rate="100 Gb/s"),
            ln.MoeJob("mixtral_8x22b", **SMALL),
            model="fluid",
        )
    with pytest.raises(UsageError, match=r"mrc sprays over all paths of two hosts"):
        fabric, job = small(transport="mrc")
        ln.run(fabric, job)
    with pytest.raises(UsageError, match=r"rule.*skipp"):
        fabric, job = small(control={"rule": "skipp"})
        ln.run(fabric, job, model="fluid")


def test_topoopt_links_fill_ports_and_reach_everybody():
    random = np.random.default_rng(3)
    for servers in (2, 5, 16):
        demand = random.integers(0, 100, (servers, servers))
        demand = np.triu(demand, 1) + np.triu(demand, 1).T
        demand[: servers // 2, servers // 2 :] = demand[servers // 2 :, : servers // 2] = 0
        links = mfabric.topoopt_links({tuple(range(servers)): 50.0}, demand)
        ends = np.bincount(np.array(links).ravel(), minlength=servers)
        assert ends.max() <= 8 and ends.min() >= 1
        reached, todo = {0}, [0]
        while todo:
            at = todo.pop()
            for a, b in links:
                for near, far in ((a, b), (b, a)):
                    if near == at and far not in reached:
                        reached.add(far)
                        todo.append(far)
        assert len(reached) == servers
    with pytest.raises(UsageError, match=r"symmetrical"):
        mfabric.topoopt_links({}, np.array([[0, 1], [2, 0]]))
    with pytest.raises(UsageError, match=r"a group has a server above 1"):
        mfabric.topoopt_links({(0, 5): 1.0}, np.array([[0, 1], [1, 0]]))
