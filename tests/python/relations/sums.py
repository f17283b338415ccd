"""Sums that switches make, and their parameter servers."""

from __future__ import annotations

from . import jobs
from .drafts import Draft
from .facts import differences, facts
from .relation import Found, Trial, Unfit, relation
from .worlds import Refused, Wants

# Losses that a transport of sums mends by itself.
MENDED = ("loss", "duplicate", "reorder")


@relation(Wants(kinds=jobs.SUMS, faults=()))
def repair_of_nothing(trial: Trial) -> Found:
    """Where no packet is lost, none finds its slot taken and none is put out of one, and no timer
    sends again what was not lost, results come in order, and repairing gaps does nothing."""
    base = trial.finished()
    if base.counted("ina.resend") > base.counted("ina.gap_resend"):
        raise Unfit("timers ended")
    if base.drops() or base.counted("collide") or base.counted("preempt"):
        raise Unfit("some sums went by the server")
    own = {**trial.world.options.get("ina", {}), "gap_repair": False}
    return differences(trial.facts, facts(trial.run(trial.world.with_options(ina=own))))


@relation(Wants(kinds=jobs.SUMS, faults=()))
def threads_of_no_timeout(trial: Trial) -> Found:
    """Where no timer of SwitchML's ends, it does not matter how many threads count them."""
    if not any(call.get("policy") == "switchml" for call in trial.world.fabric):
        raise Unfit("no SwitchML")
    if trial.finished().counted("ina.timeout"):
        raise Unfit("some timers ended")
    own = {
        **trial.world.options.get("ina", {}),
        "switchml_threads": trial.draw.randint(1, 64),
        "switchml_slices": trial.draw.random() < 0.5,
    }
    return differences(trial.facts, facts(trial.run(trial.world.with_options(ina=own))))


@relation(Wants(kinds=jobs.SUMS, faults=MENDED))
def one_server_of_several(trial: Trial) -> Found:
    """A job with one parameter server, by number, is the job that says nothing of servers."""
    counted = trial.world.with_jobs(
        lambda job: job.change(servers=1) if job.get("allreduce") == "ina" else job
    )
    return differences(trial.facts, facts(trial.run(counted)))


@relation(Wants(kinds=jobs.SUMS, faults=MENDED))
def sums_of_servers_are_exact(trial: Trial) -> Found:
    """Whatever is lost, sent twice or overtaken, and however many servers a job has: no element of
    a sum is wrong."""
    own = any(call.get("policy") == "switchml" for call in trial.world.fabric)

    def several(job: Draft) -> Draft:
        if own or job.get("allreduce") != "ina":
            return job  # SwitchML's roots are its servers
        hosts = job.get("hosts")
        most = len(hosts) if hosts else job.get("ranks") or job.get("workers")
        return job.change(servers=trial.draw.randint(1, most))

    try:
        found = trial.run(trial.world.with_jobs(several), payload=True)
    except Refused as refused:
        if "no undisturbed iteration came before it" not in str(refused):
            raise
        raise Unfit("with other servers the first iteration ends after the faults begin") from None
    return [
        f"job {i}: {part.data.wrong} elements are wrong"
        for i, part in enumerate(found.parts)
        if part.data.wrong
    ]
