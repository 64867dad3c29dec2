"""What the engine has used up in the last seconds: rates from the sums that its beats carry. Not here: counting
(engine/spent.py), sums since the load (api/admin_memory.py).
"""

import time
from collections import deque
from collections.abc import Callable, Mapping

WINDOW_S = 10.0
NAMES = ("seconds", "steps_s", "tok_s", "read_bytes_s", "reads_s", "major_faults_s", "busy_share", "disk_share",
         "expert_hit_share")  # fmt: skip
Sums = Mapping[str, int]


class Recent:
    """The beats of the last WINDOW_S of one worker, taken as they come; `clock` is in seconds and only grows."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._beats: deque[tuple[float, Sums]] = deque()

    def take(self, sums: Sums | None) -> None:
        """One more beat; a worker that counts nothing says None."""
        if sums is None:
            return
        now = self._clock()
        while self._beats and now - self._beats[0][0] > WINDOW_S:
            self._beats.popleft()
        self._beats.append((now, sums))

    def forget(self) -> None:
        """The worker is gone; another one counts from nothing."""
        self._beats.clear()

    def rates(self) -> dict[str, float | None]:
        """Per second over `seconds`; shares are 0 to 1: of time in steps, of steps' time waiting for the disk, of
        needed experts found in the cache. None where nothing is known, or nothing happened to take a share of."""
        found: dict[str, float | None] = dict.fromkeys(NAMES)
        if len(self._beats) < 2:
            return found
        (began, before), (ended, after) = self._beats[0], self._beats[-1]
        seconds, grown = ended - began, {name: after[name] - before.get(name, 0) for name in after}
        if seconds <= 0:
            return found
        for name, key in (("steps_s", "n_steps"), ("tok_s", "n_tokens"), ("read_bytes_s", "read_bytes"),
                          ("reads_s", "n_reads"), ("major_faults_s", "major_faults")):  # fmt: skip
            found[name] = grown[key] / seconds
        # A step counts when it ends, its waits as they pass.
        return found | {
            "seconds": seconds, "busy_share": min(1.0, grown["step_ns"] / 1e9 / seconds),
            "disk_share": _share(grown["disk_ns"], grown["step_ns"]),
            "expert_hit_share": _share(grown["expert_hits"], grown["expert_hits"] + grown["expert_misses"]),
        }  # fmt: skip


def _share(part: int, whole: int) -> float | None:
    return min(1.0, part / whole) if whole else None
