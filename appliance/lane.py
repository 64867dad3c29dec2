"""The lanes of the queue, from first to last served. Not here: what waits in them (queue.py), who may choose (api)."""

from typing import Literal

Lane = Literal["interactive", "fallback", "batch"]
LANES: tuple[Lane, ...] = ("interactive", "fallback", "batch")
