"""Under a CPU quota, keeps the service on as many CPUs as it pays for. Not here: reading the quota (host.py).

The engine's thread alone cannot use up a quota of one CPU, but with the API process beside it on another CPU it does,
in 87% of the periods, and then the kernel stops both for what is left of 100 ms. On one CPU together they cannot.
"""

import math
import os
import time
from collections.abc import Sequence
from pathlib import Path

from appliance.machine.cores import Ticks, ticks
from engine.budget import Machine

LOOK_S = 0.1


def confine(machine: Machine, root: Path = Path("/")) -> str:
    """Put this process and all it starts from now on on the quietest CPUs of its mask; what was done, or nothing."""
    n = math.ceil(machine.cpu_quota) if machine.cpu_quota is not None else len(machine.cpu_mask)
    if not 1 <= n < len(machine.cpu_mask):
        return ""
    before = ticks(root)
    time.sleep(LOOK_S)
    cpus = quietest(machine.cpu_mask, n, before, ticks(root), os.getpid())
    try:
        os.sched_setaffinity(0, cpus)
    except OSError:  # a sandbox, or a CPU that has just gone
        return ""
    named = ", ".join(map(str, cpus))
    return f"the CPU quota is {machine.cpu_quota:g}: all processes stay on CPU {named}, so that it does not run out"


def quietest(mask: Sequence[int], n: int, before: Ticks, now: Ticks, turn: int) -> tuple[int, ...]:
    """The n CPUs that were least busy between two looks; among equals `turn` decides, that services do not all meet."""
    turn %= len(mask)
    turned = [*mask[turn:], *mask[:turn]]
    none = (0, 0)
    return tuple(sorted(sorted(turned, key=lambda cpu: now.get(cpu, none)[0] - before.get(cpu, none)[0])[:n]))
