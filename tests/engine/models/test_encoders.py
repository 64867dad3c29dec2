"""Encoders' vectors: transformers' rows, llama.cpp's vectors of the same file, the same bits in every way, refusals.

transformers' rows are stored (tests/families/encoders.py). Not here: decoders that pool (engine/test_embedding.py).
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from engine.budget import Machine
from engine.errors import BadModelFile, ContextLengthExceeded, InvalidParameter, UnsupportedModel
from engine.generate import Engine
from engine.gguf.reader import read_gguf
from engine.load import EngineOptions, load_engine
from engine.models.shape import DecoderShape
from engine.sampling import Sampling
from engine.text import open_text
from tests.families.encoders import ENCODERS, write
from tests.families.stored import ids_of

MACHINE = Machine(1 << 34, None, 2, (0, 1), None)
TEXT = "word3 Hello, \u00c9milie: wo word9!"
_CHILD = """
import json, sys, xllamacpp
for line in sys.stdin:
    path, texts = json.loads(line)
    p = xllamacpp.CommonParams()
    p.model.path, p.n_ctx, p.cpuparams.n_threads, p.n_parallel, p.verbosity = path, 512, 1, 1, 0
    p.cpuparams_batch.n_threads, p.warmup, p.port, p.embedding = 1, False, 0, True
    p.n_batch = p.n_ubatch = 512
    p.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    server = xllamacpp.Server(p)
    told = [server.handle_embeddings({"input": text, "model": "m"})["data"][0]["embedding"] for text in texts]
    del server
    print("answer", json.dumps(told), flush=True)
