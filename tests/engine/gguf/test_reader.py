"""Headers as files claim them: the good ones read whole, each damaged one refused in a sentence that helps."""

import os
import struct
import time
from dataclasses import replace
from pathlib import Path

import pytest

from engine.errors import BadModelFile, UnsupportedTensorType
from engine.gguf.layout import quoted
from engine.gguf.reader import read_gguf
from tests import raw_gguf as raw
from tests.raw_gguf import ARR, BOOL, STR, U32, Raw

GOOD = raw.llama()
OUTPUT_BYTES = 64 * 40 * 4


def refusal(data: bytes, path: Path) -> str:
    """What is said about a file with these bytes, in far less than a second."""
    path.write_bytes(data)
    begun = time.process_time()
    with pytest.raises(BadModelFile) as error:
        read_gguf(path)
    assert time.process_time() - begun < 2
    assert str(error.value).startswith(f"'{path.name}': ")
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "m.gguf"


def test_a_whole_file_tells_where_each_tensor_lies(file: Path) -> None:
    gguf = read_gguf(GOOD.write(file))
    assert gguf.version == 3 and gguf.alignment == 32 and gguf.n_bytes == file.stat().st_size
    assert gguf.metadata["llama.block_count"] == 2 and gguf.kinds["llama.block_count"] == "uint32"
    assert gguf.kinds["tokenizer.ggml.tokens"] == "array[string]"
    down = gguf.tensors["blk.1.ffn_down.weight"]
    assert (down.dims, down.k, down.n_rows, down.n_bytes, down.type.name) == ((96, 64), 96, 64, 96 * 64 * 4, "F32")
    assert gguf.tensors["token_embd.weight"].offset == gguf.data_offset


def test_version_2_has_the_same_layout(file: Path) -> None:
    assert read_gguf(replace(GOOD, version=2).write(file)).version == 2


def test_alignment_64_declared_and_used(file: Path) -> None:
    two = (("a", (3,), 0, 0), ("b", (3,), 0, 64))
    one = Raw((("general.alignment", U32, raw.u32(64)),), two, bytes(76), alignment=64)
    gguf = read_gguf(one.write(file))
    assert gguf.data_offset % 64 == 0 and gguf.tensors["b"].offset == gguf.data_offset + 64


def test_without_the_key_the_alignment_is_32(file: Path) -> None:
    assert read_gguf(GOOD.drop("general.alignment").write(file)).alignment == 32


def test_the_last_tensor_needs_no_padding(file: Path) -> None:
    one = Raw((), (("a", (3,), 0, 0),), bytes(12))
    assert read_gguf(one.write(file)).tensors["a"].n_bytes == 12


def test_a_file_without_tensors_is_a_vocabulary(file: Path) -> None:
    assert read_gguf(Raw((("a", U32, raw.u32(1)),)).write(file)).tensors == {}


def test_the_type_is_each_tensors_own(file: Path) -> None:
    mixed = Raw((), (("a", (32, 2), 2, 0), ("b", (32, 2), 3, 64), ("c", (32,), 30, 128)), bytes(192))
    tensors = read_gguf(mixed.write(file)).tensors
    assert [(t.type.name, t.n_bytes) for t in tensors.values()] == [("Q4_0", 36), ("Q4_1", 40), ("BF16", 64)]


def test_text_that_is_not_utf8_survives(file: Path) -> None:
    one = Raw((("a", STR, raw.string(b"\xff\xfe")), ("b", ARR, raw.array(STR, 1, raw.string(b"\xc3")))))
    metadata = read_gguf(one.write(file)).metadata
    assert str(metadata["a"]).encode("utf-8", "surrogateescape") == b"\xff\xfe"
    assert metadata["b"] == ["\udcc3"]


def test_arrays_nest_a_little_and_no_further(file: Path) -> None:
    inner = raw.array(U32, 2, raw.u32(7) * 2)
    one = Raw((("a", ARR, raw.array(ARR, 2, inner * 2)),))
    assert read_gguf(one.write(file)).metadata["a"] == [[7, 7], [7, 7]]
    deep = inner
    for _ in range(2000):
        deep = raw.array(ARR, 1, deep)
    assert "deeper than 4" in refusal(Raw((("a", ARR, deep),)).bytes(), file)


@pytest.mark.parametrize(
    "dims", [(1 << 62, 4), (4398046511105, 4194304), (1 << 62,), (1 << 63, 1), (65536,) * 4, (64, 0), ((1 << 64) - 1,)]
)
def test_dimensions_whose_product_wraps_are_named(file: Path, dims: tuple[int, ...]) -> None:
    words = refusal(GOOD.tensor("token_embd.weight", dims=dims).bytes(), file)
    assert "'token_embd.weight'" in words and str(dims) in words


