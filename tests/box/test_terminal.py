"""The terminal program by its launcher: it opens, quits, and leaves no container behind however its terminal ends.

Needs Docker and the image (`./up --build`); runs only with `pytest -m box`.
"""

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.house import ROOT
from tests.box.conftest import Box
from tests.terminal.processes import wait_until
from tests.terminal.program import Program

pytestmark = pytest.mark.box
LAUNCHER = str(ROOT / "scripts" / "colibri-tui")
GONE_S = 10


def containers() -> list[str]:
    argv = ["docker", "ps", "-a", "--filter", "name=colibri-tui-", "--format", "{{.Names}}"]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()


def launched(box: Box, *words: str, **env: str) -> Program:
    there = {**box.env, "TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8", **env}
    return Program([LAUNCHER, *words], there, columns=100, rows=30)


def client(launcher: int) -> int:
    """Docker's client, the launcher's child that carries the terminal."""
    pids = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    return next(int(pid) for pid in pids if b"run" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"))


def test_it_opens_shows_the_engine_and_quits(box: Box) -> None:
    """24-bit colours arrive, the first ctrl-p is not held back by Docker's client, and q is exit code 0."""
    with launched(box) as program:
        program.wait(r"\[READY\]", 60)
        [name] = containers()
        facts = json.loads(subprocess.run(["docker", "inspect", name], capture_output=True, text=True).stdout)[0]
        at = len(program.raw)
        program.keys("\x10")
        program.wait("command|Command|:", 5, since=at)
        program.keys("\x1b")
        program.quiet(0.3, 5)
        program.keys("q")
        assert program.ended(20) == 0
        assert b"38;2;" in program.raw and program.modes() == []
    assert containers() == []
    host = facts["HostConfig"]
    assert host["ReadonlyRootfs"] and host["CapDrop"] == ["ALL"] and not host["PortBindings"]
    assert (host["Memory"], host["NanoCpus"]) == (256 << 20, 500_000_000)
    assert {m["Destination"]: m["RW"] for m in facts["Mounts"]} == {"/data": False, "/settings": True}
    assert "docker.sock" not in json.dumps(facts)


@pytest.mark.parametrize("end", ["terminal closed", "launcher killed", "client killed", "told to end"])
def test_nothing_is_left_when_it_ends_otherwise(box: Box, end: str) -> None:
    acts: dict[str, Callable[[Program], None]] = {
        "terminal closed": lambda program: program.hang_up(),
        "launcher killed": lambda program: os.kill(program.pid, signal.SIGKILL),
        "client killed": lambda program: os.kill(client(program.pid), signal.SIGKILL),
        "told to end": lambda program: os.kill(program.pid, signal.SIGTERM),
    }
    with launched(box) as program:
        program.wait(r"\[READY\]", 60)
        assert len(containers()) == 1
        acts[end](program)
        wait_until(lambda: not containers(), GONE_S, "no container of the program")
        program.ended(GONE_S)
    box.wait_for("/readyz", 200)


def test_where_no_screen_can_be_drawn_the_state_is_told(box: Box) -> None:
    with launched(box, TERM="dumb") as program:
        assert program.ended(30) == 0
        assert "[READY]" in program.text() and b"\x1b[?1049h" not in program.raw
    piped = subprocess.run([LAUNCHER], env=box.env, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert piped.returncode == 0 and piped.stdout.startswith("state      [READY]") and "no screen" in piped.stderr


def test_a_wrong_option_is_told_and_leaves_nothing(box: Box) -> None:
    with launched(box, "--colour") as program:
        assert program.ended(30) == 2 and "--colour" in program.text()
    assert containers() == []


def test_the_program_reaches_the_service_and_nothing_else(box: Box) -> None:
    script = (
        "import socket\n"
        "socket.create_connection(('colibri', 8080), timeout=5).close(); print('service')\n"
        "try:\n    socket.create_connection(('192.0.2.1', 80), timeout=2); print('world')\n"
        "except OSError: pass\n"
    )
    said = box.compose("--profile", "tui", "run", "--rm", "-T", "--entrypoint", "python", "tui", "-c", script)
    assert said.split() == ["service"]