"""


def loaded(path: Path, rows: int = 128, mode: str = "resident", threads: int = 2, n_ctx: int = 256) -> Engine:
    options = EngineOptions(
        n_ctx, threads, threads, ubatch_size=rows, type_k="f32", type_v="f32", load_mode=mode, spec_type="none"
    )
    return load_engine(path, options, MACHINE)


def vectors(engine: Engine, texts: Sequence[list[int]]) -> list[np.ndarray]:
    found = [engine.embed(ids) for ids in texts]
    engine.shutdown()
    return [vector for vector in found if vector is not None]


def far(found: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


@pytest.mark.parametrize(("name", "pooling"), [*((name, 1) for name in ENCODERS), ("bert", 2), ("nomic-bert", 3)])
def test_a_text_has_the_vector_of_transformers_rows(name: str, pooling: int, tmp_path: Path) -> None:
    """Seen: 3e-7 of the largest value."""
    rows = write(name, tmp_path / "m.gguf", pooling).astype(np.float64)
    wanted = {1: rows.mean(axis=0), 2: rows[0], 3: rows[-1]}[pooling]
    (found,) = vectors(loaded(tmp_path / "m.gguf"), [ids_of()])
    assert far(found, wanted / np.linalg.norm(wanted)) <= 1e-5


def test_llama_cpp_makes_the_same_vectors_of_the_same_files(tmp_path: Path) -> None:
    """Of a word, of two, of words that fill pages where there is no end of positions, and of a text with its tokens.

    Seen: 3e-7, and with llama.cpp's table of the other gelu in float16 3e-4, past a page 1e-3.
    """
    lengths = {"bert": (1, 2, 3, 128), "bert-fused": (17,), "nomic-bert": (1, 2, 256, 300)}
    child = subprocess.Popen(
        [sys.executable, "-c", _CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True,
    )  # fmt: skip
    assert child.stdin is not None and child.stdout is not None
    apart = {}
    for name, sizes in lengths.items():
        path = tmp_path / f"{name}.gguf"
        write(name, path, 1, changed={"nomic-bert.context_length": 512} if name == "nomic-bert" else {})
        texts = [ids_of(n, seed=9) for n in sizes]
        child.stdin.write(json.dumps([str(path), [*texts, TEXT]]) + "\n")
        child.stdin.flush()
        texts.append(open_text(read_gguf(path)).encode(TEXT, True, True))
        told = json.loads(next(line for line in child.stdout if line.startswith("answer ")).removeprefix("answer "))
        found = vectors(loaded(path, 512, n_ctx=512), texts)
        apart[name] = max(far(ours, np.array(theirs)) for ours, theirs in zip(found, told, strict=True))
    child.stdin.close()
    child.wait()
    child.stdout.close()
    assert apart["nomic-bert"] <= 1e-5 and max(apart.values()) <= 3e-3, apart


@pytest.mark.parametrize("name", ["bert", "nomic-bert"])
def test_layout_threads_and_room_for_more_rows_change_no_bit(name: str, tmp_path: Path) -> None:
    write(name, tmp_path / "m.gguf", 1, "Q8_0")
    ways = ((72, "resident", 2), (200, "mmap", 1), (128, "stream", 2))
    found = {b"".join(v.tobytes() for v in vectors(loaded(tmp_path / "m.gguf", *way), [ids_of(), [7, 9], [5]]))
             for way in ways}  # fmt: skip
    assert len(found) == 1


def test_the_first_row_sees_the_last_one(tmp_path: Path) -> None:
    write("nomic-bert", tmp_path / "m.gguf", 2)
    a, b, again = vectors(loaded(tmp_path / "m.gguf"), [[5, 6, 7, 8], [5, 6, 7, 9], [5, 6, 7, 8]])
    assert far(a, b) > 1e-3 and np.array_equal(a, again)


def test_an_encoder_writes_no_text(tmp_path: Path) -> None:
    write("bert", tmp_path / "m.gguf")
    engine = loaded(tmp_path / "m.gguf")
    words = r"the model is an encoder \(bert\), which makes vectors and no text; send texts to /v1/embeddings"
    for ask in (
        lambda: engine.open([5, 6], Sampling(), 4),
        lambda: list(engine.logit_rows([5, 6])),
        lambda: engine.last_logits([5, 6]),
    ):
        with pytest.raises(InvalidParameter, match=words):
            ask()
    assert engine.info.is_encoder and engine.embed([5, 6]) is not None
    assert engine._m.kv.n_free == engine._m.kv.n_pages
    engine.shutdown()


def test_a_text_that_does_not_go_into_one_step_is_refused(tmp_path: Path) -> None:
    """Rows see what comes behind them, so no chunk of a text can be read alone."""
    write("bert", tmp_path / "m.gguf")
    engine = loaded(tmp_path / "m.gguf", rows=64)
    with pytest.raises(ContextLengthExceeded, match="65 tokens, and this model reads a text in one step, which has 64"):
        engine.embed([5] * 65)
    with pytest.raises(ContextLengthExceeded, match="129 tokens and the model knows 128 positions"):
        engine.embed([5] * 129)
    assert engine.embed([5] * 64) is not None and engine._m.kv.n_free == engine._m.kv.n_pages
    engine.shutdown()


@pytest.mark.parametrize("pooling", [None, 0, 4])
def test_a_file_that_names_no_pooling_makes_no_vectors(pooling: int | None, tmp_path: Path) -> None:
    write("bert", tmp_path / "m.gguf", pooling)
    engine = loaded(tmp_path / "m.gguf")
    what = "its file asks for ranking" if pooling == 4 else "its file names no way of pooling"
    with pytest.raises(InvalidParameter, match=what):
        engine.embed([5, 6])
    engine.shutdown()


@pytest.mark.parametrize(
    ("keys", "without", "error", "words"),
    [
        ({"bert.attention.causal": True}, "", UnsupportedModel, "bert.attention.causal is True"),
        ({"bert.attention.layer_norm_epsilon": None}, "", BadModelFile, "lack bert.attention.layer_norm_epsilon"),
        ({"bert.context_length": 256}, "", BadModelFile, r"position_embd.weight has dimensions \(64, 128\)"),
        ({"bert.attention.max_alibi_bias": 8.0}, "", UnsupportedModel, "max_alibi_bias"),
        ({}, "position_embd.weight", BadModelFile, "position_embd.weight is missing"),
        ({}, "blk.1.ffn_down.bias", BadModelFile, "blk.1.ffn_down.bias is missing"),
    ],
)
def test_files_that_are_not_whole_are_refused(
    keys: dict[str, object], without: str, error: type[Exception], words: str, tmp_path: Path
) -> None:
    write("bert", tmp_path / "m.gguf", changed=keys, without=without)
    with pytest.raises(error, match=words):
        DecoderShape.read(read_gguf(tmp_path / "m.gguf"))
