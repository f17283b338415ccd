"""What an optical panel and a region's controller do: dark time, carriers, switching times.

On the virtual clock: bars E1 (circuits that stay), E2 (dark time), E3 (carrier), E4 (576 ports at
once), E6 (half-circuits, loops, what is refused), E9 (the same seed), E10 (100 iterations of a
controller), P2, P3 and P4 (switching times) of MixNet (SIGCOMM 2025, doi 10.1145/3718958.3750465).
On the live clock: E1 and E2 of flows, and E3 of what hosts' kernels take for each of many changes.
Datagrams of hosts' kernels, and E5, are tests/live/test_panels_live.py."""

import itertools

import numpy as np

import loomnet as ln
import loomnet._core as _core

import lib as mfabric

MS = 10**9  # picoseconds
PROBE = 0.5  # ms between two probes
PATCHED_AT = 10  # ms
BETWEEN = 60  # ms between two changes of E3: longer than sim25 is dark
SLOW = (
    "for each port that goes down the kernel waits for a grace period of RCU, 0.1 ms on an "
    "idle machine; its threads that end one wait behind other work on the cores"
)


@ln.plugin.controller("mfabric_panel_patcher")
class Patcher:
    """Patches ocs0 with one list of circuits after the other, `every_ms` apart."""

    def __init__(self, circuits, at_ms, every_ms=0):
        self.circuits, self.at, self.every = list(circuits), at_ms * MS, every_ms * MS

    def next_time(self):
        return self.at if self.circuits else None

    def advance(self, now, view):
        self.at += self.every
        return [ln.change.circuits("ocs0", self.circuits.pop(0))]


def star(lab, hosts, **panel):
    """Slow links on the live clock, where short ones keep what MRC's handshake for a path takes
    small beside the light: 3.5 round trips."""
    rate, delay = ("400 Mb/s", "5 us") if lab.clock == "live" else ("100 Gb/s", "1 us")
    fabric = ln.Fabric("star")
    fabric.add_panel("ocs0", **panel)
    for host in range(hosts):
        fabric.add_host(f"h{host}")
        fabric.add_link(f"h{host}", "ocs0", rate=rate, delay=delay)
    fabric.panel("ocs0").circuits([(f"h{host}", f"h{host + 1}") for host in range(0, hosts, 2)])
    return fabric


def probed(lab, label, profile):
    """h0-h1 stay, h2-h3 become h2-h4: a probe every half millisecond by both. Probes that wait for
    the light leave by turns, a packet of each: 50 of 4 KiB at 400 Mb/s would keep the first from
    being whole for 2.7 ms, so they are small there."""
    fabric = star(lab, 6, profile=profile)
    count = 240
    starts = [f"{number * PROBE:.3f} ms" for number in range(count)]
    late = [f"{PATCHED_AT + number * PROBE:.3f} ms" for number in range(count)]
    job = ln.Flows(
        pairs=[(0, 1)] * count + [(2, 4)] * count,
        count=2 * count,
        sizes="64 B" if lab.clock == "live" else "4 KiB",
        starts=starts + late,
        transport="mrc",
    )
    r = lab.run(
        fabric,
        job,
        label=label,
        controllers=[
            ln.controller(
                "mfabric_panel_patcher",
                circuits=[[("h0", "h1"), ("h2", "h4"), ("h3", "h5")]],
                at_ms=PATCHED_AT,
            )
        ],
    )
    lab.check(f"{label}-no-error", r["errors"], eq=0, what="errors of ranks")
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
        lab.check(
            f"E1-{profile}",
            slowest,
            le=1.5,
            what=f"a circuit that stays carries on: slowest probe over fastest, {profile}",
        )
        first = min(row["start_s"] + row["arrival_s"] for row in moves)
        lab.check(
            f"E2-{profile}",
            1e3 * (first - end),
            ge=-0.001,
            le=1.0,
            what=f"ms from the light to the first packet, {profile}",
        )
        if profile == "sim25":
            lab.check(
                "P4",
                1e3 * sample,
                published=25.0,
                approx=25.0,
                abs=0.001,
                what="ms that a circuit is dark, the authors' simulator",
            )
        if profile == "sim25" and lab.clock == "virtual":
            seen = {(where, value): at for at, where, kind, value in rows if kind == "carrier"}
            lab.check(
                "E3-down",
                1e3 * (seen["h2--ocs0", "down"] - begin),
                ge=0,
                le=2.0,
                what="ms until a host sees its light go",
            )
            lab.check(
                "E3-up",
                1e3 * (seen["h2--ocs0", "up"] - end),
                ge=0,
                le=2.0,
                what="ms until a host sees the new light",
            )


