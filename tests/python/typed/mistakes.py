"""Mistakes that a type checker finds: on each line that names a rule, that one, and no other."""

import loomnet as ln


@ln.scenario
def wrong(lab: ln.Lab, planes: int = "4", rate: ln.Rate = "400 Gb/s"):  # reportArgumentType
    fabric = ln.clos.two_tier(
        planes="four",  # reportArgumentType
        leaves=2,
        spines=2,
        hosts_per_leaf=2,
        rate=rate,
        delay=1e-6,  # reportArgumentType
    )
    ln.clos.two_teir()  # reportAttributeAccessIssue
    ln.TorchJop()  # reportAttributeAccessIssue
    ln.TorchJob("train.py", rank=4)  # reportCallIssue
    ln.TorchJob("train.py", args="--epochs=2", compute=2e-3)  # reportArgumentType
    ln.TorchJob()  # reportCallIssue
    job = ln.AllReduce(size=256 << 20)  # reportArgumentType
    ln.down("h0--p0.leaf0")  # reportCallIssue
    ln.down("h0--p0.leaf0", at=40)  # reportArgumentType
    ln.loss("h0--p0.leaf0", "20 %", at="1 s")  # reportArgumentType
    r = lab.run(fabric, job, ln.down("h0--p0.leaf0", at="1 s"))  # reportArgumentType
    errors = r.metric("errors").valeu  # reportAttributeAccessIssue
    half = r["before.iteration_s"] / 2  # reportOptionalOperand
    bits = rate.bits  # reportAttributeAccessIssue
    lab.check("no-rank-error", errors, ge=half, le=bits, equal=0)  # reportCallIssue
