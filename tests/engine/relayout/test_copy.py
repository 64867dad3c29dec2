"""The copy and the way back: each byte where it belongs, the old file again, damage found. Not here: the command."""

import os
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from engine.errors import BadModelFile, UnsupportedModel, UsageError
from engine.gguf.reader import GgufFile, parse_gguf, read_gguf
from engine.gguf.scattered import HEADER
from engine.relayout import copy as copying
from engine.relayout import target
from engine.relayout.back import write_back
from engine.relayout.copy import copy_bytes, write_copy
from engine.relayout.order import ALIGNMENT, PARTS, expert_layers, ordered
from engine.relayout.target import RelayoutFailed
from engine.weights.heat import even_heat
from tests.engine.relayout.moe_file import moe_file
from tests.tiny import tiny_llama

HEAT = [[1, 9, 2, 0, 5], [3, 3, 3, 3, 3], [40, 1, 2, 50, 3]]
ORDER = [(3, (3, 0, 4, 2, 1)), (0, (1, 4, 2, 0, 3)), (1, (0, 1, 2, 3, 4))]


def silent(stage: str, done: int, total: int) -> None:
    assert 0 < done <= total


@pytest.fixture
def source(tmp_path: Path) -> GgufFile:
    return read_gguf(moe_file(tmp_path / "moe.gguf"))


@pytest.fixture
def copied(source: GgufFile, tmp_path: Path) -> GgufFile:
    write_copy(source, [[float(h) for h in row] for row in HEAT], tmp_path / "copy.gguf", silent)
    return as_it_lies(tmp_path / "copy.gguf")


def as_it_lies(path: Path) -> GgufFile:
    """Every tensor by the name it has in the file."""
    with path.open("rb") as file:
        return parse_gguf(path, file, path.stat().st_size)


def data(gguf: GgufFile, name: str) -> bytes:
    info = gguf.tensors[name]
    return gguf.path.read_bytes()[info.offset : info.offset + info.n_bytes]


def test_every_expert_is_one_stretch_in_order_of_heat(source: GgufFile, copied: GgufFile) -> None:
    names = [t.name for t in sorted(copied.tensors.values(), key=lambda t: t.offset)]
    dense = [t.name for t in sorted(source.tensors.values(), key=lambda t: t.offset) if "_exps" not in t.name]
    experts = [f"blk.{i}.ffn_{part}.{e}.weight" for i, order in ORDER for e in order for part in PARTS]
    assert names == [HEADER, *dense, *experts]
    assert all(t.offset % ALIGNMENT == 0 for t in copied.tensors.values())
    for i, order in ORDER:
        for e in order:
            gate, up, down = (copied.tensors[f"blk.{i}.ffn_{part}.{e}.weight"] for part in PARTS)
            assert 0 <= up.offset - gate.offset - gate.n_bytes < ALIGNMENT
            assert 0 <= down.offset - up.offset - up.n_bytes < ALIGNMENT


def test_every_tensor_keeps_its_bytes_type_and_rows(source: GgufFile, copied: GgufFile) -> None:
    for name, info in source.tensors.items():
        if "_exps" not in name:
            assert data(copied, name) == data(source, name)
            assert (copied.tensors[name].dims, copied.tensors[name].type) == (info.dims, info.type)
            continue
        parts = [name.split("_exps")[0] + f".{e}.weight" for e in range(5)]
        assert b"".join(data(copied, part) for part in parts) == data(source, name)
        assert {copied.tensors[part].dims for part in parts} == {info.dims[:2]}
        assert {copied.tensors[part].type for part in parts} == {info.type}


def test_the_copy_keeps_all_that_the_metadata_say(source: GgufFile, copied: GgufFile) -> None:
    kept = {key: value for key, value in copied.metadata.items() if not key.startswith("colibri.relayout.")}
    assert kept == {**source.metadata, "general.alignment": ALIGNMENT}
    assert all(copied.kinds[key] == kind for key, kind in source.kinds.items())


def test_the_size_was_known_before(source: GgufFile, copied: GgufFile) -> None:
    layers = expert_layers(source)
    forecast = copy_bytes(source, ordered(source, layers, even_heat(3, 5)))
    assert copied.n_bytes <= forecast <= copied.n_bytes + 5 * ALIGNMENT


@pytest.mark.parametrize("alignment", [None, 32, 64, 8192])
def test_the_way_back_gives_the_same_bytes(alignment: int | None, tmp_path: Path) -> None:
    more = {} if alignment is None else {"general.alignment": alignment}
    path = moe_file(tmp_path / "moe.gguf", **more)
    write_copy(read_gguf(path), even_heat(3, 5), tmp_path / "copy.gguf", silent)
    write_back(read_gguf(tmp_path / "copy.gguf"), tmp_path / "back.gguf", silent)
    assert (tmp_path / "back.gguf").read_bytes() == path.read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["back.gguf", "copy.gguf", "moe.gguf"]


