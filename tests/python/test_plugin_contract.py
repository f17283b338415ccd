"""What docs/plugins.md says a congestion control is given is what the engine gives, and a slip of
the pen is answered with the nearest name."""

import importlib.machinery
import importlib.util
from pathlib import Path

import pytest

import loomnet as ln
import loomnet._core as _core
from loomnet.plugins import congestions, contract

ROOT = Path(__file__).parents[2]


def script():
    loader = importlib.machinery.SourceFileLoader("contract_script", str(ROOT / "script/contract"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_the_page_has_the_tables_of_the_engine():
    module = script()
    text = module.PAGE.read_text()
    assert module.page(text) == text, "run script/contract"


@pytest.mark.parametrize("of", [_core.CongestionFlow, _core.AckSample, _core.CongestionEvent])
def test_every_field_says_what_it_is(of):
    found = dict(contract.fields(of))
    assert len(found) >= 5 and all(found.values())
    assert all(text.endswith(".") for text in found.values())


def test_every_method_and_signal_is_described():
    described = {text.partition("(")[0] for text in contract.OPTIONAL}
    assert described == set(congestions.METHODS) - set(congestions.REQUIRED)
    with pytest.raises(ln.UsageError, match="surplus") as error:

        @ln.plugin.congestion("needs_what_is_none")
        class Needs(ln.plugin.Congestion):
            needs = ("surplus",)

    assert all(name in str(error.value) for name in contract.NEEDS)


def test_a_wrong_name_is_answered_once_with_the_nearest():
    @ln.plugin.congestion("mistyped")
    class Mistyped(ln.plugin.Congestion):
        def on_ack(self, ack):
            self.window = ack.now

    with pytest.raises(ln.UsageError) as error:
        ln.check_plugin(Mistyped)
    lines = str(error.value).splitlines()
    assert len(lines) == 1, lines
    assert "AckSample has no field now; nearest: now_ps" in lines[0]
    assert "over mrc, roce, tcp" in lines[0] and "where" not in lines[0]


def test_a_breach_in_one_situation_names_it():
    @ln.plugin.congestion("fears_death")
    class FearsDeath(ln.plugin.Congestion):
        def on_congestion(self, event):
            if event.kind == "timeout":
                raise RuntimeError("time is up")

    with pytest.raises(ln.UsageError) as error:
        ln.check_plugin(FearsDeath)
    (line,) = str(error.value).splitlines()
    assert "time is up" in line and " where " in line


def test_one_option_names_the_control_of_every_transport(capsys):
    fabric = ln.star(hosts=2, rate="10 Gb/s", delay="1 us")
    job = {each: ln.AllReduce("100 kB", transport=each) for each in ("mrc", "roce", "tcp")}
    for each, chosen in (("mrc", "dctcp_like"), ("roce", "timely"), ("tcp", "bbr")):
        r = ln.run(fabric, job[each], **{each: {"cc": chosen}})
        assert chosen in str(r.data.fidelity.notes), each
    former = ln.run(fabric, job["mrc"], mrc={"congestion": "dctcp_like"})
    assert 'mrc={"congestion": …} is mrc={"cc": …}' in capsys.readouterr().err
    assert former.data.fidelity.notes["congestion control"] == "dctcp_like"
    with pytest.raises(ln.UsageError, match="congestion and cc are one option"):
        ln.run(fabric, job["mrc"], mrc={"congestion": "nscc", "cc": "nscc"})
