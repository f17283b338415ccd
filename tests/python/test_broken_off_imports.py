"""What ends a command while the engine's extension module is imported ends it as at any other
place: the module makes an ImportError of what a signal's handler raises there."""

import subprocess
import sys

import pydantic_core
import pytest

from loomnet.base.wall_time import WallTimeOver, importing

# Ends itself inside the import of loomnet._core, in Python code that its initialization calls.
ENDS = """
import os, signal, sys, time
from importlib.machinery import ExtensionFileLoader

def called(frame, event, argument):
    if frame.f_code.co_filename.startswith("<frozen importlib"):
        return
    while frame is not None:
        if frame.f_code is ExtensionFileLoader.exec_module.__code__:
            if frame.f_locals["module"].__name__ == "loomnet._core":
                sys.setprofile(None)
                os.kill(os.getpid(), signal.{signal})
                time.sleep(30)
            return
        frame = frame.f_back

sys.setprofile(called)
from loomnet.cli.entry import main
sys.exit(main())
"""
SCENARIO = """
import loomnet as ln

@ln.scenario
def tiny(lab: ln.Lab):
    lab.run(ln.star(hosts=2, rate="10 Gb/s", delay="1 us"), ln.Permutation("1 kB"))
"""


@pytest.mark.parametrize("signal", ["SIGINT", "SIGTERM"])
def test_a_signal_that_ends_an_import_is_said_in_one_line(tmp_path, signal):
    (tmp_path / "s.py").write_text(SCENARIO)
    run = subprocess.run(
        [sys.executable, "-c", ENDS.format(signal=signal), "run", "s.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    output = run.stdout + run.stderr
    assert run.returncode == 130, output
    assert output.count("loomnet: interrupted") == 1, output
    assert "Traceback" not in output and "ImportError" not in output, output


@pytest.mark.parametrize("raised", [WallTimeOver("--max-wall 1 s is over"), KeyboardInterrupt()])
def test_what_the_handler_raised_comes_out(raised):
    with pytest.raises(type(raised)) as caught, importing():
        raise ImportError("initialization failed") from raised
    assert caught.value is raised


@pytest.mark.parametrize(
    "raised",
    [WallTimeOver("--max-wall 1 s is over"), KeyboardInterrupt("SIGTERM"), KeyboardInterrupt()],
)
def test_what_a_schema_made_text_of_comes_out(raised):
    """pydantic's core, where it builds a schema, keeps no more than the text of what was raised."""

    class Value:
        def __repr__(self):
            raise raised

    schema = {"type": "literal", "expected": [Value()]}
    with pytest.raises(pydantic_core.SchemaError, match=type(raised).__name__):
        pydantic_core.SchemaValidator(schema)
    with pytest.raises(type(raised)) as caught, importing():
        pydantic_core.SchemaValidator(schema)
    assert str(caught.value) == str(raised)


def test_another_import_error_stays_one():
    with pytest.raises(ImportError, match="no such thing"), importing():
        raise ImportError("no such thing") from OSError("disk")
