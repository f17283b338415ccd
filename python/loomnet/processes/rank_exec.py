"""Becomes a rank: enters a host's namespaces, forks under a keeper, gives up root, ties its life to
the run, then execs.

Run by path, ``python -I -S rank_exec.py JSON``, with the standard library alone: four ranks that
each imported a framework only to set a namespace would cost seconds. JSON is what
:class:`loomnet.processes.ranks.RankGroup` writes; a failure is one line on standard error and
exit 2.
"""

import ctypes
import json
import os
import signal
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import rank_isolation  # pyright: ignore[reportMissingImports]  (beside this file, see above)

_PR_SET_NO_NEW_PRIVS = 38


def main() -> int:
    order = json.loads(sys.argv[1])
    libc = ctypes.CDLL(None, use_errno=True)
    step = ""
    try:
        namespaces: list[int] = order["namespaces"]
        root = namespaces.pop() if namespaces else None
        for fd in namespaces:
            step = "enter the host's namespace"
            if libc.setns(fd, 0) != 0:
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code))
            os.close(fd)
        if root is not None:
            step = "enter the host's root folder"
            os.fchdir(root)
            os.chroot(".")
            os.close(root)
        if os.getpid() == 1:
            step = "mount its own /proc"
            rank_isolation.own_proc()
        step = "fork"
        keeper = rank_isolation.keep(order["channel"], order["fds"])
        os.setsid()
        step = "set nice level"
        os.nice(order["nice"])
        if order["uid"] is not None:
            step = f"become user {order['uid']}"
            os.setgroups(order["groups"])
            os.setresgid(*[order["gid"]] * 3)
            os.setresuid(*[order["uid"]] * 3)
            libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        # After the change of user, which clears it.
        step = "tie the rank's life to the run"
        if not rank_isolation.die_with_parent(signal.SIGKILL, keeper):
            return 2
        rank_isolation.keep_to_itself()
        step = f"enter {order['cwd']}"
        os.chdir(order["cwd"])
        step = f"run {order['argv'][0]}"
        signal.pthread_sigmask(signal.SIG_SETMASK, order["blocked"])
        os.environ["LOOMNET_RANK_PID"] = str(os.getpid())
        os.execvp(order["argv"][0], order["argv"])
    except OSError as error:
        print(f"loomnet: cannot {step}: {error.strerror}", file=sys.stderr, flush=True)
    return 2


if __name__ == "__main__":
    sys.exit(main())
