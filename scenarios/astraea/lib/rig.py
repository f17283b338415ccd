"""A bottleneck as a run of the lab, on either clock, and what its flows did in steps of 50 ms."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

import loomnet as ln
from loomnet.faults.model import Fault
from loomnet.learning import Bottleneck
from loomnet.learning.measured import PAYING, capacity, there
from loomnet.learning.scores import STEP_S, Scores, Series, scores

QUEUE = "left->right"
ENDLESS = "1 TB"  # no flow ends by its bytes


@dataclass
class Played:
    """One run: `link` as it was asked for, `result` of the lab."""

    link: Bottleneck
    result: ln.Result
    series: Series = field(repr=False)

    @cached_property
    def scores(self) -> Scores:
        return scores(self.series)

    @property
    def rates(self) -> np.ndarray:
        """float64[steps, flows], bits per second of payload that left the bottleneck."""
        return self.series.share * capacity(self.link, len(self.series.share))[:, None] * 8


def play(
    lab: ln.Lab,
    link: Bottleneck,
    tcp: Mapping,
    label: str,
    seed: int | None = None,
    faults: Sequence[Fault] = (),
) -> Played:
    """All flows of `link` under one control, as `tcp` has it. The run's checks and figures have the
    label; `faults` come beside the link's own."""
    return _played(lab, link, [_job(link, range(len(link.flows)))], tcp, label, seed, faults)


def among(
    lab: ln.Lab,
    link: Bottleneck,
    tcp: Mapping,
    others: Mapping,
    label: str,
    seed: int | None = None,
    faults: Sequence[Fault] = (),
) -> Played:
    """The first flow under one control and all others under another. Virtual clock."""
    first, rest = _job(link, [0], tcp), _job(link, range(1, len(link.flows)), others)
    return _played(lab, link, [first, rest], {}, label, seed, faults)


def _job(link: Bottleneck, flows: Sequence[int], cc: Mapping | None = None) -> ln.Flows:
    count, length = len(link.flows), ln.Time(link.length)
    asked = [link.flows[each] for each in flows]
    more = {} if cc is None else {"cc": dict(cc)}
    return ln.Flows(
        ENDLESS,
        count=len(asked),
        pairs=[(k, len(asked) + k) for k in range(len(asked))],
        hosts=[f"h{side + each}" for side in (0, count) for each in flows],
        transport="tcp",
        starts=[ln.Time(each.start) for each in asked],
        lifetimes=[
            ln.Time.of(length.count - ln.Time(each.start).count)
            if each.lifetime is None
            else ln.Time(each.lifetime)
            for each in asked
        ],
        name=f"flows{flows[0]}",
        **more,
    )


def _played(lab, link, jobs, tcp, label, seed, faults):
    count, options, fabric = len(link.flows), link.options(), link.fabric()
    if lab.clock == "live":  # the kernel's sockets grow by themselves
        options = {name: each for name, each in options.items() if not name.endswith("_buffer")}
        # Rates are what the machine is asked to carry: no more than flows can need.
        for host in fabric.hosts:
            fabric.override(f"{host}--*", rate=ln.Rate.of(2 * link.highest.count))
    result = lab.run(
        fabric,
        jobs if len(jobs) > 1 else jobs[0],
        [*link.faults(), *faults],
        seed=lab.seed if seed is None else seed,
        tcp={**options, **tcp},
        jitter="0 s",
        sample=f"{STEP_S:g} s",
        links=[QUEUE, *(f"right->h{count + k}" for k in range(count))],
        label=label,
    )
    return Played(link, result, series(link, result))


def series(link: Bottleneck, result: ln.Result) -> Series:
    """What the flows of such a run did."""
    count, steps = len(link.flows), round(ln.Time(link.length).seconds / STEP_S)
    ends = np.arange(1, steps + 1) * round(STEP_S * 1e12)
    samples = result.data.samples
    carried = np.zeros((steps + 1, count))
    stretch = np.full((steps, count), np.nan)
    for flow, base in enumerate(link.base_rtts):
        at, sent = samples.sent[f"right->h{count + flow}"].T
        carried[1:, flow] = _latest(at, sent, ends, 0)
        if (rows := samples.senders.get(flow)) is not None:
            stretch[:, flow] = _latest(rows.at_ps, rows.srtt_ps, ends, 0) / base.count
    stretch[stretch <= 0] = np.nan
    present = there(link, steps)
    stretch[~present] = np.nan
    totals = result.data.totals[f"link {QUEUE}"]
    dropped = totals.get("drop_queue_full", 0)
    return Series(
        share=np.diff(carried, axis=0) / (capacity(link, steps)[:, None] * STEP_S * PAYING),
        there=present,
        stretch=stretch,
        arrived=totals["packets"] + dropped,
        dropped=dropped,
    )


def _latest(at: np.ndarray, values: np.ndarray, when: np.ndarray, before: int) -> np.ndarray:
    """The last value that was known at each time, `before` where there was none yet."""
    place = np.searchsorted(at, when, side="right")
    return np.concatenate(([before], values))[place]
