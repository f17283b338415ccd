"""Circuits that are patched only where that is worthwhile: against the rule written down again, its
limits, what it refuses, and that neither of its parts can be left out."""

from __future__ import annotations

import numpy as np
import pytest
from scenario_lib import lib

import loomnet as ln
from loomnet.base.errors import UsageError

mfabric = lib("mfabric")
SHAPE = {"iterations": 3, "layers": 3, "micro_batches": 2}
COMPUTE, RATE, ALPHA = "58.966 ms", "100 Gb/s", 6
PAST = 256


def region(counts, dark: str, split: str, seed: int = 1, profile: str | None = None, **control):
    """Fabric and job of one region, and its requests with the rule's circuits by closed forms."""
    control = {"rule": "share", "split": split, "repatch": "worthwhile"} | control
    fabric, job = mfabric.compared(
        "mixnet",
        rate=RATE,
        servers=8,
        alpha=ALPHA,
        preset=None,
        matrix=counts,
        data=1,
        seed=seed,
        pipeline=1,
        profile=profile or dark,
        compute=COMPUTE,
        control=control,
        **SHAPE,
    )
    start = np.zeros((8, 8), np.int64)
    [panel] = fabric.panels.values()
    for port, peer in panel.first:
        start[port // ALPHA, peer // ALPHA] += 1
        start[peer // ALPHA, port // ALPHA] += 1
    bps = float(ln.Rate(RATE).count)
    game = mfabric.game(
        job,
        seed,
        start,
        rule="share",
        split=split,
        circuit_bps=bps,
        dark_s=ln.Time(dark).count / 1e12,
        electrical_bps=2 * bps,
    )
    return fabric, job, game


def decided(fabric, job, game) -> list[int]:
    r = ln.run(fabric, job, model="fluid", seed=1)
    assert r["errors"] == 0
    return game.numbers(mfabric.played(game, r.experts))


def written_again(game) -> list[int]:
    """The rule, in seconds and by the numbers of choices; the start is number 0."""
    home = present = 0
    account, past, found = 0.0, [], []
    for n, wanted in enumerate(game.wanted):
        after = game.requests[n + 1].hidden_s if n + 1 < len(game.requests) else 0.0

        def dark(a: int, b: int) -> float:
            return game.dark_s * bool((game.choices[b] > game.choices[a]).any())

        def cost(one: int, n=n, present=present) -> float:
            return game.dark(n, present, one) + game.lasts[n, one]

        def left(one: int, n=n, cost=cost, account=account) -> float:
            return account + game.lasts[n, 0] - cost(one)

        def may(one: int, left=left, dark=dark, after=after) -> bool:
            back, most = dark(one, 0), max(dark(one, 0), dark(0, one))
            return one == 0 or left(one) - max(0.0, back - after) >= -most - 1e-11

        chosen = next(one for one in sorted((present, wanted, home, 0), key=cost) if may(one))
        past = [*past, n][-PAST:]
        if (
            chosen == present == home != wanted
            and may(wanted)
            and sum(game.lasts[each, home] - game.lasts[each, wanted] for each in past)
            > dark(home, wanted)
        ):
            home = chosen = wanted
            past = []
        account = left(chosen)
        if chosen == 0 != home:
            home, past = 0, []
        present = chosen
        found.append(chosen)
    return found


def counts_of(name: str, seed: int) -> np.ndarray:
    return getattr(mfabric, name)(SHAPE["iterations"], SHAPE["layers"], seed)


@pytest.mark.parametrize("split", ["all_or_nothing", "weighted"])
@pytest.mark.parametrize("name", ["moving_pairs", "mixed", "bursts"])
def test_the_engine_decides_as_the_rule_written_again(name, split):
    patched = 0
    for seed, dark in ((1, "25 us"), (2, "25 ms"), (3, "120 ms")):
        fabric, job, game = region(counts_of(name, seed), dark, split, seed)
        found = decided(fabric, job, game)
        assert found == written_again(game)
        patched += sum(a != b for a, b in zip((0, *found), found, strict=False))
    assert patched > 10


def test_the_account_is_what_keeps_it_from_losing():
    """Demand whose best circuits are bad for the next layer's: the greedy half alone loses."""
    fabric, job, game = region(counts_of("mixed", 1), "25 ms", "weighted")

    def greedy() -> list[int]:
        present, found = 0, []
        for n, wanted in enumerate(game.wanted):
            saved = game.lasts[n, present] - game.lasts[n, wanted]
            present = wanted if saved > game.dark(n, present, wanted) else present
            found.append(present)
        return found

    never = game.cost(mfabric.CHOICES["never"](game))
    ours = game.cost(decided(fabric, job, game))
    assert ours - never <= game.dark_s < game.cost(greedy()) - never


def test_the_clairvoyant_is_the_best_of_all_sequences():
    """Against every sequence of a short game; rent or buy pays the rent before it buys."""
    _, _, game = region(counts_of("bursts", 4), "40 ms", "weighted")
    short = mfabric.Game(
        game.requests[:5], game.choices[:4], game.wanted[:5], game.lasts[:5, :4], game.dark_s
    )
    every = np.array(np.meshgrid(*[range(4)] * 5)).reshape(5, -1).T
    best = min(short.cost(list(each)) for each in every)
    assert short.cost(mfabric.CHOICES["clairvoyant"](short)) == pytest.approx(best, rel=1e-9)
    assert (
        game.cost(mfabric.CHOICES["clairvoyant"](game))
        <= min(game.cost(choice(game)) for choice in mfabric.CHOICES.values()) + 1e-9
    )


def test_a_panel_without_circuits_is_patched_once_that_has_paid():
    """Each request alone saves less than the dark time; staying with wires costs ever more."""
    fabric, job, _ = region("fixed", "2 s", "weighted")
    for panel in fabric.panels.values():
        panel.circuits([])
    r = ln.run(fabric, job, model="fluid")
    assert r["patches"] == 1
    assert [note.event for note in r.experts.events].count("apply") == 1
    first = next(note.at_ps for note in r.experts.events if note.event == "apply")
    assert first > 1e12


def test_staying_darkens_nothing_whatever_the_scope():
    for scope in ("changed", "all"):
        fabric, job, game = region("drift", "2 s", "weighted", dark_scope=scope)
        r = ln.run(fabric, job, model="fluid")
        assert r["patches"] == 0 and r["exposed_s"] == 0
        assert len(mfabric.played(game, r.experts)) == len(game.requests)


@pytest.mark.parametrize(
    ("control", "message"),
    [
        ({"eps_during_dark": "eps_first"}, "eps_during_dark"),
        ({"fp_dispatch": "random"}, "random guess"),
    ],
)
def test_what_it_cannot_weigh_is_refused(control, message):
    with pytest.raises(UsageError, match=message):
        ln.CircuitControl(repatch="worthwhile", **control)


@pytest.mark.parametrize("dispatch", ["reuse", "copilot"])
def test_other_dispatches_can_be_weighed(dispatch):
    fabric, job, _ = region(counts_of("moving_pairs", 1), "25 ms", "weighted", fp_dispatch=dispatch)
    r = ln.run(fabric, job, model="fluid")
    assert r["errors"] == 0 and 0 < r["patches"]
