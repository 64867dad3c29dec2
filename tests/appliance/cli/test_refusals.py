"""Files that a user drops in and that must be refused by `colibri run`: one sentence each, that names what is wrong."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from engine.errors import BadModelFile
from engine.gguf.reader import GgufFile, read_gguf
from engine.gguf.writer import Tensor, write_gguf
from tests.appliance.cli.shell import inside
from tests.blocks import quantise
from tests.tiny import tiny_llama


def metadata(**keys: object) -> Callable[[Path], Path]:
    return lambda path: tiny_llama(path, **keys)  # type: ignore[arg-type]


def tensors(change: Callable[[list[Tensor]], list[Tensor]]) -> Callable[[Path], Path]:
    """The tiny model with its tensors changed."""

    def make(path: Path) -> Path:
        whole = read_gguf(tiny_llama(path))
        return write_gguf(path, whole.metadata, change(list(_tensors(whole))), whole.kinds)

    return make


def _tensors(gguf: GgufFile) -> list[Tensor]:
    data = gguf.path.read_bytes()
    return [(t.name, t.dims, t.type.name, data[t.offset : t.offset + t.n_bytes]) for t in gguf.tensors.values()]


def of_type(number: int) -> Callable[[Path], Path]:
    """The tiny model with another type number at its first matrix."""

    def make(path: Path) -> Path:
        data = tiny_llama(path).read_bytes()
        at = data.index(b"token_embd.weight") + len("token_embd.weight") + 4 + 2 * 8
        path.write_bytes(data[:at] + number.to_bytes(4, "little") + data[at + 4 :])
        return path

    return make


EXTRA = ("blk.0.attn_q.scale", (128,), "F32", quantise(np.ones(128), "F32"))
FILES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "architecture": (metadata(**{"general.architecture": "mamba"}), "the architecture 'mamba' is not supported"),
    "pre-tokenizer": (metadata(**{"tokenizer.ggml.pre": "klingon"}), "(tokenizer.ggml.pre) is 'klingon'"),
    "rope scaling": (
        metadata(**{"llama.rope.scaling.type": "dynamic", "llama.rope.scaling.factor": 4.0}),
        "llama.rope.scaling.type 'dynamic' is not supported",
    ),
    "quant type": (of_type(137), "tensor 'token_embd.weight': type 137 (IQ2_K of ik_llama.cpp) is not supported"),
    "quant type of nobody": (of_type(9999), "type 9999, a number of no known format, is not supported"),
    "missing tensor": (
        tensors(lambda all_: [t for t in all_ if t[0] != "blk.1.ffn_up.weight"]),
        "the tensor blk.1.ffn_up.weight is missing",
    ),
    "unclaimed tensor": (
        tensors(lambda all_: [*all_, EXTRA]),
        "1 tensors belong to no known part of this architecture ('blk.0.attn_q.scale')",
    ),
    "fewer words than rows": (
        metadata(**{"tokenizer.ggml.tokens": ["a", "b"], "tokenizer.ggml.token_type": None}),
        "tokenizer.ggml.tokens has 2 entries; the token embedding has 320 rows",
    ),
    "vocabulary size": (metadata(**{"llama.vocab_size": 319}), "llama.vocab_size is 319; the token embedding has 320"),
    "a key that changes the maths": (metadata(**{"llama.logit_scale": 0.5}), "llama.logit_scale is 0.5"),
    "a key of tomorrow": (metadata(**{"llama.attention.twist": 2}), "'llama.attention.twist' (= 2) is not known here"),
}


@pytest.mark.parametrize("what", FILES)
def test_it_is_refused_by_name_in_one_sentence(what: str, tmp_path: Path) -> None:
    make, words = FILES[what]
    done = inside("run", "-m", str(make(tmp_path / "m.gguf")), "-p", "hello", "-n", "1")
    assert done.code == BadModelFile.exit_code and done.out == ""
    assert words in done.err and done.err.count("\n") == 1
