"""Astraea through the bindings: golden values, policies from bytes, and whole runs of flows that
share a bottleneck (Liao et al., EuroSys 2024)."""

from itertools import pairwise

import numpy as np
import pytest

import loomnet as ln
from loomnet.base.errors import UsageError

_core = pytest.importorskip("loomnet._core")
astraea = _core.astraea

RATE, RTT_MS = 100e6, 30
SEGMENT, WIRE = 1428, 1538  # bytes of stream in a full packet, and of link time that it takes

INTERVALS = [
    {
        "avg_thr": 6e6,
        "max_tput": 12e6,
        "avg_urtt": 36000,
        "min_rtt": 30000,
        "srtt_x8": 280000,
        "cwnd": 250,
        "packets_out": 248,
        "pacing": 10714285,
    },
    {"cwnd": 10, "packets_out": 10},
    {
        "avg_thr": 3e6,
        "max_tput": 3e6,
        "avg_urtt": 90000,
        "min_rtt": 30000,
        "srtt_x8": 560000,
        "cwnd": 200,
        "loss": 150000,
        "packets_out": 200,
        "pacing": 4285714,
        "retrans_out": 4,
    },
]
FRAMES = [
    [0.5, 1.2, 1.166667, 0.811111, 1.2, 0.06, 0, 0.992, 0.892857, 0],
    [0.5, 2, 2, 0, 0, 0, 0, 1, 0, 0],
    [1, 2, 2, 2, 0.3, 0.06, 0.05, 1, 1.428571, 0.02],
]
OWN = [(0.576572, 0.619275, 0.676880), (0, 0, 0), (0.412850, 0.619275, 0.883709)]


@pytest.mark.parametrize("which", range(3))
def test_frames_are_the_golden_ones(which):
    golden = np.array(FRAMES[which])
    seen = astraea.frame("astraea10", **INTERVALS[which])
    assert seen.dtype == np.float32 and np.abs(seen - golden).max() <= 1e-6
    own = np.concatenate([golden[:4], OWN[which][:2], golden[6:], OWN[which][2:]])
    assert np.abs(astraea.frame(**INTERVALS[which]) - own).max() <= 1e-6
    relative = np.delete(golden, (4, 5))
    assert np.abs(astraea.frame("rel8", **INTERVALS[which]) - relative).max() <= 1e-6


def test_actions_are_the_golden_ones():
    rows = [
        (10, 1, 11),
        (40, 1, 41),
        (41, 1, 43),
        (100, 1, 103),
        (1000, 1, 1025),
        (100, 0.5, 102),
        (100, 0, 100),
        (10, -1, 9),
        (40, -1, 39),
        (41, -1, 40),
        (100, -1, 97),
        (1000, -1, 975),
        (100, -0.5, 98),
        (100, 1e-6, 101),
        (100, -1e-6, 99),
    ]
    assert [astraea.map_action(w, a) for w, a, _ in rows] == [to for *_, to in rows]
    assert [astraea.map_action_int(w, round(32767 * a)) for w, a, _ in rows[:-2]] == [
        to for *_, to in rows[:-2]
    ]


def test_rewards_are_the_golden_ones():
    def terms(throughput, **values):
        full = {"base_rtt": [30000, 30000], "loss": [0, 0], "lat_cap": None} | values
        return list(astraea.reward(throughput, 12.5e6, **full).values())

    even = terms([[6.25e6] * 5] * 2, avg_urtt=[33000, 33000], pacing=[6.5e6, 6.5e6])
    assert even == pytest.approx([1, 0, 0, 0, 0, 0.1, 0.1], abs=1e-6)
    uneven = {"avg_urtt": [50000, 48000], "pacing": [9.2e6, 3.1e6]}
    assert terms([[9e6] * 5, [3e6] * 5], **uneven) == pytest.approx(
        [0.96, 16.849315, 0, 0.25, 0, -0.245986, -0.1], abs=1e-6
    )
    assert terms([[9e6] * 5, [3e6] * 5], **uneven, lat_cap=5)[5] == pytest.approx(-0.009, abs=1e-6)
    moving = terms(
        [[8e6, 8.5e6, 9e6, 9.5e6, 10e6], [3e6, 2.5e6, 2e6, 2e6, 2e6]],
        avg_urtt=[60000, 60000],
        pacing=[10e6, 2e6],
        loss=[1e5, 4e4],
    )
    assert moving == pytest.approx(
        [0.96, 61.643836, 0.015, 0.29646, 0.12624, -1.159068, -0.1], abs=2e-6
    )


