"""Makes events of what the engine process, the requests and the machine do. Not here: swaps and profiles.

Those tell their own; who reads the events is the API's concern.
"""

import time
from collections.abc import Callable, Iterable
from typing import Any

from appliance.events import Events
from appliance.request import Done
from appliance.wire import Frame
from engine.errors import ColibriError

AGAIN_S = 600.0
"""A warning that was gone for so long is told again when it comes back."""


class Chronicle:
    """A listener of the supervisor; `answered` and `warned` are called by whoever sees answers and warnings.

    While `is_expected()` an end of the engine process is somebody's plan: a swap tells of itself.
    """

    def __init__(
        self, events: Events, is_expected: Callable[[], bool], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._events, self._is_expected, self._clock = events, is_expected, clock
        self._warned: dict[str, float] = {}

    # What the supervisor tells (supervisor.Listener)

    def worker_coming(self) -> None:
        """It is told as well when a process falls silent; that is one story, told by worker_lost."""

    def worker_ready(self, info: dict[str, Any]) -> None:
        load = f", loaded in {info['load_s']:.1f} s" if isinstance(info.get("load_s"), float) else ""
        self._events.tell("worker", f"the engine is ready: process {info.get('pid')}{load}", pid=info.get("pid"))

    def worker_frame(self, frame: Frame) -> None:
        """Frames are the dispatcher's."""

    def worker_lost(self, error: ColibriError) -> None:
        if not self._is_expected():
            self._events.tell("worker", error.message, "error", code=error.code)

    worker_gone = worker_lost

    # What others see

    def answered(self, done: Done, ttft_s: float | None) -> None:
        """An answer is complete."""
        speed = done.timings.get("predicted_per_second")
        words = [f"answered a prompt of {done.n_prompt} tokens with {done.n_generated}"]
        words += [f"{speed:.1f} tok/s"] if speed else []
        words += [f"first after {ttft_s:.2f} s"] if ttft_s is not None else []
        self._events.tell(
            "request", ", ".join(words), n_prompt=done.n_prompt, n_generated=done.n_generated, finish=done.finish_reason
        )

    def warned(self, texts: Iterable[str]) -> None:
        """The machine's warnings now; a new one is an event. Figures in it may change, so its beginning counts."""
        now = self._clock()
        for text in texts:
            about = "".join(c for c in text if not c.isdigit())[:40]
            if now - self._warned.get(about, -AGAIN_S) >= AGAIN_S:
                self._events.tell("host", text, "warning")
            self._warned[about] = now
