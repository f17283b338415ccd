"""The variables that torchrun gives each worker: a run gives its ranks the same.

The list is that of torch.distributed.elastic (agent/server/local_elastic_agent.py, launcher/api.py,
multiprocessing/api.py). Lightning takes a process for one that torchrun launched where
TORCHELASTIC_RUN_ID is set, and its place from GROUP_RANK; accelerate and DeepSpeed take theirs from
RANK, WORLD_SIZE and LOCAL_RANK.
"""

from __future__ import annotations

from collections.abc import Sequence

# What differs between the ranks of a job.
OWN = frozenset({"RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_RANK"})


def environments(
    hosts: Sequence[str], *, address: str, port: int, run_id: str
) -> list[dict[str, str]]:
    """The variables of each rank. `hosts`: the host of rank 0, 1, …; a host is a node of torchrun,
    numbered by its first rank. `address`, `port`: of the store that rank 0 opens.

    The values are those of torchrun with its defaults, but for two. The agent of a torchrun hosts
    the store; here there is no agent, so rank 0 does (TORCHELASTIC_USE_AGENT_STORE). No file is
    there for a worker's error (TORCHELASTIC_ERROR_FILE, empty as with --log-dir=/dev/null): the
    rank's log has its traceback.
    """
    on_host: dict[str, list[int]] = {}
    for rank, host in enumerate(hosts):
        on_host.setdefault(host, []).append(rank)
    nodes = list(on_host)
    shared = {
        "WORLD_SIZE": str(len(hosts)),
        "GROUP_WORLD_SIZE": str(len(nodes)),
        "ROLE_NAME": "default",
        "ROLE_WORLD_SIZE": str(len(hosts)),
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": run_id,
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "TORCHELASTIC_ERROR_FILE": "",
        "TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    }
    return [
        shared
        | {
            "RANK": str(rank),
            "LOCAL_RANK": str(on_host[host].index(rank)),
            "LOCAL_WORLD_SIZE": str(len(on_host[host])),
            "GROUP_RANK": str(nodes.index(host)),
            "ROLE_RANK": str(rank),
        }
        for rank, host in enumerate(hosts)
    ]
