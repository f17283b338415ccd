"""A small fabric, and a job run on it with a trace and captures."""

import loomnet as ln
from loomnet.labs.lab import Lab
from loomnet.running.record import MOST_HOPS, Record


def fabric(rate="100 Gb/s", **given):
    options = {"planes": 2, "leaves": 2, "spines": 2, "hosts_per_leaf": 1, "delay": "1 us"} | given
    return ln.clos.two_tier(rate=rate, **options)


def recorded(folder, job, faults=(), *, pcap=(), most_hops=MOST_HOPS, fab=None, **options):
    """Runs a job with a trace and captures; (result, folder)."""
    folder.mkdir(exist_ok=True)
    record = Record.of(
        folder / "run.pftrace",
        {port: folder / f"{n}.pcapng" for n, port in enumerate(pcap)},
        most_hops,
    )
    lab = Lab("recorded", directory=folder / "lab", record=record)
    result = lab.run(fab or fabric(), job, list(faults), **options)
    lab.write()
    return result
