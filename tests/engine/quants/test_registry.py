"""The table of types: sizes are the formats' facts, unknown numbers say whose they are. Not here: kernels."""

import pytest

from engine.errors import BadModelFile, UnsupportedTensorType
from engine.quants.registry import TYPES, by_id


@pytest.mark.parametrize(
    ("name", "number", "row_of_64"),
    [
        ("F32", 0, 256), ("F16", 1, 128), ("Q4_0", 2, 36), ("Q4_1", 3, 40), ("Q8_0", 8, 68), ("BF16", 30, 128),
        ("IQ4_NL", 20, 36), ("MXFP4", 39, 34),
    ],
)
def test_bytes_of_a_row(name: str, number: int, row_of_64: int) -> None:
    assert by_id(number) is TYPES[name] and TYPES[name].row_bytes(64) == row_of_64


@pytest.mark.parametrize(
    ("name", "number", "bits"),  # of a weight, as the formats' authors give them
    [("Q2_K", 10, 2.625), ("Q3_K", 11, 3.4375), ("IQ4_XS", 23, 4.25), ("TQ1_0", 34, 1.6875), ("TQ2_0", 35, 2.0625)],
)
def test_bits_of_a_weight(name: str, number: int, bits: float) -> None:
    assert by_id(number) is TYPES[name] and TYPES[name].row_bytes(1024) == bits * 128


@pytest.mark.parametrize("k", [0, -32, 33, 66])
def test_rows_that_blocks_do_not_fill(k: int) -> None:
    with pytest.raises(BadModelFile, match=f"a row of {k} values"):
        TYPES["Q4_0"].row_bytes(k)


def test_an_unknown_number_names_what_is_supported() -> None:
    with pytest.raises(UnsupportedTensorType, match=r"type 38 .TL1 of BitNet forks.* supported are F32, F16"):
        by_id(38)
    with pytest.raises(UnsupportedTensorType, match="type 105, a number of no known format"):
        by_id(105)


def test_a_number_that_forks_use_otherwise_goes_by_the_architecture() -> None:
    assert by_id(39, "gpt-oss").name == by_id(39).name == "MXFP4"
    with pytest.raises(UnsupportedTensorType, match="type 39 in a bitnet file is TL2 of BitNet forks"):
        by_id(39, "bitnet-b1.58")


def test_a_scale_behind_the_whole_tensor_is_counted_once() -> None:
    kind = by_id(36, "bitnet-b1.58")
    assert (kind.name, kind.tensor_bytes(3, 512), kind.row_bytes(512)) == ("I2_S", 3 * 128 + 32, 2 * 68)
    with pytest.raises(BadModelFile, match="a row of 384 values cannot be I2_S"):
        kind.tensor_bytes(3, 384)
