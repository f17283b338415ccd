"""Circuits by rule, weight files, drifting loads and their prediction, as Python has them."""

import itertools
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
from scenario_lib import lib

import loomnet as ln
from loomnet.base.errors import ContractError, PluginError, UsageError
from loomnet.systems import mixnet

mfabric = lib("mfabric")

DEMAND = mixnet.pair_demand(mixnet.PUBLISHED, tensor_parallel=8)


# --- assignment -----------------------------------------------------------------------------------
def test_the_published_matrix_has_24_circuits_on_six_ports():
    found = mixnet.assign(DEMAND, 6)
    assert found.count == 24 and found.order[0] == (0, 7)
    assert found.covered(DEMAND) == pytest.approx(0.8698, abs=5e-5)
    assert (found.circuits.sum(axis=0) == 6).all() and (found.circuits == found.circuits.T).all()


def test_servers_that_ask_for_the_same_get_equally_many_circuits():
    equal = 1000 * (1 - np.eye(8, dtype=np.int64))
    assert mixnet.assign(equal, 6).circuits.sum(axis=1).tolist() == [6] * 8
    by_index = mixnet.assign(equal, 6, ties="index").circuits
    assert by_index.sum(axis=1).tolist() == [6] * 7 + [0]


def test_a_server_without_ports_has_no_circuit():
    found = mixnet.assign(DEMAND, [6, 6, 0, 6, 6, 6, 6, 6])
    assert found.circuits[2].sum() == 0 and found.count > 15


def test_random_circuits_are_the_seeds():
    first, again, other = (
        mixnet.assign(DEMAND, 3, rule="random", seed=seed).circuits for seed in (1, 1, 2)
    )
    assert (first == again).all() and (first != other).any()