def test_an_old_version_and_zeros_behind_the_end_come_back_too(tmp_path: Path) -> None:
    path = moe_file(tmp_path / "moe.gguf")
    raw = bytearray(path.read_bytes() + bytes(1000))
    raw[4:8] = struct.pack("<I", 2)
    path.write_bytes(raw)
    write_copy(read_gguf(path), even_heat(3, 5), tmp_path / "copy.gguf", silent)
    write_back(read_gguf(tmp_path / "copy.gguf"), tmp_path / "back.gguf", silent)
    assert (tmp_path / "back.gguf").read_bytes() == raw


def test_bytes_that_belong_to_no_tensor_are_refused(source: GgufFile, tmp_path: Path) -> None:
    ends = [t.offset + t.n_bytes for t in source.tensors.values()]
    gap = next(end for end in ends if end % 32 and end < source.n_bytes)
    with source.path.open("r+b") as file:
        file.seek(gap)
        file.write(b"!")
    with pytest.raises(BadModelFile, match="belong to none"):
        write_copy(source, even_heat(3, 5), tmp_path / "copy.gguf", silent)
    assert os.listdir(tmp_path) == ["moe.gguf"]


def test_a_copy_that_reads_otherwise_than_the_file_is_not_kept(
    source: GgufFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between writing and reading again one bit changes, as on an ill disk."""

    def ill(path: Path) -> None:
        info = as_it_lies(path).tensors["blk.1.ffn_up.3.weight"]
        with path.open("r+b") as file:
            file.seek(info.offset + 77)
            byte = file.read(1)[0]
            file.seek(info.offset + 77)
            file.write(bytes([byte ^ 4]))

    monkeypatch.setattr(copying, "settled", ill)
    with pytest.raises(RelayoutFailed, match=r"'blk.1.ffn_up_exps.weight' reads otherwise"):
        write_copy(source, even_heat(3, 5), tmp_path / "copy.gguf", silent)
    assert os.listdir(tmp_path) == ["moe.gguf"]


@pytest.mark.parametrize("place", ["token_embd.weight", "blk.3.ffn_down.4.weight", HEADER])
def test_a_damaged_copy_gives_nothing_back(copied: GgufFile, tmp_path: Path, place: str) -> None:
    with copied.path.open("r+b") as file:
        file.seek(copied.tensors[place].offset + 200)
        file.write(b"\xff\x00\xff\x01")
    with pytest.raises((RelayoutFailed, BadModelFile), match="damaged"):
        write_back(read_gguf(copied.path), tmp_path / "back.gguf", silent)
    assert sorted(os.listdir(tmp_path)) == ["copy.gguf", "moe.gguf"]


@pytest.mark.parametrize(
    ("key", "value"), [("bytes", 1 << 50), ("bytes", 3), ("header_bytes", 1 << 40), ("header_bytes", 0), ("version", 2)]
)
def test_numbers_that_cannot_be_are_refused(copied: GgufFile, tmp_path: Path, key: str, value: int) -> None:
    copy = read_gguf(copied.path)
    changed = replace(copy, metadata={**copy.metadata, f"colibri.relayout.{key}": value})
    with pytest.raises(BadModelFile):
        write_back(changed, tmp_path / "back.gguf", silent)
    assert not (tmp_path / "back.gguf").exists()


def test_what_cannot_be_laid_out_is_told(copied: GgufFile, source: GgufFile, tmp_path: Path) -> None:
    dense = read_gguf(tiny_llama(tmp_path / "dense.gguf"))
    with pytest.raises(UnsupportedModel, match="no experts"):
        expert_layers(dense)
    with pytest.raises(UsageError, match="laid out anew before"):
        write_copy(copied, even_heat(3, 5), tmp_path / "again.gguf", silent)
    with pytest.raises(BadModelFile, match="not laid out by colibri relayout"):
        write_back(source, tmp_path / "again.gguf", silent)
    with pytest.raises(UsageError, match=r"'copy\.gguf' is there already"):
        write_copy(source, even_heat(3, 5), copied.path, silent)
    with pytest.raises(UsageError, match="cannot be written: no such file"):
        write_copy(source, even_heat(3, 5), tmp_path / "nowhere" / "copy.gguf", silent)


def test_a_disk_without_room_is_told_before_anything_is_read(
    source: GgufFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = target.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(target.shutil, "disk_usage", lambda path: usage._replace(free=1000))
    source.path.unlink()
    with pytest.raises(RelayoutFailed, match="the disk has 1,000 left"):
        write_copy(source, even_heat(3, 5), tmp_path / "copy.gguf", silent)


def test_a_file_that_is_cut_while_it_is_read_is_told(source: GgufFile, tmp_path: Path) -> None:
    os.truncate(source.path, source.n_bytes - 5000)
    with pytest.raises(BadModelFile, match="became shorter while it was read"):
        write_copy(source, even_heat(3, 5), tmp_path / "copy.gguf", silent)
    assert os.listdir(tmp_path) == ["moe.gguf"]


def test_somebody_elses_file_of_the_name_that_came_meanwhile_is_not_replaced(
    source: GgufFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "settled", lambda path: (tmp_path / "copy.gguf").write_text("mine"))
    with pytest.raises(UsageError, match="is there already"):
        write_copy(source, even_heat(3, 5), tmp_path / "copy.gguf", silent)
    assert (tmp_path / "copy.gguf").read_text() == "mine"
    assert sorted(os.listdir(tmp_path)) == ["copy.gguf", "moe.gguf"]
