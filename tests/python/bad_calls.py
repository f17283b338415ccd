"""Calls of public constructors and functions, into which a test puts bad values."""

import io
import itertools
import math
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import loomnet as ln
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
    None,
    True,
    False,
    0,
    -1,
    1,
    5,
    2**31,
    2**63,
    2**64,
    -(2**63),
    10**30,
    10**5000,
    -(10**5000),
    0.0,
    -0.0,
    0.5,
    1.5,
    1e308,
    1e-320,
    math.nan,
    math.inf,
    -math.inf,
    1j,
    Decimal("1"),
    Decimal("NaN"),
    Fraction(1, 3),
    "",
    " ",
    "x",
    "a\nb",
    "\0",
    "\ud800",
    "é",
    "\x1b[31m",
    "٣ Gb/s",
    "1_0 s",
    "1_0_ Gb/s",
    "x" * 5000,
    "../x",
    "/",
    "/dev/zero",
    "h0",
    "h0--p0.leaf0",
    "h0->p0.leaf0",
    "*",
    "[",
    "(",
    "p99999999999.x",
    "1 s",
    "-1 s",
    "1e999999999 s",
    "1e-999999999 s",
    "0 s",
    "1 ps",
    "9e6 s",
    "9e99 s",
    "1 Gb/s",
    "0 b/s",
    "9e9 Gb/s",
    "1 B",
    "0 B",
    "1e18 B",
    "2048 B",
    "3 GiB",
    "nan",
    "inf",
    "measured x nan",
    "off",
    "auto",
    "virtual",
    "live",
    "mrc",
    "websearch",
    "x.csv",
    "x.et",
    b"",
    b"x",
    [],
    ["x"],
    ["1 s", "2 s"],
    [[]],
    (),
    (1, 2),
    ((0, 1),),
    (None,),
    {},
    {"a": "b"},
    {5: 1},
    {"layers.*": "1 s"},
    {"layers.*": ("1 s",)},
    set(),
    frozenset({1}),
    range(3),
    object(),
    object,
    int,
    print,
    lambda: 1,
    Path("x"),
    Path("/"),
    io.StringIO(),
    ln,
    ...,
    NotImplemented,
    ln.Time("1 s"),
    ln.Rate("1 Gb/s"),
    ln.Size("1 B"),
    ln.step(3),
    ln.iterations(2),
    ln.Pfc(),
    ln.AllReduce("1 MB"),
    ln.down("h0--p0.leaf0", at="0 s"),
    Exception("x"),
    endless,
    Unspeakable(),
]


def fabric():
    return ln.clos.two_tier(planes=1, leaves=2, spines=2, hosts_per_leaf=1, **LINK)


def by_hand():
    made = ln.Fabric()
    made.add_host()
    made.add_host()
    made.add_switch("p0.leaf0")
    return made


TIER = {
    "planes": 1,
    "leaves": 2,
    "spines": 2,
    "hosts_per_leaf": 1,
    **LINK,
    "uplink_rate": "1 Gb/s",
    "uplink_delay": "1 us",
    "radix": 8,
    "payload": "2048 B",
    "pfc": True,
    "order": "block",
}
PODS = {
    "pods": 2,
    "leaves_per_pod": 1,
    "aggs_per_pod": 1,
    "cores_per_agg": 1,
    "hosts_per_leaf": 1,
    "planes": 1,
    **LINK,
    "core_rate": "1 Gb/s",
    "core_delay": "1 us",
    "radix": 8,
}
COMMON = {"transport": "mrc", "ranks": 2, "stall_timeout": "1 s"}
ROUNDS = {"size": "1 kB", "repeat": 2, "compute": "1 us", **COMMON}
WHEN = {"at": "1 s", "duration": "1 s", "phase": "broken"}
ROW = {"unit": "s", "published": 1.0, "reason": "r", "label": "l", "phase": "p"}
CHECK = {"value": 1.0, "ge": 0, "le": 2, "published": 1.0, "reason": "r"}


