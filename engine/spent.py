"""What an engine has used up so far: steps, time by part, bytes read, page faults. Not here: showing or judging it.

    time of the steps = computing + waiting for the disk + choosing tokens

The waits are those of the team's first thread. Choosing is summed over the rows of a step: wall time of one text, more
than that when threads choose for several texts at once.
"""

import resource
from dataclasses import dataclass, fields
from typing import Protocol


class Finds(Protocol):
    """What a cache of experts counts (weights/experts.py)."""

    @property
    def n_hits(self) -> int: ...
    @property
    def n_misses(self) -> int: ...
    @property
    def read_bytes(self) -> int: ...


class Reads(Protocol):
    """What the readers of a stream count (kernels/readers.py)."""

    @property
    def n_bytes(self) -> int: ...
    @property
    def busy_ns(self) -> int: ...
    @property
    def wait_ns(self) -> int: ...
    @property
    def n_reads(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Spent:
    """Sums since the engine was loaded, or between two moments. `n_rows` went through the model in `n_steps` steps and
    brought `n_tokens`; `*_ns` are nanoseconds, `read_ns` of all readers together; `read_bytes` came from the disk by
    our own `n_reads` reads, `major_faults` are pages of this process that the kernel had to read. Of the experts that
    steps needed `expert_hits` were in the cache and `expert_misses` were read: `expert_bytes` of `read_bytes`."""

    n_steps: int = 0
    n_rows: int = 0
    n_tokens: int = 0
    step_ns: int = 0
    disk_ns: int = 0
    sample_ns: int = 0
    read_ns: int = 0
    read_bytes: int = 0
    major_faults: int = 0
    expert_hits: int = 0
    expert_misses: int = 0
    expert_bytes: int = 0
    n_reads: int = 0

    @property
    def compute_ns(self) -> int:
        """What is left of the steps' time."""
        return max(0, self.step_ns - self.disk_ns - self.sample_ns)

    def since(self, before: "Spent") -> "Spent":
        """What came on top of `before`."""
        return Spent(*(getattr(self, f.name) - getattr(before, f.name) for f in fields(self)))


class Tally:
    """Counts for one engine, by the thread that steps; any thread may ask for the sums."""

    def __init__(self) -> None:
        self.n_tokens = 0
        self._n_steps = self._n_rows = self._step_ns = 0
        self._faults = _major_faults()

    def step(self, n_rows: int, ns: int) -> None:
        """A step over so many rows has ended."""
        self._n_steps += 1
        self._n_rows += n_rows
        self._step_ns += ns

    def spent(self, sample_ns: int, reads: Reads | None, finds: Finds | None = None) -> Spent:
        read = (reads.wait_ns, sample_ns, reads.busy_ns, reads.n_bytes) if reads else (0, sample_ns, 0, 0)
        faults = _major_faults() - self._faults
        found = (finds.n_hits, finds.n_misses, finds.read_bytes) if finds else (0, 0, 0)
        n_reads = reads.n_reads if reads else 0
        return Spent(self._n_steps, self._n_rows, self.n_tokens, self._step_ns, *read, faults, *found, n_reads)


def _major_faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt
