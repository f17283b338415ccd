"""Records what the gates of a small mixture of experts route while it learns to read digits: a file
of weights for each step, which decisive.py and worthwhile.py take as `trace=`. A minute."""

from moe_ddp import LOG, fabric

import loomnet as ln

LAYERS, HIDDEN, BATCH = 4, 64, 32


@ln.scenario
def moe_gates(lab: ln.Lab, steps: int = 44, dilation: float = 10.0):
    job = ln.TorchJob(
        "moe_train.py",
        args=[f"--steps={steps}", f"--layers={LAYERS}", f"--hidden={HIDDEN}", f"--batch={BATCH}"],
        ranks=8,
        transport="roce",
        compute="2 ms",
        log=LOG,
        circuits=ln.CircuitControl(repatch="never"),
    )
    r = lab.run(fabric("mixnet", "ideal", "400 Mb/s"), job, label="training", dilation=dilation)
    losses = [float(row["loss"]) for row in r.logged(0, LOG)]
    lab.check("learns", losses[-1] / losses[0], le=0.5)
    print(f"{steps} steps of {LAYERS} layers in {lab.directory / 'training' / 'gates'}")
