"""Bad values at every public constructor and function: a LoomnetError with a message of one line,
or success; never another exception, and never for long."""

import io
import itertools
import math
import random
import time
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest

import loomnet as ln
from loomnet.base.errors import LoomnetError, UsageError
from loomnet.fabrics.model import Fabric
from loomnet.faults.model import Fault
from loomnet.labs.lab import Lab
from loomnet.plugins.priorities import Message
from loomnet.running.record import Record
from loomnet.sweeps.points import seeds_of

LINK = {"rate": "10 Gb/s", "delay": "1 us"}


class Unspeakable:
    """A value that cannot be shown."""

    def __repr__(self):
        raise RuntimeError("repr")


def endless():
    return itertools.repeat("1 B")


BAD = [
    None, True, False, 0, -1, 1, 5, 2**31, 2**63, 2**64, -(2**63), 10**30, 10**5000, -(10**5000),
    0.0, -0.0, 0.5, 1.5, 1e308, 1e-320, math.nan, math.inf, -math.inf, 1j, Decimal("1"),
    Decimal("NaN"), Fraction(1, 3),
    "", " ", "x", "a\nb", "\0", "\ud800", "é", "\x1b[31m", "٣ Gb/s", "1_0 s", "1_0_ Gb/s",
    "x" * 5000, "../x", "/", "/dev/zero", "h0", "h0--p0.leaf0", "h0->p0.leaf0", "*", "[",
    "(", "p99999999999.x",
    "1 s", "-1 s", "1e999999999 s", "1e-999999999 s", "0 s", "1 ps", "9e6 s", "9e99 s", "1 Gb/s",
    "0 b/s", "9e9 Gb/s", "1 B", "0 B", "1e18 B", "2048 B", "3 GiB", "nan", "inf", "measured x nan",
    "off", "auto", "virtual", "live", "mrc", "websearch", "x.csv", "x.et",
    b"", b"x", [], ["x"], ["1 s", "2 s"], [[]], (), (1, 2), ((0, 1),), (None,), {}, {"a": "b"},
    {5: 1}, {"layers.*": "1 s"}, {"layers.*": ("1 s",)}, set(), frozenset({1}), range(3), object(),
    object, int, print, lambda: 1, Path("x"), Path("/"), io.StringIO(), ln, ..., NotImplemented,
    ln.Time("1 s"), ln.Rate("1 Gb/s"), ln.Size("1 B"), ln.step(3), ln.iterations(2), ln.Pfc(),
    ln.AllReduce("1 MB"), ln.down("h0--p0.leaf0", at="0 s"), Exception("x"), endless, Unspeakable(),
]


def fabric():
    return ln.clos.two_tier(planes=1, leaves=2, spines=2, hosts_per_leaf=1, **LINK)


def by_hand():
    made = ln.Fabric()
    made.add_host()
    made.add_host()
    made.add_switch("p0.leaf0")
    return made


TIER = {"planes": 1, "leaves": 2, "spines": 2, "hosts_per_leaf": 1, **LINK, "uplink_rate": "1 Gb/s",
        "uplink_delay": "1 us", "radix": 8, "payload": "2048 B", "pfc": True, "order": "block"}
PODS = {"pods": 2, "leaves_per_pod": 1, "aggs_per_pod": 1, "cores_per_agg": 1, "hosts_per_leaf": 1,
        "planes": 1, **LINK, "core_rate": "1 Gb/s", "core_delay": "1 us", "radix": 8}
COMMON = {"transport": "mrc", "ranks": 2, "stall_timeout": "1 s"}
ROUNDS = {"size": "1 kB", "repeat": 2, "compute": "1 us", **COMMON}
WHEN = {"at": "1 s", "duration": "1 s", "phase": "broken"}
ROW = {"unit": "s", "published": 1.0, "reason": "r", "label": "l", "phase": "p"}
CHECK = {"value": 1.0, "ge": 0, "le": 2, "published": 1.0, "reason": "r"}


@ln.scenario
def play(lab, n: int = 1, x: float = 1.0, rate: ln.Rate = "1 Gb/s", text: str = "t"):
    lab.run(ln.clos.star(hosts=2, **LINK), ln.SendRecv("8 B"))


