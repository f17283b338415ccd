"""What a panel and a region's controller do, on the virtual clock: E1 (circuits that stay), E2
(dark time), E3 (carrier), E4 (576 ports at once), E6 (half-circuits, loops, what is refused), E9
(the same seed), E10 (100 iterations of a controller), P2, P3 and P4 (switching times) of MixNet
(SIGCOMM 2025, doi 10.1145/3718958.3750465). E1, E2, E3 and E5 of the live clock are
tests/live/test_panels_live.py: they need root."""

import itertools

import numpy as np

import loomnet as ln
import loomnet._core as _core
from loomnet.systems import mixnet

MS = 10**9  # picoseconds
PROBE = 0.5  # ms between two probes
PATCHED_AT = 10  # ms
TOLD_LATE = ("on the live clock a flow hears of its new path some milliseconds after the light; "
             "datagrams, which tests/live sends, see it within 1 ms")


@ln.plugin.controller("mfabric_panel_patcher")
class Patcher:
    """Patches ocs0 once."""

    def __init__(self, circuits, at_ms):
        self.circuits, self.at = circuits, at_ms * MS

    def next_time(self):
        return self.at

    def advance(self, now, view):
        self.at = None
        return [ln.change.circuits("ocs0", self.circuits)]


def probed(lab, label, profile):
    """h0-h1 stay, h2-h3 become h2-h4: 4,096 bytes every half millisecond by both."""
    fabric = ln.Fabric("star")
    fabric.add_panel("ocs0", profile=profile)
    for host in range(6):
        fabric.add_host(f"h{host}")
        fabric.add_link(f"h{host}", "ocs0", rate="100 Gb/s" if lab.clock == "virtual" else
                        "400 Mb/s", delay="1 us" if lab.clock == "virtual" else "50 us")
    fabric.panel("ocs0").circuits([("h0", "h1"), ("h2", "h3"), ("h4", "h5")])
    count = 240
    starts = [f"{number * PROBE:.3f} ms" for number in range(count)]
    late = [f"{PATCHED_AT + number * PROBE:.3f} ms" for number in range(count)]
    job = ln.Flows(pairs=[(0, 1)] * count + [(2, 4)] * count, sizes="4 KiB", count=2 * count,
                   starts=starts + late, transport="mrc")
    r = lab.run(fabric, job, label=label, controllers=[ln.controller(
        "mfabric_panel_patcher", circuits=[("h0", "h1"), ("h2", "h4"), ("h3", "h5")],
        at_ms=PATCHED_AT)])
    lab.check(f"{label}-no-error", r["errors"], eq=0)
    return r, count


def dark_times(lab):
    for profile in ("sim25", "polatis", "calient"):
        r, count = probed(lab, f"E2.{profile}", profile)
        events = r.events
        rows = [(row["time"], row["where"], row["kind"], row["value"]) for row in events]
        port = {value: at for at, where, _, value in rows if where == "ocs0 3A"}
        begin, end = port["tuning"], port["tuned"]
        sample = end - begin
        flows = r.flows
        stays, moves = flows[:count], flows[count:]
        # A probe that stays takes the time of one that no request meets.
        slowest = max(row["fct_s"] for row in stays) / min(row["fct_s"] for row in stays)
        lab.check(f"E1-{profile}", slowest, le=1.5)
        first = min((PATCHED_AT + number * PROBE) / 1e3 + row["fct_s"]
                    for number, row in enumerate(moves))
        lab.check(f"E2-{profile}", 1e3 * (first - end), ge=-0.001,
                  le=1.0, reason=TOLD_LATE if lab.clock == "live" else None)
        if profile == "sim25":
            lab.check("P4", 1e3 * sample, published=25.0, approx=25.0, abs=0.001)
            carriers = {(where, value): at for at, where, kind, value in rows if kind == "carrier"}
            lab.check("E3-down", 1e3 * (carriers["h2--ocs0", "down"] - begin), ge=0,
                      le=2.0)
            lab.check("E3-up", 1e3 * (carriers["h2--ocs0", "up"] - end), ge=0, le=2.0)


def permutation(lab):
    """E4: all 576 ports in one generation; at each moment the map is the old one or the new."""
    device = _core.PanelDevice(576, profile="sim25", carrier="none", seed=lab.seed)
    random = np.random.default_rng(lab.seed)
    old = list(enumerate(map(int, random.permutation(576))))
    new = list(enumerate(map(int, random.permutation(576))))
    device.change([], old, "overwrite", 0)
    device.advance(50 * MS)
    before = device.generation
    device.change([], new, "overwrite", 100 * MS)
    lab.check("E4-generations", device.generation - before, eq=1)
    lab.check("E4-ports", sum(device.target(a, False) == b for a, b in new), eq=576)
    moved = [a for (a, b), (_, c) in zip(old, new, strict=True) if b != c]
    early = sum(device.status(a, False, 125 * MS - 1) == "tuned" for a in moved)
    late = sum(device.status(a, False, 125 * MS) == "tuned" for a in moved)
    lab.check("E4-dark-together", early, eq=0)
    lab.check("E4-lit-together", late, eq=len(moved))


