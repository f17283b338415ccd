"""Astraea's policy in the kernel's program itself, `agent="kernel"`: no thread decides, flows are
the kernel's own while there is no policy, and a run makes the same of a bottleneck as with the
thread. The bar K5 is in tests/cpp/live/astraea_trial_test.cpp."""

import time

import numpy as np
import pytest
from steered import (
    AGENT,
    FALLBACK,
    FREE,
    START,
    Meter,
    Steered,
    acked,
    bottleneck,
    sending,
    steady_policy,
)
from test_astraea_live import FULL, KNOWN, RTT_S, TIMEOUT_S, kernel_warnings, together, two_flows

import loomnet as ln
import loomnet._core as _core
from loomnet.live import doctor

_REASON = (
    doctor.why_not_live()
    or doctor.why_not_steered()
    or _core.try_kernel_control("astraea", decides=True)
)
pytestmark = pytest.mark.skipif(bool(_REASON), reason=str(_REASON))

INSIDE = {"agent": "kernel"}


def inside(**options):
    # On a path of 5 ms bunches of packets look like a queue of three.
    policy = _core.astraea_policy(steady_policy(packets=8))
    return Steered(agent="kernel", policy=policy, **options)


def versions(steered):
    """The versions of both banks, as numbers that can be written, and which bank is active."""
    memory = steered.core.policy()
    bank = (len(memory) - 8) // 2
    words = [memory[at : at + 4].view("u4") for at in (8, 8 + bank)]
    return words, int(memory[:4].view("u4")[0])


def test_the_program_decides_while_it_has_a_policy_and_no_thread_runs(uses_machine):
    """K8 and K3 of this form, on one flow over 100 Mb/s and 5 ms."""
    warned = kernel_warnings()
    with ln.lab(bottleneck(), clock="live") as lab, inside() as s:
        assert s.core.decides and not s.core.running
        with sending(lab, s.name, 1, 5.2) as sender:
            (slot,) = s.wait_live(1)
            s.wait(lambda: s.slots["mode"][slot] == AGENT)
            time.sleep(0.8)
            before, began = int(s.slots["decisions"][slot]), time.monotonic()
            meter = Meter(lab)
            time.sleep(1.2)
            rates = [meter.rate()]
            assert rates[0] >= FULL, "K8, under the policy"
            decided = int(s.slots["decisions"][slot]) - before
            due = (time.monotonic() - began) / 0.03
            assert 0.9 * due <= decided <= 1.05 * due + 1, "every 30 ms"
            assert s.slots["fallbacks"][slot] == 0

            words, active = versions(s)
            assert words[active][0] == 1 and words[1 - active][0] == 0
            words[active][0] = 0  # no policy
            took = s.wait(lambda: s.slots["mode"][slot] == FALLBACK)
            assert took <= TIMEOUT_S + RTT_S + 0.010, "K3; at the next acknowledgement, in fact"
            stood = int(s.slots["decisions"][slot])
            meter.look()
            time.sleep(0.9)
            rates.append(meter.rate())
            assert rates[1] >= FULL, "K8, in fallback"
            assert s.slots["decisions"][slot] == stood and s.slots["fallbacks"][slot] == 1

            words[active][0] = 2
            s.wait(lambda: s.slots["mode"][slot] == AGENT, 0.1)
            time.sleep(0.5)
            meter.look()
            time.sleep(0.9)
            rates.append(meter.rate())
            assert rates[2] >= FULL, "K8, after the policy's return"
            print(
                "K8:", *(f"{rate / 1e6:.1f} Mb/s" for rate in rates), f"; K3: {1e3 * took:.1f} ms"
            )
            assert s.slots["decisions"][slot] > stood and s.slots["fallbacks"][slot] == 1
            assert sum(acked(sender)) > 40e6
        s.core.start()  # the thread gives the slot back, and that is all it does
        s.wait(lambda: (s.slots["state"] == FREE).all())
    assert kernel_warnings() == warned


def test_without_slow_start_the_first_window_is_the_policys(uses_machine):
    with ln.lab(bottleneck(), clock="live") as lab, inside(startup="none") as s:
        with sending(lab, s.name, 1, 0.7) as sender:
            (slot,) = s.wait_live(1)
            s.wait(lambda: s.slots["intervals"][slot] > 0)
            first = int(s.slots["cwnd"][slot])
            assert s.slots["mode"][slot] != START
            # From ten packets an action moves the window by one; slow start doubles it.
            assert first <= 11
            acked(sender)


def test_a_run_is_the_same_with_the_thread_and_with_the_program(tmp_path, uses_machine):
    (tmp_path / "steady.astp").write_bytes(steady_policy())
    policy = {"policy": str(tmp_path / "steady.astp")}
    found = {}
    for name, clock, options in (
        ("thread", "live", {"arithmetic": "int16"}),
        ("program", "live", INSIDE),
        ("model", "virtual", INSIDE),
    ):
        r = two_flows(clock, tmp_path / name, **policy, **options)
        assert r["errors"] == 0, r.data.errors
        found[name] = together(r)
        print(f"{name}: {found[name][0] / 1e6:.1f} Mb/s, {1e3 * found[name][1]:.1f} ms")
        if name == "program":
            inside_run = r
    rate, rtt = found["program"]
    for other in ("thread", "model"):
        assert abs(rate - found[other][0]) <= 0.03 * 100e6, other
        assert rtt == pytest.approx(found[other][1], rel=0.1), other
    note = inside_run.data.fidelity.notes["astraea in the kernel"]
    assert note.startswith("the program decides, a thread watches; flows 2; decisions ")
    series = inside_run.data.observed.series()
    for where in {where for where, _ in series}:
        at, actions = series[where, "action"]
        assert np.abs(actions).max() <= 1 and (actions != 0).any()
        steps = np.diff(np.asarray(at))
        assert 30e9 <= np.median(steps) <= 36e9, "an interval, up to the next acknowledgement"
        assert series[where, "kernel_mode"][1][-1] == AGENT
        assert 30_000 <= series[where, "min_rtt_us"][1][-1] <= 31_500
    assert "astraea" not in KNOWN.read_text()


def test_what_it_cannot_decide_by_is_refused_before_anything_starts(tmp_path, uses_machine):
    for content, message in (
        (None, r'run: tcp: astraea\.agent: "kernel" needs a trained policy; give policy="mine'),
        (
            wide_policy(),
            r"run: tcp: astraea\.policy: layer 0: out: 300; in the kernel's program 256 at most",
        ),
    ):
        options = dict(INSIDE)
        if content is not None:
            (tmp_path / "p.astp").write_bytes(content)
            options["policy"] = str(tmp_path / "p.astp")
        with pytest.raises(ln.UsageError, match=message) as raised:
            two_flows("live", tmp_path / "lab", **options)
        assert "\n" not in str(raised.value)


def wide_policy():
    layers = [(np.zeros((300, 55)), np.zeros(300)), (np.zeros((1, 300)), np.zeros(1))]
    policy = _core.astraea.Policy(layers)
    policy.quantise()
    return policy.to_bytes()