# What is called -> good values by name; of a function by position, the names are its parameters'.
CALLS = {
    "Rate": (ln.Rate, {"value": "1 Gb/s"}),
    "Time": (ln.Time, {"value": "1 s"}),
    "Size": (ln.Size, {"value": "1 B"}),
    "Time.of": (ln.Time.of, {"count": 1}),
    "Time.from_seconds": (ln.Time.from_seconds, {"seconds": 1.0}),
    "two_tier": (ln.clos.two_tier, TIER),
    "three_tier": (ln.clos.three_tier, PODS),
    "fat_tree": (ln.clos.fat_tree, {"k": 4, **LINK, "planes": 1}),
    "star": (ln.star, {"hosts": 3, **LINK, "planes": 2, "pfc": None, "payload": "1024 B"}),
    "dumbbell": (ln.dumbbell, {"left": 1, "right": 1, **LINK, "bottleneck": "1 Gb/s",
                               "bottleneck_delay": "1 us", "planes": 1}),
    "Fabric": (ln.Fabric, {"name": "f", "payload": "2048 B"}),
    "add_host": (lambda **v: by_hand().add_host(**v), {"name": "x", "role": "rank", "ports": 2}),
    "add_switch": (lambda **v: by_hand().add_switch(**v),
                   {"name": "p0.spine0", "plane": 0, "ports": 4, "placement": "engine"}),
    "add_link": (lambda **v: by_hand().add_link(**v), {
        "a": "h0", "b": "p0.leaf0", **LINK, "data_limit": "1 MB", "control_limit": "1 MB",
        "ecn": True, "trim": False, "pfc": "on"}),
    "override": (lambda **v: fabric().override(**v),
                 {"pattern": "*--*", "rate": "1 Gb/s", "ecn": False, "pfc": None}),
    "place": (lambda **v: fabric().place(**v), {"pattern": "*", "placement": "engine"}),
    "match": (lambda **v: fabric().match(**v), {"pattern": "*--*"}),
    "from_networkx": (ln.from_networkx, {"graph": None, **LINK}),
    "from_htsim_topology": (ln.from_htsim_topology, {"path": "none.topo", "payload": "4096 B"}),
    "Pfc": (ln.Pfc, {"xoff": "1 MB", "xon": "500 kB", "headroom": "1 MB"}),
    "down": (ln.down, {"link": "a--b", **WHEN}),
    "loss": (ln.loss, {"link": "a--b", "probability": 0.5, "burst": 2.0, **WHEN}),
    "delay": (ln.delay, {"link": "a--b", "extra": "1 us", **WHEN}),
    "degrade": (ln.degrade, {"link": "a--b", "to": 0.5, **WHEN}),
    "kill": (ln.kill, {"switch": "p0.leaf0", **WHEN}),
    "Fault": (Fault, {"kind": "down", "target": "a--b", "at": "1 s", "probability": 0.5,
                      "burst": 1.0, "extra": "1 us", "to": "1 Gb/s"}),
    "step": (ln.step, {"number": 5}),
    "iterations": (ln.iterations, {"number": 5}),
    "AllReduce": (ln.AllReduce, ROUNDS),
    "AllToAll": (ln.AllToAll, ROUNDS),
    "Broadcast": (ln.Broadcast, ROUNDS),
    "SendRecv": (ln.SendRecv, ROUNDS),
    "Permutation": (ln.Permutation, {**ROUNDS, "shift": 1, "seed": 0}),
    "Incast": (ln.Incast, {**ROUNDS, "receiver": 0}),
    "Flows": (ln.Flows, {"sizes": "1 kB", "count": 2, "gap": "1 us", "pairs": [(0, 1)], **COMMON}),
    "Flows load": (ln.Flows, {"sizes": ["1 kB"], "load": 0.5}),
    "Flows starts": (ln.Flows, {"sizes": "websearch", "count": 1, "starts": ["1 s"]}),
    "from_htsim": (ln.Flows.from_htsim, {"path": "none.cm"}),
    "Trace": (ln.Trace, {"path": "x.jsonl", "groups": "g.json", **COMMON}),
    "ModelJob": (ln.ModelJob, {
        "model": "vgg16", "iterations": 2, "workers": 2, "size": "1 MB", "compute": "1 ms",
        "buckets": 2, "forward": 0.5, "jitter": 0.1, "scale": 2.0, "priority": "esa"}),
    "ModelJob buckets": (ln.ModelJob, {"buckets": ["1 kB", "4 B"], "compute": "1 ms", **COMMON}),
    "formula": (ln.plugin.formula, {"message": Message("a", 1, 2, 1, 0.5, 4, 1), "name": "esa"}),
    "Message": (lambda **v: ln.plugin.formula(Message("a", 1, 2, 1, 0.5, 4, 1, **v)),
                {"remaining_s": 1.0, "communication_ratio": 1.0}),
    "TorchJob": (ln.TorchJob, {
        "script": "t.py", "args": ["--x"], "compute": "1 ms", "log": r"(?P<step>\d+)", **COMMON,
        "map_backend": True, "allow_no_network": False, "until": "1 s", "env": {"A": "b"}}),
    "Lab": (Lab, {"scenario": "s", "clock": "virtual", "seed": 1, "parameters": {}, "base": ".",
                  "directory": "out", "max_wall_s": 5.0, "record": Record()}),
    "Record": (Record.of, {"trace": "t", "pcap": {"h0:0": "f"}}),
    "metric": (lambda **v: Lab(directory="out").metric(**v), {"name": "m", "value": 1.0, **ROW}),
    "check": (lambda **v: Lab(directory="out").check(**v), {"name": "c", **CHECK}),
    "check approx": (lambda **v: Lab(directory="out").check(**v),
                     {"name": "c", "value": 1, "approx": 1, "rel": 0.1, "abs": 0.1}),
    "lab": (ln.lab, {"fabric": fabric(), "clock": "virtual", "seed": 0, "dilation": 1.0,
                     "reroute_delay": "1 s", "directory": "out"}),
    "OpenLab.down": (lambda **v: _opened().down(**v), {"link": "h0--p0.leaf0"}),
    "OpenLab.address": (lambda **v: _opened().address(**v), {"host": "h0"}),
    "OpenLab.exec": (lambda **v: _opened().exec(**v), {"node": "h0", "command": "true"}),
    "scenario": (ln.scenario, {"function": None}),
    "load": (ln.load, {"target": "none.py"}),
    "validate": (lambda **v: play.validate(v), {"n": 1, "x": 1.0, "rate": "1 Gb/s", "text": "t"}),
    "compare": (ln.compare, {"a": "x", "b": "y", "rel": 0.1}),
    "assert_matches": (ln.assert_matches, {"report": None, "baseline": "x"}),
    "sweep": (lambda **v: ln.sweep(play, watch=print, **{"scheduler": "", **v}), {
        "jobs": 1, "out": "swept", "max_wall_s": 1.0, "axes": {"n": [1]}}),
    "seeds": (seeds_of, {"seeds": 3}),
    "Report[]": (lambda name: Lab(directory="out").report[name], {"name": "x"}),
}
INNER = ("Time.of", "Time.from_seconds", "Record", "seeds")  # not called by users
# What is called on a result, or with a whole run behind it: fewer values, for each costs a run.
RUN = {"faults": [], "label": "l", "seed": 1, "reroute_delay": "1 s", "settle": "0 s",
       "dilation": 1.0, "trace": "t.pftrace", "pcap": {"h0:0": "p"}, "mrc": {}, "roce": {},
       "tcp": {}, "payload": False, "gaps_ps": (), "sample": "1 ms", "queues": [],
       "over_budget": False}


