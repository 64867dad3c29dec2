"""One prompt, many ways to compute it, one set of bits: threads, prefill chunks and layouts must not change a logit.

    python -m benchmarks.identity [-m MODEL]       a digest per way; exit 1 when two differ

Not here: whether the logits are right (accuracy.py).
"""

import argparse
import hashlib
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from appliance.machine.host import read_machine
from benchmarks.model import smollm2
from engine.load import EngineOptions, load_engine

N_IDS = 300


@dataclass(frozen=True, slots=True)
class Way:
    """One way through the engine. `ubatch` is the prefill chunk in tokens; resident = panels, mmap = file rows."""

    threads: int
    ubatch: int
    load_mode: str
    kv: str = "f16"

    def options(self, n_ctx: int) -> EngineOptions:
        return EngineOptions(
            n_ctx=n_ctx,
            threads=self.threads,
            threads_batch=self.threads,
            batch_size=max(self.ubatch, 512),
            ubatch_size=self.ubatch,
            type_k=self.kv,
            type_v=self.kv,
            load_mode=self.load_mode,
        )


def ways(kv: str = "f16") -> Iterator[Way]:
    """Every combination that the determinism rule names."""
    for load_mode in ("resident", "mmap"):
        for threads in (1, 2):
            for ubatch in (512, 64, 7, 1):
                yield Way(threads, ubatch, load_mode, kv)


def prompt_ids(n_vocab: int, n: int = N_IDS) -> list[int]:
    """`n` ids all over the vocabulary, the same on every machine."""
    return [(i * 7919 + i * i * 31 + 11) % n_vocab for i in range(n)]


def digest(path: Path, way: Way, n_ids: int = N_IDS) -> str:
    """A digest of raw logits: after the whole prompt read in chunks, and after every position of it."""
    engine = load_engine(path, way.options(512), read_machine())
    try:
        ids = prompt_ids(engine.info.n_vocab, n_ids)
        hashed = hashlib.sha256(engine.last_logits(ids).tobytes())
        for row in engine.logit_rows(ids):
            hashed.update(row.tobytes())
        return hashed.hexdigest()
    finally:
        engine.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description="Show that no way of computing changes a bit of the logits.")
    parser.add_argument("-m", "--model", type=Path, default=None, help="a GGUF file (SmolLM2 unless given)")
    args = parser.parse_args()
    model = args.model or smollm2()
    for kv in ("f16", "q8_0"):
        seen: set[str] = set()
        for way in ways(kv):
            start = time.perf_counter()
            bits = digest(model, way)
            seen.add(bits)
            print(f"{bits[:16]}  {way}  {time.perf_counter() - start:.1f} s")
        if len(seen) != 1:
            sys.exit(f"{len(seen)} different sets of logits with {kv} keys and values; one was expected")
    print("identical bits in every way")


if __name__ == "__main__":
    main()
