"""Experts that lie apart are one tensor for every reader; a file that lacks some is refused. Not here: laying out."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from engine.errors import BadModelFile
from engine.gguf.reader import read_gguf
from engine.gguf.writer import Tensor, write_gguf

Change = Callable[[list[Tensor]], Sequence[Tensor]]
MARK = {"colibri.relayout.version": 1}


def pieces(n: int = 3) -> list[Tensor]:
    dense: Tensor = ("blk.0.ffn_gate.weight", (4, 2), "F32", bytes(32))
    return [dense, *((f"blk.0.ffn_gate.{e}.weight", (4, 2), "F32", bytes([e] * 32)) for e in reversed(range(n)))]


def test_they_are_one_tensor_with_parts_in_order(tmp_path: Path) -> None:
    gguf = read_gguf(write_gguf(tmp_path / "m.gguf", MARK, pieces()))
    assert list(gguf.tensors) == ["blk.0.ffn_gate.weight", "blk.0.ffn_gate_exps.weight"]
    whole = gguf.tensors["blk.0.ffn_gate_exps.weight"]
    assert (whole.dims, whole.n_bytes, whole.n_rows, whole.k) == ((4, 2, 3), 96, 6, 4)
    raw = gguf.path.read_bytes()
    assert [raw[at : at + 32] for at in whole.parts] == [bytes([e] * 32) for e in range(3)]
    assert gguf.tensors["blk.0.ffn_gate.weight"].parts == ()


def test_without_the_mark_names_are_what_they_are(tmp_path: Path) -> None:
    gguf = read_gguf(write_gguf(tmp_path / "m.gguf", {}, pieces()))
    assert "blk.0.ffn_gate.2.weight" in gguf.tensors and "blk.0.ffn_gate_exps.weight" not in gguf.tensors


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: [*t[:2], *t[3:]], "are not numbered from 0 to 1"),
        (lambda t: t[:-1], "are not numbered from 0 to 1"),
        (lambda t: [*t, ("blk.0.ffn_gate.999999.weight", (4, 2), "F32", bytes(32))], "are not numbered from 0 to 3"),
        (lambda t: [*t, ("blk.0.ffn_gate.3.weight", (2, 4), "F32", bytes(32))], "expert 3 .* not a matrix like"),
        (lambda t: [*t, ("blk.0.ffn_gate.3.weight", (4, 2), "F16", bytes(16))], "expert 3 .* not a matrix like"),
        (lambda t: [*t, ("blk.0.ffn_gate.3.weight", (4, 2, 1), "F32", bytes(32))], "expert 3 .* not a matrix like"),
        (lambda t: [*t, ("blk.0.ffn_gate_exps.weight", (4, 2, 3), "F32", bytes(96))], "whole and in parts"),
    ],
)
def test_a_file_that_lacks_some_or_has_others_is_refused(tmp_path: Path, change: Change, words: str) -> None:
    path = write_gguf(tmp_path / "m.gguf", MARK, change(pieces()))
    with pytest.raises(BadModelFile, match=f"^'m.gguf': .*{words}"):
        read_gguf(path)