def test_ports_that_stay_joined_are_kept():
    wanted = mixnet.assign(DEMAND, 6).circuits
    ports = mixnet.map_ports(wanted, DEMAND, alpha=6)
    assert len(ports) == 48 and sum(peer >= 0 for peer in ports) == 48
    assert mixnet.map_ports(wanted, DEMAND, alpha=6, previous=ports) == ports
    counted = np.zeros_like(wanted)
    for port, peer in enumerate(ports):
        assert ports[peer] == port
        counted[port // 6, peer // 6] += 1
    assert (counted == wanted).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mixnet.assign(DEMAND, 6, rule="skipp"), "rule .*skipp.* is none of skip, literal"),
        (lambda: mixnet.assign(DEMAND, 6, rule=None), "rule None is none of"),
        (lambda: mixnet.assign(DEMAND, 6, ties="last"), 'mixnet.assign: .*ties "last"'),
        (lambda: mixnet.assign(DEMAND, -1), "free: -1 is not a number of ports"),
        (lambda: mixnet.assign(DEMAND, [6, 6]), "mixnet.assign: .*2"),
        (lambda: mixnet.assign([[0, 1], [2, 0]], 6), "mixnet.assign: .*demand"),
        (lambda: mixnet.assign([[0, 0.5], [0.5, 0]], 6), "entries must be whole numbers from 0"),
        (lambda: mixnet.assign([[0, -1], [-1, 0]], 6), "entries must be whole numbers from 0"),
        (lambda: mixnet.assign([0, 1], 6), "a square matrix is needed"),
        (lambda: mixnet.assign([[0, 1], [1]], 6), "a square matrix is needed"),
        (lambda: mixnet.pair_demand([[1, 2], [1, 3]]), "row 1"),
        (lambda: mixnet.pair_demand(mixnet.PUBLISHED, duplex="min"), "neither sum nor max"),
        (lambda: mixnet.map_ports(mixnet.assign(DEMAND, 6).circuits, DEMAND, alpha=9), "alpha"),
        (
            lambda: mixnet.map_ports([[0, 1], [0, 0]], [[0, 1], [1, 0]], alpha=6),
            "the same both ways",
        ),
        (
            lambda: mixnet.map_ports(
                mixnet.assign(DEMAND, 6).circuits, DEMAND, alpha=6, previous=[0, 1]
            ),
            "previous: .*48 ports",
        ),
        (
            lambda: mixnet.map_ports(
                mixnet.assign(DEMAND, 6).circuits, DEMAND, alpha=6, previous=[99] * 48
            ),
            "previous: .*48 ports",
        ),
        (lambda: mixnet.assign(DEMAND, 6.5), "free: 6.5 is not a number of ports"),
        (lambda: mixnet.assign(DEMAND, 6).covered([[1]]), "demand of 1 servers, and circuits of 8"),
        (lambda: mixnet.map_ports(mixnet.assign(DEMAND, 6).circuits, DEMAND, alpha=4), "circuits"),
    ],
)
def test_bad_input_is_one_line(call, message):
    with pytest.raises(UsageError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


# --- plug-ins -------------------------------------------------------------------------------------
@ln.plugin.assignment("test_ring")
class Ring(ln.plugin.Assigner):
    """A circuit between each server and the next, as far as ports are free."""

    def assign(self, demand, free, previous):
        servers = len(free)
        circuits = np.zeros_like(demand)
        for i in range(servers - 1):
            if circuits[i].sum() < free[i] and circuits[i + 1].sum() < free[i + 1]:
                circuits[i, i + 1] = circuits[i + 1, i] = 1
        return circuits


def broken(answer):
    """A class that assigns what `answer` makes of its three arguments."""
    return type("Broken", (), {"assign": lambda self, *given: answer(*given)})


def test_a_plug_in_takes_the_place_of_a_rule():
    found = mixnet.assign(DEMAND, 6, rule="test_ring")
    assert found.count == 7 and found.circuits[0, 1] == 1 and found.order == ()
    assert mixnet.assign(DEMAND, 1, rule="test_ring").count == 4
    ln.check_plugin(Ring)


def test_a_plug_in_is_told_what_there_is():
    told = []
    ln.plugin.assignment("test_told")(broken(lambda d, f, p: told.append((d, f, p)) or p))
    circuits = mixnet.assign(DEMAND, 6).circuits
    assert (
        mixnet.assign(DEMAND, 6, rule="test_told", previous=circuits).circuits == circuits
    ).all()
    ((demand, free, previous),) = told
    assert (demand == DEMAND).all() and free.tolist() == [6] * 8 and (previous == circuits).all()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda d, f, p: None, "no array"),
        (lambda d, f, p: d[1:], "no array"),
        (lambda d, f, p: p + 0.5, "no array"),
        (lambda d, f, p: p - 1, "less than 0|diagonal"),
        (lambda d, f, p: np.triu(np.ones_like(p), 1), "not symmetrical"),
        (lambda d, f, p: np.eye(len(f), dtype=int), "zeros on the diagonal"),
        (lambda d, f, p: d, "server 0 .* circuits for 6 free ports"),
        (lambda d, f, p: 1 // 0, "ZeroDivisionError"),
    ],
)
def test_a_plug_in_that_breaks_its_contract_is_named(answer, message):
    made = broken(answer)
    ln.plugin.assignment("test_broken")(made)
    with pytest.raises(PluginError, match=f'assignment "test_broken": .*({message})'):
        mixnet.assign(DEMAND, 6, rule="test_broken")
    with pytest.raises(ContractError, match="test_broken"):
        ln.check_plugin(made)


def test_a_plug_in_cannot_change_what_it_was_given():
    def spoil(demand, free, previous):
        demand[:] = 0
        free[:] = 99
        return previous

    ln.plugin.assignment("test_spoil")(broken(spoil))
    before = DEMAND.copy()
    mixnet.assign(DEMAND, 6, rule="test_spoil")
    assert (DEMAND == before).all()


def test_names_and_methods_of_plug_ins_are_checked():
    with pytest.raises(UsageError, match="has a rule of that name"):
        ln.plugin.assignment("skip")
    nothing = ln.plugin.assignment("test_nothing")(type("Nothing", (ln.plugin.Assigner,), {}))
    with pytest.raises(ContractError, match="there is no method assign"):
        ln.check_plugin(nothing)
    dice = np.random.default_rng()
    ln.plugin.assignment("test_dice")(
        made := broken(
            lambda d, f, p: p if dice.random() < 0.5 or f.min() < 1 else Ring().assign(d, f, p)
        )
    )
    with pytest.raises(ContractError, match="without a seed"):
        ln.check_plugin(made)