def _opened():
    return ln.lab(fabric()).open()


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
    "dumbbell": (
        ln.dumbbell,
        {
            "left": 1,
            "right": 1,
            **LINK,
            "bottleneck": "1 Gb/s",
            "bottleneck_delay": "1 us",
            "planes": 1,
        },
    ),
    "Fabric": (ln.Fabric, {"name": "f", "payload": "2048 B"}),
    "add_host": (lambda **v: by_hand().add_host(**v), {"name": "x", "role": "rank", "ports": 2}),
    "add_switch": (
        lambda **v: by_hand().add_switch(**v),
        {"name": "p0.spine0", "plane": 0, "ports": 4, "placement": "engine"},
    ),
    "add_link": (
        lambda **v: by_hand().add_link(**v),
        {
            "a": "h0",
            "b": "p0.leaf0",
            **LINK,
            "data_limit": "1 MB",
            "control_limit": "1 MB",
            "ecn": True,
            "trim": False,
            "pfc": "on",
        },
    ),
    "override": (
        lambda **v: fabric().override(**v),
        {"pattern": "*--*", "rate": "1 Gb/s", "ecn": False, "pfc": None},
    ),
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
    "Fault": (
        Fault,
        {
            "kind": "down",
            "target": "a--b",
            "at": "1 s",
            "probability": 0.5,
            "burst": 1.0,
            "extra": "1 us",
            "to": "1 Gb/s",
        },
    ),
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
    "ModelJob": (
        ln.ModelJob,
        {
            "model": "vgg16",
            "iterations": 2,
            "workers": 2,
            "size": "1 MB",
            "compute": "1 ms",
            "buckets": 2,
            "forward": 0.5,
            "jitter": 0.1,
            "scale": 2.0,
            "priority": "esa",
        },
    ),
    "ModelJob buckets": (ln.ModelJob, {"buckets": ["1 kB", "4 B"], "compute": "1 ms", **COMMON}),
    "formula": (ln.plugin.formula, {"message": Message("a", 1, 2, 1, 0.5, 4, 1), "name": "esa"}),
    "Message": (
        lambda **v: ln.plugin.formula(Message("a", 1, 2, 1, 0.5, 4, 1, **v)),
        {"remaining_s": 1.0, "communication_ratio": 1.0},
    ),
    "TorchJob": (
        ln.TorchJob,
        {
            "script": "t.py",
            "args": ["--x"],
            "compute": "1 ms",
            "log": r"(?P<step>\d+)",
            **COMMON,
            "map_backend": True,
            "allow_no_network": False,
            "until": "1 s",
            "env": {"A": "b"},
        },
    ),
    "Lab": (
        Lab,
        {
            "scenario": "s",
            "clock": "virtual",
            "seed": 1,
            "parameters": {},
            "base": ".",
            "directory": "out",
            "max_wall_s": 5.0,
            "record": Record(),
        },
    ),
    "Record": (Record.of, {"trace": "t", "pcap": {"h0:0": "f"}}),
    "metric": (lambda **v: Lab(directory="out").metric(**v), {"name": "m", "value": 1.0, **ROW}),
    "check": (lambda **v: Lab(directory="out").check(**v), {"name": "c", **CHECK}),
    "check approx": (
        lambda **v: Lab(directory="out").check(**v),
        {"name": "c", "value": 1, "approx": 1, "rel": 0.1, "abs": 0.1},
    ),
    "lab": (
        ln.lab,
        {
            "fabric": fabric(),
            "clock": "virtual",
            "seed": 0,
            "dilation": 1.0,
            "reroute_delay": "1 s",
            "directory": "out",
        },
    ),
    "OpenLab.down": (lambda **v: _opened().down(**v), {"link": "h0--p0.leaf0"}),
    "OpenLab.address": (lambda **v: _opened().address(**v), {"host": "h0"}),
    "OpenLab.exec": (lambda **v: _opened().exec(**v), {"node": "h0", "command": "true"}),
    "scenario": (ln.scenario, {"function": None}),
    "load": (ln.load, {"target": "none.py"}),
    "validate": (lambda **v: play.validate(v), {"n": 1, "x": 1.0, "rate": "1 Gb/s", "text": "t"}),
    "compare": (ln.compare, {"a": "x", "b": "y", "rel": 0.1}),
    "assert_matches": (ln.assert_matches, {"report": None, "baseline": "x"}),
    "sweep": (
        lambda **v: ln.sweep(play, watch=print, **{"scheduler": "", **v}),
        {"jobs": 1, "out": "swept", "max_wall_s": 1.0, "axes": {"n": [1]}},
    ),
    "seeds": (seeds_of, {"seeds": 3}),
    "Report[]": (lambda name: Lab(directory="out").report[name], {"name": "x"}),
}
