"""A program on a pty that we hold: every byte it writes, keys, a terminal that stalls or goes away. Not here: a screen.

    leader      session leader with the pty as its terminal, as sshd and a terminal window start it
    deaf        the same with SIGHUP ignored, as under nohup
    detached    a session of its own without a controlling terminal, as some wrappers leave it
"""

import contextlib
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, Self

from tests.terminal import escapes, processes

LIMIT_S = 30  # a guard against hanging: busy neighbours make a start ten times slower

Kind = Literal["leader", "deaf", "detached"]


class Program:
    """Started at once; ended and collected at the end of `with`, however the test ends."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], *, columns: int = 80, rows: int = 24,
                 kind: Kind = "leader", cwd: Path | None = None) -> None:  # fmt: skip
        self._master, self._slave = os.openpty()
        self._raw = bytearray()
        self._reads = threading.Event()
        self._reads.set()
        self._ends = threading.Event()
        self.resize(columns, rows)
        self.cooked = termios.tcgetattr(self._slave)
        name = os.ttyname(self._slave)

        def become() -> None:
            if kind != "detached":
                os.close(os.open(name, os.O_RDWR))  # the first terminal that a session leader opens is its own
            # Tests that run under nohup would hand theirs on, and a shell cannot trap what it found ignored.
            signal.signal(signal.SIGHUP, signal.SIG_IGN if kind == "deaf" else signal.SIG_DFL)

        self.process = subprocess.Popen(
            argv, stdin=self._slave, stdout=self._slave, stderr=self._slave, env=dict(env), cwd=cwd,
            start_new_session=True, preexec_fn=become,
        )  # fmt: skip
        self.pid = self.process.pid
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()
        self.hang_up()
        with contextlib.suppress(OSError):
            os.close(self._slave)

    def _read(self) -> None:
        while not self._ends.is_set():
            if not self._reads.wait(0.1) or not select.select([self._master], [], [], 0.05)[0]:
                continue
            try:
                data = os.read(self._master, 1 << 16)
            except OSError:  # EIO: nobody holds the other side any more
                return
            self._raw += data

    @property
    def raw(self) -> bytes:
        """All that was written so far."""
        return bytes(self._raw)

    def text(self, since: int = 0) -> str:
        return escapes.text(self.raw[since:])

    def wait(self, pattern: str, within_s: float = LIMIT_S, since: int = 0) -> str:
        """The text once it holds the pattern. Textual writes what changed only, so ask for words that appear whole."""
        until = time.monotonic() + within_s
        while not re.search(pattern, found := self.text(since)):
            code = self.process.poll()
            assert code is None, f"it ended ({code}) without {pattern!r}:\n{found[-2000:]}"
            assert time.monotonic() < until, f"no {pattern!r} within {within_s} s in:\n{found[-2000:]}"
            time.sleep(0.05)
        return found

    def keys(self, data: str | bytes) -> None:
        os.write(self._master, data.encode() if isinstance(data, str) else data)

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    @contextlib.contextmanager
    def stalled(self) -> Iterator[None]:
        """The terminal takes nothing for a while, as on a line that hangs."""
        self._reads.clear()
        try:
            yield
        finally:
            self._reads.set()

    def hang_up(self) -> None:
        """Close the terminal's side, as a dead connection does once it is noticed."""
        if self._ends.is_set():
            return
        self._ends.set()
        self._reader.join()
        with contextlib.suppress(OSError):
            os.close(self._slave)  # ours; the program's is what counts
        os.close(self._master)

    def quiet(self, for_s: float, within_s: float) -> None:
        """Wait until nothing was written for some time."""
        until = time.monotonic() + within_s
        seen, since = len(self._raw), time.monotonic()
        while time.monotonic() - since < for_s:
            if len(self._raw) != seen:
                seen, since = len(self._raw), time.monotonic()
            assert time.monotonic() < until, f"it wrote on: {escapes.text(self.raw[-300:])!r}"
            time.sleep(0.05)

    def ended(self, within_s: float = LIMIT_S) -> int:
        """Its exit code, -9 and the like for a signal; what it wrote has been read then."""
        try:
            code = self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it still runs after {within_s} s:\n{self.text()[-2000:]}") from None
        until = time.monotonic() + within_s
        while self._reads.is_set() and not self._ends.is_set() and select.select([self._master], [], [], 0)[0]:
            assert time.monotonic() < until, "its last words are not read"
            time.sleep(0.01)
        return code

    def modes(self) -> list[str]:
        """What it left changed in the terminal, after its end."""
        left = escapes.unrestored(self.raw)
        now = termios.tcgetattr(self._slave)
        return left + ["the line's settings differ"] * (now != self.cooked)

    def cpu_s(self) -> float:
        return processes.cpu_s(self.pid)
