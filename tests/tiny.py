"""Tiny but real GGUF models for tests: random weights in real types, a working tokenizer, a chat template.

Not here: malformed files (tests/raw_gguf.py) and the block formats themselves (tests/blocks.py).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from engine.gguf.reader import GgufFile, Value
from engine.gguf.writer import Tensor, write_gguf
from engine.quants.registry import TYPES
from tests.blocks import F32, dequantise, quantise

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHATML = (
    "{%- for m in messages -%}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor -%}"
    "{%- if add_generation_prompt -%}<|im_start|>assistant\n{% endif -%}"
)
_SAMPLE = (
    "The quick brown bird sees the flower and the river. A bird that sings in the morning is heard in the evening. "
    "There are nine hundred things that the small bird knows, and there is one that it does not know. "
) * 2


def tiny_llama(
    path: str | Path,
    *,
    quant: str = "Q4_0",
    n_layers: int = 2,
    n_embd: int | None = None,
    n_heads: int = 4,
    n_kv_heads: int = 2,
    n_ff: int | None = None,
    n_vocab: int = 320,
    seed: int = 0,
    tied: bool = False,
    n_ctx: int = 512,
    head_dim: int | None = None,
    quants: Mapping[str, str] | None = None,
    extra: Sequence[Tensor] = (),
    **metadata: Value | None,
) -> Path:
    """Write a llama model whose matrices are of type `quant` (norms F32) and return its path.

    `quants` maps the end of a tensor's name to another type ({"ffn_down.weight": "Q4_1"}). Further keywords are
    metadata keys (by ** of a dict); None removes the key. Same arguments, same bytes.
    """
    wide = TYPES[quant].items == 256
    n_embd, n_ff = n_embd or (256 if wide else 128), n_ff or (256 if wide else 192)
    head = head_dim or n_embd // n_heads
    keys: dict[str, Value | None] = {
        "general.architecture": "llama",
        "general.name": "tiny",
        "llama.context_length": n_ctx,
        "llama.embedding_length": n_embd,
        "llama.block_count": n_layers,
        "llama.feed_forward_length": n_ff,
        "llama.attention.head_count": n_heads,
        "llama.attention.head_count_kv": n_kv_heads,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 10000.0,
        "llama.rope.dimension_count": head,
        "llama.vocab_size": n_vocab,
    }
    if head_dim:
        keys |= {"llama.attention.key_length": head, "llama.attention.value_length": head}
    keys |= tokenizer_keys(n_vocab)
    keys |= metadata
    shapes = llama_shapes(n_layers, n_embd, head * n_heads, head * n_kv_heads, n_ff, n_vocab, tied)
    rng = np.random.default_rng(seed)
    tensors = [random_tensor(rng, name, dims, quant, quants or {}) for name, dims in shapes.items()]
    kept = {key: value for key, value in keys.items() if value is not None}
    kinds = {"tokenizer.ggml.scores": "array[float32]"} if "tokenizer.ggml.scores" in kept else {}
    return write_gguf(path, kept, [*tensors, *extra], kinds)


def tiny_mixed(path: str | Path, **options: object) -> Path:
    """A model labelled Q4_0 that also holds Q4_1, Q8_0, F16, BF16 and F32, as real files mix them."""
    quants = {
        "token_embd.weight": "Q8_0",
        "output.weight": "F16",
        "attn_v.weight": "Q4_1",
        "ffn_down.weight": "BF16",
        "attn_output.weight": "F32",
    }
    return tiny_llama(path, quant="Q4_0", quants=quants, **{"general.file_type": 2}, **options)  # type: ignore[arg-type]


def llama_shapes(
    n_layers: int, n_embd: int, n_q: int, n_kv: int, n_ff: int, n_vocab: int, tied: bool
) -> dict[str, tuple[int, ...]]:
    """Tensor names and dims (contiguous dimension first) of a llama model; `n_q`, `n_kv` = heads x head_dim."""
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (n_embd, n_vocab), "output_norm.weight": (n_embd,)}
    if not tied:
        shapes["output.weight"] = (n_embd, n_vocab)
    for i in range(n_layers):
        shapes |= {
            f"blk.{i}.attn_norm.weight": (n_embd,),
            f"blk.{i}.attn_q.weight": (n_embd, n_q),
            f"blk.{i}.attn_k.weight": (n_embd, n_kv),
            f"blk.{i}.attn_v.weight": (n_embd, n_kv),
            f"blk.{i}.attn_output.weight": (n_q, n_embd),
            f"blk.{i}.ffn_norm.weight": (n_embd,),
            f"blk.{i}.ffn_gate.weight": (n_embd, n_ff),
            f"blk.{i}.ffn_up.weight": (n_embd, n_ff),
            f"blk.{i}.ffn_down.weight": (n_ff, n_embd),
        }
    return shapes


def random_tensor(
    rng: np.random.Generator, name: str, dims: tuple[int, ...], quant: str, quants: Mapping[str, str]
) -> Tensor:
    """Random values for a tensor of that name; vectors lie around 1 and are F32."""
    if len(dims) == 1:
        return name, dims, "F32", quantise(rng.normal(1.0, 0.1, dims), "F32")
    # Rows of length 1 keep activations near 1 through any depth; three times that makes logits differ clearly,
    # and the experts of a router: who is chosen at a near tie is rounding's choice, and all that follows with it.
    spread = 3.0 if name.endswith(("token_embd.weight", "ffn_gate_inp.weight")) or name == "output.weight" else 1.0
    values = rng.normal(0.0, spread / np.sqrt(dims[0]), dims[::-1])
    type_name = next((t for end, t in quants.items() if name.endswith(end)), quant)
    return name, dims, type_name, quantise(values, type_name)


def tensor_f32(gguf: GgufFile, name: str) -> F32:
    """A tensor's values as float32, shaped (rows, k): what an exact forward would multiply with."""
    info = gguf.tensors[name]
    with gguf.path.open("rb") as file:
        file.seek(info.offset)
        return dequantise(file.read(info.n_bytes), info.type.name, info.dims[::-1])


