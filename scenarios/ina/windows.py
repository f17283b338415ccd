"""ESA (Wang et al., arXiv 2201.06398) against ATP (Lao et al., NSDI 2021) over the window of a
worker and the memory of the switch, each at the window that suits it best."""

import csv
import statistics
from typing import Annotated, Literal

from pydantic import Field

import loomnet as ln

import lib as shared

WINDOWS = (64, 32, 16, 12, 8, 6, 4)
SLOTS = (8, 16, 32)
COUNTS = (2, 4, 8, 16)  # of jobs
# Each policy, and ESA with ATP's way to free slots.
SYSTEMS = {
    "atp": {"policy": "atp", "dealloc": "ack"},
    "esa_ack": {"policy": "esa", "dealloc": "ack"},
    "esa": {"policy": "esa", "dealloc": "completion"},
}
FOUR = ("atp", "esa")  # with as many servers as workers too, at the most slots
USUAL = 64  # the window of scarce_memory.py, which ATP's and ESA's authors do not state


@ln.scenario
def windows(
    lab: ln.Lab,
    setting: Literal["M1", "M3"] = "M1",
    draws: Annotated[int, Field(ge=1, le=50)] = 5,
    iterations: Annotated[int, Field(ge=1, le=1000)] = 10,
    fragments: Annotated[int, Field(ge=8, le=100_000)] = 1024,
    rate: ln.Rate = "10 Gb/s",
):
    """Mean job completion time (JCT) of the eight jobs of scarce_memory.py, over the window of a
    worker and the slots of the switch. A window above the bandwidth-delay product fills slots that
    no more packets on their way would need, so a ratio at one window measures the window as much as
    the memory.

    Each job has a parameter server; `atp4` and `esa4` have as many as workers, at 32 slots.

    `jct_ms.<system>.<slots>.<window>` is a mean over `draws`; `slots_per_bdp.<slots>` the slots
    over the sum of all jobs' bandwidth-delay products. `esa_over_atp.<slots>.64` is ATP's JCT over
    ESA's at a window of 64, `….best` with each at the window at which it is fastest;
    `esa_ack_over_atp` with ATP's deallocation. `jobs.<count>.…` are the same for 2, 4, 8 and 16
    jobs with as many slots as all products together. WIN-1, ours: at its own best window ESA is
    faster than ATP's best at each memory, in both modes.
    """
    table = {}
    mixes = {
        window: shared.Mix.of(setting, iterations, fragments, window, rate) for window in WINDOWS
    }
    bdp = mixes[USUAL].bdp * shared.JOBS
    for slots in SLOTS:
        lab.metric(f"slots_per_bdp.{slots}", slots / bdp, unit="ratio")
        for window, mix in mixes.items():
            for system, program in SYSTEMS.items():
                times = table[slots, window, system] = [
                    mix.jct(lab, draw, slots, program, {"allreduce": "ina"})
                    for draw in range(draws)
                ]
                lab.metric(
                    f"jct_ms.{system}.{slots}.{window}", 1e3 * statistics.fmean(times), unit="ms"
                )
        lab.say(f"{slots} slots, {slots / bdp:.2f} bandwidth-delay products: {draws} draws")
    least = {}
    for slots in SLOTS:
        best = {
            system: min(
                (statistics.fmean(table[slots, window, system]), window) for window in WINDOWS
            )
            for system in SYSTEMS
        }
        for system, (_, window) in best.items():
            lab.metric(f"best_window.{system}.{slots}", window, unit="fragments")
        for name, system in (("esa_over_atp", "esa"), ("esa_ack_over_atp", "esa_ack")):
            usual = statistics.fmean(table[slots, USUAL, "atp"]) / statistics.fmean(
                table[slots, USUAL, system]
            )
            own = best["atp"][0] / best[system][0]
            lab.metric(f"{name}.{slots}.{USUAL}", usual, unit="ratio")
            lab.metric(f"{name}.{slots}.best", own, unit="ratio", published=1.35)
            least[name] = min(own, least.get(name, own))
    for name, ratio in least.items():
        lab.check(f"WIN-1-{name}", ratio, ge=1.0)
    for count in COUNTS:
        mix = shared.Mix.of(setting, iterations, fragments, USUAL, rate, jobs=count)
        slots = round(mix.bdp * count)
        times = {
            system: statistics.fmean(
                mix.jct(lab, draw, slots, program, {"allreduce": "ina"}) for draw in range(draws)
            )
            for system, program in SYSTEMS.items()
        }
        for system in ("esa", "esa_ack"):
            lab.metric(
                f"jobs.{count}.{system}_over_atp", times["atp"] / times[system], unit="ratio"
            )
        lab.say(f"{count} jobs, {slots} slots: {draws} draws")
    four = {system: {} for system in FOUR}
    for window in WINDOWS:
        mix = shared.Mix.of(
            setting, iterations, fragments, window, rate, servers=shared.SETTINGS[setting][0]
        )
        for system, found in four.items():
            times = table[SLOTS[-1], window, f"{system}4"] = [
                mix.jct(lab, draw, SLOTS[-1], SYSTEMS[system], {"allreduce": "ina"})
                for draw in range(draws)
            ]
            found[window] = statistics.fmean(times)
            lab.metric(f"jct_ms.{system}4.{SLOTS[-1]}.{window}", 1e3 * found[window], unit="ms")
        lab.say(f"as many servers as workers, window {window}: {draws} draws")
    for system, found in four.items():
        lab.metric(
            f"best_window.{system}4.{SLOTS[-1]}", min(found, key=found.get), unit="fragments"
        )
    atp, esa = four.values()
    lab.metric(f"esa4_over_atp4.{SLOTS[-1]}.{USUAL}", atp[USUAL] / esa[USUAL], unit="ratio")
    lab.metric(
        f"esa4_over_atp4.{SLOTS[-1]}.best",
        min(atp.values()) / min(esa.values()),
        unit="ratio",
        published=1.35,
    )
    with (lab.directory / "jct.csv").open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["slots", "window", "system", "draw", "jct_mean_s"])
        rows.writerows(
            [*key, draw, jct] for key, times in table.items() for draw, jct in enumerate(times)
        )
    # The report's rows of jobs, and the values, are those of one draw.
    mix = mixes[8]
    r = lab.run(
        mix.fabric(16, SYSTEMS["esa"]),
        mix.jobs(lab.seed, 0, allreduce="ina"),
        label="esa",
        payload=True,
        reroute_delay="off",
        ina=mix.options(),
    )
    lab.check(
        "no-sum-error", sum(r.job(f"job{job}").data.wrong for job in range(shared.JOBS)), eq=0
    )
