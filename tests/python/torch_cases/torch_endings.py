"""Jobs of which the ending is tested: every rank runs ``python endings.py NAME FOLDER``. Each ends
well, or fails with words that say why; none hangs. One job each, because a job ends once."""

import dataclasses
import faulthandler
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist

LIMIT_S = 100.0  # of wall time; then a rank ends with the stacks of its threads


@dataclasses.dataclass(frozen=True)
class Ending:
    """How a job shall end.

    Attributes:
        run: called in every rank.
        fails: words of the job's error; none: the job ends well.
        says: words in the log of each of these ranks.
        options: of the TorchJob.
    """

    run: Callable[[], None]
    fails: tuple[str, ...] = ()
    says: dict[int, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    options: dict[str, object] = dataclasses.field(default_factory=dict)


ENDINGS: dict[str, Ending] = {}


def ending(*fails: str, says: dict[int, tuple[str, ...]] | None = None, **options: object):
    def register(function: Callable[[], None]) -> Callable[[], None]:
        ENDINGS[function.__name__] = Ending(function, fails, says or {}, options)
        return function

    return register


EVERYONE = range(4)


def say(*words: object) -> None:
    print(*words, flush=True)


def begin(**options: object) -> tuple[int, int]:
    dist.init_process_group("gloo", **options)
    return dist.get_rank(), dist.get_world_size()


def total(value: int) -> int:
    dist.all_reduce(t := torch.tensor([value]))
    return int(t)


# --- ends that are failures -----------------------------------------------------------------------
@ending("deadlock", *(f"rank {rank}" for rank in EVERYONE), "recv")
def ring_of_receives():
    """Each rank waits for its neighbour before it sends anything: from the first instant on."""
    rank, world = begin()
    dist.recv(torch.zeros(1), (rank - 1) % world)


@ending("deadlock", "rank 0", "rank 2")
def missing_rank_of_a_collective():
    rank, _ = begin()
    total(1)
    if rank == 2:
        dist.recv(torch.zeros(1), 0)
    else:
        dist.barrier()


@ending(
    "all_gather",
    "all_reduce",
    "several threads of this rank call on this group",
    "MainThread at ",
    "in two_threads_whose_calls",
    "the saver at ",
    "in gather",
)
def two_threads_whose_calls_differ_in_order():
    rank, _ = begin()
    total(1)
    called = threading.Event()

    def gather() -> None:
        if rank:
            called.wait()
        work = dist.all_gather([torch.zeros(1) for _ in EVERYONE], torch.zeros(1), async_op=True)
        if not rank:
            called.set()
        work.wait()

    other = threading.Thread(target=gather, name="the saver")
    other.start()
    if not rank:
        called.wait()
    work = dist.all_reduce(torch.ones(1), async_op=True)
    if rank:
        called.set()
    work.wait()
    other.join()


@ending("all_gather", "all_reduce", "rank 0")
def ranks_that_differ_in_their_next_collective():
    """As when a thread saves a checkpoint on the default group while the training uses it."""
    rank, _ = begin()
    total(1)
    if rank == 0:
        dist.all_gather([torch.zeros(1) for _ in EVERYONE], torch.zeros(1))
    else:
        total(2)


@ending("deadlock", "rank 0 waits", "rank 3 has exited")
def rank_that_ends_before_the_group_is_made():
    """Known at once, not only after `stall_wall`: the ranks wait for each other over the NIC."""
    if os.environ["RANK"] == "3":
        sys.exit(0)
    begin()


@ending("deadlock", "rank 1 in broadcast", "ranks 0, 2 and 3 in all_reduce")
def broadcast_beside_an_all_reduce():
    rank, _ = begin()
    if rank == 1:
        dist.broadcast(torch.ones(3), 0)
    else:
        total(1)


@ending("rank 0", "rank 3", "1 operation unfinished", "all_reduce")
def all_ranks_end_in_the_middle_of_an_operation():
    """Each with status 0: no process tells of a failure."""
    begin()
    dist.all_reduce(torch.ones(1_000_000), async_op=True)
    os._exit(0)


@ending("rank 0", "1 operation unfinished")
def message_that_is_never_received():
    rank, _ = begin()
    if rank == 0:
        dist.isend(torch.ones(200_000), 1)


@ending("rank 0", "ValueError: the last to end")
def last_rank_to_end_fails():
    rank, _ = begin()
    total(1)
    if rank:
        os._exit(0)
    time.sleep(1)
    raise ValueError("the last to end")


@ending("ValueError: all together")
def all_ranks_fail_together():
    begin()
    total(1)
    raise ValueError("all together")


@ending(
    "rank 2",
    "exit status 3",
    says={rank: ("rank 2 has ended with exit status 3",) for rank in (0, 1, 3)},
)
def exit_status_of_a_rank():
    rank, _ = begin()
    total(1)
    if rank == 2:
        sys.exit(3)
    dist.barrier()


@ending("rank 1", "SIGKILL", says={0: ("rank 1",)})
def rank_killed_while_others_wait():
    rank, _ = begin()
    if rank == 1:
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGKILL)
    total(1)


