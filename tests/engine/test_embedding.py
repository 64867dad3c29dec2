"""Vectors of texts: against transformers' last layer, the same bits by any chunks, and models that make none.

transformers' normalised rows follow from its stored logits: there are more logits than a row has values, so the row
that the output matrix turns into them is the only one. Not here: the route (tests/appliance/api/test_embeddings.py).
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.budget import Machine
from engine.errors import BadModelFile, ContextLengthExceeded, InvalidParameter
from engine.generate import Engine
from engine.gguf.reader import read_gguf
from engine.load import EngineOptions, load_engine
from tests.families import FAMILIES
from tests.families.convert import draw_checkpoint, write_family
from tests.families.stored import Truth, ids_of, load
from tests.tiny import tensor_f32

MACHINE = Machine(1 << 34, None, 2, (0, 1), None)
POOLINGS = {1: "mean", 2: "cls", 3: "last"}


def made(path: Path, pooling: int | None, name: str = "qwen3") -> Truth:
    """A row's file that names a pooling."""
    truth, row = load(name), FAMILIES[name]
    keys = {**row.keys} | ({} if pooling is None else {"pooling_type": pooling})
    write_family(path, replace(row, keys=keys), draw_checkpoint(row, truth.shapes))
    return truth


def loaded(path: Path, rows: int = 64, mode: str = "resident") -> Engine:
    options = EngineOptions(256, 2, 2, ubatch_size=rows, type_k="f32", type_v="f32", load_mode=mode, spec_type="none")
    return load_engine(path, options, MACHINE)


def rows_of(path: Path, truth: Truth) -> np.ndarray:
    """transformers' rows behind the last norm, (ids, n_embd)."""
    output = tensor_f32(read_gguf(path), "token_embd.weight").astype(np.float64)  # the row's output is tied
    every_other = [(output[i % 2 :: 2], logits.astype(np.float64)) for i, logits in enumerate(truth.logits)]
    return np.array([np.linalg.lstsq(some, logits, rcond=None)[0] for some, logits in every_other])


@pytest.mark.parametrize("pooling", POOLINGS)
def test_a_text_has_the_vector_of_transformers_rows(pooling: int, tmp_path: Path) -> None:
    truth = made(tmp_path / "m.gguf", pooling)
    rows = rows_of(tmp_path / "m.gguf", truth)
    wanted = {1: rows.mean(axis=0), 2: rows[0], 3: rows[-1]}[pooling]
    wanted /= np.linalg.norm(wanted)
    engine = loaded(tmp_path / "m.gguf")
    assert engine.info.pooling == POOLINGS[pooling]
    found = engine.embed(ids_of())
    assert found is not None and found.dtype == np.float32
    assert np.abs(found - wanted).max() < 1e-3 * np.abs(wanted).max()
    assert np.linalg.norm(found) == pytest.approx(1.0, abs=1e-6)
    engine.shutdown()


@pytest.mark.parametrize("pooling", [1, 3])
def test_chunks_and_load_modes_change_no_bit(pooling: int, tmp_path: Path) -> None:
    made(tmp_path / "m.gguf", pooling)
    found = set()
    for rows, mode in ((64, "resident"), (7, "mmap"), (1, "resident"), (64, "stream")):
        engine = loaded(tmp_path / "m.gguf", rows, mode)
        vector = engine.embed(ids_of())
        assert vector is not None
        found.add(vector.tobytes())
        engine.shutdown()
    assert len(found) == 1


def test_a_model_that_names_no_pooling_makes_no_vectors(tmp_path: Path) -> None:
    for pooling, name in ((None, "qwen3"), (0, "qwen3"), (4, "qwen3"), (1, "cohere2")):
        made(tmp_path / "m.gguf", pooling, name)
        engine = loaded(tmp_path / "m.gguf")
        with pytest.raises(InvalidParameter, match=r"its file (names no way of pooling|asks for ranking)"):
            engine.embed([1, 2, 3])
        assert engine.info.pooling == ""
        engine.shutdown()


def test_what_is_too_long_or_unwanted_leaves_nothing_behind(tmp_path: Path) -> None:
    made(tmp_path / "m.gguf", 3)
    engine = loaded(tmp_path / "m.gguf", 8)
    with pytest.raises(ContextLengthExceeded, match="the text has 257 tokens and the context holds 256"):
        engine.embed([5] * 257)
    with pytest.raises(InvalidParameter, match="no tokens"):
        engine.embed([])
    asked = iter([False, False, True])
    assert engine.embed(ids_of(), lambda: next(asked)) is None
    assert engine._m.kv.n_free == engine._m.kv.n_pages and not engine._m.kv.sequences
    again, whole = engine.embed(ids_of()), engine.embed([5] * 256)
    assert again is not None and whole is not None
    engine.shutdown()


@pytest.mark.parametrize("pooling", [5, -1, True, 1.0])
def test_an_unknown_way_of_pooling_is_refused_at_the_start(pooling: object, tmp_path: Path) -> None:
    made(tmp_path / "m.gguf", pooling)  # type: ignore[arg-type]
    with pytest.raises(BadModelFile, match="pooling_type is"):
        loaded(tmp_path / "m.gguf")