@pytest.mark.parametrize("offset", [(1 << 64) - 32, 1 << 63])
def test_an_offset_that_wraps_is_damage_not_a_missing_tail(file: Path, offset: int) -> None:
    words = refusal(GOOD.tensor("output.weight", offset=offset).bytes(), file)
    assert "'output.weight'" in words and "damaged" in words and "cut short" not in words


@pytest.mark.parametrize("n_dims", [0, 5, 4_000_000_000])
def test_numbers_of_dimensions_that_cannot_be(file: Path, n_dims: int) -> None:
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + raw.string("q") + raw.u32(n_dims) + bytes(64)
    assert f"'q' has {n_dims} dimensions" in refusal(head, file)


@pytest.mark.parametrize("missing", [1, OUTPUT_BYTES // 2, OUTPUT_BYTES + 1])
def test_a_broken_off_download_tells_how_much_is_there(file: Path, missing: int) -> None:
    whole = GOOD.bytes()
    words = refusal(whole[:-missing], file)
    assert f"ends after {len(whole) - missing:,} of {len(whole):,} bytes" in words and "download it again" in words


@pytest.mark.parametrize("kept", [0, 1, 4, 7, 20, 23, 24, 40, 200, 600, 1500])
def test_a_header_that_broke_off_says_download_again(file: Path, kept: int) -> None:
    assert "download it again" in refusal(GOOD.bytes()[:kept], file)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (U32, raw.u32(0)),
        (U32, raw.u32(3)),
        (U32, raw.u32(24)),
        (U32, raw.u32(1 << 31)),
        (raw.I32, struct.pack("<i", -32)),
        (STR, raw.string("32")),
        (BOOL, b"\x01"),
        (ARR, raw.array(U32, 1, raw.u32(32))),
    ],
)
def test_alignments_nobody_can_align_to(file: Path, kind: int, value: bytes) -> None:
    assert "general.alignment" in refusal(GOOD.put("general.alignment", kind, value).bytes(), file)


def test_an_unaligned_offset(file: Path) -> None:
    assert "no multiple of 32" in refusal(GOOD.tensor("output.weight", offset=16).bytes(), file)


def test_two_tensors_on_the_same_bytes(file: Path) -> None:
    words = refusal(GOOD.tensor("blk.0.attn_q.weight", offset=0).bytes(), file)
    assert "'token_embd.weight'" in words and "'blk.0.attn_q.weight'" in words


def test_a_key_and_a_tensor_that_stand_twice(file: Path) -> None:
    one = ("a", U32, raw.u32(1))
    assert "key 'a' stands twice" in refusal(Raw((one, one)).bytes(), file)
    twice = Raw((), (("w", (8,), 0, 0), ("w", (8,), 0, 32)), bytes(64))
    assert "tensor 'w' stands twice" in refusal(twice.bytes(), file)


@pytest.mark.parametrize("n", [1 << 31, 1 << 40, (1 << 64) - 1])
def test_absurd_counts_are_refused_before_any_allocation(file: Path, n: int) -> None:
    """Among them the file of 49 bytes that keeps other readers busy for ever: one array that claims everything."""
    assert f"{n:,} tensors" in refusal(replace(GOOD, n_tensors=n).bytes(), file)
    assert f"{n:,} metadata entries" in refusal(replace(GOOD, n_entries=n).bytes(), file)
    for kind in (0, U32, STR, ARR):
        short = Raw((("a", ARR, raw.array(kind, n, b"")),)).bytes()[:49]
        assert f"{n:,} items in the value of 'a'" in refusal(short, file)
    assert refusal(Raw((("a", STR, struct.pack("<Q", n)),)).bytes(), file)
    assert refusal(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", n) + bytes(64), file)


def test_counts_just_above_what_the_bytes_allow(file: Path) -> None:
    assert "claims 5 tensors" in refusal(Raw(n_tensors=5, tail=bytes(64)).bytes(), file)
    short = Raw((("a", ARR, raw.array(STR, 9, raw.string("") * 8)),), alignment=1).bytes()
    assert "claims 9 items" in refusal(short, file)


def test_many_nested_empty_arrays_do_not_pile_up(file: Path) -> None:
    """Each empty array takes twelve bytes of the file and far more of the memory."""
    many = raw.array(ARR, 1 << 20, raw.array(0, 0, b"") * (1 << 20))
    assert "over 65,536 arrays" in refusal(Raw((("a", ARR, many),)).bytes(), file)


def test_a_sparse_file_large_enough_for_every_claim(file: Path) -> None:
    """A terabyte of holes costs nothing to make and satisfies each comparison with the file's size."""
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + raw.string("a") + raw.u32(ARR)
    for value, words in (
        (struct.pack("<IQ", 0, 1 << 33), "8,589,934,592 items"),
        (struct.pack("<IQ", STR, 1) + struct.pack("<Q", 1 << 36), "passes 268,435,456 bytes"),
    ):
        with file.open("wb") as out:
            out.write(head + value)
            out.truncate(1 << 40)
        with pytest.raises(BadModelFile, match=words):
            read_gguf(file)


@pytest.mark.parametrize(("kind", "inner"), [(13, None), (255, None), (ARR, 13), (ARR, 4_000_000_000)])
def test_kinds_that_gguf_does_not_know(file: Path, kind: int, inner: int | None) -> None:
    value = bytes(16) if inner is None else raw.array(inner, 0, b"")
    assert f"unknown kind {inner or kind}" in refusal(Raw((("a", kind, value),)).bytes(), file)


def test_a_bool_is_0_or_1(file: Path) -> None:
    assert "bool with value 2" in refusal(Raw((("a", BOOL, b"\x02"),)).bytes(), file)
    assert "bool with value 9" in refusal(Raw((("a", ARR, raw.array(BOOL, 2, b"\x01\x09")),)).bytes(), file)


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (4, "removed in 2023"),
        (5, "removed in 2023"),
        (31, "use a Q4_0 file"),
        (33, "use a Q4_0 file"),
        (40, "NVFP4"),
        (37, "IQ4_NL_4_8"),
        (38, "TL1 of BitNet forks, or IQ4_NL_8_8"),
        (42, "Q2_0"),
        (105, "no known format"),
        (139, "ik_llama.cpp"),
        ((1 << 32) - 1, "no known format"),
    ],
)
def test_a_type_without_kernels_is_named_with_tensor_and_origin(file: Path, number: int, words: str) -> None:
    with pytest.raises(UnsupportedTensorType) as error:
        read_gguf(GOOD.tensor("blk.1.ffn_down.weight", kind=number).write(file))
    assert f"'blk.1.ffn_down.weight': type {number}" in str(error.value) and words in str(error.value)


