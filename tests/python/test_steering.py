"""A congestion control of ours in the kernel's TCP, as a run asks for it: without a kernel that has
it, and what its decisions become."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

import loomnet._core as _core
from loomnet.base.errors import UnavailableError
from loomnet.live import doctor, steering
from loomnet.live.steering import Steering
from loomnet.measures.observed import Observed
from loomnet.processes.journal import RunLock

REFUSED = (
    "read tcp_congestion_ops in /sys/kernel/btf/vmlinux: No such file or directory\n"
    "(needs CONFIG_DEBUG_INFO_BTF)"
)
COLUMNS = [("at_ns", "u8"), ("netns", "u4"), ("local_port", "u2"), ("remote_port", "u2")]
COLUMNS += [(name, "u4") for name in ("window", "commanded", "mode", "fallbacks")]
COLUMNS += [(n, "f8") for n in ("throughput_Bps", "rtt_us", "least_rtt_us", "loss_Bps")]
COLUMNS += [("queue_packets", "f8"), ("action", "f8")]


class Fake:
    """The engine's KernelControl, without a kernel."""

    decisions = np.zeros(0, COLUMNS)
    late_ps = slotless = 0
    decides = False

    def __init__(self, control, name, options):
        assert control == "astraea" and len(name) <= 15
        self.scheduling = "SCHED_FIFO 1"

    def start(self):
        pass

    def record(self):
        self.records = True

    def stop(self):
        pass

    def pace(self):
        return dict.fromkeys(("wakes", "missed", "worked_ns", "lasted_ns"), 1) | {
            "p99_ps": self.late_ps
        }

    def counts(self):
        return {"flows": 2, "decisions": 40, "flows_without_slot": self.slotless}

    def take_decisions(self):
        return self.decisions


@pytest.fixture
def fake(monkeypatch):
    monkeypatch.setattr(_core, "KernelControl", Fake, raising=False)


@pytest.fixture
def lock(tmp_path):
    with RunLock(tmp_path) as lock:
        yield lock


def test_a_kernel_without_it_is_one_line(monkeypatch, lock):
    def refuse(*_):
        raise RuntimeError(REFUSED)

    monkeypatch.setattr(_core, "KernelControl", refuse, raising=False)
    with pytest.raises(UnavailableError, match='this kernel cannot have "astraea"') as raised:
        Steering(lock, "astraea", {})
    assert "\n" not in str(raised.value) and "CONFIG_DEBUG_INFO_BTF" in str(raised.value)


def test_the_doctor_says_what_a_kernel_lacks(monkeypatch, fake):
    monkeypatch.setattr(doctor, "_effective_capabilities", lambda: ~0)
    monkeypatch.setattr(_core, "try_kernel_control", lambda _, **__: REFUSED, raising=False)
    line = doctor.why_not_steered()
    assert line is not None and "\n" not in line
    assert 'for tcp={"cc": "astraea"}' in line and "needs Linux 6.4" in line
    monkeypatch.setattr(_core, "try_kernel_control", lambda _, **__: "", raising=False)
    monkeypatch.setattr(_core, "cong_control_arguments", lambda: 2, raising=False)
    assert doctor.why_not_steered() is None
    (check,) = doctor._steering()
    assert check.found and not check.required and "2 arguments" in check.detail
    assert "agent=" not in check.detail

    def only_with_a_thread(_, *, decides=False):
        return "load it: Invalid argument\n(no bpf_loop)" if decides else ""

    monkeypatch.setattr(_core, "try_kernel_control", only_with_a_thread, raising=False)
    (check,) = doctor._steering()
    assert check.found and "\n" not in check.detail
    assert check.detail.endswith('agent="kernel" does not: load it: Invalid argument (no bpf_loop)')
    monkeypatch.setattr(doctor, "_effective_capabilities", lambda: 0)
    assert "without root" in str(doctor.why_not_steered())


def test_a_run_whose_agent_woke_late_is_no_result(fake, lock, monkeypatch):
    with Steering(lock, "astraea", {}) as steered:
        assert steered.name == f"{lock.prefix}_astraea"
        assert steered.fell_behind is None
        (note,) = [text for name, text in steered.notes().items() if name.endswith("kernel")]
        assert note.startswith("flows 2; decisions 40; wake-ups 1")
        monkeypatch.setattr(Fake, "late_ps", steering.LATEST_PS + 1)
        assert "woke 5 ms late" in str(steered.fell_behind)
        monkeypatch.setattr(Fake, "decides", True)  # then no flow waits for the thread
        assert steered.fell_behind is None
        (note,) = [text for name, text in steered.notes().items() if name.endswith("kernel")]
        assert note.startswith("the program decides, a thread watches; flows 2")
        monkeypatch.setattr(Fake, "slotless", 3)
        assert "3 flows of astraea found no slot" in str(steered.fell_behind)


def test_decisions_become_series(fake, lock, monkeypatch):
    rows = np.zeros(3, COLUMNS)
    rows["at_ns"] = [900, 2_000, 3_000]  # the first is of before the job
    rows["netns"], rows["local_port"], rows["remote_port"] = [7, 7, 8], 4000, 7000
    rows["action"], rows["throughput_Bps"] = [0.5, -1, 1], [1, 2, 3]
    monkeypatch.setattr(Fake, "decisions", rows)
    observed = Observed(10**9, ("action", "throughput_*"))
    with Steering(lock, "astraea", {}, record=True) as steered:
        assert steered._core.records
        steered.fill(observed, {7: "h0"}, zero_ns=1_000)
    series = observed.series()
    found = {f"{where} {name}": tuple(map(list, row)) for (where, name), row in series.items()}
    assert found == {
        "h0 port 4000->7000 action": ([1_000_000], [-1]),
        "h0 port 4000->7000 throughput_bps": ([1_000_000], [16]),
        "namespace 8 port 4000->7000 action": ([2_000_000], [1]),
        "namespace 8 port 4000->7000 throughput_bps": ([2_000_000], [24]),
    }, json.dumps(str(found))


def test_a_build_without_the_live_part_steers_nothing(monkeypatch):
    without = SimpleNamespace(congestion_controls=_core.congestion_controls)
    monkeypatch.setattr(steering, "_core", without)
    assert not steering.steers("astraea")
    assert not steering.steers("cubic") and not steering.steers(None)
