"""Ranks that wait, in the network or outside it: a deadlock is named from the first instant on,
nothing else is taken for one, and time limits go by emulated time. The ranks use their NIC without
PyTorch."""

import textwrap
import time

import pytest

import loomnet as ln
from loomnet.labs.lab import Lab

SCRIPT = """
import faulthandler, os, signal, subprocess, sys, threading, time
from array import array
from loomnet import _core

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
faulthandler.register(signal.SIGRTMAX, file=int(os.environ["LOOMNET_STACK_FD"]))
session = _core.RankSession(int(os.environ["LOOMNET_RANK_FD"]),
                            int(os.environ["LOOMNET_EVENT_FD"]))
NEVER = -1

def group(name=1, members=None, timeout_ns=0, asked=False):
    members = list(range(world)) if members is None else members
    number, came, _ = session.meet(name, 0, members.index(rank), len(members), timeout_ns, asked)
    if number is not None:
        session.create(number, [job for _, job in sorted(came)])
    return number, came

def start(kind, number, peer=0, timeout_ns=0, asked=True):
    data = array("q", [rank + 1])
    kept.append(data)
    where = [data.buffer_info()[0]]
    out = [] if kind == "send" else where
    return session.start(number, [(_core.COLLECTIVES[kind], _core.DATA_TYPES["int64"],
                                   _core.REDUCE_OPS["sum"], 1, where if kind != "recv" else [], out,
                                   [], [], 0, peer, 0, 1.0)], timeout_ns, asked), data

def do(kind, number, peer=0):
    work, data = start(kind, number, peer)
    session.wait(work, NEVER)
    if not work.ok:
        sys.exit(f"{kind}: {work.message}")
    return data[0]

kept = []
world_group, _ = group()
"""


def run_of(tmp_path, script: str, ranks: int = 4, max_wall_s: float = 120, **options):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT + textwrap.dedent(script))
    fabric = ln.clos.two_tier(
        planes=1, leaves=1, spines=1, hosts_per_leaf=4, rate="400 Gb/s", delay="1 us"
    )
    lab = Lab("waiting", directory=tmp_path / "run", max_wall_s=max_wall_s)
    return lab.run(fabric, ln.TorchJob(path, ranks=ranks, compute="1 ms", **options))


def ends_well(r, tmp_path, ranks=4):
    logs = [(tmp_path / "run" / "ranks" / f"{rank}.log").read_text() for rank in range(ranks)]
    assert r.data.ended == "finished", (r.data.errors, logs)
    return logs


@pytest.mark.parametrize("stall", ["auto", None])
def test_a_deadlock_is_named_with_operations_and_stacks_before_any_step(tmp_path, stall):
    began = time.monotonic()
    r = run_of(tmp_path, "do('recv', world_group, (rank + 1) % world)", stall_timeout=stall)
    assert time.monotonic() - began < 60
    message = r.data.errors[0].message
    assert r.data.ended == "stalled" and "a deadlock" in message.splitlines()[0]
    for rank in range(4):
        assert f"rank {rank} waits, in recv" in message
    assert message.count("in do") == 4
    assert r.data.deterministic and r.data.fidelity.emulated_ps < 10**12


def test_a_deadlock_outlives_no_limit_that_the_script_did_not_choose(tmp_path):
    r = run_of(
        tmp_path,
        """
        work, _ = start("recv", world_group, (rank + 1) % world, 1800 * 10**9, asked=False)
        session.wait(work, NEVER)
        """,
    )
    assert r.data.ended == "stalled" and "a deadlock" in r.data.errors[0].message


def test_time_limits_are_emulated_time(tmp_path):
    r = run_of(
        tmp_path,
        """
        began = session.now_ps
        late, _ = start("recv", world_group, (rank + 1) % world)
        assert not session.wait(late, 3 * 10**9)
        assert 3e12 <= session.now_ps - began < 3.001e12
        number, _ = group(2)
        work, _ = start("recv", number, (rank + 1) % world, 2 * 10**9)
        assert session.wait(work, NEVER) and not work.ok and "Timed out" in work.message
        assert 5e12 <= session.now_ps - began < 5.01e12
        do("send", world_group, (rank - 1) % world)
        assert session.wait(late, NEVER) and late.ok
        os._exit(0)
        """,
        stall_timeout="60 s",
    )
    ends_well(r, tmp_path)
    assert r.data.deterministic


def test_groups_are_made_late_and_by_some_while_others_wait(tmp_path):
    r = run_of(
        tmp_path,
        """
        do("all_reduce", world_group)
        if rank < 2:
            number, came = group(2, [1, 0])
            assert sorted(came) == [(0, 1), (1, 0)]
            assert do("all_reduce", number) == 3
        for name in range(3, 12):
            number, _ = group(name)
            assert do("all_reduce", number) == 10
        """,
    )
    ends_well(r, tmp_path)
    assert r.data.deterministic


def test_a_group_whose_member_does_not_come_names_those_that_came(tmp_path):
    r = run_of(
        tmp_path,
        """
        if rank != 2:
            number, came = group(2, timeout_ns=10**9, asked=True)
            assert number is None and sorted(job for _, job in came) == [0, 1, 3], came
        do("all_reduce", world_group)
        """,
    )
    ends_well(r, tmp_path)


