"""Waits outside the network: stores, files, locks, threads, polls, signals, children. A rank that
waits so neither computes nor waits for the network; on the virtual clock each of these ends."""

import asyncio
import fcntl
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from models import network, train, trained
from registry import Rank, case
from torch.distributed.elastic.utils import store as elastic
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset

# Over stock Gloo a message's work is complete in its wait() alone, and a wait that times out ends
# its operation: there a case waits plainly, for the result.
LOOMNET = "LOOMNET_TRANSPORT" in os.environ


def total(value: int) -> int:
    dist.all_reduce(t := torch.tensor([value]))
    return int(t)


# --- stores and files -----------------------------------------------------------------------------
@case(0)
def store_waited_for_after_a_collective(r: Rank):
    dist.barrier()
    store = dist.distributed_c10d._get_default_store()
    store.set(f"k{r.rank}", f"from {r.rank}")
    store.wait([f"k{i}" for i in r.everyone])
    found = [store.get(f"k{i}").decode() for i in r.everyone]
    if r.rank == 1:
        time.sleep(0.1)
        store.set("late", "word")
    return [*found, store.get("late").decode(), total(1)]


@case(0)
def store_barrier_of_elastic(r: Rank):
    dist.barrier()
    store = dist.distributed_c10d._get_default_store()
    if r.rank == 0:
        time.sleep(0.1)
    elastic.barrier(store, r.world, f"case/{r.world}")
    parts = elastic.synchronize(store, str(r.rank).encode(), r.rank, r.world, "case/values")
    return [part.decode() for part in parts]


@case(0)
def store_polled(r: Rank):
    dist.barrier()
    store = dist.distributed_c10d._get_default_store()
    if r.rank == 0:
        time.sleep(0.1)
        store.set("found", "yes")
    while not store.check(["found"]):
        pass
    return [store.get("found").decode(), total(2)]


@case(0)
def store_of_the_scripts_own(r: Rank):
    with socket.socket() as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    dist.broadcast(t := torch.tensor([port]), 0)
    dist.barrier()
    store = dist.TCPStore(
        os.environ["MASTER_ADDR"], int(t), r.world, r.rank == 0, timedelta(seconds=60)
    )
    count = store.add("ranks", 1)
    while store.add("ranks", 0) < r.world:
        time.sleep(0.005)
    dist.barrier()
    return 1 <= count <= r.world


@case(0, group=False)
def group_met_in_a_file(r: Rank):
    dist.init_process_group(
        "gloo", init_method=f"file://{r.folder}/meet", rank=r.rank, world_size=r.world
    )
    found = total(10**r.rank)
    dist.barrier()
    dist.destroy_process_group()
    return found


@case(0, group=False)
def group_made_with_a_barrier(r: Rank):
    os.environ["TORCH_DIST_INIT_BARRIER"] = "1"
    dist.init_process_group(
        "gloo", store=dist.FileStore(f"{r.folder}/meet", r.world), rank=r.rank, world_size=r.world
    )
    del os.environ["TORCH_DIST_INIT_BARRIER"]
    found = total(10**r.rank)
    dist.barrier()
    dist.destroy_process_group()
    return found


@case(0, group=False)
def group_checked_in_detail(r: Rank):
    """TORCH_DISTRIBUTED_DEBUG=DETAIL compares every call of a group over another group."""
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    dist.init_process_group(
        "gloo", store=dist.FileStore(f"{r.folder}/meet", r.world), rank=r.rank, world_size=r.world
    )
    found = [total(10**r.rank), total(3)]
    dist.barrier()
    dist.destroy_process_group()
    dist.set_debug_level(dist.DebugLevel.OFF)
    return found


@case(0)
def files_polled(r: Rank):
    dist.barrier()
    open(f"{r.folder}/{r.rank}", "w").close()
    while not all(os.path.exists(f"{r.folder}/{i}") for i in r.everyone):
        time.sleep(0.05)
    return total(1)


@case(0)
def file_lock_held_over_a_send(r: Rank):
    dist.barrier()
    t = torch.arange(1000) + r.rank
    with open(f"{r.folder}/lock", "w") as file:
        if r.rank == 1:
            dist.recv(t, 0)
        else:
            fcntl.flock(file, fcntl.LOCK_EX)
            if r.rank == 0:
                time.sleep(0.1)
                dist.send(t, 1)
            fcntl.flock(file, fcntl.LOCK_UN)
    return [t, total(1)]


