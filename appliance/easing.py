"""Gives memory back while it is short: the cache of experts shrinks, and grows again when that is over.

Not here: what the kernel tells (machine/pressure.py), the cache (engine/weights/experts.py). Looked at between two
steps, and again and again while there are none. What counts is time lost to a lack of memory: a group that is full
of cached pages meets its limit all the time and lacks nothing. What loading a model has stalled is not counted.
"""

import time
from collections.abc import Callable

from appliance.machine.pressure import Pressure, read_pressure

STALLED = 10.0
"""Percent of ten seconds in which some task waited for memory."""
SHRINK = 0.75
GROW = 1.1
LEAST = 0.25
CALM_S = 60.0  # of no stalls before it grows, a step at a time
AGAIN_S = 10.0  # the kernel's figure is a mean over so long


class Easing:
    """`share` of the planned cache is in use; `resize` gives it another (engine.generate.Engine.resize_experts)."""

    def __init__(
        self, resize: Callable[[float], int | None], read: Callable[[], Pressure] = read_pressure,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.share = 1.0
        self._resize, self._read, self._clock = resize, read, clock
        self._changed = clock()
        self._stalled = self._changed - CALM_S

    def look(self) -> bool:
        """Between two steps; True when the cache has another size now."""
        now, share = self._clock(), self.share
        if now - self._changed < AGAIN_S:
            return False
        if (self._read().memory_some or 0.0) >= STALLED:
            self._stalled, share = now, max(LEAST, share * SHRINK)
        elif now - self._stalled >= CALM_S and now - self._changed >= CALM_S:
            share = min(1.0, share * GROW)
        if share == self.share:
            return False
        self._changed, self.share = now, share
        return self._resize(share) is not None
