"""Hosts that circuits and planes of switches join, and the refusals of fabrics with panels."""

import re

import pytest
from test_panels import TRANSPORTS, beside_planes, flows, go, patcher, row, star

import loomnet as ln
from loomnet.base.errors import FabricError, UsageError


# --- beside planes --------------------------------------------------------------------------------
def bytes_of(result, *names):
    return sum(row(result, f"link {name}").get("bytes", 0) for name in names)


@pytest.mark.parametrize(
    ("transport", "planes"), [("mrc", 1), ("mrc", 4), ("roce", 1), ("tcp", 1), ("tcp", 4)]
)
def test_hosts_that_a_circuit_joins_talk_by_it_and_others_by_their_planes(
    tmp_path, transport, planes
):
    fabric = beside_planes([("h0", "h1")], planes)
    result = go(fabric, flows([(0, 1), (0, 2)], "2 MiB", transport), tmp_path)
    up = bytes_of(result, *(f"h0->p{plane}.leaf0" for plane in range(planes)))
    light = bytes_of(result, "h0->ocs0")
    for sent in (up, light):
        assert sent == pytest.approx((2 << 20) * 1.05, rel=0.06)
    assert bytes_of(result, "h2->ocs0", "h3->ocs0", "ocs0->h2", "ocs0->h3") == 0


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_dead_fibre_sends_its_hosts_back_to_their_planes(tmp_path, transport):
    fabric = beside_planes([("h0", "h1")])
    options = {"roce": {"timeout_exponent": 7}} if transport == "roce" else {}
    # The far fibre: h0 sees the light go out, not its own link.
    faults = [ln.down("ocs0--h1", at="200 us", duration="400 us")]
    result = go(fabric, flows([(0, 1)], "20 MiB", transport), tmp_path, faults=faults, **options)
    by_plane, by_light = bytes_of(result, "h0->p0.leaf0"), bytes_of(result, "h0->ocs0")
    assert by_plane > 1_000_000 and by_light > 10_000_000
    assert row(result, "link h0->p0.leaf0")["packets"] > 100


def test_hosts_at_panels_alone_stand_beside_hosts_of_planes(tmp_path):
    fabric = beside_planes([("h0", "g0")])
    fabric.add_host("g0")
    fabric.add_link("g0", "ocs0", rate="100 Gb/s", delay="1 us")
    fabric.panel("ocs0").circuits([("h0", "g0")])
    result = go(fabric, flows([(0, 4), (1, 2)], "1 MiB", "mrc"), tmp_path)
    assert bytes_of(result, "ocs0->g0") > 1 << 20 and bytes_of(result, "h1->ocs0") == 0


# --- what is refused ------------------------------------------------------------------------------
def linked(*ends, **settings):
    fabric = ln.Fabric()
    fabric.add_panel("ocs0", ports=2)
    for name in ("h0", "h1", "h2"):
        fabric.add_host(name)
    fabric.add_switch("p0.leaf0")
    for a, b in ends:
        fabric.add_link(a, b, rate="1 Gb/s", delay="1 us", **settings)
    return fabric


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: ln.Fabric().add_panel("o", profile="polaris"),
            "panel o: profile: .*polaris.* is none of ideal, sim25, polatis",
        ),
        (lambda: ln.Fabric().add_panel("o", profile=25), "panel o: profile: 25 is none of ideal"),
        (
            lambda: ln.Fabric().add_panel("o", carrier="tx"),
            "carrier: .*tx.* is none of both, rx, none",
        ),
        (lambda: ln.Fabric().add_panel("o", ports=0), "panel o: ports: 0 must be a whole number"),
        (lambda: linked().add_panel("h0"), "node h0 exists already"),
        (lambda: linked(("ocs0", "p0.leaf0")), "a panel joins hosts"),
        (lambda: linked(("h0", "ocs0"), pfc=True), "link h0->ocs0: pfc: a panel has no queue"),
        (
            lambda: linked(("h0", "ocs0"), queue="fifo"),
            "link h0->ocs0: queue: a panel has no queue",
        ),
        (
            lambda: linked(("h0", "ocs0")).override("h0->ocs0", rate="2 Gb/s").check(),
            "one rate both ways",
        ),
        (lambda: star().override("*", trim=False), "is not a link name"),
        (lambda: star().override("*->*", trim=False).check(), "trim: a panel has no queue"),
        (
            lambda: linked(
                ("h0", "ocs0"), ("h1", "ocs0"), ("h2", "ocs0"), ("h0", "p0.leaf0")
            ).check(),
            "ocs0 has 2 ports but 3 links",
        ),
        (lambda: star(links=9, hosts=1).check(), "8 ports but 9 links|a NIC has 8 ports at most"),
        (lambda: star().panel("ocs1"), 'no panel "ocs1"; nearest: ocs0'),
        (lambda: star("h0-h1"), "is not a list of pairs"),
        (lambda: star(["h0h1"]), "is not a pair of ends"),
        (lambda: star([("h0", None)]), "is not a pair of ends"),
        (lambda: star([("h0", "h9")]).check(), '"h9" has no link to ocs0'),
        (
            lambda: star([("h0", "h1"), ("h1", "h2")]).check(),
            "circuit h1-h2: h1 has 1 ports at ocs0",
        ),
        (lambda: star([("h0", "h0")]).check(), "h0 has 1 ports at ocs0, and other circuits"),
        (lambda: star([("h0", "h0")], links=2).check(), "joins h0 to itself"),
        (lambda: star([(0, 1), (1, 2)]).check(), "1 is in two circuits"),
        (
            lambda: ln.Fabric().add_panel("ocs0", placement="xpd"),
            "panel ocs0: placement: .xpd. is none of engine, xdp, tc",
        ),
        (
            lambda: ln.Fabric().add_panel("ocs0", placement=None),
            "panel ocs0: placement: None is none of engine, xdp, tc",
        ),
        (lambda: star([(0, 7)]).check(), "port 7 of ocs0 has no link"),
        (lambda: star([("h0:1", "h1")]).check(), '"h0:1": h0 has links 0 to 0 to ocs0'),
        (lambda: star().override("h1--ocs0", rate="1 Gb/s").check(), "one rate from end to end"),
    ],
)
def test_what_does_not_add_up_is_one_line(make, message):
    with pytest.raises(UsageError if "link name" in message else FabricError) as found:
        make()
    assert re.search(message, str(found.value)), found.value
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"faults": [ln.degrade("ocs0->h0", 0.5, at="1 us")]}, 'degrade "h0->ocs0"'),
        ({"faults": [ln.degrade("h0--ocs0", 0.5, at="1 us")]}, 'degrade "h0->ocs0"'),
        ({"controllers": {1: [("h0", "h9")]}}, '"h9" has no link to ocs0'),
        ({"controllers": {1: "h0"}}, "is not a list of pairs"),
        (
            {"fabric": star([("h0", "h1")] * 2, links=2), "transport": "roce"},
            "2 circuits join h0 and h1",
        ),
        ({"fabric": beside_planes([], 2), "transport": "roce"}, "give planes=1 beside a panel"),
    ],
)
def test_runs_that_cannot_be_are_one_line(tmp_path, options, message):
    clock = options.pop("clock", "virtual")
    job = flows([(0, 1)], "1 MiB", options.pop("transport", "mrc"))
    fabric = options.pop("fabric", None) or star()
    if "controllers" in options:
        options["controllers"] = patcher(options["controllers"])
    with pytest.raises(UsageError, match=message) as found:
        ln.Lab("refused", clock=clock, directory=tmp_path).run(
            fabric, job, options.pop("faults", []), **options
        )
    assert "\n" not in str(found.value)
