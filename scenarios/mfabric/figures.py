"""Pictures of one region whose circuits are patched while it trains.

They show who is patched to whom over time, one strip of gate counts, circuits, dark time and loss,
and the panel itself (MixNet, SIGCOMM 2025, doi 10.1145/3718958.3750465)."""

import loomnet as ln
from loomnet.systems.mixnet.gates import gate_counts

import lib as mfabric


@ln.scenario
def figures(
    lab: ln.Lab, model: str = "fluid", iterations: int = 3, layers: int = 3, profile: str = "sim25"
):
    fabric, job = mfabric.compared(
        "mixnet",
        servers=8,
        rate="100 Gb/s",
        preset=None,
        matrix="drift",
        data=1,
        pipeline=1,
        layers=layers,
        micro_batches=1,
        iterations=iterations,
        profile=profile,
        seed=lab.seed,
        control={"rule": "share"},
    )
    r = lab.run(fabric, job, model=model)
    lab.check("no-error", r["errors"], eq=0)
    counts = gate_counts(job, 1, lab.seed)[:, 0, 0]  # iteration, layer, source, expert
    loads = counts.sum(axis=2).reshape(-1, counts.shape[-1])
    lost = sum(
        value
        for name, row in r.data.totals.items()
        if name.startswith("panel")
        for counter, value in row.items()
        if counter.startswith("drop")
    )
    mfabric.circuits_figure(r.experts).savefig(lab.directory / "circuits.png", dpi=150)
    mfabric.strip_figure(r.experts, loads, lost=lost).savefig(lab.directory / "strip.png", dpi=150)
    (lab.directory / "panel.svg").write_text(fabric.panel("ocs0")._repr_svg_())
    lab.check("maps-kept", len(r.experts.kept), ge=2)
    lab.check("lost-on-the-panel", lost, eq=0)