@ending("rank 2")
def exception_while_others_receive():
    rank, _ = begin()
    if rank == 2:
        time.sleep(0.2)
        raise ValueError("a bug")
    dist.recv(torch.zeros(3), 2)


@ending("Timed out", says={0: ("Timed out", "recv")})
def timeout_of_the_group_in_emulated_time():
    """0.2 s of emulated compute in rank 1 are over in an instant of the machine's time."""
    rank, _ = begin(timeout=timedelta(seconds=0.1))
    if rank == 1:
        compute(200)
        dist.send(torch.ones(3), 0)
    elif rank == 0:
        dist.recv(torch.zeros(3), 1)


def compute(steps: int) -> None:
    """Emulated time: each step of an optimizer is one of `compute=`."""
    from emulated import step

    for _ in range(steps):
        step()


@ending("ranks 0, 1, 2 and 3 of the job all call themselves rank 0 of 4", "not LOCAL_RANK")
def ranks_that_are_all_rank_0():
    """The rank is taken from LOCAL_RANK, which is 0 on each host."""
    begin(rank=int(os.environ["LOCAL_RANK"]), world_size=4)


@ending(
    "deadlock",
    "rank 0 in init_process_group of 2 ranks",
    "ranks 1, 2 and 3 in init_process_group of 4 ranks",
)
def worlds_of_two_sizes():
    begin(rank=int(os.environ["RANK"]), world_size=2 if os.environ["RANK"] == "0" else 4)


# --- ends that are well ---------------------------------------------------------------------------
@ending(says={rank: ("right",) for rank in EVERYONE})
def timeouts_that_are_long_enough_in_emulated_time():
    """Rank 1 computes for 0.2 emulated seconds, which the others' timeout of 0.5 allows."""
    rank, _ = begin(timeout=timedelta(seconds=0.5))
    if rank == 1:
        compute(200)
    assert total(1) == 4
    say("right")


@ending(says={0: ("Timed out",), 1: ("Timed out",)}, allow_no_network=True)
def timeout_that_is_longer_than_the_stall_timeout():
    """The time limit of 20 s ends the receive, and the script catches the error and goes on."""
    rank, _ = begin(timeout=timedelta(seconds=20))
    try:
        if rank == 0:
            total(1)
        else:
            dist.recv(torch.zeros(1), 0)
    except RuntimeError as error:
        say(str(error))


@ending(says={rank: ("right",) for rank in EVERYONE})
def wait_with_a_timeout_that_the_operation_outlives():
    rank, _ = begin()
    if rank == 1:
        compute(200)
    work = dist.all_reduce(t := torch.ones(3), async_op=True)
    if rank == 0:
        try:
            work.wait(timedelta(seconds=0.1))
            say("too early")
        except RuntimeError as error:
            assert "timed out" in str(error).lower(), error
    work.wait()
    assert t[0] == 4
    say("right")


@ending(says={rank: ("right 6 10 14",) for rank in EVERYONE})
def default_group_made_again():
    """Rank 0's old store is at the address of the new one until rank 0 leaves the old group, which
    is later than the others do: rank 0 computes on between."""
    found = []
    for turn in range(3):
        rank, _ = begin()
        found.append(total(rank + turn))
        if rank == 0:
            time.sleep(0.2 * turn)
        dist.destroy_process_group()
    say("right", *found)