def _opened():
    return ln.lab(fabric()).open()


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
        for call in (lambda n: ln.Time("1 s") * n, lambda n: n * ln.Rate("1 Gb/s"),
                     lambda n: ln.Size("1 B") / n):
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
    job = ln.SendRecv("8 B", transport=option if option in ("mrc", "roce", "tcp") else "mrc",
                      stall_timeout="1 s")
    for number, value in enumerate(BAD):
        if number % 4 != (part + len(option)) % 4:
            continue
        given = value() if value is endless else value
        what = named("run", option, value)
        attempt(what, lambda **v: ln.run(fabric(), job, directory=f"out{number}", **v),  # noqa: B023
                {option: given})


@pytest.mark.parametrize("transport", ["mrc", "roce", "tcp"])
def test_every_bad_value_of_a_transports_constants_is_one_line(transport):
    names = {"mrc": ["mtu", "evs_per_qp", "nope"], "roce": ["payload_mtu", "dcqcn", "nope"],
             "tcp": ["cc", "mtu", "nope"]}
    job = ln.SendRecv("8 B", transport=transport, stall_timeout="1 s")
    for name in names[transport]:
        for number, value in enumerate(BAD[::2]):
            if value is not endless:
                options = {transport: {name: value}}
                attempt(named(transport, name, value),
                        lambda **v: ln.run(fabric(), job, directory=f"out{number}", **v),  # noqa: B023
                        options)


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