# --- weight files ---------------------------------------------------------------------------------
def test_weights_of_a_file_and_of_a_folder(tmp_path):
    one = tmp_path / "0.json"
    one.write_text(json.dumps(mixnet.PUBLISHED.tolist()))
    (read,) = mixnet.read_weights(one)
    assert read.shape == (1, 8, 8) and (read[0] == mixnet.PUBLISHED).all()
    (tmp_path / "1.json").write_text(json.dumps([mixnet.PUBLISHED.T[::-1].T.tolist()]))
    (tmp_path / "notes.txt").write_text("not a matrix")
    assert [each.shape for each in mixnet.read_weights(tmp_path)] == [(1, 8, 8)] * 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        ("[[1, 2], [3]]", "differ in length|is needed"),
        ("[]", "is needed"),
        ("{}", "is needed"),
        ("[[[[1]]]]", "is needed"),
        ("[[1, 2], [2, 2]]", "layer 0: row 1 sums to 4, and row 0 to 3"),
        ("[[0, 0], [0, 0]]", "row 0 sums to 0"),
        ("[[1, -1], [0, 0]]", "whole numbers"),
        ("[[0.5, 0.5], [1, 0]]", "whole numbers"),
        ("[[true, false], [true, false]]", "whole numbers"),
        ("[[4294967296]]", "below 2.32, and 4294967296 is not"),
        ("[[1, 1], [0, 0]]", "layer 0: row 1 sums to 0"),
        ("[" * 5000, "nested too deeply"),
    ],
)
def test_a_bad_weight_file_is_one_line_with_its_name(tmp_path, text, message):
    file = tmp_path / "w.json"
    file.write_text(text)
    with pytest.raises(UsageError, match=message) as caught:
        mixnet.read_weights(file)
    assert str(file) in str(caught.value) and "\n" not in str(caught.value)


def test_neither_a_pipe_nor_a_device_is_read(tmp_path):
    """A pipe would hold the run up, and a device fill memory without end."""
    os.mkfifo(tmp_path / "pipe.json")
    for path in (tmp_path / "pipe.json", tmp_path, Path("/dev/zero")):
        with pytest.raises(UsageError, match="is not a regular file"):
            mixnet.read_weights(path)
    with pytest.raises(UsageError, match="weights: 7 is not a path"):
        mixnet.read_weights(7)


