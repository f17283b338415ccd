"""Iteration times and performance per dollar of MixNet, fat-tree, rail-optimised network and
TopoOpt at four rates with four models, beside the published ones. Bars S1 to S18 and C3m to C5m
(MixNet, SIGCOMM 2025, doi 10.1145/3718958.3750465, and https://mixnet-project.github.io).

Compute time is one constant for each model, fitted to its four published fat-tree times alone
(constants.py): the fat-tree column is no result, and the others are predictions. A constant that
asks more of a GPU than one has carries no bar. Models of more than 8 experts are run with both
counts of their bytes, each with its own constant. Conditions are the preset "paper"; the time to
reconfigure, how bytes are split and which servers get circuits are read in several ways each
(lib/readings.py)."""

import itertools
import statistics

import loomnet as ln

import lib as mfabric

FABRICS = ("mixnet", "rail", "topoopt")
DARK_S = 0.025  # of profile "sim25"
TOLERANCE = 0.10  # of ratios between fabrics
# Performance per dollar as the paper states it, its lowest and highest model by rate.
STATED = {
    "fattree": {"100G": (1.2, 1.5), "200G": (1.4, 1.8), "400G": (1.9, 2.3), "800G": (2.0, 2.4)},
    "rail": {"100G": (1.4, 1.5), "200G": (1.7, 1.9), "400G": (2.3, 2.4), "800G": (2.2, 2.6)},
}
AT_400G = {"Mixtral-8x7B": 2.3, "Mixtral-8x22B": 2.2}
TOPOOPT = {"Mixtral-8x22B": 1.5, "Mixtral-8x7B": 1.42, "LLaMA-MoE": 2.11, "Qwen-MoE": 1.5}
MOST = {"Mixtral-8x22B": 1.06, "Mixtral-8x7B": 1.06, "LLaMA-MoE": 1.27, "Qwen-MoE": 1.21}
WAITS = "circuits are waited for in every layer"
ALONE = "a pair with one circuit sends all by it while wires idle"
WHY = {
    "": WAITS + ": with 25 us the ratio is {:.3f}",
    "-25us": ALONE + ": divided, {:.3f}",
    "-iteration": ALONE + ": divided, {:.3f}",
}
INSTEAD = {
    "": mfabric.Reading("-25us", "", ""),
    "-25us": mfabric.Reading("-25us", "-weighted", ""),
    "-iteration": mfabric.Reading("-iteration", "-weighted", ""),
}
APART = {
    "rail": "every GPU's NIC takes what its own experts receive, the hottest sets the pace",
    "topoopt": "the paper outlines its comparator; links are found as docs/mfabric.md says",
}


class Point:
    """One model at one rate with one count of its bytes: its ratios to the fat-tree."""

    def __init__(self, lab, point, scale):
        self.lab, self.point, self.scale = lab, point, scale
        self.model = mfabric.MODELS[point.model]
        self.compute = mfabric.compute_of(self.model, scale)
        self.name = point.name + ("-simulator" if scale == "simulator" else "")
        _, job = self.compared("mixnet")
        self.asks = mfabric.operations_per_second(job)
        self.graded = self.asks <= mfabric.PEAK
        self.times, self.ratios, self.shares = {}, {}, {}

    def compared(self, name, **options):
        return mfabric.compared(
            name,
            self.model,
            rate=self.point.rate.replace("G", " Gb/s"),
            compute=self.compute,
            matrix_scale=self.scale,
            **({"iterations": 1} | options),
        )

    def run(self, label, name, **options):
        """The last iteration."""
        fabric, job = self.compared(name, **options)
        r = self.lab.run(fabric, job, model="fluid", label=f"{self.name}.{label}")
        return r.experts.rounds[-1]

    def measure(self, wanted):
        for name in ("fattree", "rail", "topoopt"):
            self.times[name] = seconds(self.run(name, name))
        for reading in wanted:
            last = self.run(f"mixnet{reading.name}", **reading.compared())
            self.ratios[reading] = seconds(last) / self.times["fattree"]
            self.shares[reading] = last.exposed_ps / 1e12 / seconds(last)
            if reading.graded:
                self.times["mixnet" + reading.delay] = seconds(last)
            if not reading.name:
                self.waits(last)
        for name in ("rail", "topoopt"):
            self.bar(
                f"-{name}",
                self.times[name] / self.times["fattree"],
                self.point.ratio(name),
                APART[name],
            )
        for reading, ratio in self.ratios.items():
            published = self.point.ratio("mixnet")
            if reading.graded:
                other = self.ratios.get(INSTEAD[reading.delay], float("nan"))
                self.bar(reading.name, ratio, published, WHY[reading.delay].format(other))
            else:
                self.lab.metric(
                    f"{self.name}{reading.name}", ratio, unit="ratio", published=published
                )

    def waits(self, last):
        took = seconds(last)
        self.lab.metric(f"{self.name}-seconds", took, unit="s")
        self.lab.metric(f"{self.name}-exposed", last.exposed_ps / 1e12, unit="s")
        self.lab.metric(f"{self.name}-exposed-share", last.exposed_ps / 1e12 / took, unit="ratio")
        self.lab.metric(f"{self.name}-waiting", last.waiting_ps / 1e12, unit="s")
        _, job = self.compared("mixnet")
        waits = max(job.stage_layers) * job.micro_batches * DARK_S
        self.lab.metric(f"{self.name}-layers-x-micro-batches-x-dark", waits / took, unit="ratio")

    def bar(self, name, ours, published, why):
        """A check, or a figure alone where no GPU computes as fast as the constant asks."""
        if not self.graded:
            self.lab.metric(f"{self.name}{name}", ours, unit="ratio", published=published)
            return
        good = abs(ours / published - 1) <= TOLERANCE
        self.lab.check(
            f"{self.name}{name}",
            ours,
            published=published,
            approx=published,
            rel=TOLERANCE,
            reason=None if good else why,
        )

    def per_dollar(self, base, delay=""):
        rate = self.point.rate
        bills = [ln.cost.bill(each, gpus=1024, rate=rate).total for each in ("mixnet", base)]
        return ln.cost.performance_per_dollar(
            self.times["mixnet" + delay], self.times[base], *bills
        )


def seconds(last):
    return (last.end_ps - last.begin_ps) / 1e12


def rows_of(point):
    published = {
        row["fabric"]: row
        for name in FABRICS
        for row in ln.cost.performance(name, rate=point.point.rate)
        if row["model"] == point.point.model
    }
    bills = {
        each: ln.cost.bill(each, gpus=1024, rate=point.point.rate).total
        for each in ("fattree", *FABRICS)
    }
    return [
        {
            "model": point.point.model,
            "rate": point.point.rate,
            "fabric": name,
            "published": published[name]["performance_per_dollar"],
            "ours": ln.cost.performance_per_dollar(
                point.times[name], point.times["fattree"], bills[name], bills["fattree"]
            ),
            "blocking": point.shares[mfabric.Reading("", "", "")] if name == "mixnet" else None,
        }
        for name in FABRICS
    ]


