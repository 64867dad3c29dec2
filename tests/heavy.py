"""A model with some weight and no sense, for tests of memory limits. Not here: models whose numbers matter."""

from pathlib import Path

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
