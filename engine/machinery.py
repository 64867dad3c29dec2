"""What `load` built for an engine to run with. Not here: building it (load.py), using it (generate.py)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine.cache.kv import KvCache
from engine.cache.prefix import Prefixes
from engine.embedding import Embedder
from engine.kernels.program import Buffer, Recorded
from engine.kernels.team import Team
from engine.meter import PassTimes
from engine.sampling import Sampling
from engine.speculate import Speculator
from engine.weights.stream import Stream
from engine.weights.watch import Watch


@dataclass(frozen=True, slots=True)
class Machinery:
    """What `load` built: the team, the recorded program, the cache, n_out rows of ld_logits logits and whatever they
    point into; `embedder` makes vectors; `speculate` makes what guesses the next tokens of a text, from its ids and its
    sampling with the seed in use (None: nobody guesses); `stream` reads the weights that are not in memory, `watch`
    looks after a mapped file; `prefixes` keeps texts that have ended for those that begin the same."""

    team: Team
    program: Recorded
    kv: KvCache
    logits: Buffer
    ld_logits: int
    n_out: int
    embedder: Embedder
    keep: tuple[Any, ...]
    close: Callable[[], None]
    speculate: Callable[[list[int], Sampling, PassTimes], Speculator] | None = None
    stream: Stream | None = None
    watch: Watch | None = None
    prefixes: Prefixes | None = None
