"""A terminal that goes away, stalls, is told to end or is put to sleep; on a bare pty, against a real service."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.terminal.conftest import Served
from tests.terminal.processes import leaving, wait_idle
from tests.terminal.program import Kind, Program
from tests.terminal.tmux import Tmux

GONE_S = 5
BUSY = 0.2


@pytest.mark.parametrize("kind", ["leader", "deaf", "detached"])
def test_a_closed_terminal_ends_the_program(served: Served, kind: Kind) -> None:
    """With SIGHUP ignored or without a controlling terminal Textual alone runs on at nine tenths of a core."""
    with Program(served.argv(), served.at(), kind=kind) as program:
        program.wait(r"\[READY\]")
        wait_idle(program.pid)
        program.hang_up()
        assert leaving(program.pid, GONE_S) < BUSY
    assert served.process.poll() is None


def test_a_stalled_terminal_does_not_stop_the_questions_and_is_right_again_at_once(served: Served) -> None:
    """Nobody reads the pty while the profile changes; the program asks on meanwhile, as the service's count shows."""
    served.swap("quick-verify")
    with Program(served.argv("--rate", "0.5"), served.at(), columns=120, rows=36) as program:
        program.wait(r"\[READY\]")
        with program.stalled():
            program.keys("12" * 10)  # both screens, over and over: far more than a pty's buffer holds
            served.swap("long-doc")
            first = served.state()["seq"]
            time.sleep(3)
            assert served.state()["seq"] - first >= 4, "it asked less than once a second"
        at = len(program.raw)
        program.wait("long-doc", 2, since=at)


@pytest.mark.parametrize(
    ("end", "code"),
    [("q", 0), ("\x11", 0), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)],
    ids=["q", "ctrl-q", "SIGTERM", "SIGHUP", "SIGINT"],
)
def test_every_way_out_but_kill_gives_the_terminal_back(served: Served, end: str | signal.Signals, code: int) -> None:
    with Program(served.argv("--mouse"), served.at()) as program:
        program.wait(r"\[READY\]")
        program.keys(end) if isinstance(end, str) else os.kill(program.pid, end)
        assert program.ended() == code
        assert program.modes() == []
        assert "Traceback" not in program.text()


def test_the_shell_gets_its_terminal_while_the_program_sleeps(served: Served, tmp_path: Path) -> None:
    """ctrl-z and fg, as with every program that a shell starts."""
    shell = ["bash", "--norc", "--noprofile", "-i"]
    with Tmux(shell, {**served.at(), "PS1": "shell> "}, tmp_path, columns=80, rows=24) as terminal:
        terminal.wait("shell>")
        terminal.type(" ".join(served.argv()))
        terminal.keys("Enter")
        terminal.wait(r"\[READY\]")
        terminal.keys("C-z")
        terminal.wait(r"Stopped")
        terminal.type("echo here$((1+1)); fg")
        terminal.keys("Enter")
        terminal.wait(r"\[READY\]")
        terminal.keys("q")
        terminal.wait("here2")
