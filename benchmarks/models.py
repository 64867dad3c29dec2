"""Makes models of a real shape with random weights and a real tokenizer, for figures on types nobody can download here.

    python -m benchmarks.models [1b-q4_k_m ...]     makes what is missing, prints the paths

Such a file says nothing sensible, but its shapes, types, size and memory traffic are those of a real model. Files go to
BENCH_MODELS, else the user's cache folder; same name, same bytes. The shape is that of Llama 3.2 1B with an
output matrix of its own and SmolLM2's vocabulary. Not here: the real model (model.py), tiny models (tests/tiny.py).
"""

import argparse
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.blocks import random_blocks
from benchmarks.model import smollm2
from engine.gguf.reader import Value, read_gguf
from engine.gguf.writer import Tensor, write_gguf
from engine.quants.registry import TYPES
from tests.tiny import llama_shapes


@dataclass(frozen=True, slots=True)
class Size:
    """Sizes of a llama model, counts in items."""

    n_layers: int
    n_embd: int
    n_ff: int
    n_heads: int
    n_kv_heads: int
    head_dim: int = 64


SIZES = {"1b": Size(16, 2048, 8192, 32, 8), "tiny": Size(2, 256, 512, 4, 2)}  # tiny: to try a benchmark out
QUANTS = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K_M", "Q5_K_M", "Q6_K", "TQ2_0", "F16",
          "Q2_K", "Q3_K", "IQ4_NL", "IQ4_XS", "MXFP4", "TQ1_0")  # fmt: skip
MIXES = {"Q4_K_M": "Q4_K", "Q5_K_M": "Q5_K"}  # and Q6_K where llama.cpp's quantiser spends more
SPARE_BLOCKS = 4096  # each matrix begins at another of the random blocks
N_CTX = 8192


def names() -> list[str]:
    """Every file that can be made now: those whose types the engine knows."""
    known = [q for q in QUANTS if ({MIXES[q], "Q6_K"} if q in MIXES else {q}) <= set(TYPES)]
    return [f"{size}-{quant.lower()}" for size in SIZES for quant in known]


def model_path(name: str) -> Path:
    """The file of a name like 1b-q4_k_m or smollm2, made first when it is missing; a path of a GGUF file is itself."""
    if name == "smollm2":
        return smollm2()
    if name.endswith(".gguf"):
        return Path(name)
    if name not in names():
        raise SystemExit(f"{name} is no model that can be made; there are smollm2, {', '.join(names())}")
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(os.environ.get("BENCH_MODELS") or Path(home) / "colibri" / "bench-models")
    path = folder / f"{name}.gguf"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        size, _, quant = name.partition("-")
        print(f"making {path}", file=sys.stderr)
        make(path, SIZES[size], quant.upper())
    return path


def type_of(quant: str, tensor: str, n_layers: int) -> str:
    """The type of a matrix: of a mix, Q6_K for the output and for v and down in the outer layers and each third."""
    if quant not in MIXES:
        return quant
    part, layer = tensor.split(".")[-2], tensor.split(".")[1]
    if part == "output":
        return "Q6_K"
    if part in ("attn_v", "ffn_down"):
        i, eighth = int(layer), n_layers // 8
        if i < eighth or i >= 7 * eighth or (i - eighth) % 3 == 2:
            return "Q6_K"
    return MIXES[quant]


def make(path: Path, size: Size, quant: str, seed: int = 0) -> Path:
    """Write a llama model of a type or mix; norms are F32 near 1, a matrix's rows have length near 1."""
    source = read_gguf(smollm2())
    tokenizer = {key: value for key, value in source.metadata.items() if key.startswith("tokenizer.")}
    tokens = tokenizer["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    keys: dict[str, Value] = {
        "general.architecture": "llama",
        "general.name": f"random {path.stem}",
        "llama.block_count": size.n_layers,
        "llama.context_length": N_CTX,
        "llama.embedding_length": size.n_embd,
        "llama.feed_forward_length": size.n_ff,
        "llama.attention.head_count": size.n_heads,
        "llama.attention.head_count_kv": size.n_kv_heads,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.attention.key_length": size.head_dim,
        "llama.attention.value_length": size.head_dim,
        "llama.rope.freq_base": 500000.0,
        "llama.rope.dimension_count": size.head_dim,
        "llama.vocab_size": len(tokens),
    }
    n_q, n_kv = size.n_heads * size.head_dim, size.n_kv_heads * size.head_dim
    shapes = llama_shapes(size.n_layers, size.n_embd, n_q, n_kv, size.n_ff, len(tokens), tied=False)
    pools = _Pools(np.random.default_rng(seed))
    for name, dims in shapes.items():
        if len(dims) == 2:
            pools.need(type_of(quant, name, size.n_layers), dims)
    tensors = [_tensor(pools, name, dims, quant, size.n_layers) for name, dims in shapes.items()]
    return write_gguf(path, keys | tokenizer, tensors, {key: source.kinds[key] for key in tokenizer})


class _Pools:
    """Random blocks by type and row length, as many as the largest matrix needs; a matrix is a stretch of them.

    So a 1 GB file costs 0.1 GB of memory and a few seconds; no two matrices hold the same rows.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._needed: dict[tuple[str, int], int] = {}
        self._made: dict[tuple[str, int], memoryview] = {}
        self._taken = 0

    def need(self, type_name: str, dims: tuple[int, ...]) -> None:
        kind = (type_name, dims[0])
        self._needed[kind] = max(self._needed.get(kind, 0), dims[0] * dims[1])

    def take(self, type_name: str, dims: tuple[int, ...]) -> memoryview:
        """The bytes of one matrix; rows have length near 1."""
        kind, row = (type_name, dims[0]), TYPES[type_name]
        if kind not in self._made:
            n_items = self._needed[kind] + SPARE_BLOCKS * row.items
            self._made[kind] = random_blocks(type_name, n_items, dims[0] ** -0.5, self._rng).data
        self._taken += 1
        first = self._taken * 977 % SPARE_BLOCKS * row.n_bytes
        return self._made[kind][first : first + dims[1] * row.row_bytes(dims[0])]

    def floats(self, n: int) -> memoryview:
        """Weights of a norm."""
        return (1 + random_blocks("F32", n, 0.1, self._rng).view(np.float32)).view(np.uint8).data


def _tensor(pools: _Pools, name: str, dims: tuple[int, ...], quant: str, n_layers: int) -> Tensor:
    if len(dims) == 1:
        return name, dims, "F32", pools.floats(dims[0])
    type_name = type_of(quant, name, n_layers)
    return name, dims, type_name, pools.take(type_name, dims)


def main() -> None:
    parser = argparse.ArgumentParser(description="Make models of a real shape with random weights.")
    parser.add_argument("names", nargs="*", help=f"of {', '.join(names())}; all of size 1b unless named")
    for name in parser.parse_args().names or [n for n in names() if n.startswith("1b")]:
        print(model_path(name))


if __name__ == "__main__":
    main()
