"""How the ranks of a new group agree, through the group's store, on its number and members."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import torch.distributed as dist


def meet(store: dist.Store, rank: int, size: int, timeout: timedelta,
         link: Any) -> tuple[int, list[int]]:
    """(communicator number, job ranks of the members in group order).

    The first member chooses the number; every other one waits for it. Raises RuntimeError naming
    the ranks that did not come within `timeout`.
    """
    if size == 1:
        return link.next_group(), [link.session.rank]
    # An elastic restart keeps the store: keys of the dead attempt are still there.
    prefix = f"loomnet/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    store.set(f"{prefix}/member/{rank}", str(link.session.rank))
    if rank == 0:
        keys = [f"{prefix}/member/{r}" for r in range(size)]
        try:
            store.wait(keys, timeout)
        except RuntimeError as error:
            missing = [r for r, key in enumerate(keys) if not store.check([key])]
            raise RuntimeError(f"loomnet: ranks {missing} of a new group of {size} did not come "
                               f"within {timeout}") from error
        members = [int(store.get(key)) for key in keys]
        number = link.next_group()
        store.set(f"{prefix}/group", ",".join(map(str, [number, *members])))
    else:
        try:
            store.wait([f"{prefix}/group"], timeout)
        except RuntimeError as error:
            raise RuntimeError(f"loomnet: rank 0 of a new group of {size} did not answer within "
                               f"{timeout}") from error
        number, *members = map(int, store.get(f"{prefix}/group").split(b","))
    if len(set(members)) != size:
        raise RuntimeError(f"loomnet: two members of a new group are the same rank of the run: "
                           f"{members}")
    return number, members
