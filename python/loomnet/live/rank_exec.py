"""Becomes a rank: enters a host's namespaces, gives up root, ties its life to the run, then execs.

Run by path, ``python -I -S rank_exec.py JSON``, with the standard library alone: four ranks that
each imported a framework only to set a namespace would cost seconds. JSON is what
:class:`loomnet.live.ranks.RankGroup` writes; a failure is one line on standard error and exit 2.
"""

import ctypes
import json
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38


def main() -> int:
    order = json.loads(sys.argv[1])
    libc = ctypes.CDLL(None, use_errno=True)
    step = ""
    try:
        for fd in order["namespaces"]:
            step = "enter the host's namespace"
            if libc.setns(fd, 0) != 0:
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code))
            os.close(fd)
        step = "set nice level"
        os.nice(order["nice"])
        if order["uid"] is not None:
            step = f"become user {order['uid']}"
            os.setgroups(order["groups"])
            os.setresgid(*[order["gid"]] * 3)
            os.setresuid(*[order["uid"]] * 3)
            libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        # After the change of user, which clears it. If the run died before this line nobody will
        # send the signal any more, so look once.
        step = "tie the rank's life to the run"
        if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        if os.getppid() != order["parent"]:
            return 2
        step = f"enter {order['cwd']}"
        os.chdir(order["cwd"])
        step = f"run {order['argv'][0]}"
        os.execvp(order["argv"][0], order["argv"])
    except OSError as error:
        print(f"loomnet: cannot {step}: {error.strerror}", file=sys.stderr, flush=True)
    return 2


if __name__ == "__main__":
    sys.exit(main())
