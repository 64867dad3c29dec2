"""A vocabulary in a model of a few numbers, so that llama.cpp's server opens it. Not here: which vocabularies."""

from collections.abc import Mapping
from pathlib import Path

from engine.gguf.reader import GgufFile
from engine.gguf.writer import write_gguf
from tests.tiny import llama_shapes


def with_weights(path: Path, vocabulary: GgufFile, n_vocab: int, **changes: object) -> Path:
    """A llama model of zeros with the tokenizer keys of a file, 34 bytes for each token, and `changes`."""
    keys: dict[str, object] = {
        "general.architecture": "llama",
        "general.name": vocabulary.metadata.get("general.name", ""),
        "llama.context_length": 256,
        "llama.embedding_length": 32,
        "llama.block_count": 1,
        "llama.feed_forward_length": 32,
        "llama.attention.head_count": 1,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.vocab_size": n_vocab,
    }
    keys |= {key: value for key, value in vocabulary.metadata.items() if key.startswith("tokenizer.ggml.")}
    keys |= changes
    tensors = []
    for name, dims in llama_shapes(1, 32, 32, 32, 32, n_vocab, True).items():
        kind, n_bytes = ("F32", 4 * dims[0]) if len(dims) == 1 else ("Q8_0", 34 * dims[1])
        tensors.append((name, dims, kind, bytes(n_bytes)))
    kinds: Mapping[str, str] = {key: kind for key, kind in vocabulary.kinds.items() if key in keys}
    return write_gguf(path, keys, tensors, kinds)  # type: ignore[arg-type]
