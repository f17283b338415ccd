"""How far figures move where packets are late, as they are where a live engine does not keep up:
the reason for the bound on a live run's lateness (docs/fidelity.md)."""

import loomnet as ln


@ln.scenario
def lateness(
    lab: ln.Lab,
    late: ln.Time = "1 ms",
    rate: ln.Rate = "10 Mb/s",
    uplink_rate: ln.Rate = "20 Mb/s",
    delay: ln.Time = "0.5 ms",
    size: ln.Size = "1.1 MB",
    fault: ln.Time = "8 s",
):
    """The main job's fabric, all-reduce and faults, once exact and once late, by each transport.

    MRC, TCP: one packet in fifty is late by up to twice `late` on its last link, so `late` is the
    99th percentile. RoCE takes a packet that was overtaken for a lost one, so there every packet is
    late by `late`. What RoCE keeps of a fault is not checked: it hangs on where in a message the
    fault falls, with or without lateness.
    """
    fabric = ln.clos.two_tier(
        planes=4,
        leaves=2,
        spines=2,
        hosts_per_leaf=2,
        rate=rate,
        uplink_rate=uplink_rate,
        delay=delay,
    )
    places = [ln.Time.of(fault.count * (2 + 3 * i) // 2) for i in range(4)]
    faults = [
        ln.down("h0--p0.leaf0", at=places[0], duration=fault, phase="nic_link_down"),
        ln.down("p1.leaf0--p1.spine0", at=places[1], duration=fault, phase="leaf_spine_down"),
        ln.loss("p2.leaf0->p2.spine1", 0.20, at=places[2], duration=fault, phase="silent_loss"),
        ln.kill("p3.spine0", at=places[3], duration=fault, phase="spine_down"),
    ]
    last, whole = "p*.leaf*->h*", ln.Time.of(10 * fault.count)
    late_by = {
        "mrc": ln.reorder(last, 0.02, by=ln.Time.of(2 * late.count), at="0 s", duration=whole),
        "tcp": ln.reorder(last, 0.02, by=ln.Time.of(2 * late.count), at="0 s", duration=whole),
        "roce": ln.delay(last, late, at="0 s", duration=whole),
    }
    for transport, injected in late_by.items():
        job = ln.AllReduce(
            size=size,
            repeat=10_000,
            transport=transport,
            compute="50 ms",
            stop=ln.Time.of(8 * fault.count),
        )
        exact = lab.run(fabric, job, faults, label=f"{transport}_exact")
        r = lab.run(fabric, job, [*faults, injected], label=f"{transport}_late")
        moved = r["before.iteration_s"] / exact["before.iteration_s"] - 1
        lab.check(f"{transport}-iteration", moved, ge=-0.02, le=0.02)
        for phase in ("nic_link_down", "leaf_spine_down", "silent_loss", "spine_down"):
            moved = r[f"{phase}.goodput_ratio"] - exact[f"{phase}.goodput_ratio"]
            if transport == "mrc":  # what RoCE keeps of a fault is a matter of its one timeout
                lab.check(f"mrc-{phase}", moved, ge=-0.02, le=0.02)
