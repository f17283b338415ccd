"""The variables by which a run tells its ranks' processes what they are and have. The launcher sets
them, the backend in the rank reads them. Files that are run by path with the standard library alone
spell theirs."""

from __future__ import annotations

# The rank's NIC: inherited descriptors of its shared memory and of the engine's eventfd. Where
# RANK_FD is not set, no run is around.
RANK_FD = "LOOMNET_RANK_FD"
EVENT_FD = "LOOMNET_EVENT_FD"
# The rank's own process, by the number that it knows itself by: its children inherit the variable.
RANK_PID = "LOOMNET_RANK_PID"
# An inherited descriptor: where the rank writes its threads' stacks when the run asks.
STACK_FD = "LOOMNET_STACK_FD"
# The transport's name, to be shown.
TRANSPORT = "LOOMNET_TRANSPORT"
# "1": stock Gloo carries the bytes and is only measured.
STOCK_GLOO = "LOOMNET_STOCK_GLOO"
# "0": a send is over once the transport has taken its bytes, as with sockets.
AWAIT_SENDS = "LOOMNET_AWAIT_SENDS"
# "1": a script that asks for the backend gloo, or for none, gets Loomnet's.
MAP_BACKEND = "LOOMNET_MAP_BACKEND"
# "virtual" where emulated time is the engine's.
CLOCK = "LOOMNET_CLOCK"
# When the job started, in picoseconds on the clock that the rank's session reads: emulated time on
# the virtual clock, the machine's monotonic clock over the dilation on the live one.
STARTED = "LOOMNET_STARTED"
# Live: how many seconds of wall time an emulated second takes.
DILATION = "LOOMNET_DILATION"
# The compute model on the virtual clock, as jobs.compute.encoded() writes it.
COMPUTE = "LOOMNET_COMPUTE"
# Every so many steps each rank reports a hash of its parameters; "0": never.
HASH_EVERY = "LOOMNET_HASH_EVERY"
# "1": the rank reports each ring step that it receives.
RING_STEPS = "LOOMNET_RING_STEPS"
# Which ranks share a server, its NICs and its region, as JSON (torch.expert_routes.Servers).
SERVERS = "LOOMNET_SERVERS"
# What a script's own clocks show: "wall", or "emulated NS" with the wall time (ns) at which its
# time.time() begins.
SCRIPT_TIME = "LOOMNET_SCRIPT_TIME"
# "cpu": a script that asks for cuda gets the CPU under that name; "off": it is told how.
CUDA = "LOOMNET_CUDA"
# A folder for copies of what torch.profiler exports, where the run is traced.
PROFILES = "LOOMNET_PROFILES"
# Live: the name of the rank's host, and its address, which stock Gloo binds to.
HOST = "LOOMNET_HOST"
HOST_ADDRESS = "LOOMNET_HOST_ADDRESS"
# Address of rank 0's host on the network that carries rendezvous: the management network, live.
MASTER = "LOOMNET_MASTER"
# The run's id, in every process that belongs to it: `loomnet clean` finds them by it.
RUN = "LOOMNET_RUN"
# A file that the rank adds a line to for each file that it opens, where the run asks.
READS = "LOOMNET_READS"
# How a line of a rank's log begins that names a thread whose first collective came while emulated
# time passed.
STRAY = "loomnet: began to communicate while emulated time passed: thread "