def test_the_critic_sees_twelve_values():
    seen = astraea.global_state(
        [[8e6], [4e6]],
        12.5e6,
        1e6,
        avg_urtt=[36000, 44000],
        base_rtt=[30000, 50000],
        loss=[2e4, 0],
        cwnd=[300, 100],
    )
    expected = [0.24, 0.08, 0.16, 0.08, 0.1, 0.3, 0.2, 0.01, 0.2, 0.04, 0.2, 0.2]
    assert np.abs(seen - np.array(expected)).max() <= 1e-6


# --- policies -------------------------------------------------------------------------------------
def a_policy(seed=1, **values):
    draw = np.random.default_rng(seed)
    widths = [55, 64, 32, 1]
    layers = [
        (draw.uniform(-0.2, 0.2, (out, into)), draw.uniform(-0.1, 0.1, out))
        for into, out in pairwise(widths)
    ]
    return astraea.Policy(layers, **values)


def test_a_policy_acts_as_numpy_says_in_both_forms():
    policy = a_policy()
    policy.quantise()
    inputs = np.random.default_rng(2).uniform(0, 2, (300, 55)).astype(np.float32)
    x = inputs.astype(float)
    for number, (weights, bias) in enumerate(policy.layers):
        x = x @ weights.T.astype(float) + bias
        x = np.where(x < 0, 0.2 * x, x) if number < 2 else np.tanh(x)
    expected = np.where(np.abs(x[:, 0]) < astraea.LEAST_ACTION, 0, x[:, 0])
    near = np.abs(np.abs(x[:, 0]) - astraea.LEAST_ACTION) < 1e-5
    seen = policy.act(inputs)
    assert seen.shape == (300,) and np.abs(seen - expected)[~near].max() < 2e-6
    assert np.abs(policy.act_int16(inputs) / 32767 - seen).mean() <= 0.02
    again = astraea.Policy.from_bytes(policy.to_bytes())
    assert again.to_bytes() == policy.to_bytes() and np.array_equal(again.act(inputs), seen)


def test_a_policy_says_what_is_wrong_with_it():
    file = a_policy().to_bytes()
    for bytes_, words in [(b"x", "magic"), (file[:-1], "CRC-32"), (file + b"\0", "CRC-32")]:
        with pytest.raises(ValueError, match=words) as refused:
            _core.astraea_policy(bytes_)
        assert "\n" not in str(refused.value)
    with pytest.raises(ValueError, match="layer 0: in: 55; give 40"):
        a_policy(features="rel8")
    with pytest.raises(ValueError, match="weights: number 0 is nan"):
        astraea.Policy([(np.full((1, 55), np.nan), [0])])
    with pytest.raises(ValueError, match=r"shape \(flows, 55\)"):
        a_policy().act(np.zeros((2, 54)))
    with pytest.raises(ValueError, match="quantise"):
        a_policy().act_int16(np.zeros((2, 55)))


def test_a_file_of_a_policy_is_given_by_its_path(tmp_path, monkeypatch):
    """In a run's options, in a job's cc= and in a world."""
    monkeypatch.chdir(tmp_path)
    file = a_policy(11).to_bytes()
    (tmp_path / "mine.astp").write_bytes(file)
    name = _core.astraea_policy(file)

    def arrivals(job=None, **options):
        r = ln.run(
            dumbbell(1), job or ln.Flows("10 MB", count=1, transport="tcp"), write=False, **options
        )
        return [flow.arrived_ps for flow in r.flow_records]

    named, teacher = arrivals(tcp=tcp(policy=name)), arrivals(tcp=tcp(policy="teacher"))
    assert named != teacher
    for path in ("mine.astp", tmp_path / "mine.astp", str(tmp_path / "mine.astp")):
        assert arrivals(tcp=tcp(policy=path)) == named
    own = ln.Flows("10 MB", count=1, transport="tcp", cc={"cc": "astraea", "policy": "mine.astp"})
    assert arrivals(own, tcp={"mtu": 1500}) == named
    assert own.cc["policy"] == "mine.astp", "what a user made stays as it was made"
    ln.World(dumbbell(1), stairs(1, 1, 2), tcp=tcp(policy="mine.astp")).reset()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"no\.astp: .*no such file"),
        (b"x", r"run: tcp: policy: no\.astp: magic: these bytes are no \.astp file"),
        (a_policy().to_bytes()[:-1], r"run: tcp: policy: no\.astp: .*CRC-32"),
    ],
)
def test_a_file_that_holds_no_policy_is_one_line(tmp_path, monkeypatch, content, message):
    monkeypatch.chdir(tmp_path)
    if content is not None:
        (tmp_path / "no.astp").write_bytes(content)
    with pytest.raises(ln.UsageError, match=f"(?i){message}") as refused:
        ln.run(
            dumbbell(1), ln.Flows("1 MB", transport="tcp"), write=False, tcp=tcp(policy="no.astp")
        )
    assert "\n" not in str(refused.value)


