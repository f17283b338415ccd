"""Iteration times and performance per dollar of MixNet, fat-tree, rail-optimised network and
TopoOpt at four rates with four models, beside the published ones. Bars S1 to S18 and C3m to C5m
(MixNet, SIGCOMM 2025, doi 10.1145/3718958.3750465, and https://mixnet-project.github.io).

Compute time is one constant for each model, fitted to its four published fat-tree times alone: the
fat-tree column is no result, and the others are predictions. Conditions are the preset
"paper": every request darkens all circuits of a region, one matrix for all layers, and tokens are
dispatched when the gate's circuits have light."""

import itertools
import statistics

import loomnet as ln

import lib as mfabric

MODELS = {"Mixtral-8x22B": "mixtral_8x22b", "Mixtral-8x7B": "mixtral_8x7b",
          "LLaMA-MoE": "llama_moe", "Qwen-MoE": "qwen_moe"}
FABRICS = ("mixnet", "rail", "topoopt")
DARK_S = 0.025  # of profile "sim25"
TOLERANCE = 0.10  # of ratios between fabrics
# Performance per dollar as the paper states it, its lowest and highest model by rate.
STATED = {"fattree": {"100G": (1.2, 1.5), "200G": (1.4, 1.8), "400G": (1.9, 2.3),
                      "800G": (2.0, 2.4)},
          "rail": {"100G": (1.4, 1.5), "200G": (1.7, 1.9), "400G": (2.3, 2.4),
                   "800G": (2.2, 2.6)}}
AT_400G = {"Mixtral-8x7B": 2.3, "Mixtral-8x22B": 2.2}
TOPOOPT = {"Mixtral-8x22B": 1.5, "Mixtral-8x7B": 1.42, "LLaMA-MoE": 2.11, "Qwen-MoE": 1.5}
BLOCKED = "circuits are waited for in every layer: without that the ratio is {:.3f}"
APART = {"rail": "every GPU's NIC takes what its own experts receive, the hottest sets the pace",
         "topoopt": "the paper outlines its comparator; links are found as docs/mfabric.md says"}


def compared(name, point, **options):
    return mfabric.compared(name, MODELS[point.model], rate=point.rate.replace("G", " Gb/s"),
                           iterations=1, **options)


def seconds(lab, name, point, label, **options):
    """(iteration, exposed) in seconds."""
    fabric, job = compared(name, point, **options)
    r = lab.run(fabric, job, model="fluid", label=f"{point.name}.{label}")
    [only] = r.experts.rounds
    return (only.end_ps - only.begin_ps) / 1e12, only.exposed_ps / 1e12


def measure(lab, point):
    """The times of one model at one rate, and the rows of its figure."""
    times = {name: seconds(lab, name, point, name)[0] for name in ("fattree", "rail", "topoopt")}
    times["mixnet"], exposed = seconds(lab, "mixnet", point, "mixnet")
    light, _ = seconds(lab, "mixnet", point, "without_dark_time", profile="ideal")
    without = light / times["fattree"]
    lab.metric(f"{point.name}-iteration", times["mixnet"], unit="s")
    lab.metric(f"{point.name}-exposed", exposed, unit="s")
    lab.metric(f"{point.name}-exposed-share", exposed / times["mixnet"], unit="ratio")
    _, job = compared("mixnet", point)
    waits = max(job.stage_layers) * job.micro_batches * DARK_S
    lab.metric(f"{point.name}-layers-x-micro-batches-x-dark", waits / times["mixnet"], unit="ratio")
    lab.metric(f"{point.name}-without-exposed", without, unit="ratio",
               published=point.ratio("mixnet"))
    for name in FABRICS:
        published = point.ratio(name)
        ours = times[name] / times["fattree"]
        apart = BLOCKED.format(without) if name == "mixnet" else APART[name]
        lab.check(point.name if name == "mixnet" else f"{point.name}-{name}", ours,
                  published=published, approx=published, rel=TOLERANCE,
                  reason=None if abs(ours / published - 1) <= TOLERANCE else apart)
    if job.expert_ranks > 8:
        simulator_scale(lab, point)
    return times, exposed / times["mixnet"]