def test_blocks_must_fill_a_row(file: Path) -> None:
    words = refusal(GOOD.tensor("blk.0.ffn_up.weight", dims=(66, 90), kind=2).bytes(), file)
    assert "66" in words and "Q4_0" in words and "32" in words


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0) + bytes(64), "big-endian"),
        (b"GGUF" + struct.pack("<III", 1, 0, 0), "version 1"),
        (b"GGUF" + struct.pack("<IQQ", 99, 0, 0), "version 99"),
        (b"tjgg" + struct.pack("<I", 3) + bytes(64), "GGJT"),
        (b"lmgg" + bytes(64), "GGML"),
        (bytes(4096), "zeros"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4212345678\n", "LFS pointer"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4212345678\n", "4,212,345,678"),
        (b"<!DOCTYPE html><html><body>sign in</body></html>", "HTML"),
        (b"\n <HTML>", "HTML"),
        (b"\x02\0\0\0\0\0\0\0{}", "safetensors"),
        (b"PK\x03\x04" + bytes(64), "zip"),
        (b'{"error": "not found"}', "JSON"),
        (b"Once upon a time there was a bird.\n" * 40, "a text file"),
        ("Es war einmal ein Vögelchen, ".encode() * 60, "a text file"),
        (b"\x93NUMPY\x01\x00\xff\xfe\x81", "unknown kind"),
        (b"", "empty"),
        (b"GG", "ends after 2 bytes"),
    ],
)
def test_files_of_another_kind_are_recognised(file: Path, head: bytes, words: str) -> None:
    assert words in refusal(head, file)


def test_paths_that_are_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    for path, words in ((tmp_path, "folder"), (tmp_path / "none", "no such file"), (tmp_path / "pipe.gguf", "regular")):
        with pytest.raises(BadModelFile, match=words):
            read_gguf(path)
    with pytest.raises(BadModelFile, match="path"):
        read_gguf("a\0b")
    with pytest.raises(BadModelFile, match="cannot be read"):
        read_gguf(tmp_path / ("x" * 300))


def test_a_name_with_terminal_escapes_is_shown_harmless(file: Path) -> None:
    evil = Raw((), (("\x1b[31mred\x07", (0,), 0, 0),), b"")
    words = refusal(evil.bytes(), file)
    assert "\x1b" not in words and r"\x1b[31mred\x07" in words
    assert quoted("a\nb\udcff" + "c" * 200) == r"'a\nb\udcff" + "c" * 76 + "…'"


def test_a_vocabulary_of_262k_reads_in_a_moment(file: Path) -> None:
    """The gguf package needs 40 s; about 0.4 s here. The guard is wide because the machine may be busy."""
    tokens = raw.strings([f"token{i}" for i in range(262_144)])
    merges = raw.strings([f"a{i} b{i}" for i in range(514_906)])
    one = Raw((("tokenizer.ggml.tokens", ARR, tokens), ("tokenizer.ggml.merges", ARR, merges)))
    one.write(file)
    begun = time.process_time()
    gguf = read_gguf(file)
    assert time.process_time() - begun < 4
    assert len(gguf.metadata["tokenizer.ggml.merges"]) == 514_906  # type: ignore[arg-type]
