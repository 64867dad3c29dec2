"""Models with some weight and no sense, for tests of memory limits. Not here: models whose numbers matter."""

from pathlib import Path

import numpy as np

from engine.gguf.reader import read_gguf
from engine.gguf.writer import write_gguf
from tests.tiny import llama_shapes, tiny_llama


def heavy_llama(path: Path) -> Path:
    """105 MiB of zeros in 64 layers, written in a quarter of a second: enough to be seen beside an interpreter. In f16
    a cached position takes 16 KiB."""
    small = tiny_llama(path.with_name("small.gguf"), n_ctx=1 << 17)
    header = read_gguf(small)
    small.unlink()
    tensors = []
    for name, dims in llama_shapes(64, 128, 128, 64, 4096, 320, False).items():
        n = dims[0] * (dims[1] if len(dims) == 2 else 1)
        kind, n_bytes = ("F32", 4 * n) if len(dims) == 1 else ("Q8_0", n // 32 * 34)
        tensors.append((name, dims, kind, bytes(n_bytes)))
    keys = header.metadata | {"llama.block_count": 64, "llama.feed_forward_length": 4096}
    return write_gguf(path, keys, tensors, header.kinds)


def noisy_llama(path: Path) -> Path:
    """1.1 GiB of random Q8_0 weights in 18 layers, each another, made in seconds: larger than a container may use."""
    n_layers, n_embd, n_kv, n_ff = 18, 2048, 512, 8192
    small = tiny_llama(path.with_name("small.gguf"), n_ctx=4096)
    header = read_gguf(small)
    small.unlink()
    rng, tensors = np.random.default_rng(11), []
    for name, dims in llama_shapes(n_layers, n_embd, n_embd, n_kv, n_ff, 320, False).items():
        if len(dims) == 1:
            tensors.append((name, dims, "F32", np.ones(dims, np.float32).tobytes()))
            continue
        blocks = np.empty((dims[0] * dims[1] // 32, 34), np.uint8)
        blocks[:, 2:] = np.frombuffer(rng.bytes(len(blocks) * 32), np.uint8).reshape(-1, 32)
        # Rows of length 1, as in tests/tiny.py; bytes are uniform, so their mean square is 127.5^2 / 3.
        blocks[:, :2] = np.frombuffer(np.float16(3**0.5 / 127.5 / dims[0] ** 0.5).tobytes(), np.uint8)
        tensors.append((name, dims, "Q8_0", blocks.tobytes()))
    sizes = {
        "block_count": n_layers, "embedding_length": n_embd, "feed_forward_length": n_ff, "attention.head_count": 16,
        "attention.head_count_kv": n_kv // 128, "rope.dimension_count": 128,
    }  # fmt: skip
    keys = header.metadata | {f"llama.{key}": value for key, value in sizes.items()}
    return write_gguf(path, keys, tensors, header.kinds)
