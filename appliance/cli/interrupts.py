"""Ctrl-C for a command that goes on after it. Not here: commands that a Ctrl-C ends (main.py).

Python's own handler raises KeyboardInterrupt wherever the program happens to be: between two turns, in the very
handling of the Ctrl-C before. A chat would end there instead of its answer.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Interrupts:
    """Inside `with Interrupts() as interrupts`, SIGINT raises KeyboardInterrupt in `heard` blocks only, once for each.

    Elsewhere it is noted, and the next `heard` block raises at its start, unless `forget` came before. Main thread
    only, as every signal handler.
    """

    def __init__(self) -> None:
        self._is_heard = False
        self._is_noted = False

    def __enter__(self) -> "Interrupts":
        self._before = signal.signal(signal.SIGINT, self._arrived)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _arrived(self, *_: Any) -> None:
        if not self._is_heard:
            self._is_noted = True
            return
        self._is_heard = False
        raise KeyboardInterrupt

    def forget(self) -> None:
        """What came since the last `heard` block meant something that is over."""
        self._is_noted = False

    @contextmanager
    def heard(self) -> Iterator[None]:
        """A block that a Ctrl-C ends with KeyboardInterrupt."""
        try:
            self._is_heard = True
            if self._is_noted:
                self._is_noted = False
                self._arrived()
            yield
        finally:
            self._is_heard = False