def summaries(lab, found):
    """S17, S18 and performance per dollar of each reading of the time to reconfigure, where all
    points are there."""
    for (model, scale), group in itertools.groupby(
        found, key=lambda each: (each.point.model, each.scale)
    ):
        of_model = list(group)
        name = model + ("-simulator" if scale == "simulator" else "")
        for delay in mfabric.DELAYS:
            topoopt = statistics.mean(
                each.times["topoopt"] / each.times["mixnet" + delay] for each in of_model
            )
            ratios = [each.ratios[mfabric.Reading(delay, "", "")] for each in of_model]
            rises = max(after - before for before, after in itertools.pairwise(ratios))
            for bar, ours, bound, published, reason in (
                (
                    f"S17-{name}",
                    topoopt,
                    {"approx": TOPOOPT[model], "rel": TOLERANCE},
                    TOPOOPT[model],
                    APART["topoopt"] if delay else WAITS,
                ),
                (
                    f"S18-{name}",
                    max(ratios),
                    {"le": MOST[model] * (1 + TOLERANCE)},
                    MOST[model],
                    ALONE if delay else WAITS,
                ),
                (
                    f"S18-{name}-falls",
                    rises,
                    {"le": 0.03},
                    None,
                    "the faster the links, the more of an iteration is the same dark time",
                ),
            ):
                if of_model[0].graded:
                    lab.check(bar + delay, ours, published=published, reason=reason, **bound)
                else:
                    lab.metric(bar + delay, ours, unit="ratio", published=published)
    own = [each for each in found if each.scale == "row_sum"]
    for delay in mfabric.DELAYS:
        for base, name in (("fattree", "C3m"), ("rail", "C4m")):
            for rate, (low, high) in STATED[base].items():
                ours = [each.per_dollar(base, delay) for each in own if each.point.rate == rate]
                lab.metric(f"{name}-{rate}-low{delay}", min(ours), unit="ratio", published=low)
                lab.metric(f"{name}-{rate}-high{delay}", max(ours), unit="ratio", published=high)
        for each in own:
            if each.point.rate == "400G" and each.point.model in AT_400G:
                lab.metric(
                    f"C5m-{each.point.model}{delay}",
                    each.per_dollar("fattree", delay),
                    unit="ratio",
                    published=AT_400G[each.point.model],
                )


def text(rows):
    """A line for each model and rate, a column for each fabric: published and ours."""
    lines = [
        "performance per dollar, of the fat-tree's: published / ours",
        f"{'model':<16}{'rate':<8}" + "".join(f"{name:>16}" for name in FABRICS),
    ]
    for (model, rate), of_point in itertools.groupby(rows, key=lambda r: (r["model"], r["rate"])):
        cells = "".join(f"{row['published']:>8.2f} / {row['ours']:<5.2f}" for row in of_point)
        lines.append(f"{model:<16}{rate:<8}{cells}")
    return "\n".join(lines)


def by_reading(found, scale):
    """{reading: {point: ratio}} with this count of bytes where there is one, else with the
    other."""
    ratios = {}
    for each in found:
        twice = any(other.point is each.point and other.scale != each.scale for other in found)
        if each.scale == scale or not twice:
            for reading, ratio in each.ratios.items():
                ratios.setdefault(reading, {})[each.point.name] = ratio
    return ratios


@ln.scenario
def headline(lab: ln.Lab, points: str = "all", only_graded: bool = False):
    """`only_graded`: the publication's own conditions alone, not the other splits and circuits."""
    wanted = points.split(",")
    chosen = [point for point in ln.cost.TIMES if points == "all" or point.name in wanted]
    readings = [each for each in mfabric.readings() if each.graded or not only_graded]
    found = []
    for point in chosen:
        scales = ["row_sum"]
        if mfabric.MODELS[point.model] in mfabric.SIMULATOR:
            scales.append("simulator")
        for scale in scales:
            one = Point(lab, point, scale)
            one.measure(readings)
            found.append(one)
    found.sort(key=lambda each: (each.scale, chosen.index(each.point)))
    if points == "all":
        summaries(lab, found)
    published = {point.name: point.ratio("mixnet") for point in chosen}
    counts = {
        scale: by_reading(found, scale) for scale in dict.fromkeys(each.scale for each in found)
    }
    for scale, ratios in counts.items():
        print(f"bytes by {scale}:\n{mfabric.ratio_table(ratios, chosen, published)}")
        for reading, ours in ratios.items():
            good, apart = mfabric.near(ours, published, TOLERANCE)
            lab.metric(f"near-{scale}{reading.name}", good, unit="points", published=len(ours))
            lab.metric(f"apart-{scale}{reading.name}", apart, unit="ratio")
    print(mfabric.agreement_table(counts, published, TOLERANCE))
    rows = [row for each in found if each.scale == "row_sum" for row in rows_of(each)]
    print(text(rows))
    figure = ln.cost.performance_figure(rows)
    figure.savefig(lab.directory / "headline.png", dpi=150)
    print(f"picture: {lab.directory / 'headline.png'}")
