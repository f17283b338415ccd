"""Relations between runs of random worlds: as many worlds as some minutes allow, drawn from the
commit, and 500 of each with --soak. A failure shows the line that tries its world again.

A relation with a tolerance is broken where most of five seeds break it: which packet meets a full
queue, or takes the longer of two planes, is drawn, and a job of few packets then ends some percent
sooner or later."""

import random

import pytest

pytest.importorskip("loomnet._core")
from relations.facts import shown
from relations.relation import RELATIONS
from relations.search import for_count, for_seconds, seed, until_tried

# Processor time of all relations together; two of them are tried at once.
ALL_S = 180.0
SOAKED, SOAKED_RANKS = 500, 5  # worlds of each; of real ranks each takes some seconds
SEED = seed()
# Of real PyTorch ranks.
OF_RANKS = (
    "repeats",
    "watched",
    "sampled",
    "snapshotted",
    "stated_as_it_is",
    "jobs_renamed",
    "hosts_spelled_out",
    "faults_reordered",
    "overridden_to_the_same",
    "never_stalls",
    "fault_after_the_end",
    "other_names",
    "started_later",
    "built_by_hand",
    "all_accounted_for",
    "times_in_order",
    "shares_are_shares",
)


def check(tally, record_property):
    record_property("relation", [SEED, tally.name, tally.tried, len(tally.broken)])
    assert tally.tried, f"no world of {SEED} fits: {dict(tally.reasons)}"
    assert not tally.broken, "\n".join(
        [
            f"{RELATIONS[tally.name].says} Broken {len(tally.broken)} of {tally.tried} times:",
            *(f"{verdict.replay}\n{shown(verdict.lines)}" for verdict in tally.broken[:3]),
        ]
    )


@pytest.mark.parametrize("name", RELATIONS)
def test_relation(name, record_property):
    check(for_seconds(name, SEED, ALL_S / len(RELATIONS)), record_property)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", RELATIONS)
def test_relation_long(name, record_property):
    check(for_count(name, f"{SEED}-long", SOAKED), record_property)


@pytest.mark.parametrize("name", random.Random(SEED).sample(OF_RANKS, 2))
def test_relation_of_ranks(name, record_property):
    pytest.importorskip("torch")
    check(until_tried(name, f"torch-{SEED}", 1), record_property)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", OF_RANKS)
def test_relation_of_ranks_long(name, record_property):
    pytest.importorskip("torch")
    check(until_tried(name, f"torch-{SEED}-long", SOAKED_RANKS), record_property)
