"""Bad values at every public constructor and function: a LoomnetError with a message of one line,
or success; never another exception, and never for long."""

import random
import time
from fractions import Fraction

import pytest
from bad_calls import BAD, CALLS, endless, fabric

import loomnet as ln
from loomnet.base.errors import LoomnetError, UsageError
from loomnet.fabrics.model import Fabric

INNER = ("Time.of", "Time.from_seconds", "Record", "seeds")  # not called by users
# What is called on a result, or with a whole run behind it: fewer values, for each costs a run.
RUN = {
    "faults": [],
    "label": "l",
    "seed": 1,
    "reroute_delay": "1 s",
    "settle": "0 s",
    "dilation": 1.0,
    "trace": "t.pftrace",
    "pcap": {"h0:0": "p"},
    "mrc": {},
    "roce": {},
    "tcp": {},
    "payload": False,
    "gaps_ps": (),
    "sample": "1 ms",
    "queues": [],
    "over_budget": False,
}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def attempt(what, call, values):
    """One call; what came of it. Fails for every exception that is no LoomnetError."""
    began = time.monotonic()
    try:
        found = call(**values)
        if isinstance(found, Fabric):
            repr(found)
    except LoomnetError as error:
        text = str(error)
        assert text and "\n" not in text and text.isprintable(), (what, text)
        assert len(text) < 2000, (what, text)
        assert isinstance(error, UsageError) or error.exit_code == 2, (what, text)
    except AssertionError:
        if what != "assert_matches":
            raise
    except Exception as error:
        raise AssertionError(f"{what}: {type(error).__name__} instead of a UsageError") from error
    took = time.monotonic() - began
    assert took < 5, f"{what}: {took:.1f} s"


def named(what, name, value):
    try:
        return f"{what}({name}={value!r})"[:200]
    except Exception:
        return f"{what}({name}=<{type(value).__name__}>)"


@pytest.mark.parametrize("what", CALLS)
def test_every_bad_value_of_every_argument_is_one_line(what):
    call, good = CALLS[what]
    if what == "sweep":  # their import takes longer than any call may
        pytest.importorskip("distributed")
        pytest.importorskip("polars")
    for name in good:
        for value in BAD:
            given = value() if value is endless else value
            attempt(named(what, name, value), call, {**good, name: given})


def test_arithmetic_with_a_bad_number_is_one_line():
    for number in [n for n in BAD if isinstance(n, (int, float, Fraction))]:
        for call in (
            lambda n: ln.Time("1 s") * n,
            lambda n: n * ln.Rate("1 Gb/s"),
            lambda n: ln.Size("1 B") / n,
        ):
            attempt("arithmetic", call, {"n": number})


@pytest.mark.parametrize("what", CALLS)
def test_names_that_a_signature_does_not_have_are_one_line(what):
    call, good = CALLS[what]
    if what in ("validate", "sweep", *INNER) or "lambda" in repr(call):
        return
    attempt(f"{what}(nope=1)", call, {**good, "nope": 1})
    for name in good:
        attempt(f"{what} without {name}", call, {k: v for k, v in good.items() if k != name})


@pytest.mark.parametrize("part", [0, *(pytest.param(n, marks=pytest.mark.soak) for n in (1, 2, 3))])
@pytest.mark.parametrize("option", RUN)
def test_every_bad_option_of_a_run_is_one_line(option, part):
    job = ln.SendRecv(
        "8 B", transport=option if option in ("mrc", "roce", "tcp") else "mrc", stall_timeout="1 s"
    )
    for number, value in enumerate(BAD):
        if number % 4 != (part + len(option)) % 4:
            continue
        given = value() if value is endless else value
        what = named("run", option, value)
        attempt(
            what,
            lambda **v: ln.run(fabric(), job, directory=f"out{number}", **v),  # noqa: B023
            {option: given},
        )


@pytest.mark.parametrize("transport", ["mrc", "roce", "tcp"])
def test_every_bad_value_of_a_transports_constants_is_one_line(transport):
    names = {
        "mrc": ["mtu", "evs_per_qp", "nope"],
        "roce": ["payload_mtu", "dcqcn", "nope"],
        "tcp": ["cc", "mtu", "nope"],
    }
    job = ln.SendRecv("8 B", transport=transport, stall_timeout="1 s")
    for name in names[transport]:
        for number, value in enumerate(BAD[::2]):
            if value is not endless:
                options = {transport: {name: value}}
                attempt(
                    named(transport, name, value),
                    lambda **v: ln.run(fabric(), job, directory=f"out{number}", **v),  # noqa: B023
                    options,
                )


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    return ln.run(fabric(), ln.SendRecv("8 B"), directory=tmp_path_factory.mktemp("run"))


def test_every_bad_question_to_a_result_is_one_line(result):
    calls = {
        "[]": (lambda name: result[name], "name"),
        "metric": (result.metric, "name"),
        "series": (result.series, "name"),
        "every": (lambda every: result.series("goodput", every=every), "every"),
        "rank_log": (result.rank_log, "rank"),
        "logged": (lambda pattern: result.logged(0, pattern), "pattern"),
        "column": (result.metrics.column, "name"),
    }
    for what, (call, name) in calls.items():
        for value in BAD:
            attempt(named(what, name, value), call, {name: value})


def _random_call(draw):
    what = draw.choice(list(CALLS))
    call, good = CALLS[what]
    kept = 1 if "lambda" in repr(call) or what in INNER else 0.95
    values = {name: value for name, value in good.items() if draw.random() < kept}
    for name in draw.sample(list(good), draw.randint(1, len(good))):
        if draw.random() < 0.5:
            value = draw.choice(BAD)
            values[name] = value() if value is endless else value
    return what, call, values


def _several_bad_values(seconds, seed):
    draw, count, until = random.Random(seed), 0, time.monotonic() + seconds
    while time.monotonic() < until:
        what, call, values = _random_call(draw)
        attempt(f"seed {seed}, call {count}: {what}", call, values)
        count += 1
    return count


def test_several_bad_values_at_once_are_one_line():
    assert _several_bad_values(3, seed=1) > 50


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
def test_several_bad_values_at_once_are_one_line_for_long(seed):
    assert _several_bad_values(60, seed=seed) > 1000