def carriers(lab, changes):
    """E3 on the live clock, without ranks: four hosts change their peers `changes` times. Judged is
    the slowest change: wall time from the light to the kernel's answer that the carriers of all
    four ports have changed."""
    pairs = [("h0", "h1"), ("h2", "h3")], [("h0", "h2"), ("h1", "h3")]
    # Two flows, that the run lasts: before a change each queue pair of the hosts is led elsewhere.
    starts = ["0 ms", f"{changes * BETWEEN + BETWEEN // 2} ms"]
    job = ln.Flows(
        pairs=[(0, 1)] * len(starts),
        count=len(starts),
        sizes="64 B",
        starts=starts,
        transport="mrc",
    )
    r = lab.run(
        star(lab, 4, profile="sim25"),
        job,
        label="E3",
        controllers=[
            ln.controller(
                "mfabric_panel_patcher",
                circuits=[pairs[(number + 1) % 2] for number in range(changes)],
                at_ms=BETWEEN,
                every_ms=BETWEEN,
            )
        ],
    )
    lab.check("E3-no-error", r["errors"], eq=0, what="errors of ranks")
    notes = r.data.fidelity.notes
    for way in ("down", "up"):
        took = {
            name: notes[f"carriers_{way}_{name}"]
            for name in ("changes", "p50_ps", "p99_ps", "max_ps")
        }
        lab.metric(f"E3-{way}-changes", took["changes"], unit="changes")
        for name in ("p50", "p99"):
            lab.metric(f"E3-{way}-{name}", took[f"{name}_ps"] / MS, unit="ms")
        lab.check(
            f"E3-{way}",
            took["max_ps"] / MS,
            le=2.0,
            reason=SLOW,
            what=f"ms until the kernel's carriers are {way}, slowest change",
        )


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
    lab.check(
        "E4-generations",
        device.generation - before,
        eq=1,
        what="generations that a change of all 576 ports takes",
    )
    lab.check(
        "E4-ports",
        sum(device.target(a, False) == b for a, b in new),
        eq=576,
        what="ports that end as asked",
    )
    moved = [a for (a, b), (_, c) in zip(old, new, strict=True) if b != c]
    early = sum(device.status(a, False, 125 * MS - 1) == "tuned" for a in moved)
    late = sum(device.status(a, False, 125 * MS) == "tuned" for a in moved)
    lab.check(
        "E4-dark-together", early, eq=0, what="moved ports with light before the dark time is over"
    )
    lab.check("E4-lit-together", late, eq=len(moved), what="moved ports with light right after")


