"""Congestion controls through the compiled module: controls written in Python, what breaks their
contract, and the state of senders in arrays."""

from __future__ import annotations

import math
from typing import ClassVar

import pytest

import loomnet as ln
from loomnet import _core


class Aimd:
    """A window that grows by a packet per round trip and halves at a loss or mark."""

    made: ClassVar[list[Aimd]] = []

    def __init__(self, flow):
        self.flow, self.window = flow, float(flow.initial_window)
        self.next_tick, self.calls = None, []
        self.last_now, self.cuts, self.least = 0, 0, self.window
        Aimd.made.append(self)

    def on_established(self, rtt_ps, now_ps):
        assert rtt_ps > 0
        self.next_tick = now_ps + 10 * rtt_ps

    def on_ack(self, ack):
        assert ack.now_ps >= self.last_now
        assert ack.rtt_ps is None or ack.rtt_ps > 0
        self.last_now = ack.now_ps
        self.window += self.flow.mss * ack.delivered / self.window

    def on_congestion(self, event):
        assert event.kind in ("loss", "ecn", "timeout", "refused", "notified")
        self.cuts += 1
        self.window = self.least = max(self.window / 2, self.flow.mss)

    def on_tick(self, now_ps):
        assert now_ps >= self.next_tick
        self.next_tick = now_ps + 10**9
        self.calls.append(now_ps)

    def observe(self):
        return {"cuts": self.cuts, "factor": self.flow.options.get("factor", 0)}


def register(name, make, **more):
    _core.register_congestion_control(name, make, **more)
    return name


def fabric():
    return ln.clos.two_tier(
        planes=1, leaves=2, spines=1, hosts_per_leaf=2, rate="10 Gb/s", delay="5 us"
    )


# The option that names a transport's control.
CHOICES = {"tcp": "cc", "mrc": "cc", "roce": "cc"}


def go(tmp_path, transport, **options):
    job = ln.SendRecv("1 MiB", transport=transport, stall_timeout="1 s")
    if transport == "roce":
        options = {"line_rate_bps": 10**10, **options}
    return ln.run(fabric(), job, seed=1, directory=tmp_path, **{transport: options})


@pytest.mark.parametrize("transport", CHOICES)
def test_a_control_written_in_python_carries_a_flow(tmp_path, transport):
    Aimd.made.clear()
    register("aimd", Aimd, options={"factor": 0.5})
    r = go(tmp_path, transport, **{CHOICES[transport]: "aimd", "factor": 2})
    assert r["errors"] == 0
    acting = [each for each in Aimd.made if each.last_now]
    assert acting
    assert all(each.flow.options == {"factor": 2.0} for each in Aimd.made)
    if transport == "roce":  # cut by the first marks, before any bytes are acknowledged
        assert any(each.window > each.least for each in acting)
        assert sum(row.get("rate_cuts", 0) for row in r.data.totals.values()) == sum(
            each.cuts for each in acting
        )
    else:
        assert max(each.window for each in acting) > acting[0].flow.initial_window
    if transport == "tcp":
        assert acting[0].calls == sorted(set(acting[0].calls)) and acting[0].calls


def test_a_run_with_it_repeats_to_the_byte(tmp_path):
    register("aimd", Aimd)
    rows = [go(tmp_path / str(n), "tcp", cc="aimd").metrics for n in range(2)]
    assert str(rows[0]) == str(rows[1])


class Plain:
    """Lawful, and nothing else: what the broken ones below differ from."""

    next_tick = None
    pacing_rate = None

    def __init__(self, flow):
        self.window = 4 * flow.mss

    def on_ack(self, ack):
        pass

    def on_congestion(self, event):
        pass


def broken(**values):
    def on_ack(self, ack):
        for name, value in values.items():
            setattr(self, name, value(ack) if callable(value) else value)

    return type("Broken", (Plain,), {"on_ack": on_ack})


BREACHES = {
    "a window that is no number": (broken(window=math.nan), "window=nan is not a number"),
    "a negative window": (broken(window=-3000), "window=-3000 is negative"),
    "no window": (broken(window=0), "the window is 0"),
    "an endless window": (broken(window=math.inf), "beyond what can be counted"),
    "a window below a packet": (broken(window=10), "below one packet"),
    "a window of another type": (broken(window="big"), "window='big' is not a number"),
    "a truth value": (broken(window=True), "window=True is not a number"),
    "a rate that is no number": (broken(pacing_rate=math.nan), "pacing rate is not a number"),
    "a negative rate": (broken(pacing_rate=-1.0), "pacing rate is negative"),
    "a rate of 0": (broken(pacing_rate=0), "pacing rate is 0: nothing could ever leave; None"),
    "a tick in the past": (broken(next_tick=lambda ack: ack.now_ps), "not after now"),
    "a tick of another type": (broken(next_tick=1.5), "next_tick=1.5 is not a whole number"),
    "a tick without a method": (broken(next_tick=lambda ack: ack.now_ps + 1), "no method on_tick"),
    "an exception": (broken(window=lambda ack: 1 / 0), "on_ack raised ZeroDivisionError"),
    "a maker that raises": (lambda flow: [][1], "the maker raised IndexError"),
    "no methods": (lambda flow: object(), "there is no method on_ack"),
    "an observed NaN": (
        type("Nan", (Plain,), {"observe": lambda self: {"share": math.nan}}),
        "observe: share=nan is not finite; None stands for no value now",
    ),
    "an observed text": (
        type("Text", (Plain,), {"observe": lambda self: {"share": "big"}}),
        "observe: share='big' is not a number",
    ),
    "an observe that raises": (
        type("Raises", (Plain,), {"observe": lambda self: [][1]}),
        "observe raised IndexError",
    ),
    "names that change": (
        type(
            "Names",
            (Plain,),
            {"observe": lambda self, seen=[]: {f"n{len(seen)}": seen.append(1) or 1}},
        ),
        None,
    ),
}


