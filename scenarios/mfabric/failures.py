"""What a failed optical NIC, GPU or server costs MixNet: bars X1 to X3.

X1 is an optical NIC, X2 a GPU, whose spare is reached by wires, X3 a server, whose spare has no
optical port, in the publication's conditions (SIGCOMM 2025, doi 10.1145/3718958.3750465), flows in
place of packets. X4 is reported only."""

import loomnet as ln

import lib as mfabric

TIES = ("tiled for 64 experts all pairs of servers ask for the same: rule skip then leaves the "
        "last server without a circuit, and a port that fails moves circuits to it")


def seconds(lab, label, model, *, iterations=1, faults=(), servers=128, **job):
    """Of the last iteration; and its report."""
    fabric, made = mfabric.compared("mixnet", model, servers=servers, iterations=iterations, **job)
    r = lab.run(fabric, made, model="fluid", label=label, faults=list(faults))
    lab.check(f"{label}-no-error", r["errors"], eq=0)
    last = r.experts.rounds[-1]
    return (last.end_ps - last.begin_ps) / 1e12, r


def graded(lab, name, broken, whole, most, published, apart):
    slower = broken / whole - 1
    lab.check(name, slower, ge=0, le=most, published=published,
              reason=None if 0 <= slower <= most else apart)
    return slower


@ln.scenario
def failures(lab: ln.Lab, servers: int = 128):
    whole, r = seconds(lab, "X2.whole", "mixtral_8x22b", servers=servers)
    broken, spare = seconds(lab, "X2", "mixtral_8x22b", servers=servers, spares=((0, 0),))
    # Where the hottest pair's circuit ends last, wires have room for what a spare exchanges.
    lab.metric("X2-circuit-share-whole", r["circuit_share"], unit="ratio")
    lab.metric("X2-circuit-share", spare["circuit_share"], unit="ratio")
    graded(lab, "X2", broken, whole, 0.10, 0.051,
           "the spare's bytes share the electrical port of the failed GPU's server")
    whole, _ = seconds(lab, "X1.whole", "deepseek_r1", servers=servers)
    nic, _ = seconds(lab, "X1", "deepseek_r1", servers=servers,
                     faults=[ln.down("h0--ocs0", at="0 s")])
    first = graded(lab, "X1", nic, whole, 0.06, 0.033, TIES)
    server, _ = seconds(lab, "X3", "deepseek_r1", servers=servers,
                        faults=[ln.down("h0--ocs0*", at="0 s")])
    last = graded(lab, "X3", server, whole, 0.12, 0.065, TIES)
    lab.check("X3-above-X1", last - first, ge=0, reason=None if last >= first else TIES)
    lab.metric("X4", None, unit="ratio", published=1.3,
               reason="2,048 GPUs of NVL72: what it is compared with is not published")
