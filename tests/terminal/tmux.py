"""Runs a program in tmux and reads its screen as a person would. Not here: bytes (program.py).

Each instance is a tmux server of its own, on its own socket and without anyone's configuration; ending it ends nothing
else. `keys` takes tmux's names (Enter, Escape, Tab, BTab, F2, C-p), `type` plain text.
"""

import re
import shlex
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from tests.terminal.program import LIMIT_S

CONF = "set -g escape-time 0\nset -g status off\nset -g remain-on-exit on\nset -g default-terminal tmux-256color\n"


class Tmux:
    """Started at once; ended at the end of `with`."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], folder: Path, *, columns: int = 120,
                 rows: int = 36) -> None:  # fmt: skip
        self._socket = folder / f"tmux-{uuid.uuid4().hex[:8]}"
        conf = folder / "tmux.conf"
        conf.write_text(CONF)
        self._code = folder / f"{self._socket.name}.code"
        # env -i, for tmux hands its own environment on; a shell around it, for tmux 3.3 forgets some exit codes.
        pairs = [f"{name}={value}" for name, value in env.items() if name != "TERM"]
        command = shlex.join(["env", "-i", "TERM=tmux-256color", *pairs, *argv])
        command = f"{command}; echo $? >{shlex.quote(str(self._code))}"
        self._env = {"PATH": env["PATH"], "LANG": "C.UTF-8", "HOME": str(folder)}
        self("-u", "-f", str(conf), "new-session", "-d", "-x", str(columns), "-y", str(rows), command)
        self.size = columns, rows

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self("kill-server", check=False)

    def __call__(self, *words: str, check: bool = True) -> str:
        argv = ["tmux", "-S", str(self._socket), *words]
        done = subprocess.run(argv, capture_output=True, text=True, env=self._env, timeout=20)
        assert not check or done.returncode == 0, f"tmux {' '.join(words)}: {done.stderr}"
        return done.stdout

    def keys(self, *names: str) -> None:
        self("send-keys", *names)

    def type(self, text: str) -> None:
        self("send-keys", "-l", text)

    def screen(self, *, escapes: bool = False) -> str:
        """The screen's lines; with `escapes` its colours and styles too."""
        return self("capture-pane", "-p", *(["-e"] if escapes else []))

    def wait(self, pattern: str, within_s: float = LIMIT_S) -> str:
        """The screen once it shows the pattern."""
        until = time.monotonic() + within_s
        while not re.search(pattern, shown := self.screen()):
            assert time.monotonic() < until, f"no {pattern!r} within {within_s} s; {self.status()}:\n{shown}"
            time.sleep(0.05)
        return shown

    def resize(self, columns: int, rows: int) -> None:
        self("resize-window", "-x", str(columns), "-y", str(rows))
        self.size = columns, rows

    @property
    def pid(self) -> int:
        """The program's process, the child of the pane's shell."""
        shell = self("display", "-p", "#{pane_pid}").strip()
        return int(Path(f"/proc/{shell}/task/{shell}/children").read_text().split()[0])

    def status(self) -> str:
        """Empty while the program runs, else its exit code as a shell tells it: 137 is kill -9."""
        return self._code.read_text().strip() if self._code.exists() else ""

    def ended(self, within_s: float = LIMIT_S) -> str:
        """Its exit code once it has ended."""
        until = time.monotonic() + within_s
        while not (found := self.status()):
            assert time.monotonic() < until, f"it still runs after {within_s} s:\n{self.screen()}"
            time.sleep(0.05)
        return found