@pytest.mark.parametrize("what", BREACHES)
def test_a_broken_contract_ends_the_run_by_name(tmp_path, what):
    make, said = BREACHES[what]
    register("broken", make)
    if said is None:
        with pytest.raises(_core.PluginError, match="other names than at the first call"):
            pair("broken")[1].take()
        return
    with pytest.raises(Exception, match=r'congestion control "broken": ') as raised:
        go(tmp_path, "tcp", cc="broken")
    assert said in str(raised.value)
    if "raised" in said:
        chain = raised.value
        while chain is not None and not isinstance(chain, (ZeroDivisionError, IndexError)):
            chain = chain.__cause__ or chain.__context__
        assert chain is not None, "the plug-in's own exception is chained"


def test_what_cannot_be_registered_or_chosen_is_one_line(tmp_path):
    with pytest.raises(ValueError, match="no signal loudness; there are rtt, "):
        register("x", Plain, needs=["loudness"])
    with pytest.raises(TypeError, match="not callable"):
        register("x", 5)
    with pytest.raises(ValueError, match="option speed has no default"):
        register("x", Plain, options={"speed": None})
    register("needy", Plain, needs=["refusals"])
    with pytest.raises(ln.UsageError, match="needy needs refusals, which this transport does no"):
        go(tmp_path, "tcp", cc="needy")
    register("plain", Plain, options={"speed": 1.0})
    with pytest.raises(ln.UsageError, match=r"speed='fast' must be a number, as its default 1.0"):
        go(tmp_path, "tcp", cc="plain", speed="fast")
    with pytest.raises(ln.UsageError, match="no option sped; nearest: speed"):
        go(tmp_path, "tcp", cc="plain", sped=2)


# --- the state of senders ------------------------------------------------------------------------


def pair(cc):
    """Two hosts and a link, a TCP connection, and a probe of its sender."""
    network = _core.Network(seed=1, meter_bin_ps=10**9)
    hosts = [network.add_host(1) for _ in range(2)]
    link = _core.LinkConfig(rate_bps=10**9, delay_ps=10**6)
    network.connect(hosts[0], 0, hosts[1], 0, link, link)
    for host in hosts:
        network.set_transport(host, "tcp", {"cc": cc})
    path = [([], -1, [0], 0, 1, None, 1.0)]
    network.connect_qp(hosts[0], 256, hosts[1], 256, 1, path, path)
    network.connect_qp(hosts[1], 256, hosts[0], 256, 1, path, path)
    return network, _core.FlowProbe(network, [(hosts[0], 256), (hosts[1], 256)])


def test_a_probe_takes_what_senders_hold():
    network, probe = pair("bbr")
    assert probe.rows() == [(0, 0), (1, 0)]
    assert {
        "acked",
        "in_flight",
        "cwnd",
        "srtt_ps",
        "min_rtt_ps",
        "pacing_bps",
        "phase",
        "bottleneck_bps",
    } <= set(probe.names)
    column = {name: number for number, name in enumerate(probe.names)}
    before = probe.take()
    assert before.shape == (2, len(probe.names))
    traffic = _core.FlowTraffic(network, False)
    traffic.add(
        source=0, destination=1, qp=256, bytes=1 << 20, message=1 << 16, depth=4, start_ps=0
    )
    traffic.start()
    network.run_until(10**11)
    after = probe.take()
    assert traffic.done
    assert after[0, column["acked"]] >= 1 << 20
    assert after[0, column["srtt_ps"]] > 2 * 10**6
    assert after[0, column["bottleneck_bps"]] == pytest.approx(1e9, rel=0.1)
    assert after[1, column["acked"]] == 0
    assert network.transport_state(0, 256)["acked"] == after[0, column["acked"]]
    with pytest.raises(IndexError):
        network.transport_state(0, 999)
    with pytest.raises(ValueError, match="no transport mrc"):
        network.transport_state(0, 256, transport="mrc")


def test_an_observed_none_is_no_value_and_a_nan_ends_the_run():
    shown = [None, 2.5, math.nan]
    register("shows", type("Shows", (Plain,), {"observe": lambda self: {"share": shown[0]}}))
    _, probe = pair("shows")
    column = list(probe.names).index("share")
    assert math.isnan(probe.take()[0, column])
    shown.pop(0)
    assert probe.take()[0, column] == 2.5
    shown.pop(0)
    with pytest.raises(_core.PluginError, match="observe: share=nan is not finite; None stands"):
        probe.take()


def test_options_are_described():
    for name, transport in _core.transports().items():
        assert transport["options"], name
        for row in transport["options"]:
            assert set(row) == {"name", "type", "unit", "default", "range", "choices", "doc"}
            assert row["doc"], (name, row)
    tcp = _core.transports()["tcp"]
    assert {"reno", "cubic", "dctcp", "bbr"} <= set(tcp["congestion_controls"])
    assert "dcqcn" in _core.transports()["roce"]["congestion_controls"]
    assert "nscc" in _core.transports()["mrc"]["congestion_controls"]
    assert _core.congestion_controls()["dctcp"]["options"][0]["name"] == "dctcp_g"