def samples(lab, count):
    """P2: dark times of 1, 4 and 16 new cross-connects at the device (a client of its control
    interface adds a round trip). P3: from light to a NIC that can be used."""
    for crosses, mean, p99 in ((1, 41.44, 60), (4, 42.44, 62), (16, 46.75, 68)):
        device = _core.PanelDevice(64, profile="polatis", carrier="both", seed=lab.seed + crosses)
        found = []
        for number in range(count):
            now = number * 1000 * MS
            shift = 1 + number % 2
            device.change([], [(port, (port + shift) % crosses + 32 * shift % 64)
                               for port in range(crosses)], "overwrite", now)
            found.append((device.dark_until(0) - now) / MS)
        lab.check(f"P2-{crosses}-mean", float(np.mean(found)), published=mean, approx=mean, abs=1.0)
        lab.check(f"P2-{crosses}-p99", float(np.percentile(found, 99)), published=p99, approx=p99,
                  rel=0.05)
    device = _core.PanelDevice(4, profile="polatis+nic", carrier="both", seed=lab.seed)
    found = []
    for number in range(count):
        now, far = number * 20_000 * MS, 1 + number % 2
        device.change([], [(0, far), (far, 0)], "overwrite", now)
        device.advance(now + 19_000 * MS)
        ups = [at for kind, at, port, _, value, _ in device.take_events()
               if (kind, port, value) == ("carrier", 0, "up")]
        found.append((ups[-1] - device.dark_until(0)) / MS / 1e3)
    lab.check("P3-mean", float(np.mean(found)), published=5.67, approx=5.67, rel=0.02)
    lab.check("P3-p99", float(np.percentile(found, 99)), published=6.33, approx=6.33, rel=0.05)


def refused(device, change, mode="safe"):
    try:
        device.change([], change, mode, 0)
    except ValueError:
        return True
    return False


def rules(lab):
    """E6. A side A and a side B make a cross-connect by construction: (ingress, egress)."""
    device = _core.PanelDevice(8, profile="ideal", seed=1)
    device.change([], [(0, 1)], "update", 0)
    half = device.target(0, False) == 1 and device.target(1, False) is None
    lab.check("E6-half-circuit", half, eq=True)
    device.change([], [(2, 2)], "update", 0)
    lab.check("E6-loopback", device.status(2, False, 1) == "tuned", eq=True)
    lab.check("E6-duplicate-refused", refused(device, [(0, 3)]), eq=True)
    lab.check("E6-egress-twice-refused", refused(device, [(4, 5), (6, 5)], "update"), eq=True)


def region(lab, label, iterations, model="fluid", **job):
    fabric, made = mixnet.compared(
        "mixnet", servers=8, rate="400 Gb/s", preset=None, matrix="drift", iterations=iterations,
        data=1, pipeline=1, layers=2, micro_batches=2, profile="polatis", compute="20 ms", seed=7,
        **job)
    return lab.run(fabric, made, model=model, label=label)


def controller(lab, iterations, packets):
    """E9, E10."""
    twice = [region(lab, f"E9.{number}", 5).experts for number in (1, 2)]
    lab.check("E9-apart", sum(a != b for a, b in itertools.zip_longest(*(e.events for e in twice))),
              eq=0)
    for model, count, size in (("fluid", iterations, {}),
                               ("packets", packets, {"exchange": "1 MiB"})):
        r = region(lab, f"E10.{model}", count, model, **size)
        lost = sum(value for name, row in r.data.totals.items() if name.startswith("panel")
                   for counter, value in row.items() if counter.startswith("drop"))
        lab.metric(f"E10-{model}-patches", r["patches"], unit="requests")
        lab.check(f"E10-{model}-iterations", len(r.experts.rounds), eq=count)
        lab.check(f"E10-{model}-lost", lost, eq=0)
        # Of each region the last event is a release or a demand that changed nothing.
        last = r.experts.events[-1]
        lab.check(f"E10-{model}-nothing-held", last.event == "release" or last.changed == 0,
                  eq=True)


@ln.scenario
def panel(lab: ln.Lab, iterations: int = 100, packets: int = 100, draws: int = 2000):
    dark_times(lab)
    if lab.clock == "live":
        return
    permutation(lab)
    rules(lab)
    samples(lab, draws)
    controller(lab, iterations, packets)
