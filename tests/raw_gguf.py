"""GGUF files built byte by byte, as wrong as a test wants them, independent of the writer. Not here: sane models."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

U32, F32, STR, ARR, I32, BOOL = 4, 6, 8, 9, 5, 7
Entry = tuple[str, int, bytes]
Tensor = tuple[str, Sequence[int], int, int]


def string(text: str | bytes) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(data)) + data


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def f32(value: float) -> bytes:
    return struct.pack("<f", value)


def array(kind: int, count: int, data: bytes) -> bytes:
    return struct.pack("<IQ", kind, count) + data


def strings(items: Sequence[str]) -> bytes:
    return array(STR, len(items), b"".join(map(string, items)))


@dataclass(frozen=True)
class Raw:
    """A file's parts; counts are the true ones unless given. Tensors: name, dims, type number, offset."""

    entries: tuple[Entry, ...] = ()
    tensors: tuple[Tensor, ...] = ()
    data: bytes = b""
    magic: bytes = b"GGUF"
    version: int = 3
    n_tensors: int | None = None
    n_entries: int | None = None
    alignment: int = 32
    tail: bytes = field(default=b"")

    def bytes(self) -> bytes:
        n_tensors = len(self.tensors) if self.n_tensors is None else self.n_tensors
        n_entries = len(self.entries) if self.n_entries is None else self.n_entries
        head = self.magic + struct.pack("<IQQ", self.version, n_tensors, n_entries)
        head += b"".join(string(key) + u32(kind) + value for key, kind, value in self.entries)
        for name, dims, kind, offset in self.tensors:
            head += string(name) + u32(len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
            head += struct.pack("<IQ", kind, offset)
        return head + bytes(-len(head) % self.alignment) + self.data + self.tail

    def write(self, path: Path) -> Path:
        path.write_bytes(self.bytes())
        return path

    def put(self, key: str, kind: int, value: bytes) -> "Raw":
        """The same file with one key replaced in its place, or added."""
        new = (key, kind, value)
        entries = tuple(new if e[0] == key else e for e in self.entries)
        return replace(self, entries=entries if new in entries else (*entries, new))

    def drop(self, key: str) -> "Raw":
        return replace(self, entries=tuple(e for e in self.entries if e[0] != key))

    def tensor(self, name: str, /, **change: object) -> "Raw":
        """The same file with dims, kind or offset of one tensor replaced; data stay as they are."""
        fields = ("name", "dims", "kind", "offset")
        out = []
        for t in self.tensors:
            values = dict(zip(fields, t, strict=True)) | (change if t[0] == name else {})
            out.append(tuple(values[f] for f in fields))
        return replace(self, tensors=tuple(out))  # type: ignore[arg-type]


def llama(n_layers: int = 2, n_vocab: int = 40) -> Raw:
    """A whole llama model in F32 with zero weights: the sane file that scenarios damage."""
    n_embd, n_heads, n_kv, n_ff = 64, 2, 1, 96
    head = n_embd // n_heads
    layer = {
        "attn_norm": (n_embd,),
        "attn_q": (n_embd, n_embd),
        "attn_k": (n_embd, head * n_kv),
        "attn_v": (n_embd, head * n_kv),
        "attn_output": (n_embd, n_embd),
        "ffn_norm": (n_embd,),
        "ffn_gate": (n_embd, n_ff),
        "ffn_up": (n_embd, n_ff),
        "ffn_down": (n_ff, n_embd),
    }
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (n_embd, n_vocab)}
    shapes |= {f"blk.{i}.{name}.weight": dims for i in range(n_layers) for name, dims in layer.items()}
    shapes |= {"output_norm.weight": (n_embd,), "output.weight": (n_embd, n_vocab)}
    tensors, offset = [], 0
    for name, dims in shapes.items():
        tensors.append((name, dims, 0, offset))
        offset += -(-4 * dims[0] * (dims[1] if len(dims) > 1 else 1) // 32) * 32
    entries: tuple[Entry, ...] = (
        ("general.architecture", STR, string("llama")),
        ("general.alignment", U32, u32(32)),
        ("llama.context_length", U32, u32(128)),
        ("llama.embedding_length", U32, u32(n_embd)),
        ("llama.block_count", U32, u32(n_layers)),
        ("llama.feed_forward_length", U32, u32(n_ff)),
        ("llama.attention.head_count", U32, u32(n_heads)),
        ("llama.attention.head_count_kv", U32, u32(n_kv)),
        ("llama.attention.layer_norm_rms_epsilon", F32, f32(1e-5)),
        ("llama.rope.freq_base", F32, f32(10000.0)),
        ("llama.rope.dimension_count", U32, u32(head)),
        ("tokenizer.ggml.model", STR, string("gpt2")),
        ("tokenizer.ggml.tokens", ARR, strings([f"t{i}" for i in range(n_vocab)])),
        ("tokenizer.ggml.scores", ARR, array(F32, n_vocab, f32(0.0) * n_vocab)),
    )
    return Raw(entries, tuple(tensors), bytes(offset))
