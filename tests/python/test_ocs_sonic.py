"""SONiC's view of an optical circuit switch: names, modes, statuses, reconcile (bars E6 and E7)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomnet._core import PanelDevice
from loomnet.base.errors import UsageError
from loomnet.ocs import Sonic, StandaloneSwitch, names


class Bench:
    """A device on a clock that the test moves."""

    def __init__(self, ports=24, profile="sim25"):
        self.device, self.now = PanelDevice(ports, profile), 0

    def operate(self, fn):
        self.device.advance(self.now)
        return fn(self.device, self.now)


@pytest.fixture
def bench():
    return Bench()


@pytest.fixture
def sonic(bench):
    return Sonic(bench.operate)


def live(bench):
    return [names.pair_name(*each) for each in bench.device.cross_connects()]


def test_names_lists_and_ranges(bench, sonic):
    assert names.pairs("1a-1b, 2A-5B", 8) == [(0, 0), (1, 4)]
    assert names.pairs("1A..3A-4B..6B,7a-8b", 8) == [(0, 3), (1, 4), (2, 5), (6, 7)]
    assert names.port("3b", 8) == (2, True)
    assert sonic.add("1A..10A-11B..20B,21a-22b") == "cross-connect add: 11 succeeded"
    assert live(bench)[0] == "1A-11B" and live(bench)[9:] == ["10A-20B", "21A-22B"]
    assert bench.device.generation == 1, "a request is one generation whatever its length"


MALFORMED = {
    "": "Invalid",
    "1A": "Invalid",
    "A-B": "Invalid",
    "1A-2A": "Invalid",
    "1B-2B": "Invalid",
    "1B-2A": "Invalid",
    "1-2": "Invalid",
    "1A-2B,": "Invalid",
    "1A..3A-4B..5B": "Invalid",
    "3A..1A-6B..4B": "Invalid",
    "1A-2B 3A-4B": "Invalid",
    "1A–2B": "Invalid",
    "-1A-2B": "Invalid",
    "١A-2B": "Invalid",
    "9999999999A-1B": "Invalid",
    "0A-1B": "Error",
    "1A-25B": "Error",
    "20A..25A-1B..6B": "Error",
    "1A-2B,1A-3B": "Error: port 1A is named twice",
    "1A-2B,3A-2B": "Error: port 2B is named twice",
    "1A-2B,1A-2B": "Error: port 1A is named twice",
}


@pytest.mark.parametrize("listed", MALFORMED)
def test_a_bad_list_answers_and_nothing_is_applied(listed, bench, sonic):
    sonic.add("5A-6B")
    for request in (sonic.add, sonic.delete, lambda text: sonic.add(f"7A-8B,{text}")):
        with pytest.raises(UsageError, match=f"^{MALFORMED[listed]}"):
            request(listed)
    assert live(bench) == ["5A-6B"] and bench.device.generation == 1
    with pytest.raises(UsageError, match=r"^Invalid mode 'sage': update, safe, overwrite"):
        sonic.add("1A-2B", "sage")


@given(st.text(alphabet="0123456789ABab.-, &é\0", max_size=40))
def test_any_text_is_a_list_or_a_clear_mistake(text):
    try:
        found = names.pairs(text, 24)
    except UsageError as error:
        assert str(error).startswith(("Invalid", "Error"))
    else:
        assert found and all(0 <= a < 24 and 0 <= b < 24 for a, b in found)


def test_e6_half_circuit_loopback_duplicate_and_wrong_side(bench, sonic):
    sonic.add("1A-2B,3A-3B,4A-5B,5A-4B")
    assert sonic.half_circuits() == ["1A-2B"], "reported; a loopback is none"
    bench.now = 25 * 10**9
    rows = {row["id"]: row for row in sonic.cross_connect_status()}
    assert rows["1A-2B"]["a_side_status"] == rows["3A-3B"]["b_side_status"] == "tuned"
    with pytest.raises(UsageError, match="named twice"):
        sonic.add("6A-7B,6A-8B")
    with pytest.raises(UsageError, match=r"^Invalid cross-connect id '6A-7A'"):
        sonic.add("6A-7A")


def test_e7_update_takes_safe_refuses_and_overwrite_clears(bench, sonic):
    sonic.add("1A-2B,2A-1B,3A-4B")
    sonic.add("1A-2B,2A-1B", "update")
    assert bench.device.generation == 1, "a repeated request is none"
    for listed in ("5A-6B,1A-7B", "5A-6B,7A-4B"):
        with pytest.raises(UsageError, match=r"^Error: port (1A|4B) is in another cross-connect"):
            sonic.add(listed, "safe")
    assert live(bench) == ["1A-2B", "2A-1B", "3A-4B"]
    sonic.add("1A-2B,5A-6B", "safe")
    sonic.add("1A-4B")
    assert live(bench) == ["1A-4B", "2A-1B", "5A-6B"]
    assert [row["id"] for row in sonic.cross_connect_config()] == live(bench)
    sonic.add("8A-8B", "overwrite")
    assert live(bench) == ["8A-8B"] == [row["id"] for row in sonic.cross_connect_config()]


def test_statuses_overrides_and_labels(bench, sonic):
    sonic.add("1A-2B")
    (row,) = sonic.cross_connect_status()
    assert row == {
        "id": "1A-2B",
        "a_side": "1A",
        "b_side": "2B",
        "a_side_status": "tuning",
        "b_side_status": "tuning",
    }
    bench.now = 25 * 10**9
    sonic.state("2b", "force_blocked")
    (row,) = sonic.cross_connect_status()
    assert (row["a_side_status"], row["b_side_status"]) == ("blocked", "blocked")
    ports = {row["id"]: row for row in sonic.port_status()}
    assert ports["2B"]["target_simplex_port_id"] == "1A", "a blocked port lists its target"
    assert ports["2B"]["connector_pin"] == "2.2" and ports["9A"]["target_simplex_port_id"] == ""
    sonic.label("2B", "rack 3, NIC 1")
    config = {row["id"]: row for row in sonic.port_config()}
    assert config["2B"] == {"id": "2B", "label": "rack 3, NIC 1", "state": "force_blocked"}
    sonic.state("2B", "normal")
    bench.device.set_failed(0, False, True, bench.now)
    (row,) = sonic.cross_connect_status()
    assert (row["a_side_status"], row["b_side_status"]) == ("failed", "blocked")
    for call in (
        lambda: sonic.state("2B", "off"),
        lambda: sonic.state("2C", "normal"),
        lambda: sonic.label("25A", "x"),
        lambda: sonic.label("1A", "a\nb"),
        lambda: sonic.label("1A", "a;b"),
    ):
        with pytest.raises(UsageError, match=r"^(Invalid|Error)"):
            call()


def test_what_is_live_and_not_configured_is_added_before_it_is_deleted(bench, sonic):
    bench.device.change([], [(0, 1)], "update", 0)  # another one's request, not by this interface
    assert sonic.cross_connect_config() == [] and len(sonic.cross_connect_status()) == 1
    with pytest.raises(UsageError, match=r"1A-2B is live and not configured; add it, then delete"):
        sonic.delete("1A-2B")
    sonic.add("1A-2B")
    assert "succeeded" in sonic.delete("1a-2b") and live(bench) == []
    with pytest.raises(UsageError, match=r"^Error: no cross-connect 1A-2B"):
        sonic.delete("1A-2B")


def test_e7_a_second_reconcile_sends_nothing():
    switch = StandaloneSwitch(24, "calient")
    sonic = Sonic(switch.operate)
    switch.operate(lambda device, now: device.change([], [(0, 4), (8, 9)], "update", now))
    done = sonic.reconcile([(1, 2), "3A-3B"])
    assert done.tuned and done.generation == 2
    assert done.removed == ("1A-5B",) and done.added == ("1A-2B", "2A-1B", "3A-3B")
    again = sonic.reconcile([(1, 2), "3A-3B"])
    assert again.tuned and again.removed == again.added == () and again.generation == 2
    assert [row["id"] for row in sonic.cross_connect_config()] == ["1A-2B", "2A-1B", "3A-3B"]
    assert "9A-10B" in [row["id"] for row in sonic.cross_connect_status()], "not in the way: stays"
    with pytest.raises(UsageError, match=r"^Error: no port 25"):
        sonic.reconcile([(1, 25)])
    sonic.state("2A", "force_blocked")
    assert not sonic.reconcile([(1, 2)]).tuned


def test_tables_and_insertion_losses(sonic):
    sonic.add("1A-16B")
    tables = sonic.tables()
    assert tables["config"]["OCS_CROSS_CONNECT|1A-16B"] == {"a_side": "1A", "b_side": "16B"}
    assert tables["state"]["OCS_PORT|1A"]["target_simplex_port_id"] == "16B"
    path = tables["state"]["OCS_CROSS_CONNECT_PHYSICAL_PATH|1A-16B"]
    assert path == {"physical_path": ["1A", "16B"]}
    assert tables["metadata"]["localhost"] == {"type": "SonicOCS", "switch_type": "ocs"}
    losses = sonic.factory_insertion_loss()
    assert len(losses) == 24 * 24 and all(1.58 <= float(each["loss_dB"]) <= 1.85 for each in losses)
    assert len(sonic.factory_insertion_loss("1A-2B,3A-4B")) == 2


def test_p3_from_light_to_carrier():
    device, waits, step = PanelDevice(2, "polatis+nic"), [], 100 * 10**12
    for n in range(2000):  # patched straight and looped in turn, each time long after the last
        now = (n + 1) * step
        device.advance(now)
        device.take_events()
        device.change([], [(0, 1), (1, 0)] if n % 2 else [(0, 0), (1, 1)], "overwrite", now)
        device.advance(now + step - 1)
        seen = {
            (kind, value): at for kind, at, port, _, value, _ in device.take_events() if port == 0
        }
        waits.append((seen["carrier", "up"] - seen["status", "tuned"]) * 1e-12)
    assert sum(waits) / 2000 == pytest.approx(5.67, rel=0.02)
    assert sorted(waits)[1979] == pytest.approx(6.33, rel=0.05)
