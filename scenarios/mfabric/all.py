"""Every bar of MixNet (SIGCOMM 2025, doi 10.1145/3718958.3750465) by name: published, measured,
verdict and mode. A group that has ended is kept in a folder and is not run again while what it read
is as it was, so that an interrupted start goes on where it ended."""

import json
import time
from dataclasses import dataclass, field
from pathlib import Path

import loomnet as ln
from loomnet.results.run_directory import outdated

import lib as mfabric

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Group:
    """A scenario of this folder with its parameters. `mode`: what its times are of."""

    name: str
    scenario: str
    mode: str
    seconds: float  # about, of one core
    values: dict = field(default_factory=dict)


GROUPS = (
    Group("assignment", "assignment", "exact integers", 5),
    Group("cost", "cost", "formulas", 3),
    Group("panel", "panel", "device and packets", 15),
    Group("control", "control", "control interfaces", 3),
    Group("moe_ddp", "moe_ddp", "PyTorch in packets", 80),
    Group("fluid_times", "fluid_times", "fluid", 10),
    Group("fluid_times_packets", "fluid_times", "packets", 200, {"model": "packets"}),
    Group("constants", "constants", "fluid", 20),
    Group("headline", "headline", "fluid", 300),
    Group("limits", "limits", "fluid", 65),
    Group("failures", "failures", "fluid", 180),
    Group("shares", "shares", "fluid and bytes", 5),
    Group("modes", "modes", "fluid and packets", 400),
    Group("scale", "scale", "fluid", 200),
    Group("decisive", "decisive", "fluid", 30),
    Group("worthwhile", "worthwhile", "fluid", 700),
)
ELSEWHERE = {
    "E5": "live, as root: tests/live/test_panels_live.py",
    "E8": "each command and mistake: tests/python/test_ocs_tl1.py",
}


def kept(folder, group):
    """The report of a group that has ended with these parameters, by this build of Loomnet and from
    files that are as they were; None: it has not."""
    if outdated(folder / group.name, HERE):
        return None
    try:
        found = json.loads((folder / f"{group.name}.json").read_text())
    except (OSError, ValueError):
        return None
    same = all(found["parameters"].get(name) == value for name, value in group.values.items())
    return found if same and not found["interrupted"] else None


def ended(folder, group):
    """Runs the group and keeps its report, whole or not at all."""
    report = ln.load(HERE / f"{group.scenario}.py").run(
        directory=folder / group.name, **group.values
    )
    made = json.loads(report.to_json())
    part = folder / f"{group.name}.json.part"
    part.write_text(json.dumps(made))
    part.rename(folder / f"{group.name}.json")
    return made


def one_region(lab):
    """The run of this scenario itself, whose fidelity stands for the machine: S1's first region."""
    fabric, job = mfabric.compared(
        "mixnet",
        rate="100 Gb/s",
        servers=8,
        data=1,
        pipeline=1,
        layers=1,
        micro_batches=1,
        iterations=1,
    )
    r = lab.run(fabric, job, model="fluid", label="one_region")
    lab.check("one-region-no-error", r["errors"], eq=0)


def table(rows):
    lines = [f"{'bar':<34}{'published':>10}{'measured':>12}  verdict  mode"]
    for mode, check in rows:
        published = "" if check["published"] is None else f"{check['published']:.4g}"
        value = "null" if check["value"] is None else f"{check['value']:.4g}"
        verdict = "holds" if check["ok"] else "no"
        lines.append(
            f"{check['name']:<34}{published:>10}{value:>12}  {verdict:<7}  {mode}"
            + ("" if check["ok"] or not check["reason"] else f": {check['reason']}")
        )
    return "\n".join(lines)


@ln.scenario
def everything(lab: ln.Lab, keep: Path = Path("runs/mfabric-all"), only: str = ""):
    """Every bar of MixNet: the published value, the measured one and the verdict; many minutes.

    `keep`: where ended groups are kept; `only`: names of groups, with commas between them."""
    wanted = [group for group in GROUPS if not only or group.name in only.split(",")]
    keep.mkdir(parents=True, exist_ok=True)
    rows, left = [], sum(group.seconds for group in wanted)
    for group in wanted:
        made = kept(keep, group)
        if made is None:
            print(f"{group.name}: about {group.seconds:.0f} s, {left:.0f} s to the end", flush=True)
            began = time.monotonic()
            made = ended(keep, group)
            print(f"{group.name}: took {time.monotonic() - began:.0f} s", flush=True)
        else:
            print(f"{group.name}: kept from an earlier start", flush=True)
        left -= group.seconds
        for check in made["checks"]:
            rows.append((group.mode, check))
            bound = dict(check["bound"])
            if "approx" in bound:
                bound["abs"] = bound.pop("tolerance")
            lab.check(
                f"{group.name}.{check['name']}",
                check["value"],
                **bound,
                published=check["published"],
                reason=check["reason"],
            )
    one_region(lab)
    for name, where in ELSEWHERE.items():
        lab.metric(name, None, unit="ratio", reason=where)
    text = table(rows)
    print(text)
    (lab.directory / "bars.txt").write_text(text + "\n")
