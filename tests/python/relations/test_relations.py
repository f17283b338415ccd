"""Relations between runs of random worlds: as many worlds as some minutes allow, drawn from the
commit, and 500 of each with --soak. A failure shows the line that tries its world again."""

import pytest

pytest.importorskip("loomnet._core")
from relations.facts import shown
from relations.relation import RELATIONS
from relations.search import for_count, for_seconds, seed

ALL_S = 300.0  # processor time of all relations together; two of them are tried at once
SOAKED = 500  # worlds of each
SEED = seed()
# Not yet: what they found is being mended.
WAIT = ("completion_is_the_last_end", "no_flow_beats_its_ideal", "lone_flow_has_its_ideal",
        "shares_are_shares", "job_long_after", "job_elsewhere_later", "job_beside", "idle_switch",
        "sprays_as_before", "fault_elsewhere", "built_by_hand", "built_from_a_graph",
        "fluid_is_a_bound", "started_later", "watched", "sampled", "stated_as_it_is",
        "snapshotted", "slots_counted")
NAMES = [name for name in RELATIONS if name not in WAIT]


def check(tally, record_property):
    record_property("relation", [SEED, tally.name, tally.tried, len(tally.broken)])
    assert tally.tried, f"no world of {SEED} fits: {dict(tally.reasons)}"
    assert not tally.broken, "\n".join(
        [f"{RELATIONS[tally.name].says} Broken {len(tally.broken)} of {tally.tried} times:",
         *(f"{verdict.replay}\n{shown(verdict.lines)}" for verdict in tally.broken[:3])])


@pytest.mark.parametrize("name", NAMES)
def test_relation(name, record_property):
    check(for_seconds(name, SEED, ALL_S / len(NAMES)), record_property)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", NAMES)
def test_relation_long(name, record_property):
    check(for_count(name, f"{SEED}-long", SOAKED), record_property)