@case(0)
def file_lock_in_turns(r: Rank):
    for _ in range(3):
        with open(f"{r.folder}/lock", "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            time.sleep(0.01)
    return total(1)


@case(0)
def file_saved_by_one_rank(r: Rank):
    dist.all_reduce(t := torch.tensor([r.rank]))
    if r.rank == 0:
        torch.save(t, f"{r.folder}/t.pt")
    dist.barrier()
    return torch.load(f"{r.folder}/t.pt")


# --- polls of works and futures -------------------------------------------------------------------
@case(0)
def work_polled_with_sleeps(r: Rank):
    work = dist.all_reduce(t := torch.tensor([r.rank]), async_op=True)
    while not work.is_completed():
        time.sleep(0.001)
    return t


@case(0)
def messages_polled(r: Rank):
    into = torch.zeros(4, dtype=torch.int64)
    receive = dist.irecv(into, r.left)
    send = dist.isend(torch.full((4,), r.rank), r.right)
    while LOOMNET and not (send.is_completed() and receive.is_completed()):
        pass
    receive.wait()
    send.wait()
    return into


@case(0)
def work_polled_without_a_pause(r: Rank):
    if r.rank == 0:
        time.sleep(0.1)
    work = dist.all_reduce(t := torch.tensor([r.rank]), async_op=True)
    while not work.is_completed():
        pass
    return t


@case(0)
def future_polled_without_a_pause(r: Rank):
    future = dist.all_reduce(t := torch.tensor([r.rank]), async_op=True).get_future()
    while not future.done():
        pass
    return [t, future.value()[0]]


@case(0)
def future_polled_with_sleeps(r: Rank):
    future = dist.all_reduce(t := torch.tensor([r.rank]), async_op=True).get_future()
    while not future.done():
        time.sleep(0.001)
    return t


@case(0)
def short_waits_repeated(r: Rank):
    """A wait that gives up after a millisecond leaves the operation running."""
    if r.rank == 0:
        time.sleep(0.05)
    work = dist.all_reduce(t := torch.tensor([r.rank]), async_op=True)
    while LOOMNET:
        try:
            work.wait(timedelta(milliseconds=1))
            break
        except RuntimeError as error:
            assert "timed out" in str(error), error
    work.wait()
    return t


@case(0)
def future_under_way_while_the_rank_sleeps(r: Rank):
    """Rank 0's all-reduce is under way while rank 0 sleeps; then its message lets rank 1 come."""
    t, u = torch.tensor([10**r.rank]), torch.arange(5)
    if r.rank == 0:
        future = dist.all_reduce(t, async_op=True).get_future()
        time.sleep(1)
        dist.send(u + 1, 1)
        future.wait()
    elif r.rank == 1:
        dist.recv(u, 0)
        dist.all_reduce(t)
    else:
        dist.all_reduce(t)
    return [t, u]


@case(0)
def future_under_way_while_data_is_loaded(r: Rank):
    """The loader's workers take longer than stall_timeout would be in emulated time."""
    future = dist.all_reduce(t := torch.tensor([r.rank + 1]), async_op=True).get_future()
    seen = 0
    for (batch,) in DataLoader(TensorDataset(torch.arange(8)), batch_size=4, num_workers=1):
        time.sleep(0.1)
        seen += int(batch.sum())
    future.wait()
    return [t, seen, total(1)]


# --- threads --------------------------------------------------------------------------------------
@case()
def busy_thread_beside_training(r: Rank):
    """It never sleeps; the training beside it waits for the network as ever."""
    stop = threading.Event()

    def burn() -> None:
        while not stop.is_set():
            pass

    thread = threading.Thread(target=burn)
    thread.start()
    model = DDP(network())
    try:
        return trained(model, train(model, r.rank, steps=2))
    finally:
        stop.set()
        thread.join()


@case()
def thread_that_wakes_every_millisecond(r: Rank):
    stop = threading.Event()

    def tick() -> None:
        while not stop.wait(0.001):
            pass

    thread = threading.Thread(target=tick)
    thread.start()
    model = DDP(network())
    try:
        return trained(model, train(model, r.rank))
    finally:
        stop.set()
        thread.join()


@case(0)
def thread_that_receives_while_the_rank_sleeps(r: Rank):
    group = dist.new_group(r.everyone)
    got = torch.zeros(3, dtype=torch.int64)
    if r.rank == 0:
        thread = threading.Thread(target=lambda: dist.recv(got, 1, group=group))
        thread.start()
        time.sleep(1)
        dist.send(torch.arange(3), 1)
        thread.join()
    elif r.rank == 1:
        dist.recv(got, 0)
        dist.send(got * 2, 0, group=group)
    return got


@case(0)
def thread_that_waits_while_the_rank_computes(r: Rank):
    """One thread is in wait(), the main thread works for a while and then answers."""
    group = dist.new_group(r.everyone)
    t = torch.tensor([r.rank])
    thread = threading.Thread(target=lambda: dist.all_reduce(t, group=group))
    thread.start()
    ones = torch.ones(200, 200)
    for _ in range(20 * (r.rank + 1)):
        ones = (ones @ ones).clamp(max=1)
    found = total(int(ones[0, 0]))
    thread.join()
    return [t, found]


@case(0)
def lock_given_back_by_a_thread_that_polls(r: Rank):
    """The main thread is in a lock without a time limit, as in rpc.shutdown(); beside it threads
    wake every few milliseconds, one of which looks for files that the other ranks write later."""
    done = threading.Event()

    def tick() -> None:
        while not done.is_set():
            time.sleep(0.002)

    def look() -> None:
        while not all(os.path.exists(f"{r.folder}/{i}") for i in r.everyone):
            time.sleep(0.005)
        done.set()

    threads = [threading.Thread(target=each) for each in (tick, tick, look)]
    for thread in threads:
        thread.start()
    found = total(r.rank)
    open(f"{r.folder}/{r.rank}", "w").close()
    done.wait()
    for thread in threads:
        thread.join()
    return [found, total(1)]


@case(0)
def executor_of_asyncio(r: Rank):
    async def both() -> list[int]:
        loop = asyncio.get_running_loop()
        first = await loop.run_in_executor(None, total, r.rank)
        await asyncio.sleep(0.05)
        return [first, await loop.run_in_executor(None, total, 2)]

    return asyncio.run(both())


@case(0)
def sleep_between_collectives(r: Rank):
    found = []
    for turn in range(3):
        time.sleep(0.02 * (r.rank == turn))
        found.append(total(turn))
    return found


@case()
def two_threads_of_pytorchs_own(r: Rank):
    torch.set_num_threads(2)
    model = DDP(network())
    found = trained(model, train(model, r.rank))
    torch.set_num_threads(1)
    return found


# --- signals, children, output --------------------------------------------------------------------
@case()
def alarm_every_ten_milliseconds(r: Rank):
    rung = []
    before = signal.signal(signal.SIGALRM, lambda *_: rung.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    model = DDP(network())
    try:
        losses = train(model, r.rank, steps=8)
        while not rung:
            time.sleep(0.005)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return trained(model, losses)


@case(0)
def signal_handled_while_waiting(r: Rank):
    """Rank 0 waits in an all-reduce for rank 1, whose signal it serves meanwhile or right after."""
    served = []
    before = signal.signal(signal.SIGUSR1, lambda *_: served.append(os.getpid()))
    with open(f"{r.folder}/{r.rank}.pid", "w") as file:
        file.write(str(os.getpid()))
    dist.barrier()
    os.kill(os.getpid(), signal.SIGUSR1)
    if r.rank == 1:
        time.sleep(0.1)
    found = total(1)
    signal.signal(signal.SIGUSR1, before)
    return [found, len(served)]


def squared(x: int) -> int:
    return x * x


@case(0)
def children_of_many_kinds(r: Rank):
    first = total(r.rank)
    said = subprocess.run(
        [sys.executable, "-c", "print(6 * 7)"], capture_output=True, text=True, check=True
    ).stdout.strip()
    status = os.system("exit 3") >> 8
    with multiprocessing.get_context("fork").Pool(2) as pool:
        squares = pool.map(squared, range(5))
    pid = os.fork()
    if pid == 0:
        try:
            sys.exit(5)
        finally:
            os._exit(5)
    child = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return [first, said, status, squares, child, total(2)]


@case(0)
def loader_with_spawned_workers(r: Rank):
    """One rank's loader starts its worker as a new interpreter."""
    found = total(1)
    if r.rank == 1:
        data = TensorDataset(torch.arange(6))
        loader = DataLoader(data, batch_size=3, num_workers=1, multiprocessing_context="spawn")
        found += sum(int(batch.sum()) for (batch,) in loader)
    return [found, total(3)]


@case(0)
def twenty_megabytes_of_output(r: Rank):
    line = "x" * 99_999
    for _ in range(200):
        print(line, flush=False)
    sys.stdout.flush()
    return total(1)


@case(0)
def late_rank_is_named_by_a_monitored_barrier(r: Rank):
    """Rank 1 comes when rank 0 has given up."""
    group = dist.new_group(r.everyone, timeout=timedelta(seconds=30))
    refused = False
    try:
        if r.rank != 1:
            dist.monitored_barrier(group, timeout=timedelta(seconds=1))
    except RuntimeError as error:
        refused = "1" in str(error) if r.rank == 0 else True
    return [refused or r.rank == 1, total(1)]


@case(0)
def messages_of_uneven_sizes(r: Rank):
    sent = torch.arange(10 * (r.rank + 1))
    got = torch.zeros(10 * (r.left + 1), dtype=torch.int64)
    for work in dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, sent, r.right), dist.P2POp(dist.irecv, got, r.left)]
    ):
        work.wait()
    return got
