"""An engine that plays back a prepared RunData: what Lab, report and command line do with a run can
be tested for every ending, also those a healthy engine never shows. Tests only."""

from loomnet.base.units import Time
from loomnet.running.request import Progress


class ScriptedRunner:
    """Fulfils Runner; keeps the requests it was given."""

    def __init__(self, make):
        self.make, self.requests = make, []

    def describe(self, request):
        return f"{request.plan.name}: {request.lead.job.describe()}"

    def run(self, request, on_progress):
        self.requests.append(request)
        on_progress(
            Progress(Time("1 s"), step=1, phase="nic_link_down", paths_good=3, paths_total=4)
        )
        data = self.make(request)
        if request.lead.script is not None:
            (request.directory / "ranks").mkdir(exist_ok=True)
            for rank in range(len(request.lead.placement)):
                (request.directory / "ranks" / f"{rank}.log").write_text(f"rank {rank}\n")
            data.unequal_hashes = 0
        return [data]
