"""A transport that is one new file of loomnet.systems is known everywhere: nothing else of the
package is touched. That the engine's half is one new folder, the C++ tests show."""

import sys

import pytest

import loomnet as ln
import loomnet.systems
from loomnet.base.errors import UsageError
from loomnet.systems import registry

NEW = '''
"""A transport of a test: MRC's model under another name."""
from loomnet.systems.transport import Transport

class New(Transport):
    name = "new"
    what = "of a test"
    model = "MODEL"
    figures = ("lost", "retransmitted")

TRANSPORTS = (New(),)
'''


@pytest.fixture
def added(tmp_path, monkeypatch):
    """Adds a module to the room of systems; given the model that carries the transport."""

    def add(model):
        (tmp_path / "new_system.py").write_text(NEW.replace("MODEL", model))
        monkeypatch.setattr(loomnet.systems, "__path__", [*loomnet.systems.__path__, str(tmp_path)])
        registry.forget()

    yield add
    sys.modules.pop("loomnet.systems.new_system", None)
    registry.forget()


def run(tmp_path, transport):
    fabric = ln.clos.two_tier(
        planes=1, leaves=2, spines=1, hosts_per_leaf=2, rate="10 Gb/s", delay="1 us"
    )
    lab = ln.Lab("new", directory=tmp_path / "runs")
    return lab.run(fabric, ln.AllReduce(size="1 MB", repeat=5, transport=transport), payload=True)


def test_one_file_is_enough(added, tmp_path):
    with pytest.raises(UsageError, match='"new" is not a transport'):
        run(tmp_path, "new")
    added("mrc")
    r = run(tmp_path, "new")
    assert r.data.ended == "finished" and r.data.wrong == 0
    assert r["before.iteration_s"] == run(tmp_path, "mrc")["before.iteration_s"]
    with pytest.raises(UsageError, match="nearest: new"):
        run(tmp_path, "newt")


def test_a_model_that_the_engine_lacks_is_one_line(added, tmp_path):
    added("nowhere")
    with pytest.raises(UsageError, match='"new" is carried by a model "nowhere"'):
        run(tmp_path, "new")


def test_a_transport_of_its_own_that_the_engine_was_not_built_with(added, tmp_path):
    added("new")
    with pytest.raises(UsageError, match='"new" has no model in the engine'):
        run(tmp_path, "new")
