"""Leaves when the terminal is gone or a signal says so, even with the event loop standing still. Not here: quitting.

A Textual program whose terminal goes away without SIGHUP reads end-of-file in a loop, at nine tenths of a core; one
whose terminal stops reading blocks in a write. So a thread looks, and a thread leaves.
"""

import contextlib
import os
import select
import signal
import sys
import termios
import threading
import time
from collections.abc import Callable
from types import FrameType

PERIOD_S = 2.0
GRACE_S = 1.5  # for the orderly way, which needs the loop and a terminal that reads
# Mouse, paste and focus reports off, keyboard protocol back, first screen, cursor: what Textual would have written.
RESTORE = b"\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?2004l\x1b[?1004l\x1b[<u\x1b[?1049l\x1b[?25h"
GONE = 129


class Watchdog:
    """Watches the terminal behind `fd`; `rescue` saves what is unsaved, `leave(code)` asks for the orderly way out."""

    def __init__(self, fd: int, rescue: Callable[[], None], leave: Callable[[int], None]) -> None:
        self._fd = fd
        self._rescue = rescue
        self._leave = leave
        self._before = termios.tcgetattr(fd)
        self._is_leaving = False

    def start(self) -> None:
        """From the main thread: the signals' handlers and the thread that looks at the terminal."""
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._signalled)
        threading.Thread(target=self._watch, name="tty-watchdog", daemon=True).start()

    def _watch(self) -> None:
        poll = select.poll()
        poll.register(self._fd, 0)  # no kind of input wakes it, only that the other end is gone
        while True:
            try:
                hung = poll.poll(PERIOD_S * 1000)
                termios.tcgetattr(self._fd)
            except (termios.error, OSError, ValueError):
                hung = [(self._fd, 0)]
            if hung:
                self._now(GONE)

    def _signalled(self, number: int, _frame: FrameType | None) -> None:
        if self._is_leaving:
            return
        self._is_leaving = True
        threading.Thread(target=self._soon, args=(128 + number,), name="last-minute", daemon=True).start()
        with contextlib.suppress(Exception):
            self._leave(128 + number)

    def _soon(self, code: int) -> None:
        with contextlib.suppress(Exception):
            self._rescue()
        time.sleep(GRACE_S)
        self._restore()
        os._exit(code)

    def _now(self, code: int) -> None:
        with contextlib.suppress(Exception):
            self._rescue()
        os._exit(code)

    def _restore(self) -> None:
        """Never waits: a terminal that does not read gets as much as it takes."""
        with contextlib.suppress(OSError, ValueError, termios.error):
            out = sys.__stdout__.fileno() if sys.__stdout__ else self._fd
            os.set_blocking(out, False)
            os.write(out, RESTORE)
        with contextlib.suppress(OSError, termios.error):
            termios.tcsetattr(self._fd, termios.TCSANOW, self._before)