@pytest.mark.parametrize(
    "outside",
    [
        "time.sleep(0.5)",
        "subprocess.run(['sleep', '0.5'])",
        "lock = threading.Lock(); lock.acquire(); threading.Timer(0.5, lock.release).start(); "
        "lock.acquire()",
    ],
    ids=["sleep", "child", "lock"],
)
def test_a_rank_that_sleeps_outside_is_no_deadlock(tmp_path, outside):
    r = run_of(
        tmp_path,
        f"""
        if rank == 1:
            {outside}
        assert do("all_reduce", world_group) == 10
        """,
    )
    ends_well(r, tmp_path)


def test_a_rank_may_wait_for_what_another_does_later_in_emulated_time(tmp_path):
    # Rank 1 looks for a file that rank 0 makes only after a second of emulated time has passed.
    r = run_of(
        tmp_path,
        f"""
        path = {str(tmp_path / "there")!r}
        if rank == 0:
            session.compute(10**12)
            open(path, "w").close()
        while rank == 1 and not os.path.exists(path):
            time.sleep(0.02)
        assert do("all_reduce", world_group) == 10
        """,
    )
    ends_well(r, tmp_path)
    assert not r.data.deterministic  # emulated time went with the machine's clock
    assert "rank 1" in r.data.fidelity.notes["waited outside the network"]


def test_a_thread_that_computes_beside_a_waiting_one_does_not_move_the_clock(tmp_path):
    r = run_of(
        tmp_path,
        """
        number, _ = group(2)
        if rank == 0:
            helper = threading.Thread(target=do, args=("recv", number, 1))
            helper.start()
            end = time.monotonic() + 1
            before = session.now_ps
            while time.monotonic() < end:
                pass
            assert session.now_ps - before < 10**9, session.now_ps - before
            do("send", world_group, 1)
            helper.join()
        elif rank == 1:
            do("recv", world_group, 0)
            do("send", number, 0)
        do("all_reduce", world_group)
        """,
    )
    ends_well(r, tmp_path)


def test_a_busy_thread_that_never_communicates_does_not_hold_the_clock(tmp_path):
    r = run_of(
        tmp_path,
        """
        def burn():
            while True:
                pass
        threading.Thread(target=burn, daemon=True).start()
        for _ in range(3):
            assert do("all_reduce", world_group) == 10
        os._exit(0)
        """,
    )
    ends_well(r, tmp_path)


def test_two_threads_communicate_on_two_groups(tmp_path):
    r = run_of(
        tmp_path,
        """
        def many(number):
            for _ in range(10):
                assert do("all_reduce", number) == 10
        numbers = [group(2)[0], group(3)[0]]
        threads = [threading.Thread(target=many, args=(number,)) for number in numbers]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        """,
    )
    ends_well(r, tmp_path)


def test_a_thread_that_posts_beside_a_waiting_one_and_then_sleeps_does_not_hold_the_clock(tmp_path):
    r = run_of(
        tmp_path,
        """
        def post():
            time.sleep(0.3)
            start("send", world_group, 1)
            threading.Event().wait()
        if rank == 0:
            threading.Thread(target=post, daemon=True).start()
            do("recv", world_group, 1)
        elif rank == 1:
            do("recv", world_group, 0)
            do("send", world_group, 0)
        do("all_reduce", world_group)
        os._exit(0)
        """,
    )
    ends_well(r, tmp_path)
    assert not r.data.deterministic  # when the thread posts is the machine's affair


def test_polls_that_find_nothing_cost_emulated_time(tmp_path):
    r = run_of(
        tmp_path,
        """
        cost, work = 10**6, start("all_reduce", world_group)[0]
        if rank == 0:
            session.compute(5 * 10**9)
        while not work.done:
            session.compute(cost, True)
            cost = min(2 * cost, 10**9)
        """,
    )
    ends_well(r, tmp_path)
    assert r.data.deterministic and "polls that found nothing" in r.data.fidelity.notes


def test_nothing_that_moves_ends_a_run_by_wall_time(tmp_path):
    # Rank 0 waits in a lock for ever; the others wait for rank 0.
    r = run_of(
        tmp_path,
        """
        if rank == 0:
            lock = threading.Lock()
            lock.acquire()
            lock.acquire()
        do("all_reduce", world_group)
        """,
        stall_wall="3 s",
    )
    message = r.data.errors[0].message
    assert r.data.ended == "stalled" and "stall_wall" in message
    assert "rank 0 sleeps outside the network" in message and "lock.acquire" not in message


def test_a_rank_that_keeps_changing_its_state_cannot_keep_the_engine(tmp_path):
    # The state word is the first of the rank's page: waiting is 2, computing 1.
    began = time.monotonic()
    r = run_of(
        tmp_path,
        """
        import mmap, struct
        memory = mmap.mmap(int(os.environ["LOOMNET_RANK_FD"]), 0)
        if rank == 0:
            for epoch in range(10**9):
                memory[4096:4104] = struct.pack("<Q", epoch << 8 | 1 + epoch % 2)
        do("all_reduce", world_group)
        """,
        max_wall_s=5,
    )
    assert r.data.ended in ("stalled", "failed")  # as it happens to be found at one of the two
    assert time.monotonic() - began < 60


def test_who_left_early_is_named_where_it_is_needed(tmp_path):
    r = run_of(
        tmp_path,
        """
        if rank == 3:
            session.leave(0)
            os._exit(0)
        work, _ = start("all_reduce", world_group)
        session.wait(work, NEVER)
        assert not work.ok and "rank 3" in work.message, work.message
        os._exit(0)
        """,
        allow_no_network=True,
    )  # rank 3 never used its group
    ends_well(r, tmp_path)
