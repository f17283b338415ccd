"""What a run costs Loomnet's Python grows as what is played, not as its square: calls of functions,
which are the same on every machine, for a job and for one of four times its length."""

import sys

import pytest

pytest.importorskip("loomnet._core")

import loomnet as ln


def fabric(hosts_per_leaf=4):
    return ln.clos.two_tier(planes=1, leaves=2, spines=2, hosts_per_leaf=hosts_per_leaf,
                            rate="10 Gb/s", delay="5 us")


def later(count):
    """Flows that begin one after another."""
    return ln.Flows(sizes=["10 kB"], count=count, transport="tcp",
                    starts=[f"{20 * number} us" for number in range(count)])


CASES = {
    "iterations of flows": lambda n: ln.run(
        fabric(), ln.Permutation("4 kB", repeat=n, transport="roce"), write=False),
    "iterations of a collective": lambda n: ln.run(
        fabric(), ln.AllReduce("4 kB", repeat=n, transport="roce"), write=False),
    "iterations of a model": lambda n: ln.run(
        fabric(), ln.ModelJob(buckets=["10 kB"], compute="10 us", iterations=n, transport="roce"),
        write=False),
    "flows": lambda n: ln.run(fabric(), later(n), write=False),
    "hosts": lambda n: ln.run(
        fabric(n // 4), ln.Permutation("4 kB", transport="roce"), write=False),
    "samples of a queue": lambda n: ln.run(
        fabric(), ln.Permutation("1 MB", transport="tcp"), write=False,
        sample=ln.Time.of(4 * 10**10 // n), queues=["p0.leaf0->h0"], links=["p0.leaf0->*"]),
    "samples of senders": lambda n: ln.run(
        fabric(), ln.Permutation("1 MB", transport="tcp"), write=False,
        sample=ln.Time.of(4 * 10**10 // n), observe=["cwnd", "acked"]),
    # 50 looks: a value for each look and sender is the series itself.
    "senders that join": lambda n: ln.run(
        fabric(), later(n), write=False, sample=f"{20 * n // 50} us", observe=["cwnd"]),
}
LEAST = {"hosts": 32}


def calls(run, n):
    found = 0

    def count(_frame, event, _argument):
        nonlocal found
        found += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        run(n)
    finally:
        sys.setprofile(None)
    return found


@pytest.mark.parametrize("what", CASES)
def test_four_times_as_much_takes_five_times_the_calls_at_most(what):
    least = LEAST.get(what, 200)
    CASES[what](least)  # what is imported and made once is not counted
    one, four = calls(CASES[what], least), calls(CASES[what], 4 * least)
    assert four <= 5 * one, f"{one} calls for {least}, {four} for {4 * least}"


def test_what_reads_its_history_again_is_found():
    def again(n):
        history = []
        for number in range(n):
            history.append(number)
            for each in history:
                abs(each)

    assert calls(again, 800) > 5 * calls(again, 200)
