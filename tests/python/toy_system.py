"""A system of a test, in one folder: jobs that ask for it have a queue pair more, whose packets a
switch program answers, one figure of them, and a line before the run."""

import contextlib
import sys

import loomnet.systems
from loomnet.systems import registry

FILES = {
    "__init__.py": '''
"""A system of a test."""
from loomnet.systems.toy.run import SHOWN, Shown, Toy

PROGRAMS = (Shown(),)
JOB_OPTIONS = (SHOWN,)
RUN_PARTS = (Toy,)
''',
    "run.py": """
from loomnet.base.errors import UsageError
from loomnet.systems.system import JobOption, Program, RunPart

MESSAGE = 5000


class _Shown(JobOption):
    def check(self, job, value):
        if value not in (True, False):
            raise UsageError(f"shown={value!r} must be True or False")


SHOWN = _Shown("shown", "whether the toy counts for the job", False)


class Shown(Program):
    name = "mirror"

    def settings(self, switch, plan, options):
        return {"sample": 3} | dict(switch.options)

    def rows(self, switch, parts):
        wanted = [part for part in parts if isinstance(part, Toy) and part.asks_for_rows]
        return {"toys": [{"number": switch.number}]} if wanted else {}


class Toy(RunPart):
    allreduce = "toy"

    def __init__(self, plan, requests):
        self._plan, self.numbers = plan, []
        self.asks_for_rows = any(each.name == "rows" for each in requests)

    @classmethod
    def of(cls, plan, requests, options):
        shown = [each for each in requests if each.job.option("shown")]
        return cls(plan, shown) if shown else None

    def bind(self, engine, asked, core):
        first, last = asked.placement[0], asked.placement[-1]
        self.numbers.append(engine.connect_pair(asked, first, last, 0x100))

    def figures(self, asked, data):
        yield "toy_pairs", float(len(self.numbers)), "queue pairs", None

    def notes(self):
        return {"toy": "was there"}

    def lint(self):
        yield "the toy counts queue pairs"

    def stall(self, asked):
        return "; the toy waits too"
""",
}


@contextlib.contextmanager
def added(folder, *, change=("", "")):
    """The room of systems has the toy while it lasts, with this text of it changed."""
    home = folder / "toy"
    home.mkdir(parents=True)
    for name, text in FILES.items():
        (home / name).write_text(text.replace(*change))
    before = loomnet.systems.__path__
    loomnet.systems.__path__ = [*before, str(folder)]
    registry.forget()
    try:
        yield
    finally:
        loomnet.systems.__path__ = before
        for name in [each for each in sys.modules if each.startswith("loomnet.systems.toy")]:
            del sys.modules[name]
        registry.forget()