def byte_alphabet() -> dict[int, str]:
    """Byte -> the character that stands for it in a byte-level vocabulary: printable Latin-1 as itself, the rest
    counted up from U+0100."""
    plain = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255]
    others = [b for b in range(256) if b not in plain]
    return {b: chr(b) for b in plain} | {b: chr(256 + i) for i, b in enumerate(others)}


def _merges(n: int, alphabet: Mapping[int, str]) -> list[tuple[str, str]]:
    """The `n` most useful merges of the sample text, found as BPE training does: commonest pair first."""
    words = Counter(_SAMPLE.replace(" ", " \0").split(" "))
    pieces = {w: [alphabet[b] for b in w.replace("\0", " ").encode()] for w in words}
    merges: list[tuple[str, str]] = []
    while len(merges) < n:
        pairs: Counter[tuple[str, str]] = Counter()
        for w, count in words.items():
            for pair in zip(pieces[w], pieces[w][1:], strict=False):
                pairs[pair] += count
        if not pairs:
            break
        best = min(pairs, key=lambda p: (-pairs[p], p))
        merges.append(best)
        pieces = {w: _joined(p, best) for w, p in pieces.items()}
    return merges


def _joined(pieces: list[str], pair: tuple[str, str]) -> list[str]:
    out: list[str] = []
    for piece in pieces:
        if out and (out[-1], piece) == pair:
            out[-1] += piece
        else:
            out.append(piece)
    return out


def tokenizer_keys(n_vocab: int) -> dict[str, Value | None]:
    """Metadata of a byte-level BPE of exactly `n_vocab` tokens: 3 specials, 256 bytes, merges, unused fillers."""
    assert n_vocab >= 259, "256 bytes and three specials are the least"
    merges = _merges(n_vocab - 259, byte_alphabet())
    tokens = [*SPECIALS, *byte_alphabet().values(), *(a + b for a, b in merges)]
    types = [3] * 3 + [1] * (len(tokens) - 3)
    n_fill = n_vocab - len(tokens)
    tokens += [f"<unused{i}>" for i in range(n_fill)]
    types += [5] * n_fill
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": list(tokens),
        "tokenizer.ggml.token_type": list(types),
        "tokenizer.ggml.merges": [f"{a} {b}" for a, b in merges],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.padding_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": CHATML,
    }


def spm_keys(n_vocab: int) -> dict[str, Value | None]:
    """Metadata of a SentencePiece BPE of exactly `n_vocab` tokens: 3 specials, 256 bytes, merged pieces in order of
    merging, characters, unused fillers. No begin, end or prefix keys and no template, as bare files have it."""
    letters = {b: "\u2581" if b == 32 else chr(b) for b in range(128)}
    characters = sorted({letters[b] for b in _SAMPLE.encode()} | {chr(b) for b in range(33, 127)})
    room = n_vocab - 259 - len(characters)
    assert room >= 0, f"{259 + len(characters)} tokens are the least"
    merged = list(dict.fromkeys(a + b for a, b in _merges(room, letters)))
    plain = [*merged, *characters]
    n_fill = n_vocab - 259 - len(plain)
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [
            "<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *plain,
            *(f"<unused{i}>" for i in range(n_fill)),
        ],
        "tokenizer.ggml.scores": [0.0] * 259 + [-float(i) for i in range(len(plain))] + [0.0] * n_fill,
        "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * len(plain) + [5] * n_fill,
    } | {
        f"tokenizer.{name}": None
        for name in (
            "ggml.pre", "ggml.merges", "ggml.bos_token_id", "ggml.eos_token_id", "ggml.padding_token_id",
            "ggml.unknown_token_id", "ggml.add_bos_token", "chat_template",
        )
    }  # fmt: skip