def test_no_file_no_folder_and_sizes_that_differ(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        mixnet.read_weights(tmp_path / "none.json")
    with pytest.raises(UsageError, match=r"no file \*.json"):
        mixnet.read_weights(tmp_path)
    (tmp_path / "a.json").write_text("[[1, 1], [1, 1]]")
    (tmp_path / "b.json").write_text("[[1]]")
    with pytest.raises(UsageError, match=r"b\.json: 1 layers of 1 experts, and a\.json has 1"):
        mixnet.read_weights(tmp_path)


# --- drift and Copilot ----------------------------------------------------------------------------
def iterations(count, **settings):
    return list(itertools.islice(mixnet.Drift(8, 4, **settings), count))


def test_drift_is_seeded_and_rows_have_all_tokens():
    first, again, other = iterations(3, seed=1), iterations(3, seed=1), iterations(3, seed=2)
    assert all((a == b).all() for a, b in zip(first, again, strict=True))
    assert (first[0] != other[0]).any()
    for each in first:
        assert each.shape == (4, 8, 8) and (each.sum(axis=2) == 32768).all()


def test_drift_moves_slowly_and_spreads_as_the_published_matrix():
    spreads, kept, far = [], [], []
    for seed in range(40):
        found = iterations(60, seed=seed)
        logs = [np.log(each[0].sum(axis=0)) for each in found]
        spreads.append(np.std(logs[0], ddof=1))
        kept.append(np.corrcoef(logs[0], logs[1])[0, 1])
        far.append(np.corrcoef(logs[0], logs[59])[0, 1])
    assert np.mean(spreads) == pytest.approx(0.77, abs=0.08)
    assert np.std(np.log(mixnet.PUBLISHED.sum(axis=0)), ddof=1) == pytest.approx(0.8, abs=0.1)
    assert np.mean(kept) > 0.9 and abs(np.mean(far)) < 0.25


def test_decay_evens_loads_out():
    late = [
        next(itertools.islice(mixnet.Drift(8, 1, seed=seed, spread=3, decay=True), 4000, None))
        for seed in range(2)
    ]
    early = iterations(1, seed=0, spread=3)
    assert np.std(np.log(late[0][0].sum(axis=0))) < np.std(np.log(early[0][0].sum(axis=0) + 1))


@pytest.mark.parametrize(
    "settings",
    [
        {"experts": 1, "layers": 1},
        {"experts": 8, "layers": 0},
        {"experts": 8, "layers": 1, "spread": -1},
        {"experts": "8", "layers": 1},
        {"experts": 10**9, "layers": 1},
    ],
)
def test_a_drift_that_cannot_be_is_refused(settings):
    with pytest.raises(UsageError, match=r"mixnet\.Drift"):
        mixnet.Drift(seed=1, **settings)


def test_copilot_beats_the_last_loads_on_drift():
    """Overlap of the two hottest experts, predicted and true, by records of the same layer."""
    hits = {"copilot": 0, "reuse": 0}
    for seed in range(5):
        found = iterations(60, seed=seed)
        copilot = mfabric.Copilot(8)
        for t, each in enumerate(found):
            before, loads = each[1].sum(axis=0), each[2].sum(axis=0)
            top = set(np.argsort(loads)[-2:])
            if t >= 16:
                copilot.fit()
                hits["copilot"] += len(top & set(np.argsort(copilot.predict(before))[-2:]))
                reused = found[t - 1][2].sum(axis=0)
                hits["reuse"] += len(top & set(np.argsort(reused)[-2:]))
            copilot.record(before, loads)
    assert hits["copilot"] > hits["reuse"] > 0


def test_both_solvers_of_copilot_find_the_same_least():
    pytest.importorskip("scipy")
    fitted = [mfabric.Copilot(8, solver=solver) for solver in ("pgd", "slsqp")]
    for each in iterations(16, seed=3):
        for one in fitted:
            one.record(each[0].sum(axis=0), each[1].sum(axis=0))
    for one in fitted:
        one.fit()
        assert one.matrix.sum(axis=0) == pytest.approx(np.ones(8), abs=1e-8)
    assert fitted[0].objective(fitted[0].matrix) == pytest.approx(
        fitted[0].objective(fitted[1].matrix), abs=1e-6
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mfabric.Copilot(0), "experts=0 must be a whole number"),
        (lambda: mfabric.Copilot("8"), "experts='8' must be a whole number"),
        (lambda: mfabric.Copilot(10**9), "from 1 to 4096"),
        (lambda: mfabric.Copilot(32, solver="slsqp"), "1024 unknowns"),
        (lambda: mfabric.Copilot(4, solver="sgd"), "neither pgd nor slsqp"),
        (lambda: mfabric.Copilot(4, records=0), "records must be 1 or more"),
        (lambda: mfabric.Copilot(2).record([1, 2], [0, 0]), "not all 0"),
        (lambda: mfabric.Copilot(2).record([1, 2, 3], [1, 2]), "3 loads of 2 experts"),
        (lambda: mfabric.Copilot(2).predict([0, 0]), "not all 0"),
        (lambda: mfabric.Copilot(2).predict([1]), "1 loads of 2 experts"),
    ],
)
def test_copilot_refuses_in_one_line(call, message):
    with pytest.raises(UsageError, match=message):
        call()


# --- the scenario of the bars ---------------------------------------------------------------------
SCENARIO = Path(__file__).parents[2] / "scenarios" / "mfabric" / "assignment.py"


def test_the_bars_hold(tmp_path):
    report = ln.load(SCENARIO).run(directory=tmp_path / "run")
    assert report.ok, report.failed
    assert {check.name.split("-")[0] for check in report.checks} >= {
        "A1",
        "A2",
        "A3",
        "A4",
        "A5",
        "A7",
        "A8",
    }


def test_a_wrong_map_of_ports_fails_its_bar(tmp_path, monkeypatch):
    def one_circuit_less(circuits, demand, **settings):
        ports = mixnet.map_ports(circuits, demand, **settings)
        both = next(
            (port, peer) for port, peer in enumerate(ports) if {port // 6, peer // 6} == {2, 6}
        )  # the pair that has two circuits
        for port in both:
            ports[port] = -1
        return ports

    scenario = ln.load(SCENARIO)
    monkeypatch.setitem(
        scenario.function.__globals__,
        "mixnet",
        type("Patched", (), {**vars(mixnet), "map_ports": one_circuit_less}),
    )
    report = scenario.run(directory=tmp_path / "run")
    assert [check.name for check in report.checks if not check.ok] == ["every-circuit-carries"]


def test_the_pages_example(capsys):
    page = (Path(__file__).parents[2] / "docs" / "mfabric.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page.split("## Which circuits")[1], re.S)
    exec(compile(code, "docs/mfabric.md", "exec"), {})
    assert capsys.readouterr().out.strip() == re.findall(r"# (\d+ [\d.]+%)", code)[0]