def simulator_scale(lab, point):
    """The same with the bytes that the authors' simulator counts for more than 8 experts: reported
    beside, with the compute constant of the other count."""
    scaled = {name: seconds(lab, name, point, f"{name}.simulator", matrix_scale="simulator")[0]
              for name in ("fattree", *FABRICS)}
    for name in FABRICS:
        lab.metric(f"{point.name}-simulator-scale-{name}", scaled[name] / scaled["fattree"],
                   unit="ratio", published=point.ratio(name))


def per_dollar(name, base, rate, times):
    bills = [ln.cost.bill(each, gpus=1024, rate=rate).total for each in (name, base)]
    return ln.cost.performance_per_dollar(times[name], times[base], *bills)


def rows_of(point, times, blocking):
    published = {row["fabric"]: row for name in FABRICS
                 for row in ln.cost.performance(name, rate=point.rate)
                 if row["model"] == point.model}
    return [{"model": point.model, "rate": point.rate, "fabric": name,
             "published": published[name]["performance_per_dollar"],
             "ours": per_dollar(name, "fattree", point.rate, times),
             "blocking": blocking if name == "mixnet" else None} for name in FABRICS]


def summaries(lab, found):
    """S17, S18 and performance per dollar, where all points are there."""
    for model, published in TOPOOPT.items():
        ours = statistics.mean(times["topoopt"] / times["mixnet"]
                               for point, times in found if point.model == model)
        lab.check(f"S17-{model}", ours, published=published, approx=published, rel=TOLERANCE,
                  reason="circuits are waited for in every layer")
    for model, most in (("Mixtral-8x22B", 1.06), ("Mixtral-8x7B", 1.06), ("LLaMA-MoE", 1.27),
                        ("Qwen-MoE", 1.21)):
        ratios = [times["mixnet"] / times["fattree"] for point, times in found
                  if point.model == model]
        lab.check(f"S18-{model}", max(ratios), le=most * (1 + TOLERANCE), published=most,
                  reason="circuits are waited for in every layer")
        rises = [after - before for before, after in itertools.pairwise(ratios)]
        lab.check(f"S18-{model}-falls", max(rises), le=0.03,
                  reason="the faster the links, the more of an iteration is the same dark time")
    for base, name in (("fattree", "C3m"), ("rail", "C4m")):
        for rate, (low, high) in STATED[base].items():
            ours = [per_dollar("mixnet", base, rate, times) for point, times in found
                    if point.rate == rate]
            lab.metric(f"{name}-{rate}-low", min(ours), unit="ratio", published=low)
            lab.metric(f"{name}-{rate}-high", max(ours), unit="ratio", published=high)
    for point, times in found:
        if point.rate == "400G" and point.model in AT_400G:
            lab.metric(f"C5m-{point.model}", per_dollar("mixnet", "fattree", "400G", times),
                       unit="ratio", published=AT_400G[point.model])


def text(rows):
    """A line for each model and rate, a column for each fabric: published and ours."""
    lines = ["performance per dollar, of the fat-tree's: published / ours",
             f"{'model':<16}{'rate':<8}" + "".join(f"{name:>16}" for name in FABRICS)]
    for (model, rate), of_point in itertools.groupby(rows, key=lambda r: (r["model"], r["rate"])):
        cells = "".join(f"{row['published']:>8.2f} / {row['ours']:<5.2f}" for row in of_point)
        lines.append(f"{model:<16}{rate:<8}{cells}")
    return "\n".join(lines)


@ln.scenario
def headline(lab: ln.Lab, points: str = "all"):
    wanted = points.split(",")
    chosen = [point for point in ln.cost.TIMES if points == "all" or point.name in wanted]
    found, rows = [], []
    for point in chosen:
        times, blocking = measure(lab, point)
        found.append((point, times))
        rows += rows_of(point, times, blocking)
    if points == "all":
        summaries(lab, found)
    print(text(rows))
    figure = ln.cost.performance_figure(rows)
    figure.savefig(lab.directory / "headline.png", dpi=150)
    print(f"picture: {lab.directory / 'headline.png'}")
