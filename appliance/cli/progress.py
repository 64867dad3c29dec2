"""Progress on stderr: one rewriting line on a terminal, few plain lines elsewhere. Not here: results."""

import sys
import time
from typing import TextIO

STAGES = {"compile": "compiling kernels", "load": "loading the model"}
# A load faster than this is not worth a word; later words come no faster than one in two seconds.
QUIET_S = 0.7
EVERY_S = 2.0


class Progress:
    """A callable for `load_engine(on_progress=…)`; `close` leaves the terminal's line clean."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stderr
        self._is_terminal = self._out.isatty()
        self._loading_since: float | None = None
        self._last = float("-inf")
        self._is_line_open = False

    def __call__(self, stage: str, done: int, total: int, note: str) -> None:
        if stage not in STAGES:
            self.close()
            return
        now = time.monotonic()
        if stage == "load" and self._loading_since is None:
            self._loading_since = now
        is_slow = self._loading_since is not None and now - self._loading_since > QUIET_S
        amount = f"{done}/{total}" if stage == "compile" else f"{100 * done // max(1, total)}%"
        words = f"{STAGES[stage]} {amount}{'  ' + note if note else ''}"
        if self._is_terminal:
            if stage == "compile" or is_slow:
                self.say_over(words)
        elif stage == "compile" or (is_slow and now - self._last > EVERY_S):
            self._last = now
            print(words, file=self._out, flush=True)

    def share(self, words: str, done: int, total: int) -> None:
        """Say what is done of a long work: over the line on a terminal, seldom elsewhere."""
        now = time.monotonic()
        if done < total and now - self._last < (0.1 if self._is_terminal else EVERY_S):
            return
        self._last = now
        self.say_over(f"{words} {100 * done // max(1, total)}%")

    def say_over(self, words: str) -> None:
        """Replace the terminal's current line; elsewhere a line of its own."""
        if self._is_terminal:
            self._out.write(f"\r\x1b[2K{words[:100]}")
            self._is_line_open = True
        else:
            self._out.write(f"{words}\n")
        self._out.flush()

    def close(self) -> None:
        if self._is_line_open:
            self._out.write("\r\x1b[2K")
            self._out.flush()
            self._is_line_open = False
