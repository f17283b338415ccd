"""A switch program of one's own: the leaves count the packets and bytes of each flow."""

import loomnet as ln


@ln.scenario
def heavy(
    lab: ln.Lab,
    limit: int = 0,
    rate: ln.Rate = "100 Gb/s",
    delay: ln.Time = "1 us",
    size: ln.Size = "1 MB",
):
    """Each host sends to another one through leaves that run heavy.c."""
    fabric = ln.clos.two_tier(
        planes=1, leaves=2, spines=2, hosts_per_leaf=2, rate=rate, delay=delay
    )
    fabric.program("p0.leaf*", "./heavy.c", limit=limit)
    r = lab.run(fabric, ln.Permutation(size, transport="roce"))
    # What the program of a switch counted, and the rows that it kept.
    leaf = r.switch("p0.leaf0")
    rows = leaf.snapshot()["rows"]
    for row in sorted(rows, key=lambda row: -row["bytes"])[:4]:
        print(f"row {row['row']}: {row['packets']} packets, {row['bytes']} bytes")
    lab.metric("heaviest_bytes", max(row["bytes"] for row in rows), unit="B")
    lab.check(
        "all-packets-are-in-rows", sum(row["packets"] for row in rows), eq=leaf.counters["received"]
    )
    lab.check("no-error", r["errors"], eq=0)
