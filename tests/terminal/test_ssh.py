"""The terminal program over OpenSSH: used, and cut off in three ways. The service and its swap must not notice.

Here every part is real: sshd and ssh, tmux around the client, the program, a service with an engine and a tiny model.
"""

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.terminal.conftest import Served
from tests.terminal.processes import is_alive, leaving, programs, wait_until
from tests.terminal.sshd import Sshd
from tests.terminal.tmux import Tmux

GONE_S = 10
BUSY = 0.3
"""Share of a core: it redraws a running swap, and a loop on end-of-file takes 0.9."""


@contextmanager
def connected(served: Served, ssh: Sshd, folder: Path) -> Iterator[Tmux]:
    """`ssh -t box colibri tui`, as a person sees it once the program shows the engine."""
    there = {**served.at(COLIBRI_USER="ops", COLIBRI_ADMIN_KEY=served.key, COLIBRI_TUI_KEY_FILE="")}
    for own in ("TERM", "LANG", "HOME"):  # the connection's and the user's there
        del there[own]
    command = [served.argv()[0], "-m", "appliance.cli.main", "tui", "--url", served.url]
    with Tmux(ssh.argv(command, **there), served.at(), folder, columns=100, rows=30) as terminal:
        terminal.wait(r"\[[A-Z]+( \d/\d)?\]", 20)
        yield terminal


def asked_to_swap(terminal: Tmux, profile: str) -> None:
    """By the command line of the program, through the review, to "Swap now"."""
    terminal.keys(":")
    terminal.wait("[:>]")
    terminal.type(f"swap {profile}")
    terminal.keys("Enter")
    terminal.wait(rf"Review: swap .* -> {profile}")
    terminal.keys("Tab", "Enter")


def stopped_worker(served: Served, before: int) -> int:
    """The new worker of the swap under way, stopped, so that the swap stands still in its middle."""
    found = 0

    def is_there() -> bool:
        nonlocal found
        found = served.state()["worker"]["pid"] or before
        return found != before

    wait_until(is_there, 20, "a new worker")
    os.kill(found, signal.SIGSTOP)
    return found


def test_a_profile_is_applied_watched_and_left(served: Served, ssh: Sshd, tmp_path: Path) -> None:
    served.swap("quick-verify")
    before = served.state()["worker"]["pid"]
    with connected(served, ssh, tmp_path) as terminal:
        terminal.wait(r"quick-verify.*\[READY\]")
        asked_to_swap(terminal, "long-doc")
        terminal.wait(r"long-doc.*\[READY\]", 30)
        now = served.state()["worker"]
        assert now["pid"] != before and not is_alive(before)
        assert (now["n_ctx"], now["type_k"], now["type_v"]) == (16384, "q8_0", "q8_0")
        assert served.call("GET", "/admin/swaps")["swaps"][0]["by"] == "ops"
        [program] = programs(served.url)
        terminal.keys("q")
        assert terminal.ended() == "0"
    assert not is_alive(program) and served.process.poll() is None


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_cut_connection_leaves_nothing_and_the_swap_goes_on(
    served: Served, ssh: Sshd, tmp_path: Path, how: str
) -> None:
    """The client is killed, or it just stops answering; the next terminal shows the swap that the first one began."""
    served.swap("quick-verify")
    before = served.state()["worker"]["pid"]
    stopped = 0
    try:
        with connected(served, ssh, tmp_path) as terminal:
            asked_to_swap(terminal, "long-doc")
            stopped = stopped_worker(served, before)
            terminal.wait(r"SWAPPING")
            [program] = programs(served.url)
            client = terminal.pid
            os.kill(client, signal.SIGKILL if how == "killed" else signal.SIGSTOP)
            assert leaving(program, GONE_S) < BUSY
            if how == "stopped":
                os.kill(client, signal.SIGKILL)
        assert served.state()["state"] == "swapping" and served.state()["swap"]["to"] == "long-doc"
        with Tmux(served.argv(), served.at(), tmp_path, columns=100, rows=30) as terminal:
            terminal.wait(r"SWAPPING \d/\d")
            shown = re.search(r"elapsed (\d+):(\d+)", terminal.wait("quick-verify -> long-doc.*elapsed"))
            assert shown, "a swap panel without a time"
            assert abs(int(shown[1]) * 60 + int(shown[2]) - served.state()["swap"]["elapsed_s"]) <= 2
            os.kill(stopped, signal.SIGCONT)
            terminal.wait(r"long-doc.*\[READY\]", 30)
            terminal.keys("C-q")
            assert terminal.ended() == "0"
    finally:
        if stopped and is_alive(stopped):
            os.kill(stopped, signal.SIGCONT)
    last = served.state()["last_swap"]
    assert (last["from"], last["to"], last["state"]) == ("quick-verify", "long-doc", "ready")
