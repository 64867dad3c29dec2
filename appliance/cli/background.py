"""One thread that owns the engine while the main thread keeps its ears open for Ctrl-C. Not here: the engine.

A step may compute for seconds inside native code, and Python runs signal handlers in the main thread between bytecodes
only: a main thread inside the step would hear Ctrl-C when it is over.
"""

import threading
import time
from collections.abc import Callable, Generator, Iterable
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")
# How long an interrupted command waits for the engine to notice; cancellation takes one layer.
GRACE_S = 1.0
# A signal that comes just before a wait begins does not end it: no wait is longer than this.
LISTEN_S = 0.5


class Background:
    """Runs one piece of work after the other on its own daemon thread."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[tuple[Callable[[], Iterable[Any]], SimpleQueue[tuple[str, Any]], threading.Event]]
        self._jobs = SimpleQueue()
        threading.Thread(target=self._serve, name="engine", daemon=True).start()

    def call(self, work: Callable[[], T]) -> T:
        """`work()` on the thread; its exception is raised here."""
        for value in self.stream(lambda: [work()]):
            return value
        raise AssertionError("the thread ended without a result")

    def stream(
        self, work: Callable[[], Iterable[T]], cancel: Callable[[], None] | None = None
    ) -> Generator[T, None, None]:
        """The items of `work()` as they come; leaving early calls `cancel`, if there is one, and waits a moment."""
        items: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        left = threading.Event()
        self._jobs.put((work, items, left))
        is_over = False
        try:
            while True:
                try:
                    kind, value = items.get(timeout=LISTEN_S)
                except Empty:
                    continue
                is_over = kind != "item"
                if kind == "end":
                    return
                if kind == "error":
                    raise value
                yield value
        finally:
            if not is_over:
                left.set()
                if cancel is not None:
                    cancel()
                    _drain(items)

    def _serve(self) -> None:
        while True:
            work, items, left = self._jobs.get()
            try:
                for item in work():
                    items.put(("item", item))
                    if left.is_set():
                        break
                items.put(("end", None))
            except BaseException as error:
                items.put(("error", error))
            # A finished generator holds the engine's sequence through this frame otherwise.
            del work, items, left


def _drain(items: "SimpleQueue[tuple[str, Any]]") -> None:
    until = time.monotonic() + GRACE_S
    while (left_s := until - time.monotonic()) > 0:
        try:
            if items.get(timeout=left_s)[0] != "item":
                return
        except Empty:
            return
