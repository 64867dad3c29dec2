"""What a model takes, part by part: weights by kind, buffers. Not here: the cache (cache/test_layout.py)."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from engine.footprint import KINDS, ModelFacts, buffers_bytes, cache_bytes, kind_of, out_rows, weights_by_kind
from engine.gguf.reader import read_gguf
from engine.models.registry import ARCHITECTURES
from engine.models.shape import DecoderShape
from tests.families import FAMILIES, encoders
from tests.families.encoders import ENCODERS
from tests.families.stored import write
from tests.tiny import tiny_llama, tiny_mixed
from tests.tiny_moe import many_experts, mixed_experts

F16_ROW, Q4_0_ROW = 2, 18 / 32


# One of each architecture.
ROWS = {family.arch: name for name, family in FAMILIES.items() if family.arch in ARCHITECTURES}


def wide(path: Path) -> Path:
    """Of sizes where activations outweigh everything else."""
    return tiny_llama(path, quant="F16", n_layers=1, n_embd=768, n_heads=12, n_kv_heads=4, n_ff=3072)


def row(name: str, quant: str, path: Path) -> Path:
    write(name, path, quant)
    return path


def encoder(name: str, path: Path) -> Path:
    encoders.write(name, path, quant="Q8_0")
    return path


def mixed_words(path: Path) -> Path:
    return tiny_mixed(path, n_vocab=2000)


@pytest.mark.parametrize("tied", [False, True])
def test_weights_by_kind_are_the_tensors_sizes(tmp_path: Path, tied: bool) -> None:
    gguf = read_gguf(tiny_llama(tmp_path / "m.gguf", tied=tied, quants={"token_embd.weight": "F16"}))
    facts = ModelFacts.of(gguf, DecoderShape.read(gguf))
    # 2 layers, 128 wide, 4 heads of 32, 2 of them for keys and values, 192 hidden, 320 tokens
    assert facts.weights == {
        "embedding": 320 * 128 * F16_ROW,
        "attention": 2 * (128 * 128 + 2 * 64 * 128 + 128 * 128) * Q4_0_ROW,
        "ffn": 2 * 3 * 192 * 128 * Q4_0_ROW,
        "experts": 0,
        "output": 0 if tied else 320 * 128 * Q4_0_ROW,
        "norms": 5 * 128 * 4,
    }
    assert facts.weights_bytes == sum(t.n_bytes for t in gguf.tensors.values()) < facts.file_bytes == gguf.n_bytes


@pytest.mark.parametrize(
    ("name", "n_dims", "kind"),
    [
        ("token_embd.weight", 2, "embedding"),
        ("token_types.weight", 2, "embedding"),
        ("position_embd.weight", 2, "embedding"),
        ("output.weight", 2, "output"),
        ("output_norm.weight", 1, "norms"),
        ("rope_freqs.weight", 1, "norms"),
        ("blk.0.attn_q.weight", 2, "attention"),
        ("blk.0.attn_q.bias", 1, "norms"),
        ("blk.11.attn_q_norm.weight", 1, "norms"),
        ("blk.3.attn_kv_a_mqa.weight", 2, "attention"),
        ("blk.3.ssm_in.weight", 2, "attention"),
        ("blk.3.ffn_down.weight", 2, "ffn"),
        ("blk.3.ffn_gate_inp.weight", 2, "ffn"),
        ("blk.3.ffn_gate_shexp.weight", 2, "ffn"),
        ("blk.3.ffn_gate_exps.weight", 3, "experts"),
    ],
)
def test_the_kind_follows_from_the_name(name: str, n_dims: int, kind: str) -> None:
    assert kind_of(name, n_dims) == kind and kind in KINDS


def test_whatever_a_file_holds_is_counted(tmp_path: Path) -> None:
    extra = [("blk.0.ffn_up_exps.weight", (32, 4, 3), "F32", bytes(4 * 32 * 4 * 3))]
    gguf = read_gguf(tiny_llama(tmp_path / "m.gguf", extra=extra))
    weights = weights_by_kind(gguf.tensors.values())
    assert weights["experts"] == 4 * 32 * 4 * 3
    assert sum(weights.values()) == sum(t.n_bytes for t in gguf.tensors.values())


@pytest.mark.parametrize(
    ("make", "n_ctx", "ubatch_size", "threads", "parallel"),
    [
        (mixed_words, 256, 512, 1, 1), (mixed_words, 2048, 64, 2, 4), (mixed_words, 1 << 17, 512, 4, 1),
        (mixed_words, 256, 64, 1, 16), (mixed_words, 256, 8, 1, 64), (mixed_experts, 2048, 512, 4, 1),
        (many_experts, 256, 8, 1, 64), (wide, 512, 512, 1, 1), (many_experts, 1024, 512, 2, 1),
        *((partial(row, name, "F32"), 1024, 512, 2, 1) for name in ROWS.values()),
        *((partial(encoder, name), 512, 512, 2, 1) for name in ENCODERS),
    ],
)  # fmt: skip
def test_the_buffers_are_no_less_than_what_is_allocated(
    make: Callable[[Path], Path], n_ctx: int, ubatch_size: int, threads: int, parallel: int, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    from engine.cache.kv import KvCache
    from engine.kernels import places
    from engine.kernels.program import Buffer
    from engine.models import mixture, parts
    from engine.models.registry import family
    from engine.weights.store import Store

    made: list[Buffer] = []

    def counted(n_bytes: int) -> Buffer:
        made.append(Buffer(n_bytes))
        return made[-1]

    for module in (parts, mixture, places):
        monkeypatch.setattr(module, "Buffer", counted)
    gguf = read_gguf(make(tmp_path / "m.gguf"))
    shape, store = DecoderShape.read(gguf), Store(gguf)
    try:
        model = family(shape.architecture).Model(shape, store)
        kv = KvCache(
            n_ctx, shape.n_layers, shape.n_kv_heads, shape.head_dim, "f16", "f16", v_dim=shape.v_dim,
            windows=shape.windows, rows=ubatch_size,
        )  # fmt: skip
        assert kv.n_bytes == cache_bytes(shape, n_ctx, "f16", "f16", ubatch_size=ubatch_size)
        model.record(parts.Parts(shape, store.matrices, kv, min(ubatch_size, n_ctx), out_rows(parallel), threads))
    finally:
        store.close()
    allocated = sum(buffer.n_bytes for buffer in made)
    assert 0.3 * buffers_bytes(shape, n_ctx, ubatch_size, threads, parallel) < allocated
    assert allocated <= buffers_bytes(shape, n_ctx, ubatch_size, threads, parallel)
