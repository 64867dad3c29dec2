"""Is the worker alive? Judged by its frames alone. Not here: killing it (supervisor.py).

Alive means: frames come, and while it works its step and layer counter grows. Time is added in ticks of bounded length,
so that a stall of our own event loop, or of the whole machine, is not held against the worker.
"""

import asyncio
import time

from appliance.wire import Frame

TICK_S = 0.5
STEPS = 5
"""So many planned steps may pass without a layer's end."""


class Vigil:
    """Fed with frames (`saw`) and time (`age`)."""

    def __init__(self, beat_s: float, load_s: float) -> None:
        self._beat_s, self._load_s = beat_s, load_s
        self._loading = True
        self._silent_s = self._still_s = 0.0
        self._beat = -1

    def saw(self, frame: Frame) -> None:
        """Any frame breaks the silence; all but an unmoved beat mean progress, and what is told by the clock alone."""
        self._silent_s = 0.0
        if frame["type"] == "experts":
            return
        if frame["type"] == "ready":
            self._loading = False
            self._beat_s = max(self._beat_s, STEPS * float(frame.get("planned_step_s") or 0.0))
        if frame["type"] == "beat":
            idle = not frame["busy"] and not self._loading
            if not idle and frame["beat"] == self._beat:
                return
            self._beat = frame["beat"]
        self._still_s = 0.0

    def age(self, seconds: float) -> str | None:
        """So much time has passed; a clause when it is too much."""
        self._silent_s += seconds
        self._still_s += seconds
        if self._silent_s > self._beat_s:
            return f"it showed no sign of life for {self._silent_s:.0f} s"
        limit = self._load_s if self._loading else self._beat_s
        if self._still_s > limit:
            return f"it {'loaded' if self._loading else 'computed'} for {self._still_s:.0f} s without getting anywhere"
        return None

    async def watch(self) -> str:
        """Returns the clause once there is one."""
        before = time.monotonic()
        while True:
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            verdict = self.age(min(now - before, 2 * TICK_S))
            before = now
            if verdict is not None:
                return verdict
