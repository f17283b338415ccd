"""Flows that live for a time: what must be true of them beside flows of a given size."""

from __future__ import annotations

import loomnet as ln

from .drafts import Draft, a_size, draft
from .facts import not_above
from .relation import Found, Trial, Unfit, relation
from .worlds import Wants

# A window that neither losses nor round trips move.
HELD = {"cc": "astraea", "policy": "hold", "startup": "none", "initial_window": 50}
WANTS = Wants(kinds=("Flows",), more=0, faults=(), simple=True)


@relation(WANTS, nearly=True)
def lifetime_longer_than_the_flow(trial: Trial) -> Found:
    """A flow that may live for longer than its bytes take is not slower for it (5 %), where packets
    are lost too: it posts its bytes as they are sent, not all at once."""
    [job] = trial.world.jobs
    world = trial.world
    if job.get("transport") == "tcp":  # one flow of many windows: it loses packets as it goes
        size = a_size(trial.draw, 300_000, 3_000_000)
        alone = {"transport": "tcp", "ranks": job.get("ranks")}
        job = Draft(job.name, (size,), {**alone, "count": 1, "pairs": ((0, 1),)})
        lossy = draft("loss", "h0--*", trial.draw.choice((0.003, 0.01, 0.03)), at=ln.Time("0 s"))
        world = world.but(faults=(lossy,)).with_options(tcp=HELD)
    plain, lives = (
        trial.run(world.but(jobs=(job.change(lifetimes=lifetimes),)))
        for lifetimes in ((), (ln.Time("1000 s"),) * job.get("count"))
    )
    if not (plain.finished and lives.finished):
        raise Unfit("a job did not finish")
    if plain.counted("rto") or lives.counted("rto"):
        raise Unfit("the last packets were lost, and a timer was awaited")
    # Not the sender's: an acknowledgement of the last segment alone is delayed.
    one, other = (max(row["arrival_s"] for row in run.parts[0].flows) for run in (plain, lives))
    return not_above("the last byte's arrival", other, one, 0.05)
