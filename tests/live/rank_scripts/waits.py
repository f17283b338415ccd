"""A rank that takes its NIC, says what it runs as and waits: no framework, so that it starts at
once."""

import json
import os
import time

from loomnet import _core

session = _core.RankSession(*(int(os.environ[f"LOOMNET_{name}_FD"]) for name in ("RANK", "EVENT")))
with open("/proc/self/status") as file:
    status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
names = ("Uid", "Gid", "Groups", "CapEff", "NoNewPrivs")
print(json.dumps({name: status[name].split() for name in names} | {"cwd": os.getcwd()}), flush=True)
time.sleep(300)