def samples(lab, count):
    """P2: dark times of 1, 4 and 16 new cross-connects at the device (a client of its control
    interface adds a round trip). P3: from light to a NIC that can be used."""
    for crosses, mean, p99 in ((1, 41.44, 60), (4, 42.44, 62), (16, 46.75, 68)):
        device = _core.PanelDevice(64, profile="polatis", carrier="both", seed=lab.seed + crosses)
        found = []
        for number in range(count):
            now = number * 1000 * MS
            shift = 1 + number % 2
            device.change(
                [],
                [(port, (port + shift) % crosses + 32 * shift % 64) for port in range(crosses)],
                "overwrite",
                now,
            )
            found.append((device.dark_until(0) - now) / MS)
        lab.check(
            f"P2-{crosses}-mean",
            float(np.mean(found)),
            published=mean,
            approx=mean,
            abs=1.0,
            what=f"mean ms to switch {crosses} circuits at once",
        )
        lab.check(
            f"P2-{crosses}-p99",
            float(np.percentile(found, 99)),
            published=p99,
            approx=p99,
            rel=0.05,
            what=f"p99 ms to switch {crosses} circuits at once",
        )
    device = _core.PanelDevice(4, profile="polatis+nic", carrier="both", seed=lab.seed)
    found = []
    for number in range(count):
        now, far = number * 20_000 * MS, 1 + number % 2
        device.change([], [(0, far), (far, 0)], "overwrite", now)
        device.advance(now + 19_000 * MS)
        ups = [
            at
            for kind, at, port, _, value, _ in device.take_events()
            if (kind, port, value) == ("carrier", 0, "up")
        ]
        found.append((ups[-1] - device.dark_until(0)) / MS / 1e3)
    lab.check(
        "P3-mean",
        float(np.mean(found)),
        published=5.67,
        approx=5.67,
        rel=0.02,
        what="mean seconds from light to a NIC that can be used",
    )
    lab.check(
        "P3-p99",
        float(np.percentile(found, 99)),
        published=6.33,
        approx=6.33,
        rel=0.05,
        what="p99 seconds from light to a NIC that can be used",
    )


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
    lab.check("E6-half-circuit", half, eq=True, what="a half circuit carries one way alone")
    device.change([], [(2, 2)], "update", 0)
    lab.check(
        "E6-loopback",
        device.status(2, False, 1) == "tuned",
        eq=True,
        what="a port may be joined to itself",
    )
    lab.check(
        "E6-duplicate-refused",
        refused(device, [(0, 3)]),
        eq=True,
        what="an ingress in use is refused",
    )
    lab.check(
        "E6-egress-twice-refused",
        refused(device, [(4, 5), (6, 5)], "update"),
        eq=True,
        what="an egress named twice is refused",
    )


def region(lab, label, iterations, model="fluid", **job):
    fabric, made = mfabric.compared(
        "mixnet",
        servers=8,
        rate="400 Gb/s",
        preset=None,
        matrix="drift",
        iterations=iterations,
        data=1,
        pipeline=1,
        layers=2,
        micro_batches=2,
        profile="polatis",
        compute="20 ms",
        seed=7,
        **job,
    )
    return lab.run(fabric, made, model=model, label=label)


def controller(lab, iterations, packets):
    """E9, E10."""
    twice = [region(lab, f"E9.{number}", 5).experts for number in (1, 2)]
    lab.check(
        "E9-apart",
        sum(a != b for a, b in itertools.zip_longest(*(e.events for e in twice))),
        eq=0,
        what="events in which two runs of one seed differ",
    )
    for model, count, size in (
        ("fluid", iterations, {}),
        ("packets", packets, {"exchange": "1 MiB"}),
    ):
        r = region(lab, f"E10.{model}", count, model, **size)
        lost = sum(
            value
            for name, row in r.data.totals.items()
            if name.startswith("panel")
            for counter, value in row.items()
            if counter.startswith("drop")
        )
        lab.metric(f"E10-{model}-patches", r["patches"], unit="requests")
        lab.check(
            f"E10-{model}-iterations",
            len(r.experts.rounds),
            eq=count,
            what=f"iterations on patched circuits, {model}",
        )
        lab.check(f"E10-{model}-lost", lost, eq=0, what=f"packets that the panel lost, {model}")
        # Of each region the last event is a release or a demand that changed nothing.
        last = r.experts.events[-1]
        lab.check(
            f"E10-{model}-nothing-held",
            last.event == "release" or last.changed == 0,
            eq=True,
            what=f"no packet is held at the end, {model}",
        )


@ln.scenario
def panel(
    lab: ln.Lab, iterations: int = 100, packets: int = 100, draws: int = 2000, changes: int = 200
):
    dark_times(lab)
    if lab.clock == "live":
        carriers(lab, changes)
        return
    permutation(lab)
    rules(lab)
    samples(lab, draws)
    controller(lab, iterations, packets)