def test_a_policy_that_is_forgotten_is_unknown_until_it_is_taken_in_again():
    file = a_policy(7).to_bytes()
    name = _core.astraea_policy(file)
    world = ln.World(dumbbell(1), stairs(1, 1, 2), tcp=tcp(policy=name))
    world.reset()
    _core.astraea_forget(name)
    assert len(world.step("500 ms")), "a flow that follows it keeps it"
    with pytest.raises(ln.UsageError, match="no policy"):
        ln.World(dumbbell(1), stairs(1, 1, 2), tcp=tcp(policy=name)).reset()
    _core.astraea_forget(name)
    assert _core.astraea_policy(file) == name
    ln.World(dumbbell(1), stairs(1, 1, 2), tcp=tcp(policy=name)).reset()


@pytest.mark.parametrize("alpha", [-5.0, 0.0, 0.6, float("nan")])
def test_an_alpha_without_a_meaning_is_refused(alpha):
    with pytest.raises(ValueError, match="alpha must be above 0"):
        astraea.map_action(10, 1, alpha)


# --- runs -----------------------------------------------------------------------------------------
def dumbbell(flows=3):
    """100 Mb/s, 30 ms without a queue, a queue of one bandwidth-delay product."""
    fabric = ln.dumbbell(
        left=flows, right=flows, rate="1 Gb/s", bottleneck="100 Mb/s", delay=f"{RTT_MS / 6:g} ms"
    )
    fabric.override("p0.leaf0->p0.leaf1", data_limit=f"{round(RATE / 8 * RTT_MS / 1e3)} B")
    return fabric


def stairs(gap=10.0, flows=3, total=40.0):
    """Flows that join `gap` seconds after one another and all last to the end."""
    return ln.Flows(
        "10 GB",
        pairs=[(n, flows + n) for n in range(flows)],
        transport="tcp",
        starts=[f"{n * gap:g} s" for n in range(flows)],
        lifetimes=[f"{total - n * gap:g} s" for n in range(flows)],
    )


def tcp(**options):
    return {"cc": "astraea", "mtu": 1500, **options}


def played(world, total=40.0, step=0.5):
    """Throughputs in bits per second, [steps, flows], and every row."""
    world.reset()
    acked, rows = [np.zeros(3)], []
    for n in range(1, round(total / step) + 1):
        rows.append(world.step(f"{n * step:g} s"))
        latest = acked[-1].copy()
        latest[rows[-1]["flow"]] = rows[-1]["acked"]
        acked.append(latest)
    return np.diff(acked, axis=0) * 8 / step, rows


def jain(shares):
    return shares.sum() ** 2 / (len(shares) * (shares**2).sum())


def contested(throughputs, gap=10.0, step=0.5):
    """Jain's index, the mean of the steps in which two flows or three send."""
    present = [throughputs[n][: min(3, int(n * step / gap) + 1)] for n in range(len(throughputs))]
    return np.mean([jain(each) for each in present if len(each) > 1])


def used(throughputs):
    """Share of the bottleneck, of what packets take on it, without the first second."""
    return np.mean(throughputs.sum(axis=1)[2:]) * WIRE / SEGMENT / RATE


def test_three_flows_share_by_the_teachers_rule_and_do_not_where_windows_are_held():
    shared, rows = played(ln.World(dumbbell(), stairs(), seed=1, tcp=tcp(policy="teacher")))
    # Measured: 0.990, 0.994, 32.0 ms. A flow that joins finds the others at work, so less than 1.
    assert contested(shared) >= 0.97
    assert 0.97 <= used(shared) <= 1.0
    assert jain(shared[-10:].mean(axis=0)) >= 0.98
    settled = np.concatenate([each["srtt_ps"] for each in rows[-20:]]) / 1e9
    assert RTT_MS < settled.mean() <= 1.2 * RTT_MS
    assert {"action", "queue_packets", "mode", "min_rtt_us", "max_tput_bps"} <= set(
        rows[-1].dtype.names
    )
    assert set(rows[-1]["mode"]) <= {1, 2}

    held, _ = played(ln.World(dumbbell(), stairs(), seed=1, tcp=tcp(policy="hold")))
    assert contested(held) <= 0.9  # the first one's window fills the queue


