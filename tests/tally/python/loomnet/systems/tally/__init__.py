"""A system of a test: jobs that ask for it have a queue pair more, and switches count."""

from loomnet.base.errors import UsageError
from loomnet.systems.system import JobOption, Program, RunPart


class _Counted(JobOption):
    def check(self, job, value):
        if value not in (True, False):
            raise UsageError(f"counted={value!r} must be True or False")


class Tally(Program):
    name = "tally"

    def rows(self, switch, parts):
        ports = [port for part in parts if isinstance(part, Counts) for port in part.ports(switch)]
        return {"ports": [{"port": port} for port in ports]}


class Counts(RunPart):
    allreduce = "tally"

    def __init__(self, plan):
        self._plan, self.pairs = plan, 0

    @classmethod
    def of(cls, plan, requests, options):
        return cls(plan) if any(each.job.option("counted") for each in requests) else None

    def ports(self, switch):
        """Those of a switch that lead to the first two hosts."""
        links = {link for host in self._plan.hosts[:2] for link in host.ports}
        return [number for number, link in enumerate(switch.ports) if link in links]

    def bind(self, engine, asked, core):
        engine.connect_pair(asked, asked.placement[0], asked.placement[-1], 0x100)
        self.pairs += 1

    def figures(self, asked, data):
        yield "tally_pairs", float(self.pairs), "queue pairs", None

    def lint(self):
        yield "ports of the first two hosts are counted"


PROGRAMS = (Tally(),)
JOB_OPTIONS = (_Counted("counted", "whether switches count for the job", False),)
RUN_PARTS = (Counts,)
