"""So many groups as the argument says, more than there are channels between two ranks: collectives
and messages on all of them, in orders that differ between ranks, beside receives that wait long."""

import random
import sys
import time

import torch
import torch.distributed as dist

GROUPS, ROUNDS = int(sys.argv[1]), 2

dist.init_process_group("loomnet")
rank, world = dist.get_rank(), dist.get_world_size()
draw = random.Random(5)  # the same on all ranks
members = [sorted(draw.sample(range(world), draw.randint(2, world))) for _ in range(GROUPS)]
began = time.monotonic()
groups = [dist.new_group(ranks) for ranks in members]
made = time.monotonic()

# One after the other, all of them in turn: a collective, and a message round the group.
for number in range(ROUNDS):
    for group, ranks in zip(groups, members, strict=True):
        if rank not in ranks:
            continue
        mine = torch.full((500,), rank + number)
        dist.all_reduce(mine, group=group)
        assert (mine == sum(ranks) + number * len(ranks)).all()
        at = ranks.index(rank)
        got = torch.zeros(300, dtype=torch.int64)
        sent = dist.isend(torch.full((300,), rank), ranks[(at + 1) % len(ranks)], group=group)
        dist.recv(got, ranks[at - 1], group=group)
        sent.wait()
        assert (got == ranks[at - 1]).all()

# All at once: each rank starts its groups in an order of its own and waits in another. Receives on
# the even groups stand open all the while.
open_receives = []
for group, ranks in zip(groups[::2], members[::2], strict=True):
    if rank in ranks:
        at = ranks.index(rank)
        buffer = torch.zeros(100_000)
        open_receives.append((dist.irecv(buffer, ranks[at - 1], group=group, tag=9), buffer, ranks))
own = random.Random(rank)
order = [i for i in range(GROUPS) if rank in members[i]]
own.shuffle(order)
works = []
for i in order:
    tensor = torch.full((20_000,), float(rank + i))
    works.append((i, dist.all_reduce(tensor, group=groups[i], async_op=True), tensor))
own.shuffle(works)
for i, work, tensor in works:
    work.wait()
    assert (tensor == sum(members[i]) + i * len(members[i])).all()
for group, ranks in zip(groups[::2], members[::2], strict=True):
    if rank in ranks:
        after = ranks[(ranks.index(rank) + 1) % len(ranks)]
        dist.send(torch.full((100_000,), float(rank)), after, group=group, tag=9)
for work, buffer, ranks in open_receives:
    work.wait()
    assert (buffer == ranks[ranks.index(rank) - 1]).all()
print(f"groups ok, made in {made - began:.2f} s, used in {time.monotonic() - made:.2f} s")
dist.destroy_process_group()