def test_on_a_short_path_the_start_up_ends_with_what_one_round_trip_delivers():
    """With a window of many round trips half of all packets were lost until the policy's first
    action."""
    fabric = ln.dumbbell(left=1, right=1, rate="4 Gb/s", bottleneck="1 Gb/s", delay="0.5 ms")
    fabric.override("p0.leaf0->p0.leaf1", data_limit="375 kB")
    job = ln.Flows("25 MB", pairs=[(0, 1)], transport="tcp")
    r = ln.run(fabric, job, write=False, tcp=tcp(policy="teacher"))
    counts = r.data.totals["link p0.leaf0->p0.leaf1"]
    assert counts["drop_queue_full"] <= 0.05 * counts["packets"]
    assert r.data.completion_ps <= 0.3e12  # 0.22 s at the link's rate


def test_a_window_that_nobody_fills_does_not_grow():
    """A send buffer of 140 packets: the window stays at twice that, where it grew to 20,000."""
    held_by = 140 * SEGMENT
    world = ln.World(dumbbell(1), stairs(1, 1, 6), tcp=tcp(policy="teacher", send_buffer=held_by))
    world.reset()
    windows = [world.step(f"{n} s")["cwnd"][0] / SEGMENT for n in (1, 3, 5)]
    assert max(windows) <= 2.2 * 140


@pytest.mark.parametrize(("further_ms", "index"), [(15, 0.93), (45, 0.93)])
def test_the_teacher_shares_between_unlike_round_trips(further_ms, index):
    """EuroSys 2024, figure 9: flows of 30 ms beside one of 60 and one of 120."""
    fabric = dumbbell(2)
    for name in ("h1->p0.leaf0", "p0.leaf0->h1"):
        fabric.override(name, delay=f"{RTT_MS / 6 + further_ms:g} ms")
    rates, _ = played(ln.World(fabric, stairs(0, 2, 60), tcp=tcp(policy="teacher")), 60)
    assert jain(rates[60:, :2].mean(axis=0)) >= index


def test_a_world_of_one_seed_is_the_same_to_the_byte():
    chance = ln.loss("p0.leaf0->p0.leaf1", 0.001, at="1 s", duration="5 s")

    def world(seed):
        return played(
            ln.World(
                dumbbell(), stairs(1, total=6), seed, faults=[chance], tcp=tcp(policy="teacher")
            ),
            total=6,
        )[1]

    one, same, other = ([rows.tobytes() for rows in world(seed)] for seed in (1, 1, 2))
    assert one == same and one != other


def test_a_trained_policy_drives_flows_in_both_forms():
    policy = a_policy(3)
    policy.quantise()
    name = _core.astraea_policy(policy.to_bytes())
    assert name == _core.astraea_policy(policy.to_bytes())

    def windows(**options):
        rows = played(ln.World(dumbbell(), stairs(1, total=4), tcp=tcp(policy=name, **options)), 4)
        return [each["cwnd"].tolist() for each in rows[1]], rows[1][-1]

    floats, last = windows()
    whole, _ = windows(arithmetic="int16")
    # The policy is random; what counts is that it acts, and that both forms go the same way.
    assert (last["action"] != 0).all() and len({each[0] for each in floats}) > 3
    assert np.allclose(floats[-1], whole[-1], rtol=0.1)
    # Live, the kernel's program decides then; the model's flows follow the form that it has.
    assert windows(agent="kernel")[0] == whole


def test_a_run_says_which_policy_its_flows_follow(tmp_path):
    job = ln.Flows("200 kB", pairs=[(0, 1)], transport="tcp")
    lab = ln.Lab("run", seed=1, directory=tmp_path)
    fabric = ln.dumbbell(left=1, right=1, rate="100 Mb/s", delay="5 ms")
    untold = lab.run(fabric, job, tcp={"cc": "astraea"}, label="untold").data.fidelity.notes
    held = lab.run(
        fabric, job, tcp={"cc": "astraea", "policy": "hold"}, label="held"
    ).data.fidelity.notes
    assert "no trained one is shipped" in untold["congestion control"]
    assert "congestion control" not in held


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"policy": "mine"}, 'no policy "mine"; give "teacher", "hold"'),
        ({"interval_us": 20}, "interval_us: 20 is less than wake_us"),
        ({"features": "ours12"}, "features must be one of astraea10, ours11, rel8"),
        ({"agent": "kernel"}, 'agent: "kernel" needs a trained policy; give policy="mine.astp"'),
        ({"polcy": "hold"}, "no option polcy; nearest: policy"),
    ],
)
def test_a_wrong_option_is_one_line(tmp_path, options, words):
    lab = ln.Lab("run", directory=tmp_path)
    for run in (
        lambda: ln.World(dumbbell(), stairs(), tcp=tcp(**options)).reset(),
        lambda: lab.run(dumbbell(), stairs(), tcp=tcp(**options)),
    ):
        with pytest.raises((UsageError, ValueError)) as refused:
            run()
        assert words in str(refused.value) and "\n" not in str(refused.value)
