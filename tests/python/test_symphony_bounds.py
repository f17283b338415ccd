"""The bounds that Symphony's results stand beside: the fluid gains of bars S4 to S6 at 24 seeds,
and what the gains depend on."""

import pytest
from scenario_lib import lib

import loomnet as ln

symphony = lib("symphony")

pytest.importorskip("loomnet._core")

HOSTS = (8, 16, 32)


def gains(case, hosts=HOSTS, **more):
    return [100 * symphony.fluid_gain(n, **(symphony.CASES[case] | more)).mean for n in hosts]


def test_s4_fixed_paths_gain_nothing():
    for gain in gains("fixed + jitter"):
        assert abs(gain) <= 2


def test_s5_paths_hashed_anew_each_step():
    found = gains("re-hash")
    assert found == [pytest.approx(each, abs=2) for each in symphony.EARLIER["re-hash"]]
    assert found == sorted(found)


def test_s6_bursts_on_top():
    assert gains("re-hash + bursts") == [
        pytest.approx(each, abs=4) for each in symphony.EARLIER["re-hash + bursts"]
    ]


def test_a_second_model_of_ours_gives_the_other_rows_too():
    for case in ("fixed + jitter", "fixed + bursts", "re-hash, 2:1"):
        assert gains(case) == [pytest.approx(each, abs=2) for each in symphony.EARLIER[case]], case


@pytest.mark.parametrize("mean, least", [(1.0, 10), (2.0, 10), (10.0, 12)])
def test_the_bar_with_bursts_holds_for_other_lengths_of_a_burst(mean, least):
    assert least < gains("re-hash + bursts", (32,), burst_mean=mean)[0] < 20


def test_weights_keep_most_of_the_gain_and_a_gap_of_two_loses_much():
    strict, weighted, two, switch = (
        gains("re-hash", (16,), seeds=100, **more)[0]
        for more in ({}, {"weight": 4}, {"ahead": 2}, {"scope": "switch"})
    )
    assert 0.7 * strict < weighted <= strict
    assert two < 2 / 3 * strict
    assert switch < strict + 1


def test_a_gain_is_of_pairs_and_repeats_to_the_bit():
    one = symphony.fluid_gain(8, bursts=0.3, seeds=5)
    assert one == symphony.fluid_gain(8, bursts=0.3, seeds=5)
    assert one.seeds[3:] == symphony.fluid_gain(8, bursts=0.3, seeds=2, first_seed=4).seeds
    assert one.least <= one.mean <= one.most
    assert all(each.throttled > 0 for each in one.seeds)
    assert one.gaps[1] < one.gaps[0]
    # Without a weight the flows that are ahead lose nothing.
    equal = symphony.fluid_gain(8, bursts=0.3, seeds=5, weight=1)
    assert [each.gain for each in equal.seeds] == [pytest.approx(0, abs=1e-6)] * 5


@pytest.mark.parametrize(
    "wrong, says",
    [
        ({"hosts": 1}, "hosts=1 must be a whole number from 2 to 4,096"),
        ({"rehash": "steps"}, "rehash='steps' is none of step, fixed; nearest: step"),
        ({"bursts": 1}, "bursts=1 must be a number from 0 to 0.99"),
        ({"weight": 0}, "weight=0 must be a whole number from 1"),
        ({"jiter": 0.3}, 'unknown name "jiter"; nearest: jitter'),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(wrong, says):
    with pytest.raises(ln.UsageError) as refused:
        symphony.fluid_gain(**({"hosts": 8} | wrong))
    assert says in str(refused.value) and "\n" not in str(refused.value)
