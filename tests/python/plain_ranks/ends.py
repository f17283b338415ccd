"""Five steps of a small job; the ranks that are named end as the arguments say, the others well.

    ends.py WAY WHEN RANKS DELAY [torch]     ends.py raise mid 0,1 0.5

RANKS are numbers joined by commas. WHEN: at `import`, `before` the rank takes its NIC, `mid` of
step 3, `after` the last collective, or `late`: DELAY seconds after it, when the others have ended.
"""

import os
import signal
import sys
import time

way, when, chosen, delay = sys.argv[1], sys.argv[2], sys.argv[3].split(","), float(sys.argv[4])
mine = os.environ["RANK"] in chosen
STEPS = 5


def end():
    if way == "exit0":
        sys.exit(0)
    elif way == "_exit0":
        os._exit(0)
    elif way == "raise":
        raise ValueError("on purpose")
    elif way == "exit3":
        sys.exit(3)
    elif way == "_exit7":
        os._exit(7)
    elif way == "import":
        import no_such_module  # noqa: F401
    elif way == "unfinished":  # a send of which nobody knows whether it has arrived
        job.start_send((job.rank + 1) % job.world)
        sys.exit(0)
    else:
        os.kill(
            os.getpid(),
            {"segv": signal.SIGSEGV, "kill": signal.SIGKILL, "term": signal.SIGTERM}[way],
        )


def perhaps(moment):
    if mine and moment == when:
        time.sleep(delay)
        end()


perhaps("import")
if "torch" in sys.argv:
    from torch_job import Job
else:
    from plain import Job
perhaps("before")
job = Job()
for step in range(1, STEPS + 1):
    job.all_reduce()
    if step == 3:
        perhaps("mid")
    job.step(step)
perhaps("after")
sender = int(chosen[0])
if way == "unfinished" and job.rank == (sender + 1) % job.world:
    job.receive(sender)
job.leave()
perhaps("late")
