"""Run by every rank of a job: ``python run_cases.py OUT KEPT LIMIT FAMILY,… CASE…`` runs cases of
these families in this order and writes what this rank computed to ``OUT/CASE.RANK.pt``.

A rank prints a line when a case begins and when it ends. A case that fails ends its rank: the state
of its group is unknown. A case that takes longer than LIMIT seconds ends its rank with the stacks
of all its threads.
"""

import faulthandler
import os
import sys
import time
import traceback
from datetime import timedelta

import torch
import torch._dynamo
import torch.distributed as dist
import torch.distributed.checkpoint
import torch.distributed.fsdp
import torch.distributed.optim
import torch.distributed.pipelining
import torch.distributed.rpc
import torch.distributed.tensor.parallel
from registry import Rank, cases_of


def plain(value):
    """As torch.load reads it back without running code: nested containers become flat names."""
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, torch.Tensor):
        if hasattr(value, "to_local"):
            return {"local": plain(value.to_local()), "placements": str(value.placements)}
        value = value.detach()
        value = value.to_dense() if value.is_sparse else value
        return value.resolve_conj().resolve_neg().contiguous().clone()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)


def main() -> None:
    began = time.process_time()  # of a forked rank: without the imports
    out, kept, limit, families, *names = sys.argv[1:]
    torch.set_num_threads(1)
    cases = cases_of(*families.split(","))
    store, number, world = next(dist.rendezvous("env://"))
    print(f"rank {number} of {world}, {began:.1f} s of CPU time before its first line", flush=True)
    for place, name in enumerate(names):
        case, start = cases[name], time.monotonic()
        folder = os.path.join(out, f"{name}.files")
        os.makedirs(folder, exist_ok=True)
        print(f"case {name} begins", flush=True)
        faulthandler.dump_traceback_later(float(limit), exit=True)
        try:
            torch.manual_seed(place)
            if case.group:
                dist.init_process_group(
                    "gloo",
                    store=dist.PrefixStore(f"case{place}", store),
                    rank=number,
                    world_size=world,
                    timeout=timedelta(seconds=300),
                )
            result = case.run(Rank(number, world, folder, kept))
            if case.group:
                dist.barrier()
                dist.destroy_process_group()
        except BaseException:
            print(f"case {name} FAILED\n{traceback.format_exc()}", flush=True)
            os._exit(1)
        faulthandler.cancel_dump_traceback_later()
        torch.save(plain(result), os.path.join(out, f"{name}.{number}.part"))
        os.rename(
            os.path.join(out, f"{name}.{number}.part"), os.path.join(out, f"{name}.{number}.pt")
        )
        print(f"case {name} ok {time.monotonic() - start:.2f} s", flush=True)
        torch._dynamo.reset()


if __name__ == "__main__":
    main()
