"""Host tuning killed at every line that may write: a later revert restores every byte all the same. Not here: the rest.

One process forks a child per line; the child is killed (-9) before it executes that line. Which lines, and how many,
is the code's own business, so a write that is added later is covered from its first day.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from appliance.machine.tune_notes import recorded
from scripts.house import ROOT
from tests.appliance.machine.sysfs import GOVERNOR, Host

WATCHED = ("tune.py", "tune_notes.py")
# These only read: to die in them is to die at their caller's line.
READERS = {"settings", "_read", "_bracketed", "_thp", "plan", "recorded", "_judged", "_value", "boot_id", "_followed"}
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""A kill -9 loses no file, so the disk's fsync, most of the time here, proves nothing."""
LEAST_POINTS = 40
"""Fewer lines than this cannot be the whole of apply or revert: then the tracing is broken, not the code good."""


def killed_at(n: int, act: Callable[[], Any]) -> bool:
    """Run `act` in a child that dies before the nth line of the watched files; False if it ended before that."""
    child = os.fork()
    if child == 0:
        left = n

        def trace(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal left
            code = frame.f_code
            if os.path.basename(code.co_filename) not in WATCHED or code.co_name in READERS or code.co_name[0] == "<":
                return None
            if event == "line":
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
            return trace

        sys.settrace(trace)
        act()
        sys.settrace(None)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the act failed by itself"
    return os.WIFSIGNALED(status)


def first_apply(host: Host) -> Callable[[], Any]:
    return host.tune


def second_apply(host: Host) -> Callable[[], Any]:
    """Other words over notes that are there already: the window in which a word of ours is not the newest one."""
    host.tune()
    return lambda: host.tune(thp="always", governor="schedutil")


def reverting(host: Host) -> Callable[[], Any]:
    host.tune()
    return host.reverted


def applying_after_kill(host: Host) -> Callable[[], Any]:
    """Killed half way once already: the governor of one CPU is still the old one."""
    host.tune()
    host.put(GOVERNOR.format(1), "schedutil\n")
    return host.tune


STORIES = {story.__name__: story for story in (first_apply, second_apply, reverting, applying_after_kill)}


def sweep(name: str) -> dict[str, Any]:
    """Kill the story at every line; how many there were, and after which of them the host was not as before."""
    wrong = []
    for n in count(1):
        with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
            host = Host(Path(folder))
            before = host.bytes()
            was_killed = killed_at(n, STORIES[name](host))
            host.reverted()
            if host.bytes() != before or recorded(host.state):
                wrong.append(n)
            if not was_killed:
                return {"points": n - 1, "wrong": wrong}
    raise AssertionError


@pytest.mark.parametrize("story", STORIES)
def test_a_kill_at_any_line_can_be_reverted(story: str) -> None:
    argv = [sys.executable, "-m", "tests.appliance.machine.test_tune_killed", story]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["points"] >= LEAST_POINTS and found["wrong"] == [], found


if __name__ == "__main__":
    print(json.dumps(sweep(sys.argv[1])))  # noqa: T201
