"""Confidence intervals over the seeds of a sweep, and differences seed by seed."""

import itertools
import statistics

import pytest

import loomnet as ln
from loomnet.cli import main
from loomnet.sweeps.points import Point
from loomnet.sweeps.student_t import interval, t_quantile
from loomnet.sweeps.sweep import Sweep

# Of each seed the same is added to both transports.
OF_SEED = [0.0, 10.0, 3.0, 7.0]
OWN = {
    ("roce", "1 MB"): [5.0, 5.2, 4.9, 5.1],
    ("mrc", "1 MB"): [4.0, 4.1, 4.0, 3.9],
    ("roce", "2 MB"): [9.0, 9.0, 9.0, 9.0],
    ("mrc", "2 MB"): [9.0, 9.1, 8.9, 9.0],
}


class Kept:
    """Results as a sweep's folder has them."""

    def read(self, point):
        key = point.parameters["transport"], point.parameters["size"]
        value = OWN[key][point.seed] + OF_SEED[point.seed]
        return {
            "recorded": [0],
            "report": {
                "checks": [],
                "metrics": [{"name": "wait", "value": value, "unit": "s", "labels": {}}],
            },
        }


class Frame:
    def __init__(self, count):
        self.count = count

    def select(self, *names):
        return self

    def rows(self):
        return [(index, True) for index in range(self.count)]


def sweep(seeds=4):
    made = Sweep.__new__(Sweep)
    made.points = [
        Point(index, {"transport": transport, "size": size}, seed, str(index))
        for index, (transport, size, seed) in enumerate(
            itertools.product(("roce", "mrc"), ("1 MB", "2 MB"), range(seeds))
        )
    ]
    made.results, made.frame = Kept(), Frame(len(made.points))
    return made


@pytest.mark.parametrize(
    ("confidence", "freedom", "published"),
    [
        # Abramowitz and Stegun, table 26.10.
        (0.95, 1, 12.706),
        (0.95, 2, 4.303),
        (0.95, 3, 3.182),
        (0.95, 4, 2.776),
        (0.95, 9, 2.262),
        (0.99, 10, 3.169),
        (0.90, 30, 1.697),
        (0.95, 120, 1.980),
        (0.99, 1, 63.657),
    ],
)
def test_t_is_that_of_the_tables(confidence, freedom, published):
    assert t_quantile(confidence, freedom) == pytest.approx(published, abs=6e-4)


def test_an_interval_holds_the_mean_as_often_as_it_says():
    import random

    draw = random.Random(5)
    held = 0
    for _ in range(2000):
        found = interval([draw.gauss(3, 2) for _ in range(5)], 0.9)
        held += abs(found.mean - 3) <= found.half
    assert held / 2000 == pytest.approx(0.9, abs=0.02)


def test_the_table_has_means_with_their_intervals():
    row = next(
        each
        for each in sweep().table(ci=0.95)
        if (each["transport"], each["size"]) == ("roce", "2 MB")
    )
    values = [9.0 + each for each in OF_SEED]
    half = 3.1824 * statistics.stdev(values) / 2
    mean, text = row["wait"].split(" ± ")
    assert float(mean.removesuffix(" s")) == statistics.fmean(values)
    assert float(text.removesuffix(" s")) == pytest.approx(half, rel=1e-3)
    assert "(9 s–19 s)" in sweep().table()[1]["wait"]


def test_the_picture_has_bars_of_the_interval():
    axes = sweep().plot("wait", over="size", ci=0.95).axes[0]
    assert "mean of 4 seeds, bars: its 95 % confidence interval" in axes.get_title(loc="left")
    points, _, [bars] = axes.containers[0]
    values = [5.0, 15.2, 7.9, 12.1]
    found = interval(values, 0.95)
    (_, low), (_, high) = bars.get_segments()[0]
    assert (low, high) == pytest.approx((found.mean - found.half, found.mean + found.half))
    assert points.get_ydata()[0] == pytest.approx(statistics.fmean(values))


def test_differences_are_taken_seed_by_seed():
    table = sweep().differences("transport", "roce", "mrc", "wait")
    one, two = ({**row} for row in table)
    apart = [b - a for a, b in zip(OWN["roce", "1 MB"], OWN["mrc", "1 MB"], strict=True)]
    found = interval(apart, 0.95)
    assert one["difference"] == pytest.approx(found.mean) and one["seeds"] == 4
    assert (one["low"], one["high"]) == pytest.approx(
        (found.mean - found.half, found.mean + found.half)
    )
    # Seen, though seeds spread both by far more; with equal wirings there is none.
    assert one["high"] < 0 < two["high"] and two["low"] < 0
    assert one["mean a"] == pytest.approx(statistics.fmean(OF_SEED) + 5.05)


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (
            lambda made: made.differences("transprt", "roce", "mrc"),
            "not varied; nearest: transport",
        ),
        (lambda made: made.differences("transport", "roce", "tcp"), "'tcp' is not in the sweep"),
        (lambda made: made.differences("transport", "roce", "mrc", "weight"), "nearest: wait"),
        (lambda made: made.table(ci=95), "table: ci=95 must be a share .*; 95 % is 0.95"),
        (lambda made: made.plot("wait", ci=1), "plot: ci=1 must be a share between 0 and 1"),
    ],
)
def test_what_cannot_be_is_refused(ask, said):
    with pytest.raises(ln.UsageError, match=said):
        ask(sweep())


def test_one_seed_has_no_interval(capsys):
    with pytest.raises(ln.UsageError, match="ci= needs two seeds or more"):
        sweep(seeds=1).table(ci=0.95)
    assert main(["sweep", "none.py", "--ci", "0.95"]) == 2
    assert "--ci needs two seeds or more" in capsys.readouterr().err
