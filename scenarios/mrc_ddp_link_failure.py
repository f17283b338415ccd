"""The main job: data-parallel training rides out link and switch failures on a multi-plane fabric,
on MRC, on RoCE and on stock Gloo (on the virtual clock: on the TCP model in its place)."""

import math
from typing import Literal

import loomnet as ln
from loomnet.results.plots import iteration_figure, save
from loomnet.results.speed_plots import speed_figure

EXPECTED = {"nic_link_down": 0.75, "leaf_spine_down": 1.0, "silent_loss": 1.0, "spine_down": 1.0}

NAMES = {"mrc": "MRC", "roce": "RoCE", "gloo": "TCP\n(Gloo)"}
WORDS = {
    "nic_link_down": "a NIC's link\ndies",
    "leaf_spine_down": "a leaf–spine\nlink dies",
    "silent_loss": "a link loses\n20 % of packets",
    "spine_down": "a spine switch\ndies",
}


@ln.scenario
def mrc_ddp_link_failure(
    lab: ln.Lab,
    transport: Literal["all", "mrc", "roce", "gloo"] = "all",
    planes: int = 4,
    rate: ln.Rate = "10 Mb/s",
    uplink_rate: ln.Rate = "20 Mb/s",
    delay: ln.Time = "0.5 ms",
    fault: ln.Time = "8 s",
    reroute_delay: ln.Time | Literal["off"] = "1 s",
    compute: ln.Time = "50 ms",
    dilation: float = 1,
):
    """Real DDP under four faults: a NIC link, a leaf-spine link, silent loss, a spine.

    Each fault lasts `fault`, then all is healed for half of that. The same job with the same seed
    runs on each transport. Expected of MRC (Araujo et al., "Resilient AI Supercomputer Networking
    using MRC and SRv6"): it loses the capacity that is gone, 1/4 with one of four NIC links,
    nothing otherwise, without a rank error and with less than a second of silence.
    Live, its clock runs slower by `dilation`.
    """
    fabric = ln.clos.two_tier(
        planes=planes,
        leaves=2,
        spines=2,
        hosts_per_leaf=2,
        rate=rate,
        uplink_rate=uplink_rate,
        delay=delay,
    )
    last = planes - 1
    places = [ln.Time.of(fault.count * (2 + 3 * i) // 2) for i in range(4)]  # T, 2.5 T, 4 T, 5.5 T
    faults = [
        ln.down("h0--p0.leaf0", at=places[0], duration=fault, phase="nic_link_down"),
        ln.down(
            f"p{min(1, last)}.leaf0--p{min(1, last)}.spine0",
            at=places[1],
            duration=fault,
            phase="leaf_spine_down",
        ),
        ln.loss(
            f"p{min(2, last)}.leaf0->p{min(2, last)}.spine1",
            0.20,
            at=places[2],
            duration=fault,
            phase="silent_loss",
        ),
        ln.kill(f"p{last}.spine0", at=places[3], duration=fault, phase="spine_down"),
    ]
    names = ("mrc", "roce", "gloo") if transport == "all" else (transport,)
    results = {}
    for name in names:
        job = ln.TorchJob(
            "train_digits.py",
            args=["--steps=100000", "--hidden=252", f"--seed={lab.seed}"],
            ranks=4,
            transport=name,
            compute=compute,
            until=ln.Time.of(8 * fault.count),
            log=r"step (?P<step>\d+) loss (?P<loss>\S+)",
        )
        results[name] = lab.run(
            fabric,
            job,
            faults,
            label=name,
            reroute_delay=reroute_delay,
            settle=ln.Time.of(fault.count // 2),
            dilation=dilation,
        )
    for name, result in results.items():
        if name == "mrc":
            check_mrc(lab, result, planes)
        # Every 20th step is hashed; short faults on a slow transport leave time for none.
        if result.data.ended == "finished" and len(result.loss_curve) >= 20:
            lab.check(f"{name}-parameters-equal", result.unequal_hashes, eq=0)
    check_loss_curves(lab, results)
    save(iteration_figure(results), lab.directory / "iteration_time")
    if any(result.data.iterations for result in results.values()):
        save(
            speed_figure(
                {NAMES[name]: result for name, result in results.items()},
                faults=WORDS,
                title="Training speed of four PyTorch processes while parts of their "
                "network fail (100 % = without faults)",
            ),
            lab.directory / "training_speed",
        )


def check_mrc(lab, result, planes):
    """What MRC must show; the other transports are reported as they are."""
    for phase, share in EXPECTED.items():
        expected = 1 - 1 / planes if phase == "nic_link_down" else share
        published = 0.75 if phase == "nic_link_down" and planes == 4 else None
        lab.check(
            f"mrc-{phase}-goodput",
            result[f"{phase}.goodput_ratio"],
            approx=expected,
            abs=0.05,
            published=published,
        )
        lab.check(f"mrc-{phase}-blip", result[f"{phase}.blip_s"], le=1.0)
    lab.check("mrc-no-rank-error", result["errors"], eq=0)


def check_loss_curves(lab, results):
    """All transports compute the same: their losses agree at every common step."""
    curves = {name: dict(result.loss_curve) for name, result in results.items()}
    (first, reference), *others = curves.items()
    for name, curve in others:
        common = sorted(reference.keys() & curve.keys())
        worst = max(
            (abs(curve[step] - reference[step]) / abs(reference[step]) for step in common),
            default=math.nan,
        )
        lab.metric(f"common_steps_{first}_{name}", len(common), unit="steps")
        lab.check(f"loss-{first}-{name}", worst, le=1e-3)
