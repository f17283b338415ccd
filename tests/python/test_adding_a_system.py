"""A system that is one new folder of loomnet.systems is known everywhere: nothing else of the
package is touched."""

import pytest

pytest.importorskip("loomnet._core")

from toy_system import added

import loomnet as ln
from loomnet.base.errors import UsageError
from loomnet.systems import registry


@pytest.fixture
def toy(tmp_path):
    with added(tmp_path / "systems"):
        yield


def fabric(program="mirror"):
    made = ln.clos.two_tier(
        planes=1, leaves=2, spines=1, hosts_per_leaf=2, rate="10 Gb/s", delay="1 us"
    )
    return made.program("p0.leaf0", program)


def run(tmp_path, job, say=lambda line: None, **options):
    return ln.Lab("toy", directory=tmp_path / "runs", say=say).run(fabric(), job, **options)


def job(**options):
    return ln.AllReduce("1 MB", repeat=5, allreduce="toy", shown=True, **options)


def test_one_folder_is_enough(toy, tmp_path):
    said = []
    r = run(tmp_path, job(), said.append, payload=True)
    assert "note: the toy counts queue pairs" in said
    assert r.data.ended == "finished" and r.data.wrong == 0
    assert r["toy_pairs"] == 1 and r.metric("toy_pairs").unit == "queue pairs"
    assert r.data.fidelity.notes["toy"] == "was there"
    plain = run(tmp_path, ln.AllReduce("1 MB", repeat=5))
    assert plain["before.iteration_s"] == r["before.iteration_s"] and "toy_pairs" not in plain
    assert "toy" not in plain.data.fidelity.notes


def test_a_model_whose_sums_it_leaves_to_the_ranks_goes_round_a_ring(toy, tmp_path):
    model = {"buckets": ["100 kB"], "compute": "10 us", "iterations": 6}
    by_toy = run(tmp_path, ln.ModelJob(**model, allreduce="toy", shown=True))
    plain = run(tmp_path, ln.ModelJob(**model))
    assert by_toy["before.iteration_s"] == plain["before.iteration_s"]


def test_its_rows_reach_its_program(toy, tmp_path):
    with pytest.raises(ValueError, match='the switch program has no table "toys"'):
        run(tmp_path, [job(name="rows", ranks=2), ln.AllReduce("1 MB", name="other", ranks=2)])


def test_its_option_is_checked_and_unknown_without_it(toy):
    assert job().option("shown") is True and ln.AllReduce("1 MB").option("shown") is False
    with pytest.raises(UsageError, match="AllReduce: shown=3 must be True or False"):
        ln.AllReduce("1 MB", shown=3)
    with pytest.raises(UsageError, match='"to" is not one of ring or ina or toy; nearest: toy'):
        ln.AllReduce("1 MB", allreduce="to")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('allreduce = "toy"', 'allreduce = "ina"'), "RUN_PARTS: ina: another system"),
        (('allreduce = "toy"', 'allreduce = "ring"'), "RUN_PARTS: ring: .* every job has it"),
        (('_Shown("shown"', '_Shown("server"'), "JOB_OPTIONS: server: another system"),
        (('_Shown("shown"', '_Shown("transport"'), "JOB_OPTIONS: transport: .* every job has it"),
        (('name = "mirror"', 'name = "symphony"'), "PROGRAMS: symphony: another system"),
    ],
)
def test_a_name_that_is_taken_is_refused(tmp_path, change, message):
    with added(tmp_path / "systems", change=change), pytest.raises(ImportError, match=message):
        registry.job_options(), registry.reducers(), registry.program("toy")


def test_an_option_that_a_kind_of_job_has_is_refused(tmp_path):
    with (
        added(tmp_path / "systems", change=('_Shown("shown"', '_Shown("repeat"')),
        pytest.raises(ImportError, match="repeat: AllReduce has a parameter of this name"),
    ):
        ln.AllReduce("1 MB", repeat=2).option("repeat")


def test_a_folder_that_cannot_be_imported_is_named(tmp_path):
    with (
        added(tmp_path / "systems", change=("MESSAGE = 5000", "MESSAGE = 1 / 0")),
        pytest.raises(
            ImportError,
            match=r"loomnet\.systems\.toy cannot be imported: "
            "ZeroDivisionError: division by zero",
        ),
    ):
        registry.job_options()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('yield "toy_pairs"', 'yield "errors"'), 'figure "errors": the job has one of this name'),
        (('{"toy": "was there"}', '{"toy": {1, 2}}'), 'Toy.notes: "toy" is a set, no number, text'),
    ],
)
def test_what_a_report_cannot_hold_is_refused(tmp_path, change, message):
    with added(tmp_path / "systems", change=change), pytest.raises(UsageError, match=message):
        run(tmp_path, job())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ('return {"toy": "was there"}', "return 3"),
            "Toy.notes: a dict of notes is expected, not 3",
        ),
        (('yield "the toy counts', 'yield 3, "the'), r"Toy.lint: a text is expected, not \(3, "),
        (('yield "the toy counts queue pairs"', "return 7"), "Toy.lint: several of a text are"),
        (('"queue pairs", None', "None"), r"Toy.figures: \(name, number or None, unit, reason"),
        (
            ('return {"sample": 3} |', "return 5, "),
            "Shown.settings: a dict of keywords is expected",
        ),
    ],
)
def test_a_hook_that_answers_another_kind_is_named(tmp_path, change, message):
    with added(tmp_path / "systems", change=change), pytest.raises(UsageError, match=message):
        run(tmp_path, job())


def test_so_is_one_that_only_a_stalled_job_asks(tmp_path):
    with added(tmp_path / "systems", change=('return "; the toy waits', 'return b"')):
        part = registry.reducers()["toy"](None, [])
        with pytest.raises(UsageError, match=r"Toy\.stall: a text is expected, not b"):
            part.stall(None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("RUN_PARTS = (Toy,)", "RUN_PARTS = (3,)"), "toy: RUN_PARTS: each of a tuple must be a"),
        (
            ("RUN_PARTS = (Toy,)", "RUN_PARTS = Toy"),
            "RUN_PARTS: each of a tuple must be a class, a",
        ),
        (("(Shown(),)", "(Shown,)"), "PROGRAMS: each of a tuple must be a Program, not <class"),
        (("(SHOWN,)", "('shown',)"), "JOB_OPTIONS: each of a tuple must be a JobOption, not 'sho"),
    ],
)
def test_a_row_of_another_kind_is_named(tmp_path, change, message):
    with added(tmp_path / "systems", change=change), pytest.raises(ImportError, match=message):
        run(tmp_path, job())


def test_a_misspelt_option_is_proposed(toy):
    with pytest.raises(UsageError, match='AllReduce: unknown name "shwn"; nearest: shown'):
        ln.AllReduce("1 MB", shwn=True)


def test_without_its_folder_nothing_knows_it():
    with pytest.raises(UsageError, match='AllReduce: unknown name "shown"'):
        ln.AllReduce("1 MB", shown=True)
    with pytest.raises(UsageError, match=r'AllReduce\.allreduce: "toy" is not one of ring or ina'):
        ln.AllReduce("1 MB", allreduce="toy")