@ending(says={rank: ("refused", "TorchJob(ranks=…)", "right") for rank in EVERYONE})
def children_that_ask_for_a_group():
    """Before the rank has its own group and after: by fork, and by another interpreter."""
    port = int(os.environ["MASTER_PORT"]) + 1000

    def ask():
        try:
            dist.init_process_group(
                "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=1
            )
        except RuntimeError as error:
            say("refused", error)
            return 0
        return 1

    def forked():
        child = os.fork()
        if child == 0:
            os._exit(ask())
        return os.waitpid(child, 0)[1]

    def spawned():
        code = (
            "import torch.distributed as dist\n"
            "try: dist.init_process_group('gloo')\n"
            "except RuntimeError as error: assert 'TorchJob(ranks=…)' in str(error)\n"
            "else: raise SystemExit(1)"
        )
        return subprocess.run([sys.executable, "-c", code]).returncode

    found = [forked(), spawned()] if os.environ["RANK"] == "0" else [forked()]
    begin()
    if dist.get_rank() == 0:
        found.append(spawned())
    assert total(sum(found)) == 0
    say("right")


@ending(says={rank: ("right",) for rank in EVERYONE})
def groups_not_destroyed_at_the_end():
    _rank, _ = begin()
    groups = [dist.new_group() for _ in range(3)]
    for group in groups:
        dist.all_reduce(torch.ones(4), group=group)
    say("right")


@ending(says={0: ("right",), 3: ("right",)})
def rank_that_nobody_needs_exits():
    """Ranks 1 and 2 leave, one by sys.exit and one by os._exit; ranks 0 and 3 go on."""
    rank, _ = begin()
    pair = dist.new_group([0, 3])
    total(1)
    if rank == 1:
        sys.exit(0)
    if rank == 2:
        os._exit(0)
    for _ in range(5):
        dist.all_reduce(torch.ones(10), group=pair)
    say("right")


@ending(
    says={0: ("refused", "rank 3", "right"), 1: ("refused", "right"), 2: ("refused", "right")},
    allow_no_network=True,
)  # no rank sends anything
def rank_that_leaves_is_needed_and_the_error_is_caught():
    rank, _ = begin()
    if rank == 3:
        return
    try:
        dist.recv(torch.zeros(1), 3)
    except RuntimeError as error:
        say("refused", str(error))
    say("right")


@ending("rank 1", "recv", "rank 0 left with operations of its own unfinished")
def send_that_is_not_waited_for():
    """The sender exits while its message is under way. Over Gloo the receiver gets the message or
    "Connection closed by peer", by chance; here it is told each time that the sender gave up."""
    rank, _ = begin()
    if rank == 0:
        dist.isend(torch.arange(100_000), 1)
    elif rank == 1:
        dist.recv(torch.zeros(100_000, dtype=torch.int64), 0)


@ending(says={rank: ("right", "gloo") for rank in EVERYONE}, map_backend=False)
def stock_gloo_beside_loomnet():
    """The name is not mapped: the group is Gloo's own, over the machine's loopback."""
    dist.init_process_group("loomnet")
    assert total(1) == 4
    group = dist.new_group(backend="gloo")
    dist.barrier(group)
    assert total(2) == 8
    say("right", dist.get_backend(group))


@ending(says={rank: ("handled", "right") for rank in EVERYONE})
def signal_of_termination_handled():
    """A handler notes the signal, as a script does that saves a checkpoint before it ends."""
    _rank, _ = begin()
    noted = []
    signal.signal(signal.SIGTERM, lambda *_: noted.append(1))
    total(1)
    os.kill(os.getpid(), signal.SIGTERM)
    if total(len(noted)) == 4:
        say("handled")
    say("right")


@ending(
    "the emulated network was not used",
    "ranks 0, 1, 2 and 3 made no process group",
    says={rank: ("right",) for rank in EVERYONE},
)
def job_without_any_communication():
    say("right", torch.ones(3).sum().item())


def main() -> None:
    faulthandler.dump_traceback_later(LIMIT_S, exit=True)
    torch.set_num_threads(1)
    ENDINGS[sys.argv[1]].run()


if __name__ == "__main__":
    main()
