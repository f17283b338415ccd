"""What a user drives: the Lab and the open lab, scenarios, replays, crosschecks, benchmarks."""

from loomnet.labs.lab import Lab
from loomnet.labs.scenario import load

# A scenario runs in a Lab, and a Lab runs the scenarios of files. The Lab learns here how to load
# one, so that its module need not import that of scenarios.
Lab.load_file = staticmethod(load)
